"""Guests and driver domain handle congestion together (docs/collab.md); a script drives them."""
import pytest

from system.takt import SCRIPTED, Boot, vm, workload

pytestmark = pytest.mark.long

# Three streams and uploads go through a queue of 8 requests, which each upload fills. The device
# itself has room for 64 requests, or for 4 in the case where it is called crowded.
VIDEO = ("streams=3 file_kib=256 write_kib=160 write_ms=60 run_ms=800 cache=128 queue=8 ahead=8 "
         "background=15 dirty=60")
ROOMY, CROWDED = (f"ssd0=bw=6M,lat=200us,depth=8,queue={n}" for n in (64, 4))
# This is about the queues alone: by its latency a device that is so slow is always crowded.
COLLAB = " collab collab_ms=20 flush=0 slow_pct=0"


def video(name, back, words=""):
    return vm(name, "video", "8M", vcpus=2, cmdline=VIDEO + words, disk=back + " on=ssd0 size=1M",
              start="no")


CONFIG = SCRIPTED + "[pool io]\ncpus = 1\n" + "".join([
    vm("roomy", "iodom", "12M", pool="io", cmdline=ROOMY + COLLAB),
    vm("crowded", "iodom", "12M", pool="io", cmdline=CROWDED + COLLAB),
    video("plain", "roomy"), video("never", "roomy", " avoid=0"),
    video("asks", "roomy", " collab"), video("waits", "crowded", " collab"),
])
SCRIPT = "@400ms list\n" + "".join(f"+0ms create {name}\n+0ms wait {name} 20s\n"
                                   for name in ("plain", "never", "asks", "waits")
                                   ) + "+300ms poweroff\n"


@pytest.fixture(scope="module")
def boot(platform):
    return Boot("congestion", CONFIG, SCRIPT, platform)


def test_released_while_the_device_is_not_crowded(boot, platform):
    """The guest's queue is full and the device's is not. The guest goes on, and reads ahead as one
    without avoidance does."""
    plain, never, asks = (workload(boot, name) for name in ("plain", "never", "asks"))
    assert plain["wrong"] == never["wrong"] == asks["wrong"] == 0
    assert never["congestions"] == 0
    assert plain["asked"] == 0 and asks["asked"] >= 5 and asks["released"] >= 5, asks
    if platform == "bochs":
        assert asks["ahead_congested"] < plain["ahead_congested"] / 2, (plain, asks)
        assert asks["ahead"] == never["ahead"] > plain["ahead"], (plain, never, asks)


def test_not_released_while_it_is_crowded(boot, platform):
    """Four requests make the other device crowded. Its guest asks as often, but goes on by Linux's
    own rule."""
    plain, waits = workload(boot, "plain"), workload(boot, "waits")
    assert waits["wrong"] == 0
    assert waits["asked"] >= 5, waits
    if platform == "bochs":
        assert waits["released"] <= waits["asked"] / 2, waits
        # How often a stream is due just then is chance: one read-ahead that is left out will do.
        assert waits["congestions"] >= plain["congestions"] / 2 > 0, (plain, waits)
        assert waits["ahead_congested"] > 0, waits
