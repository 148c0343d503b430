"""Theft of service, with a real guest: it sleeps over the ticks, and what it gets depends on who is charged. On Bochs."""
import json
import os
import re

import pytest
from machine import Machine

from system.takt import make_iso, place

pytestmark = pytest.mark.bochs

CONFIG = """\
[hypervisor]
sched_preset = {preset}
top = no
script = theft.script

[vm evader]
image = evader
memory = 2M
cpus = {cpus}
{evader}

[vm victim]
image = spin
memory = 2M
cpus = {cpus}
{victim}
{pools}
"""
TURBO = "\n[pool fast]\ncpus = 1\nturbo_of = Pool-0\n"


def measure(name, seconds=1, **keys):
    """{"VM/vCPU": percent of a pCPU}. In a second a vCPU may be a slice or two before or behind."""
    directory = place(f"theft-{name}")
    keys = {"cpus": 1, "evader": "", "victim": "", "pools": "", **keys}
    script = f"@500ms top -j=theft -w 0.1 -d {seconds}\n+10ms poweroff\n"
    iso = make_iso(directory, CONFIG.format(**keys), modules={"theft.script": script})
    with Machine("bochs", iso, directory=directory) as machine:
        how, _ = machine.wait(timeout=300)
        text = machine.serial()
    log = os.path.join(directory, "serial.txt")
    assert how == "ended", f"{how}: see {log}"
    answers = [json.loads(m[1]) for m in re.finditer("\x1e(\\{.*\\})\n", text)]
    result = next((a["result"] for a in answers if a["id"] == "theft"), None)
    assert result, f"no measurement: see {log}"
    return {f"{v['vm']}/{v['vcpu']}": v["cpu_pct"] for v in result["vcpus"]}


@pytest.mark.parametrize("preset, least, most", [
    ("hardened", 0, 51),
    pytest.param("faithful-3.4", 90, 100, marks=pytest.mark.long),
    pytest.param("faithful-4.1", 90, 100, marks=pytest.mark.long),
    pytest.param("faithful-4.2", 80, 100, marks=pytest.mark.long),
])
def test_evader(preset, least, most):
    shares = measure(preset, preset=preset)
    assert least <= shares["evader/0"] <= most, shares
    assert sum(shares.values()) > 99, shares


@pytest.mark.long
@pytest.mark.parametrize("preset, evader", [
    ("vslicer", "micro_us = 5000"),  # it says that it is latency-sensitive
    ("sc+aca", "io = io"),           # it says that it is I/O-intensive; the victim consents to nothing
    ("anticipatory", ""),
])
def test_evader_under_a_policy(preset, evader):
    shares = measure(preset, 10, preset=preset, evader=evader)
    assert shares["evader/0"] <= 51, shares
    assert sum(shares.values()) > 99, shares


@pytest.mark.long
def test_evader_on_a_turbo_core():
    """It sleeps over the ticks of the turbo core, where the other computes as well: half of that is its share."""
    shares = measure("vturbo", preset="hardened", cpus=0, pools=TURBO,
                     evader="turbo = yes\ncmdline = tick_us=100 lead_us=10 nap_us=20",
                     victim="turbo = yes")
    assert shares["evader/0"] + shares["evader/1"] <= 51, shares
    assert sum(shares.values()) > 198, shares
