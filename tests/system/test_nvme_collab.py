"""Guests and driver domain tune the I/O of disks on an NVMe controller together, by when its
commands really end (docs/collab.md). Only QEMU has the controller; the device is made as slow as
the test needs it."""
import os
import re

import pytest

from system.takt import SCRIPTED, Boot, place, vm, workload

pytestmark = pytest.mark.long

MIB = 1 << 20
# As in test_collab.py and test_congestion.py.
BURSTS = "kib=400 bursts=5 pause_ms=200 cache=256 background=35 dirty=40 collab"
VIDEO = ("streams=3 file_kib=256 write_kib=160 write_ms=60 run_ms=800 cache=128 queue=8 ahead=8 "
         "background=15 dirty=60 collab")
CONFIG = SCRIPTED + "[pool io]\ncpus = 1\n" + "".join([
    vm("io", "iodom", "12M", pool="io", pci="00:04.0", unsafe_dma="yes",
       cmdline="collab collab_ms=20 monitor_ms=400 nvme=queue=64"),
    vm("flush", "bursts", "8M", vcpus=2, cmdline=BURSTS, disk="io dev=nvme size=1M", start="no"),
    vm("asks", "video", "8M", vcpus=2, cmdline=VIDEO, disk="io dev=nvme offset=1M size=1M",
       start="no"),
])
SCRIPT = """\
@400ms list
+0ms create flush
+0ms wait flush 800ms
+0ms store -j=busy ls /local/domain/1/io/device/nvme
+0ms wait flush 20s
+0ms create asks
+0ms wait asks 20s
+0ms create flush
+0ms wait flush 20s
+0ms wait io 1200ms
+0ms store -j=idle ls /local/domain/1/io/device/nvme
+0ms poweroff
"""


@pytest.fixture(scope="module")
def boot():
    image = os.path.join(place("nvme-collab-qemu"), "disk.img")
    os.makedirs(os.path.dirname(image), exist_ok=True)
    with open(image, "wb") as f:
        f.truncate(2 * MIB)
    extra = ["-object", f"throttle-group,id=slow,x-bps-total={4 * MIB}",
             "-blockdev", f"driver=file,node-name=file,filename={image}",
             "-blockdev", "driver=throttle,node-name=disk,throttle-group=slow,file=file",
             "-device", "nvme,drive=disk,serial=takt-test,addr=4.0"]
    return Boot("nvme-collab", CONFIG, SCRIPT, "qemu", extra=extra)


def monitored(boot, tag):
    return {row["name"]: {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", row["value"])}
            for row in boot.results[tag]}


def test_monitor(boot):
    """The numbers of the device and of the disk on it, by when commands really ended. Their periods
    begin at different times, so on a slow host they are not of the same requests. In the end there
    is one more line, of zeros."""
    busy, idle = monitored(boot, "busy"), monitored(boot, "idle")
    assert set(busy) == {"all", "2-0"}
    assert set(busy["2-0"]) == set(busy["all"])
    assert set(idle) == {"all"}
    assert idle["all"]["writes"] == idle["all"]["busy_permille"] == 0
    for row in busy.values():
        assert 400 <= row["period_ms"]
        # Two bursts of 400 KiB or more, of which a request has up to 128 KiB; 4 MiB take a second.
        assert 2 <= row["writes"] and 300 * 1024 < row["write_bytes_per_s"] < 5 * MIB, row
        assert 100 < row["mean_us"] <= row["p99_us"] <= row["p999_us"] < 400000, row
        assert 0 < row["busy_permille"] <= 1000 and row["depth_milli"] > 0, row


def test_flush(boot):
    """Nobody knows how fast the controller is, so it counts as idle by the time in which it has
    requests. The guest is told to flush in its pauses."""
    for run in range(2):
        flush = workload(boot, "flush", run)
        assert flush["wrong"] == 0 and flush["flush_asked"] >= 3, flush


def test_congestion(boot):
    """The guest's queue of 8 is full, and the controller has room for 64 requests. So the guest is
    released."""
    asks = workload(boot, "asks")
    assert asks["wrong"] == 0
    assert asks["asked"] >= 3 and asks["released"] >= 3, asks
