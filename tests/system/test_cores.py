"""I/O cores: vCPUs of the driver domain that poll the rings of VMs (docs/collab.md)."""
import re

import pytest

from system.takt import SCRIPTED, Boot, vm, workload

pytestmark = pytest.mark.long_on("qemu")

DEVICE = "ssd0=bw=20M,lat=100us,depth=4,queue=4 fast=lat=1ns"
CONFIG = SCRIPTED + """
[pool io]
sched = null
sleepless = on
cpus = 1-3
""" + "".join([
    vm("io", "iodom", "16M", vcpus=3, pool="io", cmdline=f"{DEVICE} cores=2 report_s=1"),
    vm("two", "spread", "8M", vcpus=2, cmdline="run_ms=60", disk="io on=ssd0 sockets=2",
       start="no"),
    vm("far", "spread", "8M", cmdline="run_ms=30 depth=1", disk="io on=ssd0 socket=1", start="no"),
    vm("wide", "spread", "8M", cmdline="run_ms=30", disk="io on=ssd0 socket=1 sockets=2",
       start="no"),
    vm("survivor", "spread", "8M", vcpus=2, cmdline="run_ms=700", disk="io on=ssd0 sockets=2",
       start="no"),
    vm("keeper", "bursts", "8M", vcpus=2, disk="io on=ssd0 sockets=2", start="no",
       cmdline="kib=200 bursts=6 pause_ms=100 cache=128 background=35 dirty=40"),
    # The first pCPU is the guest's alone; the driver domain of the second one has no I/O cores.
    vm("polled", "spread", "8M", cmdline="run_ms=10 kib=1 depth=1", disk="io on=fast", start="no"),
    vm("notified", "spread", "8M", cmdline="run_ms=10 kib=1 depth=1", disk="other on=fast",
       start="no"),
    "\n[pool other]\nsched = null\nsleepless = on\ncpus = 4\n",
    vm("other", "iodom", "12M", pool="other", cmdline=DEVICE),
])
SCRIPT = """\
@300ms list
+0ms create two
+0ms wait two 20s
+0ms create polled
+0ms wait polled 20s
+0ms create notified
+0ms wait notified 20s
+0ms create two
+0ms create far
+40ms destroy two
+0ms wait far 20s
+0ms create two
+0ms create wide
+0ms wait two 20s
+20ms destroy wide
+0ms create survivor
+0ms create keeper
+0ms wait survivor 450ms
+0ms destroy io
+0ms create io
+0ms wait survivor 20s
+0ms wait keeper 20s
+50ms poweroff
"""


@pytest.fixture(scope="module")
def boot(platform):
    return Boot("cores", CONFIG, SCRIPT, platform, cpus=5)


