"""Guests that use a disk as servers do, and how they measure it (docs/collab.md, Workloads)."""
import pytest

from system.takt import SCRIPTED, Boot, vm, workload

pytestmark = pytest.mark.long_on("qemu")

# The device moves 8 MB/s: 16 KiB take it 2 ms.
COMMON = " threads=3"
STORE = "count=300 rate=1000 keys=400 table=32 sync_ms=50 cache=64 "
SCAN = "count=100 file_kib=256 cache=128"
GUESTS = {
    "files": ("fileserver", "count=300 files=16 cache=128"),
    "web": ("webfiles", "count=110 rate=200 files=32 log_ring_kib=64 cache=128"),
    "half": ("kvstore", STORE + "read_pct=50"), "most": ("kvstore", STORE + "read_pct=95"),
    "closed": ("multiread", SCAN),
    "computes": ("multiread", SCAN + " compute_us=10000"),
    "burst": ("multiread", SCAN + " rate=100 burst_ms=100"),
}
# {VM: the length of its bursts, ms}: 40 requests a second on average, two bursts.
BURSTS = {"even": 50, "odd": 50, "wide": 100}
CALM = "file_kib=64 record_kib=4 cache=64 rate=40"
CONFIG = SCRIPTED + "[pool io]\ncpus = 1\n" + vm(
    "iodom", "iodom", "24M", pool="io", cmdline="ssd0=bw=8M,lat=100us,depth=8,queue=64"
) + "".join(vm(name, image, "8M", vcpus=3, cmdline=words + COMMON, disk="iodom on=ssd0 size=2M",
               start="no") for name, (image, words) in GUESTS.items()
          ) + "".join(
    vm(name, "multiread", "8M", vcpus=3, disk="iodom on=ssd0 size=1M", start="no",
       cmdline=f"{CALM} burst_ms={ms} count={2 * 40 * ms // 100}" + COMMON)
    for name, ms in BURSTS.items()
) + vm("homeless", "multiread", "8M", disk="iodom on=ssd0 size=64M", start="no")
SCRIPT = "@300ms list\n" + "".join(f"+0ms create {name}\n+0ms wait {name} 20s\n"
                                   for name in [*GUESTS, "homeless"])
# Bursts coincide although the VMs are not equally old.
SCRIPT += "".join(f"+70ms create {name}\n" for name in BURSTS) + "".join(
    f"+0ms wait {name} 20s\n" for name in BURSTS) + "+100ms poweroff\n"


@pytest.fixture(scope="module")
def boot(platform):
    return Boot("workloads", CONFIG, SCRIPT, platform)


@pytest.mark.parametrize("name", GUESTS)
def test_each_request_is_answered_and_counted(boot, name):
    """What is read is what was written, and each request has one latency."""
    said = workload(boot, name)
    assert said["wrong"] == 0, said
    assert said["requests"] == said["reads"] + said["writes"], said
    for kind in ("read", "write"):
        assert said[f"{kind}_mean_us"] <= said[f"{kind}_max_us"], said
        assert said[f"{kind}_p99_us"] <= said[f"{kind}_p999_us"] <= said[f"{kind}_max_us"], said


def test_mixes(boot):
    """Requests are of the kinds that the command line says."""
    files, web = workload(boot, "files"), workload(boot, "web")
    assert files["requests"] == 300 and 60 < files["reads"] < 120, files
    assert web["reads"] == 100 and web["writes"] == 10 and web["write_kib"] == 160, web
    half, most = workload(boot, "half"), workload(boot, "most")
    assert 120 < half["reads"] < 180 and 270 < most["reads"] < 300, (half, most)


def test_the_store_writes_tables(boot):
    """400 keys fill a table of 32 records 12 times; writes of a run go on from there. Only what is
    still valid moves on from an old table."""
    half, most = workload(boot, "half"), workload(boot, "most")
    for said in (half, most):
        written = 400 + said["writes"]
        assert written // 32 - 2 <= said["flushes"] <= written // 32, said
        assert said["moved"] > 0 and said["pages_read"] > 0, said
    assert half["flushes"] > most["flushes"], (half, most)


def test_when_requests_are_due(boot, platform):
    """100 requests are due within 100 ms, 1 ms apart, and the device needs 200 ms for them. Each
    one's latency counts from when it was due, so that the last one has waited for all that came
    before. In a closed loop each of three threads sends a request when the one before is answered,
    and so does not see that the requests are late."""
    closed, burst = workload(boot, "closed"), workload(boot, "burst")
    if platform == "bochs":
        assert closed["took_us"] > 180_000 and burst["took_us"] > 180_000, (closed, burst)
        # Three requests are under way at a time.
        assert closed["read_mean_us"] == pytest.approx(3 * closed["took_us"] / 100, rel=0.1), closed
        # Read-ahead may delay the end of another request more than that of the last one.
        late = burst["took_us"] - 99_000
        assert late <= burst["read_max_us"] < late + 30_000, burst
        assert burst["read_p99_us"] > 0.9 * burst["read_max_us"], burst


def test_computing_makes_room_for_the_disk(boot, platform):
    """Threads that compute for 10 ms after each record find the next one read ahead."""
    closed, computes = workload(boot, "closed"), workload(boot, "computes")
    assert computes["took_us"] >= 33 * 10_000, computes
    if platform == "bochs":
        assert computes["read_mean_us"] < closed["read_mean_us"] / 2, (closed, computes)


def test_a_disk_for_which_there_is_no_room(boot):
    """The driver domain has 24 MiB, and the disk should have 64. The guest hears that instead of
    waiting for ever."""
    assert boot.said(r"iodom: homeless\.0: there is no room for this disk, so its VM sees one of 0")
    assert boot.said(r"homeless: disk: the driver domain has no room for disk 0 of this VM")
    assert boot.said(r"homeless: panic: multiread: there is no disk \(error -28\)")
    assert not boot.said("homeless has not ended")


@pytest.mark.parametrize("name, ms", BURSTS.items())
def test_bursts_of_all_vms_coincide(boot, platform, name, ms):
    """Bursts begin at multiples of their period by the machine's clock, each has as many requests
    as ten times its time has on average, and the last one of a burst is due at its end."""
    said, period, nr = workload(boot, name), 10_000 * ms, 40 * ms // 100
    assert said["burst_requests"] == nr and said["requests"] == 2 * nr, said
    assert min(said["first_burst_us"] % period, -said["first_burst_us"] % period) < 500, said
    due = period + 1000 * ms * (nr - 1) // nr
    assert said["took_us"] >= due, said
    if platform == "bochs":
        assert said["took_us"] < due + 20_000, said
