"""Guests that compute for a part of the time get that part over time, as in the simulation. On
Bochs."""
import pytest

from system.takt import Boot

pytestmark = pytest.mark.bochs

CONFIG = "[hypervisor]\nsched_preset = faithful-4.2\nscript = script\n" + "".join(
    f"\n[vm {name}]\nimage = busy\nmemory = 2M\ncmdline = percent=40\n" for name in "abcd")


def test_four_that_want_more_than_there_is_get_equal_parts():
    """A VM that missed something makes up for it: no VM gets less because it asks at an unlucky
    time."""
    script = "@500ms top -j=duty -w 0.5 -d 3\n+10ms poweroff\n"
    boot = Boot("duty", CONFIG, script, "bochs", timeout=300, cpus=1)
    shares = {v["vm"]: v["cpu_pct"] for v in boot.results["duty"]["vcpus"]}
    assert len(shares) == 4
    for share in shares.values():
        assert share == pytest.approx(25, abs=2), shares  # A slice is a point.
