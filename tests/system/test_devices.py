"""Front ends and back ends that come and go in every order, while the one writes into the other's RAM, leave no page behind."""
import json
import re

import pytest
from machine import Machine

from system.takt import make_iso, place

CONFIG = """\
[hypervisor]
top = no
guest_console = log
script = devices.script

[vm back]
image = test-dev_front_ends
cmdline = "vm=2 forever"
memory = 4M
start = no

[vm front]
image = test-dev_front_ends
cmdline = "vm=1 forever"
memory = 6M
net = back some options
start = no
"""


def one_round(ms):
    """The back end is there at its beginning and at its end; each step has that many ms, in which the two come together."""
    return ["+0ms create front", f"+{ms}ms destroy front",  # the back end goes on
            "+0ms create front", f"+{ms}ms devices -j=runs", "+0ms destroy back", "+0ms devices -j=waits",
            "+0ms create back", f"+{ms}ms devices -j=broken",  # its driver has not looked yet
            "+0ms destroy front", "+0ms create front", f"+{ms}ms destroy back", "+0ms destroy front",
            "+0ms create back", f"+{ms}ms list"]


@pytest.mark.parametrize("emulator", ["qemu", "bochs"])
def test_no_page_is_left(emulator):
    rounds, ms = (3, 60) if emulator == "bochs" else (5, 200)
    script = ["@300ms create back"] + one_round(ms) + ["+0ms info -j=start"] + one_round(ms) * rounds
    script += ["+0ms info -j=end", "+0ms poweroff"]
    directory = place(f"devices-{emulator}")
    iso = make_iso(directory, CONFIG, modules={"devices.script": "\n".join(script) + "\n"})
    with Machine(emulator, iso, cpus=2, directory=directory) as machine:
        how, _ = machine.wait(timeout=300)
        text = machine.serial()
    assert how == "ended", f"{how}: {text[-1000:]}"
    assert not re.search("PANIC|crashed|create: |destroy: ", text), f"see {directory}/serial.txt"
    answers = [json.loads(m[1]) for m in re.finditer("\x1e(\\{.*\\})\n", text)]
    start, end = [a["result"] for a in answers if a["command"] == "info"]
    assert end["free_frames"] == start["free_frames"]
    assert end["heap_bytes"] == start["heap_bytes"]
    seen = [a for a in answers if a["command"] == "devices"]
    assert len(seen) == 3 * (rounds + 1)
    if emulator == "qemu":
        return  # how far the two get in their time is up to the host
    assert not re.search("wrong:|RESULT", text), f"see {directory}/serial.txt"
    for a in seen:
        device, = a["result"]
        assert device["state"] == a["id"], device
        assert (device["vm"], device["number"], device["type"], device["back"]) == ("front", 0, "net", "back")
        if a["id"] == "runs":
            assert device["queues"] == 1 and device["notifies"] == 1 and device["interrupts"] == 1