def rings(boot, name, run=0):
    """Returns [{"requests": n, "kicks": n ...}], of each ring of that VM."""
    assert len(boot.said(rf"{name}: ends with code 0\b")) > run, boot.log[-3000:]
    count, wrong = boot.said(rf"{name}: spread: rings=(\d+) wrong=(\d+) refused=0")[run]
    assert wrong == "0"
    lines = boot.said(rf"{name}: spread: socket \d: .*")[run * int(count):(run + 1) * int(count)]
    return [{k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", line)} for line in lines]


def test_rings(boot, platform):
    """Requests go over a ring for each socket, and each does half of the work. What is written is
    read back. Nobody has to notify the driver domain, but for the first request, which may come
    before the I/O core has begun to poll."""
    first, second = rings(boot, "two")
    assert first["kicks"] <= 1 and second["kicks"] <= 1
    if platform == "bochs":  # On QEMU I/O cores that spin may leave the guest little time.
        assert first["requests"] > 50 and second["requests"] > 50
        assert abs(first["requests"] - second["requests"]) <= 10


def test_vms_come_and_go(boot, platform):
    """A VM that is destroyed while its requests are under way leaves nothing behind. Another one,
    on the second socket alone, goes on meanwhile."""
    (far,) = rings(boot, "far")
    assert far["kicks"] <= 1
    first, second = rings(boot, "two", 1)
    if platform == "bochs":
        assert far["requests"] > 20
        assert first["requests"] > 50 and second["requests"] > 50


def test_a_polled_request_is_cheaper(boot, platform):
    """A request of 1 KiB to a device that takes no time. In both cases the driver domain has pCPUs
    of its own, which never sleep. A notified one has two exits more, and an event to take."""
    (polled,), (notified,) = rings(boot, "polled"), rings(boot, "notified")
    assert notified["kicks"] >= notified["requests"] - 2 and polled["kicks"] <= 1
    if platform == "bochs":
        assert polled["mean_ns"] < 0.8 * notified["mean_ns"], (polled, notified)


def test_socket_without_core(boot):
    """A disk on a socket that has no I/O core is refused with a sentence."""
    assert boot.said(r"iodom: wide.0: sockets 1 to 2: there are I/O cores for 0 to 1\b")


def test_a_guest_outlives_the_driver_domain(boot, platform):
    """The driver domain is destroyed under a guest, and made again. The guest goes on by itself.
    What it reads is what it has written since. By the host's clock its time may be over before the
    driver domain is destroyed, or before it has the new device."""
    assert boot.said(r"survivor: ends with code 0\b"), boot.log[-3000:]
    (lost,) = boot.said(r"survivor: spread: rings=2 wrong=0 refused=0 moves=0 lost=(\d+)")
    if platform != "bochs":
        return
    assert boot.said(r"survivor: disk: the device is gone\n")
    assert boot.said(r"survivor: disk: the device is back\n")
    assert int(lost) > 0
    back = boot.log.index("survivor: disk: the device is back")
    assert re.search(r"io: iodom: survivor.0: reads=[1-9]", boot.log[back:])


def test_a_page_cache_has_a_ring_for_each_socket(boot):
    """This guest's thread runs on the second socket. Its page cache outlives the driver domain."""
    keeper = workload(boot, "keeper")
    assert keeper["wrong"] == 0 and keeper["rings"] == 2, keeper
    assert keeper["ring1"] > 20 and keeper["ring0"] < keeper["ring1"], keeper
    assert boot.said(r"keeper: disk: the device is back\n")


def test_report(boot, platform):
    """The report of what each device has done also covers disks that I/O cores serve. Here it comes
    a second after the driver domain has begun, before the device is gone."""
    if platform == "bochs":
        first = boot.log.index("iodom: survivor.0: reads=")
        assert first < boot.log.index("survivor: disk: the device is gone")


# With a manager: shares, the baseline SDC, and threads that go where I/O cores are faster. The
# cores=3 vCPUs of the driver domain are the manager and two I/O cores.
SHARED = SCRIPTED + """
[pool io]
sched = null
cpus = 1-3
""" + "".join([
    vm("io", "iodom", "16M", vcpus=3, pool="io",
       cmdline=f"{DEVICE} cores=2 collab collab_ms=20 remote=50us"),
    vm("large", "spread", "6M", cmdline="run_ms=120 depth=8", disk="io on=ssd0 share=3",
       start="no"),
    vm("small", "spread", "6M", cmdline="run_ms=60 depth=8", disk="io on=ssd0", start="no"),
    vm("wide", "spread", "8M", vcpus=2, cmdline="run_ms=200 threads=4 depth=1 collab",
       disk="io on=ssd0 sockets=2", start="no"),
    vm("pair", "spread", "6M", vcpus=2, cmdline="run_ms=20 kib=1 depth=1",
       disk="io on=ssd0 sockets=2", start="no"),
    vm("noise", "spread", "6M", cmdline="run_ms=220 depth=16", disk="io on=ssd0", start="no"),
    vm("files", "multiread", "8M", vcpus=4, disk="io on=ssd0 sockets=2 size=2M", start="no",
       cmdline="threads=4 run_ms=200 file_kib=192 record_kib=8 cache=96 collab"),
])
SHARED_SCRIPT = """\
@300ms list
+0ms create large
+0ms create small
+0ms wait large 20s
+0ms create pair
+0ms wait pair 20s
+0ms store -j=off write /local/domain/1/io/collab/coschedule 0
+0ms create large
+0ms create small
+0ms wait large 20s
+0ms create pair
+0ms wait pair 20s
+0ms store -j=on write /local/domain/1/io/collab/coschedule 1
+0ms create noise
+0ms create wide
@870ms store -j=sockets read /local/domain/9/io/disk/0/sockets
+0ms store -j=weights read /local/domain/9/io/disk/0/weights
+0ms store -j=share write /local/domain/1/io/collab/share/9-0 5
+0ms wait wide 20s
+0ms wait noise 20s
+0ms vcpu-list -j=vcpus io
+0ms create noise
+0ms create files
+0ms wait files 170ms
+0ms store -j=files-sockets read /local/domain/11/io/disk/0/sockets
+0ms store -j=files-weights read /local/domain/11/io/disk/0/weights
+0ms wait files 20s
+0ms wait noise 20s
+50ms poweroff
"""


@pytest.fixture(scope="module")
def shared(platform):
    return Boot("cores-shared", SHARED, SHARED_SCRIPT, platform, cpus=4)


def test_shares(shared, platform):
    """Two VMs on one I/O core always have requests. With shares of 3 and 1 the second one gets a
    quarter of the 20 MB/s of the device during its 60 ms. With SDC it gets half, whatever the VM
    file says. The first one begins earlier and ends later."""
    kib = [rings(shared, "small", i)[0]["kib"] for i in range(2)]
    if platform == "bochs":
        # Eight requests are still under way when its time is over.
        assert 293 - 20 < kib[0] < 293 + 8 * 4 + 30, kib
        assert 586 - 20 < kib[1] < 586 + 8 * 4 + 30, kib


def test_sdc_knows_one_socket(shared, platform):
    """With SDC the I/O core of a VM's first socket serves all its rings. Requests from the other
    socket take 50 us longer there. With co-scheduling both are local."""
    assert shared.said(r"manager: coschedule is off")
    local, far = ([ring["mean_us"] for ring in rings(shared, "pair", i)] for i in range(2))
    if platform == "bochs":
        assert abs(local[1] - local[0]) < 50, local
        assert far[1] - far[0] > local[1] - local[0] + 40, (far, local)


def test_threads_go_where_cores_are_faster(shared, platform):
    """Another VM loads the I/O core of the first socket. The manager publishes weights in inverse
    proportion to latencies, the guest moves threads, and publishes the weights of its vCPUs."""
    (moves,) = shared.said(r"wide: spread: rings=2 wrong=0 refused=0 moves=(\d+)")
    if platform == "bochs":  # By the host's clock the keys may be read before they are there.
        assert shared.said(r"manager: VM 9, disk 0: share 5\b")
        here, there = (int(n) for n in shared.results["sockets"]["value"].split())
        assert here < 400 < there, (here, there)
        assert int(moves) > 0
        here, there = (int(n) for n in shared.results["weights"]["value"].split())
        assert here < there and here + there == 40


def test_threads_with_a_page_cache_go_as_well(shared, platform):
    """A guest on two sockets, whose four threads read files through one page cache, publishes
    weights, and its threads go where the manager wants them. At first they are on vCPUs 1, 2, 3
    and 1. Each thread is a quarter of the weight."""
    files = workload(shared, "files")
    assert files["wrong"] == 0 and files["rings"] == 2 and files["requests"] > 0, files
    if platform == "bochs":
        assert files["ring0"] > 10 and files["ring1"] > 10, files
        here, there = (int(n) for n in shared.results["files-sockets"]["value"].split())
        weights = [int(n) for n in shared.results["files-weights"]["value"].split()]
        assert len(weights) == 4 and sum(weights) == 40, weights
        first_socket = (weights[0] + weights[1]) / 40
        assert abs(first_socket - here / (here + there)) < 0.2, (here, there, weights)
        assert files["moves"] > 0 and weights != [0, 20, 10, 10], (files, weights)
        assert files["followed"] > 0, files


def test_the_manager_sleeps(shared, platform):
    """The I/O cores spin. vCPU 0 of the driver domain sleeps between two periods of the manager,
    also while there are requests."""
    manager, *cores = (float(v["time_s"]) for v in shared.results["vcpus"])
    assert len(cores) == 2
    if platform == "bochs":
        assert manager < 0.3 * min(cores), (manager, cores)
