"""Guests and driver domain tune disk I/O together (docs/collab.md); a script drives them."""
import re

import pytest

from system.takt import SCRIPTED, Boot, vm, workload

pytestmark = pytest.mark.long_on("qemu")

# 400 KiB fit below the dirty limit of 40 % of 1 MiB, but only if the pages of the burst before are
# clean. The device needs half of each pause to write them.
BURSTS = "kib=400 bursts=5 pause_ms=200 cache=256 background=35 dirty=40"
SURVIVOR = "kib=400 bursts=9 pause_ms=100 cache=256 background=35 dirty=40"
DEVICE = "report_s=1 ssd0=bw=4M,lat=100us,depth=8"
CONFIG = SCRIPTED + "[pool io]\ncpus = 1\n" + "".join([
    vm("alone", "iodom", "12M", pool="io", cmdline=DEVICE),
    vm("manager", "iodom", "12M", pool="io", start="no",
       cmdline=DEVICE + " collab collab_ms=20 monitor_ms=100"),
    vm("plain", "bursts", "8M", vcpus=2, cmdline=BURSTS, disk="alone on=ssd0 size=1M", start="no"),
    vm("flush", "bursts", "8M", vcpus=2, cmdline=BURSTS + " collab",
       disk="manager on=ssd0 size=1M", start="no"),
    vm("survivor", "bursts", "8M", vcpus=2, cmdline=SURVIVOR + " collab",
       disk="manager on=ssd0 size=1M", start="no"),
    vm("hermit", "bursts", "8M", vcpus=2, cmdline=SURVIVOR, disk="manager on=ssd0 size=1M",
       start="no"),
    vm("liar", "liar", "4M", cmdline="run_ms=1500", disk="manager on=ssd0 size=1M", start="no"),
    vm("calm", "liar", "4M", cmdline="run_ms=800 calm", disk="manager on=ssd0 size=1M",
       start="no"),
])
SCRIPT = """\
@400ms list
+0ms create flush
+0ms create manager
+0ms create plain
+300ms store -j=busy ls /local/domain/3/io/device/ssd0
+0ms store -j=nonsense write /local/domain/3/io/collab/flush perhaps
+0ms wait flush 20s
+0ms wait plain 20s
+400ms store -j=idle ls /local/domain/3/io/device/ssd0
+0ms store -j=off write /local/domain/3/io/collab/flush 0
+0ms create flush
+0ms wait flush 20s
+0ms store -j=dif write /local/domain/3/io/collab/dif 1
+0ms create flush
+0ms wait flush 20s
+0ms store -j=on write /local/domain/3/io/collab/flush 1
+0ms create liar
+0ms create flush
+0ms wait flush 20s
+0ms wait liar 20s
+0ms create calm
+0ms wait calm 20s
@8s create survivor
+0ms create hermit
+130ms destroy manager
+0ms create manager
+250ms destroy manager
+60ms create manager
+290ms destroy manager
+20ms create manager
+0ms wait survivor 20s
+0ms wait hermit 20s
+300ms poweroff
"""


@pytest.fixture(scope="module")
def boot(platform):
    return Boot("collab", CONFIG, SCRIPT, platform)


def test_flush_raises_write_throughput(boot, platform):
    """The device is idle between bursts. With the manager the guest's dirty pages are written then,
    so no burst has to wait for them. Without it the guest keeps nearly as many dirty pages as it
    may."""
    plain, flush = workload(boot, "plain"), workload(boot, "flush")
    assert plain["wrong"] == flush["wrong"] == 0
    assert plain["flush_asked"] == 0 and flush["flush_asked"] >= 4, flush
    # On QEMU the device's idle times are the host's, so the guest may have to wait there, too.
    assert plain["throttled"] > flush["throttled"], (plain, flush)
    if platform == "bochs":
        assert flush["throttled"] == 0, flush
        assert flush["took_us"] < plain["took_us"] * 0.85, (plain, flush)


