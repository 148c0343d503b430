"""A VM with event channels that are in use, created and destroyed ten thousand times, leaves no
page behind. This runs on QEMU, driven by a script."""
import pytest

from system.takt import Boot

CONFIG = """\
[hypervisor]
top = no
loglvl = warning
script = script

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
    """Returns [info after each tenth of the rounds]."""
    script = ["@300ms create mayfly", "+5ms destroy mayfly", "+0ms info -j=start"]
    for i in range(1, 11):
        # Some VMs live long enough to have their ports, but most end soon.
        script += ["+0ms create mayfly", "+20ms destroy mayfly"] + [
            "+0ms create mayfly",
            "+0ms destroy mayfly",
        ] * (rounds // 10)
        script.append(f"+0ms info -j=at{i}")
    script.append("+0ms poweroff")
    boot = Boot(f"soak-{rounds}", CONFIG, script, "qemu", timeout)
    assert not boot.said("PANIC")
    assert not boot.said("create: |destroy: "), "a command failed"
    return [a["result"] for a in boot.answers if a["command"] == "info"]


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
