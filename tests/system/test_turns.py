"""Shares of a device under disks of several VMs, by deficit round robin (docs/collab.md)."""
import pytest

from system.takt import SCRIPTED, Boot, vm, workload

pytestmark = pytest.mark.long

# Each VM writes 4 MiB/10 as fast as it can, four times; the cache holds back who is too fast.
WRITER = "gaps kib=400 bursts=4 pause_ms=0 cache=128 background=5 dirty=40"
DEVICE = "bw=4M,lat=100us,depth=4,queue=4"


def writer(name, options):
    return vm(name, "bursts", "8M", vcpus=2, cmdline=WRITER, disk=f"io {options} size=2M",
              start="no")


CONFIG = SCRIPTED + "[pool io]\ncpus = 1\n" + "".join([
    vm("io", "iodom", "16M", pool="io", cmdline=f"ssd0={DEVICE} ssd1={DEVICE},sched=drr"),
    writer("first-a", "on=ssd0 share=3"), writer("first-b", "on=ssd0 share=1"),
    writer("turns-a", "on=ssd1 share=3"), writer("turns-b", "on=ssd1 share=1"),
])
SCRIPT = "@400ms list\n" + "".join(
    f"+0ms create {kind}-a\n+0ms create {kind}-b\n+0ms wait {kind}-a 20s\n+0ms wait {kind}-b 20s\n"
    for kind in ("first", "turns")) + "+300ms poweroff\n"


@pytest.fixture(scope="module")
def boot(platform):
    return Boot("turns", CONFIG, SCRIPT, platform)


def test_shares(boot, platform):
    """Both write the same. With shares of 3 and 1 the first one is through after two thirds of the
    time that both need. Where who comes first is served first, the shares change nothing."""
    times = {name: workload(boot, name)["took_us"]
             for name in ("first-a", "first-b", "turns-a", "turns-b")}
    if platform == "bochs":
        assert times["turns-a"] < 0.8 * times["turns-b"], times
        assert times["first-a"] > 0.9 * times["first-b"], times
