"""tools/netbench.py: what a run costs, from what Takt's shell has answered, and what is too much.
"""
import json

import netbench


def answers(looks):
    """Returns what the machine prints, if the VMs and the pCPU have used so much at each look."""
    text = ""
    for n, (iodom, sink, guest, takt) in enumerate(looks):
        for tag, result in (("list", [{"vm": "iodom", "running_ns": iodom},
                                      {"vm": "sink", "running_ns": sink}]),
                            ("pcpus", [{"guest_ns": guest, "hv_ns": takt}])):
            envelope = {"id": f"{tag}{n}", "error": 0, "result": result}
            text += "\x1e" + json.dumps(envelope) + "\n"
    return text


def test_what_a_start_costs_does_not_count():
    row = netbench.ROWS["frames"]._replace(short=10, long=110)
    # 1,000 of each for the start, then 2, 3 and 4 for each of 32 frames of a batch.
    looks = [(0, 0, 0, 0)]
    for batches in (10, 110):
        used = [1000 + 32 * batches * n for n in (2, 3, 8, 1)]
        looks.append(tuple(a + b for a, b in zip(looks[-1], used)))
    assert netbench.each_of(row, answers(looks)) == {
        "source": 4, "driver domain": 2, "sink": 3, "total": 9, "Takt": 1}


def test_limits(capsys):
    found = {name: dict.fromkeys(netbench.COLUMNS, row.most)
             for name, row in netbench.ROWS.items()}
    assert netbench.over(found) == []
    found["offload"]["total"] += 1
    assert netbench.over(found) == ["net offload"]
    netbench.show(found)
    assert str(netbench.ROWS["offload"].most + 1) in capsys.readouterr().out


def test_all_devices_of_a_row_have_its_options():
    assert netbench.config_of(netbench.ROWS["offload"]).count("net = iodom offload=yes") == 3
    assert "offload" not in netbench.config_of(netbench.ROWS["stream"])
