"""tools/netexp.py: the VM files of its set-ups, and what it makes of the guests' words."""
import json
import os
import subprocess

import netexp
import pytest

from conftest import BUILD

ACKS = "server: iperf: acks early=7 bottom_half=1 process=2 timer=0 suppressed=0 backlog=9 backlog_most=5\n"
BRIDGE = "iodom: iodom: server.0: in=1 out=2 ring_full=33 queue_full=2 irqs=4\n"


def test_read():
    udp = "server: iperf: udp 500000 bytes in 1000000000 ns, 4.00 Mb/s, 35 of 350 datagrams lost, 0 out of order, jitter 1 ns\n"
    source = "source: load: udp 350 datagrams of 1470 bytes in 1250000000 ns\n"
    assert netexp.read("udp", source + udp + ACKS + BRIDGE) == {
        "goodput_mbps": 3.2, "ring_drops": 33, "queue_drops": 2, "sent": 350, "lost": 35}
    with pytest.raises(LookupError, match="source"):
        netexp.read("udp", udp + ACKS + BRIDGE)
    tcp = "server: iperf: tcp 1000000 bytes in 4000000000 ns, 2.00 Mb/s, 0 wrong, end 0\n"
    for experiment in ("tcp", "light"):
        assert netexp.read(experiment, tcp + ACKS + BRIDGE) == {
            "goodput_mbps": 2.0, "ring_drops": 33, "queue_drops": 2, "early_acks": 7, "backlog_segments": 9, "backlog_most": 5}


def test_summarise():
    runs = [{"experiment": "udp", "setup": "credit", "vms": 4, "seed": n, "goodput_mbps": 6.0 + n} for n in (1, 2, 3)]
    row = netexp.summarise(runs)
    assert (row["setup"], row["vms"], row["runs"], row["goodput_mbps"]["mean"]) == ("credit", 4, 3, 8.0)
    assert row["goodput_mbps"]["ci95"] == pytest.approx(2.484, abs=1e-3) and "seed" not in row
    assert "8.00 ±2.48" in netexp.table([row])[1]


@pytest.mark.parametrize("experiment, setup, vms",
                         [(e, s, n) for e, setups in netexp.SETUPS.items() for s in setups for n in netexp.VMS[e]])
def test_vm_files(experiment, setup, vms, tmp_path):
    """So many VMs share the core, a turbo core is there as the name says, and with another seed the traffic begins at another time."""
    files = [tmp_path / f"{seed}.cfg" for seed in (1, 2)]
    found = []
    for seed, path in enumerate(files, 1):
        path.write_text(netexp.text_of(experiment, setup, vms, seed))
        done = subprocess.run([os.path.join(BUILD, "cfgdump"), path], capture_output=True, text=True, check=True)
        found.append({vm["name"]: vm for vm in json.loads(done.stdout)["vms"]})
    assert sum(vm["pool"] == "core" for vm in found[0].values()) == vms
    assert found[0]["server"]["turbo"] == ("turbo" in setup)
    assert ("early_ack=1" in found[0]["server"]["cmdline"]) == ("early_ack" in setup)
    assert found[0]["source"]["cmdline"] != found[1]["source"]["cmdline"]
    assert found[0]["server"] == found[1]["server"]
