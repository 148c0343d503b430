"""tools/iobench.py: to which stage every instruction of a round belongs."""
import pytest

import iobench

HEAD = "[ 1.0] {}: STAMPS {} pair 0 base {}\n[ 1.0] {}: STAMPS {}\n[ 1.0] {}: STAMPS end\n"


def printed(vm, base, events):
    """Returns what a guest with stamps prints for [(letter, time by its own clock)]."""
    last, tokens = 0, []
    for letter, at in events:
        tokens.append(f"{letter}{'-' if at < last else ''}{abs(at - last):x}")
        last = at
    return HEAD.format(vm, len(events), base, vm, " ".join(tokens), vm)


SINK = [("A", 0), ("I", 300), ("N", 320), ("R", 330), ("P", 350), ("p", 400), ("r", 410),
        ("n", 425), ("i", 430), ("<", 450),
        (">", 480), ("a", 481), ("w", 250)]
BACK = [("t", 5), ("Z", 50), ("T", 100), ("<", 120), (">", 140), ("Q", 190), ("Z", 220)]


def test_frame():
    """From the moment when the back end takes the frame, each stage lasts from its stamp to the
    next one, in one time for both VMs."""
    text = printed("sink", 1000, SINK) + printed("iodom", 1050, BACK)
    stages = iobench.stages_of(text, ["a"])["frame"]["1"]
    want = {"back end": 20 + 50, "bridge copy": 20, "notify": 10, "inject": 50,
            "driver": 20 + 10 + 15, "IP": 20 + 10, "TCP": 50,
            "socket": 5 + 20 + 1, "copy": 30, "total": 331}
    assert {k: n for k, n in stages.items() if n} == want


def test_a_disk_request():
    sink = [("C", 0), ("Q", 30), ("q", 60), ("I", 300), ("c", 350), ("w", 250)]
    back = [("z", 100), ("T", 110), ("<", 120), (">", 170), ("Q", 200), ("Z", 260)]
    stages = iobench.stages_of(printed("sink", 0, sink) + printed("iodom", 0, back), ["c"])[
        "write"
    ]["1"]
    want = {"driver": 30 + 50, "to back end": 80, "back end": 10 + 30, "bridge copy": 50,
            "notify": 50, "inject": 50, "total": 350}
    assert {k: n for k, n in stages.items() if n} == want


def test_a_stamp_costs(monkeypatch):
    """Half of the cost of a pair of stamps is taken off each interval."""
    text = (printed("sink", 1000, SINK) + printed("iodom", 1050, BACK)).replace("pair 0", "pair 8")
    assert iobench.stages_of(text, ["a"])["frame"]["1"]["IP"] == 30 - 2 * 4


def test_what_is_missing():
    text = printed("sink", 1000, SINK) + printed("iodom", 1050, BACK)
    with pytest.raises(LookupError):
        iobench.stages_of(text, ["a", "b"])
    with pytest.raises(LookupError):
        iobench.stages_of(text.replace("STAMPS 13", "STAMPS 14"), ["a"])
    with pytest.raises(LookupError):
        iobench.stages_of(printed("sink", 1000, SINK), ["a"])
