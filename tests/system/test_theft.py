"""Theft of service, with a real guest: it sleeps over the ticks, and what it gets depends on who is charged. On Bochs."""
import json
import os
import re

import pytest
from machine import Machine

from system.takt import make_iso, place

CONFIG = """\
[hypervisor]
sched_preset = {preset}
top = no
script = theft.script

[vm evader]
image = evader
memory = 2M
cpus = 1

[vm victim]
image = spin
memory = 2M
cpus = 1
"""


@pytest.mark.parametrize("preset, least, most", [
    ("hardened", 0, 51),
    pytest.param("faithful-3.4", 90, 100, marks=pytest.mark.long),
    pytest.param("faithful-4.1", 90, 100, marks=pytest.mark.long),
    pytest.param("faithful-4.2", 80, 100, marks=pytest.mark.long),
])
def test_evader(preset, least, most):
    directory = place(f"theft-{preset}")
    iso = make_iso(directory, CONFIG.format(preset=preset),
                   modules={"theft.script": "@500ms top -j=theft -w 0.1 -d 1\n+10ms poweroff\n"})
    with Machine("bochs", iso, directory=directory) as machine:
        how, _ = machine.wait(timeout=300)
        text = machine.serial()
    log = os.path.join(directory, "serial.txt")
    assert how == "ended", f"{how}: see {log}"
    answers = [json.loads(m[1]) for m in re.finditer("\x1e(\\{.*\\})\n", text)]
    result = next((a["result"] for a in answers if a["id"] == "theft"), None)
    assert result, f"no measurement: see {log}"
    shares = {v["vm"]: v["cpu_pct"] for v in result["vcpus"]}
    assert least <= shares["evader"] <= most, shares
    assert sum(shares.values()) > 99, shares
