"""The experiment of section 2 of IOrchestra (docs/collab.md, Congestion that is not there): two VMs
read with eight threads each, through queues of 8 requests. Their guests take them for congested."""
import pytest

from system.takt import SCRIPTED, Boot, vm, workload

pytestmark = [pytest.mark.bochs, pytest.mark.long]

# 16 reads of 16 KiB at a time, one from each thread, need 6.5 ms of a device of 40 MB/s. The first
# device is idle for part of the 10 ms that each takes, the second one is never idle.
DEVICES = "ssd0=bw=40M,lat=10ms,{0} ssd1=bw=40M,lat=2ms,{0}"
OPTIONS = "depth=64,queue=64,vary=20%,seed={seed}"
READER = "threads=8 file_kib=512 record_kib=16 cache=512 queue=8 start_ms=700 run_ms=1200"
WORDS = {"plain": "", "never": " avoid=0", "asks": " collab"}
SETUPS = [(device, how) for device in ("roomy", "crowded") for how in WORDS]
NAMES = {(device, how): [f"{device}-{how}-{i}" for i in (1, 2)] for device, how in SETUPS}
SCRIPT = "@300ms list\n" + "".join(
    f"+0ms create {one}\n+0ms create {two}\n+0ms wait {one} 20s\n+0ms wait {two} 20s\n"
    for one, two in NAMES.values()) + "+100ms poweroff\n"


def config(seed):
    devices = DEVICES.format(OPTIONS.format(seed=seed))
    text = SCRIPTED + f"seed = {seed}\n[pool io]\nsched = null\ncpus = 1\n"
    text += vm("iodom", "iodom", "64M", pool="io", cmdline=devices + " collab flush=0")
    for (device, how), names in NAMES.items():
        ssd = "ssd1" if device == "crowded" else "ssd0"
        text += "".join(vm(name, "multiread", "8M", vcpus=4, cmdline=READER + WORDS[how],
                           disk=f"iodom on={ssd} size=4M", start="no") for name in names)
    return text


@pytest.fixture(scope="module", params=[1, 2, 3])
def measured(request):
    """Returns {(device, how): (mean latency in us, the larger 99th percentile, what both VMs
    said)}."""
    boot = Boot(f"motivation-{request.param}", config(request.param), SCRIPT, "bochs", cpus=3)
    found = {}
    for setup, names in NAMES.items():
        said = [workload(boot, name) for name in names]
        assert not any(one["wrong"] for one in said), said
        reads = sum(one["reads"] for one in said)
        mean = sum(one["read_mean_us"] * one["reads"] for one in said) / reads
        found[setup] = (mean, max(one["read_p99_us"] for one in said), said)
        print(*setup, f"mean {mean:.0f} us of", *(one["read_mean_us"] for one in said),
              f"99th percentile {found[setup][1]} us,",
              f"asked {sum(one['asked'] for one in said)},",
              f"released {sum(one['released'] for one in said)}")
    return found


def test_avoidance_without_need_costs_time(measured):
    """The first device could do more. Guests that know that are as fast as those that never avoid
    congestion. As a release lasts 250 ms, they take turns, and neither starves the other one."""
    plain, never, asks = (measured["roomy", how][0] for how in WORDS)
    assert never < 0.8 * plain, (plain, never)
    assert asks < 1.15 * never and asks < 0.75 * plain, (plain, never, asks)
    for one in measured["roomy", "asks"][2]:
        assert one["released"] >= 2 and one["read_mean_us"] < 1.1 * plain, (plain, one)


def test_a_crowded_device_is_not_hurt(measured):
    """The second device can do no more. It may be only half busy when the first VM asks, because
    the other one has not begun. From the end of that release on, nobody is released, and all is as
    with plain Linux."""
    (plain, _, _), (asks, _, said) = (measured["crowded", how] for how in ("plain", "asks"))
    assert asks < 1.03 * plain, (plain, asks)
    for one in said:
        assert one["asked"] >= 1 and one["released"] <= 1, one
        assert one["read_mean_us"] < 1.3 * plain, (plain, one)
    ahead, never = (sum(one["ahead"] for one in measured["crowded", how][2])
                    for how in ("asks", "never"))
    assert ahead < never / 2, (ahead, never)