def monitored(boot, tag):
    """Returns {name: {"reads": n, ...}} of the nodes in which the monitor says what a device did:
    `all`, and one node for each disk."""
    return {row["name"]: {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", row["value"])}
            for row in boot.results[tag]}


def test_monitor(boot, platform):
    """While the guest writes, its disk's numbers and the device's are alike, as nobody else uses
    that device. When it is gone, so is its node, and the device has done nothing. By the host's
    clock the script may look too early."""
    if platform == "bochs":
        busy, idle = monitored(boot, "busy"), monitored(boot, "idle")
        assert set(idle) == {"all"} and set(busy) == {"all", "2-0"}
        assert idle["all"]["writes"] == idle["all"]["busy_permille"] == 0
        device = busy["all"]
        assert device["writes"] > 0 and device == busy["2-0"]
        assert 100 <= device["mean_us"] <= device["p99_us"] <= device["p999_us"]
        assert 0 < device["busy_permille"] <= 1000
        assert 100 <= device["period_ms"] <= 120
        # 4 MB/s is what the device can do
        assert 0 < device["write_bytes_per_s"] <= 4000000


def test_flush_can_be_switched_off(boot, platform):
    if platform == "bochs":  # by the host's clock the manager may come later than the nonsense
        assert boot.said(r"manager: manager: io/collab/flush is neither 0 nor 1: flush stays on")
    assert boot.said(r"manager: manager: flush is off")
    off = workload(boot, "flush", 1)
    assert off["flush_asked"] == 0 and off["throttled"] > 0 and off["wrong"] == 0, off


def test_disk_idleness_for_guests(boot, platform):
    """The baseline DIF: the guest is told that the device is idle, and flushes by itself."""
    dif = workload(boot, "flush", 2)
    assert dif["flush_asked"] == 0 and dif["by_itself"] >= 3 and dif["wrong"] == 0, dif
    assert workload(boot, "flush")["by_itself"] == workload(boot, "flush", 3)["by_itself"] == 0
    assert boot.said(r"manager: manager: flush is on, so dif does nothing")
    if platform == "bochs":
        assert dif["took_us"] < workload(boot, "plain")["took_us"], dif


def test_lies(boot, platform):
    """One VM sets `congested` all the time and claims 2^63 dirty pages. The log names it, and the
    VM beside it is asked to flush as before. One that only says that it has flushed is named, too,
    and then asked no more. On a slow host the first one does not reach 200 changes a second."""
    beside = workload(boot, "flush", 3)
    assert beside["wrong"] == 0 and beside["flush_asked"] >= 3, beside
    assert boot.said(r"manager: VM 9, disk 0: claims dirty pages and does not write them")
    assert [int(n) for n in boot.said(r"calm: liar: asked=(\d+)")] == [3]
    if platform == "bochs":
        assert boot.said(r"manager: VM 7, disk 0: more than 200 changes of its keys in a second")
        assert beside["write_p999_us"] < workload(boot, "flush")["write_p999_us"] * 1.05, beside


def test_the_manager_dies(boot, platform):
    """The driver domain, and the manager in it, are destroyed three times while two guests write,
    and made again. Each guest goes on where it was: all of its last burst is on the disk, and what
    the disk refused while it was gone holds nobody up for long. Each manager that is new finds the
    keys of the guest that collaborates, and asks it to flush."""
    for name in ("survivor", "hermit"):
        assert workload(boot, name)["wrong"] == 0, workload(boot, name)
        gone = len(boot.said(rf"{name}: disk: the device is gone"))
        assert gone == len(boot.said(rf"{name}: disk: the device is back"))
        # By the host's clock the script may be late, and so fast that a guest sees one death alone.
        assert gone == 3 if platform == "bochs" else gone >= 1
    if platform == "bochs":
        assert workload(boot, "survivor")["flush_asked"] >= 3, workload(boot, "survivor")
