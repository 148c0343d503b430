"""Guests and driver domain that tune disk I/O together (docs/collab.md), by a script."""
import re

import pytest

from system.takt import SCRIPTED, Boot, vm

pytestmark = pytest.mark.long_on("qemu")

# 400 KiB fit below the dirty limit of 40 % of 1 MiB, but only if the pages of the burst before are
# clean; the device needs half of each pause to write them.
BURSTS = "kib=400 bursts=5 pause_ms=200 cache=256 background=35 dirty=40"
DEVICE = "report_s=1 ssd0=bw=4M,lat=100us,depth=8"
CONFIG = SCRIPTED + "[pool io]\ncpus = 1\n" + "".join([
    vm("alone", "iodom", "12M", pool="io", cmdline=DEVICE),
    vm("manager", "iodom", "12M", pool="io", cmdline=DEVICE + " collab collab_ms=20", start="no"),
    vm("plain", "bursts", "8M", vcpus=2, cmdline=BURSTS, disk="alone on=ssd0 size=1M", start="no"),
    vm("flush", "bursts", "8M", vcpus=2, cmdline=BURSTS + " collab",
       disk="manager on=ssd0 size=1M", start="no"),
])
SCRIPT = """\
@400ms list
+0ms create flush
+0ms create manager
+0ms create plain
+0ms wait flush 20s
+0ms wait plain 20s
+0ms store -j=used read /local/domain/3/io/device/ssd0/bytes_per_s
+300ms poweroff
"""


@pytest.fixture(scope="module")
def boot(platform):
    return Boot("collab", CONFIG, SCRIPT, platform)


def bursts(boot, name):
    """{"took": us, "writing": us, "throttled": n ...} of what that VM says at its end."""
    assert boot.said(rf"{name}: ends with code 0\b"), boot.log[-3000:]
    (line,) = boot.said(rf"{name}: bursts: wrote .*")
    took, writing = re.search(r"in (\d+) us, of that writing (\d+) us", line).groups()
    counts = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)}
    return {"took": int(took), "writing": int(writing)} | counts


def test_flush_raises_write_throughput(boot, platform):
    """The device is idle between bursts. With the manager the guest's dirty pages are written then,
    so no burst waits for them; by itself the guest keeps nearly as many as it may."""
    plain, flush = bursts(boot, "plain"), bursts(boot, "flush")
    assert plain["wrong"] == flush["wrong"] == 0
    assert plain["flush_asked"] == 0 and flush["flush_asked"] >= 4, flush
    assert plain["throttled"] > 0 and flush["throttled"] == 0, (plain, flush)
    if platform == "bochs":
        assert flush["took"] < plain["took"] * 0.85, (plain, flush)
