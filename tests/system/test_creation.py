"""How long it takes until VMs are there, beside others that compute."""
import pytest

from system.takt import SCRIPTED, Boot, vm

VMS = 64
MOST_S = 2  # of virtual time, for all of them


@pytest.mark.bochs
def test_many_vms_beside_others_that_compute():
    """Both pCPUs are wanted all the time, and RAM has to be scrubbed before a VM gets it."""
    names = [f"vm{n}" for n in range(VMS)]
    config = SCRIPTED.replace("guest_console = log\n", "")
    config += "".join(vm(f"hog{n}", "spin", "2M") for n in range(2))
    config += "".join(vm(name, "waker", "2M", start="no", cmdline="period_us=1000000")
                      for name in names)
    boot = Boot("creation", config, ["@500ms info -j=before", *(f"+0ms create {n}" for n in names),
                                     "+0ms info -j=after", "+0ms list -j=all", "+0ms poweroff"],
                "bochs", timeout=400)
    assert sum(v["name"] in names for v in boot.results["all"]) == VMS
    assert boot.results["after"]["uptime_s"] - boot.results["before"]["uptime_s"] < MOST_S
