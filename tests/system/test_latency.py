"""How long a woken VM waits for its pCPU among 2 to 5 VMs. This runs on Bochs, where time is
exact."""
import pytest
from machine import Machine

from system.takt import Boot, make_iso, place

pytestmark = pytest.mark.bochs

# for an interrupt, the decision and the switch, at 100 million instructions a second
SWITCH_US = 60
TURBO_SWITCH_US = 6  # at 1,000 million
SLICE_US = 30000

VM = """\
[vm {name}]
image = {image}
memory = 2M
pool = {pool}
{keys}

"""


# Round robin: accounting, three times a slice, demotes the VM that runs before its slice ends, and
# does not cut the slice short.
RING = "demote = account\nperiod_us = 10000\nboost = off\norder = fifo"

SERVED = """\
[hypervisor]
top = no
guest_console = log
script = script

[pool core]
cpus = 1
{settings}

[vm mixed]
image = mixed
cmdline = client=2 rate=300 work_us=1 from_ms=1500 to_ms=7500
memory = 4M
pool = core
{keys}

[vm client]
image = client
cmdline = server=1 rate=300
memory = 2M
cpus = 0
"""


def measured(name, config, cpus, seconds, warm, hz):
    """Returns {VM/vCPU: what top says about it}."""
    script = f"@100ms top -j=latency -w {warm} -d {seconds}\n+10ms poweroff\n"
    boot = Boot(f"latency-{name}", config, script, "bochs", timeout=900, cpus=cpus, hz=hz)
    return {f"{v['vm']}/{v['vcpu']}": v for v in boot.results["latency"]["vcpus"]}


def pools(preset, wakers, keys):
    """Returns a pool of one pCPU for each number n of VMs. `wakers(n)` of the VMs wake; the others
    compute."""
    config = f"[hypervisor]\ntop = no\nscript = script\n{preset}\n\n"
    config += "".join(f"[pool pool{n}]\ncpus = {n - 2}\n{preset}\n\n" for n in (3, 4, 5))
    for n in (2, 3, 4, 5):
        pool = "Pool-0" if n == 2 else f"pool{n}"
        for i in range(n):
            if i < wakers(n):
                config += VM.format(
                    name=f"waker{n}-{i}",
                    image="waker",
                    pool=pool,
                    keys=f"cmdline = period_us={17300 + 1900 * i} report_s=1000\n{keys}",
                )
            else:
                config += VM.format(name=f"spin{n}-{i}", image="spin", pool=pool, keys="")
    return config


def check(vcpus, n, wakers, bound_us, least_us):
    for i in range(wakers):
        wake = vcpus[f"waker{n}-{i}/0"]["wake_us"]
        assert wake["count"] >= 30, wake
        assert wake["max"] <= bound_us + n * SWITCH_US, f"{n} VMs: {wake}, bound {bound_us} us"
    # The VM did have to wait.
    assert max(vcpus[f"waker{n}-{i}/0"]["wake_us"]["max"] for i in range(wakers)) >= least_us


@pytest.mark.long
def test_credit():
    """C5, without boost: the VM waits for a slice of each of the others, at most."""
    vcpus = measured("credit", pools("boost = off", lambda n: 1, ""), 4, 2, 0.5, 100_000_000)
    for n in (2, 3, 4, 5):
        # A single VM that computes is OVER, so there is no wait.
        check(vcpus, n, 1, (n - 1) * SLICE_US, 5000 if n > 2 else 0)


@pytest.mark.long
def test_vslicer():
    """The wait is T_N + (m - 1) T_m, for one latency-sensitive VM beside one other VM, and for two
    of them beside one to three."""
    vcpus = measured("vslicer",
                     pools("sched_preset = vslicer", lambda n: min(n - 1, 2), "micro_us = 5000"), 4,
                     2, 0.5, 100_000_000)
    for n in (2, 3, 4, 5):
        m = min(n - 1, 2)
        budget = SLICE_US / (n - m)
        micro = budget / -(-budget // 5000)
        check(vcpus, n, m, SLICE_US + (m - 1) * micro, SLICE_US / 2)


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_vturbo(n):
    """The wait is (l - 1) x 0.1 ms and l switches on a turbo core."""
    config = (
        "[hypervisor]\ntop = no\nscript = script\n\n[pool fast]\ncpus = 1\nturbo_of = Pool-0\n\n"
    )
    config += VM.format(name="waker", image="waker", pool="Pool-0",
                        keys="cmdline = period_us=1730 report_s=1000\nturbo = yes")
    for i in range(1, n):
        config += VM.format(name=f"spin{i}", image="spin", pool="Pool-0", keys="turbo = yes")
    wake = measured(f"vturbo-{n}", config, 2, 0.2, 0.05, 1_000_000_000)["waker/0"]["wake_us"]
    assert wake["count"] >= 50, wake
    assert (
        (30 if n > 2 else 0) <= wake["max"] <= (n - 1) * 100 + n * TURBO_SWITCH_US
    ), f"{n} VMs: {wake}"


@pytest.mark.long
@pytest.mark.parametrize("policy, n, mean_ms", [
    ("credit", 2, 7.5), ("credit", 3, 20), ("credit", 4, 33.75), ("credit", 5, 48),
    ("vslicer", 4, 11.25)])
def test_mean(policy, n, mean_ms):
    """This is the mean wait of random events for a VM that computes beside n - 1 others, round
    robin: T (n - 1)^2 / 2 n. vSlicer's mean is 1 + 3 (section 3)."""
    sliced = policy == "vslicer"
    config = SERVED.format(settings="sched_preset = vslicer" if sliced else RING,
                           keys="micro_us = 5000" if sliced else "")
    config += "".join(
        "\n" + VM.format(name=f"spin{i}", image="spin", pool="core", keys="") for i in range(1, n)
    )
    # The ring is started by hand, half a slice apart. A VM that begins a slice with most of the
    # credit that there is loses it only just before the slice ends. Accounting sees this too late,
    # and the VM runs for another slice. What each VM begins with stays as it is for ever.
    names = ["mixed"] + [f"spin{i}" for i in range(1, n)]
    script = "@1000ms " + "\n+1ms ".join(f"pause {name}" for name in names) + "\n+100ms "
    script += "\n+15ms ".join(f"unpause {name}" for name in names) + "\n"
    directory = place(f"latency-mean-{policy}-{n}")
    with Machine("bochs", make_iso(directory, config, modules={"script": script}), cpus=2,
                 directory=directory) as machine:
        how, match = machine.wait(
            r"mixed: whole: (\d+) events, ns from raised to done: mean (\d+), .*\n", 300
        )
        assert how == "matched", f"{how}: see {directory}"
    assert int(match[1]) > 1500
    assert int(match[2]) / 1e6 == pytest.approx(mean_ms, rel=0.15)
