"""A VM with event channels live, created and destroyed ten thousand times, leaves no page behind. On QEMU, driven by a script."""
import json
import re

import pytest
from machine import Machine

from system.takt import make_iso, place

CONFIG = """\
[hypervisor]
top = no
loglvl = warning
script = soak.script

[vm bystander]
image = spin
memory = 2M
cpus = 1

[vm mayfly]
image = hostile
cmdline = mode=ports
memory = 2M
start = no
"""


def soak(rounds, timeout):
    """[info after each tenth of the rounds]"""
    script = ["@300ms create mayfly", "+5ms destroy mayfly", "+0ms info -j=start"]
    for i in range(1, 11):
        # some live long enough to have their ports, most die young
        script += ["+0ms create mayfly", "+20ms destroy mayfly"] + ["+0ms create mayfly", "+0ms destroy mayfly"] * (rounds // 10)
        script.append(f"+0ms info -j=at{i}")
    script.append("+0ms poweroff")
    directory = place(f"soak-{rounds}")
    iso = make_iso(directory, CONFIG, modules={"soak.script": "\n".join(script) + "\n"})
    with Machine("qemu", iso, directory=directory) as machine:
        how, _ = machine.wait(timeout=timeout)
        text = machine.serial()
    assert how == "ended", f"{how}: {text[-1000:]}"
    answers = [json.loads(m[1]) for m in re.finditer("\x1e(\\{.*\\})\n", text)]
    assert "PANIC" not in text
    assert not re.search(r"create: |destroy: ", text), "a command failed"
    return [a["result"] for a in answers if a["command"] == "info"]


def check(rounds, timeout):
    infos = soak(rounds, timeout)
    assert len(infos) == 11
    assert {i["free_frames"] for i in infos} == {infos[0]["free_frames"]}
    assert {i["heap_bytes"] for i in infos} == {infos[0]["heap_bytes"]}


def test_hundred_lives():
    check(100, 120)


@pytest.mark.long
def test_ten_thousand_lives():
    check(10000, 4000)
