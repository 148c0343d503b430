"""Theft of service with a real guest on Bochs. The guest sleeps over the ticks, and what it gets
depends on which vCPU is charged."""
import pytest

from system.takt import Boot

pytestmark = pytest.mark.bochs

CONFIG = """\
[hypervisor]
sched_preset = {preset}
top = no
script = script

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
    """Returns {"VM/vCPU": per cent of a pCPU}. In a second a vCPU may be a slice or two before or
    behind its share."""
    keys = {"cpus": 1, "evader": "", "victim": "", "pools": "", **keys}
    script = f"@500ms top -j=theft -w 0.1 -d {seconds}\n+10ms poweroff\n"
    boot = Boot(f"theft-{name}", CONFIG.format(**keys), script, "bochs", timeout=300)
    return {f"{v['vm']}/{v['vcpu']}": v["cpu_pct"] for v in boot.results["theft"]["vcpus"]}


@pytest.mark.parametrize("preset, least, most", [
    ("hardened", 0, 51),
    pytest.param("faithful-3.4", 90, 100, marks=pytest.mark.long),
    pytest.param("faithful-4.1", 90, 100, marks=pytest.mark.long),
    pytest.param("faithful-4.2", 80, 100, marks=pytest.mark.long),
])
def test_evader(preset, least, most):
    shares = measure(preset, 2, preset=preset)
    assert least <= shares["evader/0"] <= most, shares
    assert sum(shares.values()) > 99, shares


@pytest.mark.long
@pytest.mark.parametrize("preset, evader", [
    ("vslicer", "micro_us = 5000"),  # The guest claims to be latency-sensitive.
    # The guest claims to be I/O-intensive; the victim agrees to nothing.
    ("sc+aca", "io = io"),
    ("anticipatory", ""),
])
def test_evader_under_a_policy(preset, evader):
    shares = measure(preset, 10, preset=preset, evader=evader)
    assert shares["evader/0"] <= 51, shares
    assert sum(shares.values()) > 99, shares


@pytest.mark.long
def test_evader_on_a_turbo_core():
    """The guest sleeps over the ticks of the turbo core, where the other VM computes as well. Half
    of that core is its share."""
    shares = measure("vturbo", preset="hardened", cpus=0, pools=TURBO,
                     evader="turbo = yes\ncmdline = tick_us=100 lead_us=10 nap_us=20",
                     victim="turbo = yes")
    assert shares["evader/0"] + shares["evader/1"] <= 51, shares
    assert sum(shares.values()) > 198, shares
