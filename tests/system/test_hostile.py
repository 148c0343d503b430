"""A guest that does its worst must not cost another VM its share. This runs on Bochs, where time is
exact, in one boot that a script drives."""
import pytest

from system.takt import Boot

pytestmark = pytest.mark.bochs

SHORT = ("io", "hypercall", "timer")  # the others run only in the long test
MODES = SHORT + ("mmio", "console", "ipi", "yield", "msr", "cli", "cpuid", "selfwake")
TOLERANCE = 2.0  # in points of the pCPU that the victim and the hostile guest share, half each
SECONDS = 0.6

CONFIG = """\
[hypervisor]
top = no
script = script

[pool one]
cpus = 1

[vm victim]
image = spin
memory = 2M
pool = one
"""

HOSTILE = """
[vm {mode}]
image = hostile
cmdline = mode={mode}
memory = 2M
pool = one
start = no
"""

EVADER = """
[vm evader]
image = evader
memory = 2M
pool = one
start = no
"""


@pytest.fixture(scope="module")
def measured(request):
    """Returns {hostile VM: result of `top`} of one boot, and the list of the VMs at its end."""
    modes = MODES if request.config.getoption("--long") else SHORT
    everyone = modes + ("evader",)
    config = CONFIG + "".join(HOSTILE.format(mode=m) for m in modes) + EVADER
    script = ["@300ms list"]
    for mode in everyone:
        script += [f"+0ms create {mode}", f"+0ms top -j={mode} -w 0.1 -d {SECONDS}",
                   f"+0ms destroy {mode}"]
    script += ["+0ms list -j=end", "+10ms poweroff"]
    return Boot("hostile", config, script, "bochs", timeout=400).results


@pytest.mark.parametrize("mode", [m if m in SHORT
                                  else pytest.param(m, marks=pytest.mark.long) for m in MODES])
def test_victim_keeps_its_half(measured, mode):
    shares = {v["vm"]: v["cpu_pct"] for v in measured[mode]["vcpus"]}
    # The victim gets more if the hostile VM sleeps, waits or yields.
    assert shares["victim"] >= 50 - TOLERANCE, shares
    other = next(p for p in measured[mode]["pcpus"] if p["cpu"] == 1)
    assert abs(sum(shares.values()) - other["guest_pct"] - other["hv_pct"]) < 3


def test_theft_of_service(measured):
    """The VM sleeps over the ticks. It gets its half at most, because time is charged by the
    clock."""
    shares = {v["vm"]: v["cpu_pct"] for v in measured["evader"]["vcpus"]}
    assert shares["evader"] <= 51 and shares["victim"] >= 48


def test_all_hostile_vms_are_gone(measured):
    assert [vm["name"] for vm in measured["end"]] == ["victim"]
