"""Pools and policies of a running image. Shares are not measured here but by the demonstration,
because QEMU's clock is the host's."""
import time

import pytest

from system.takt import Takt, until

pytestmark = pytest.mark.alone

CONFIG = """\
[hypervisor]
top = no

[pool quiet]
sched = null
sleepless = on
cpus = 1

[vm first]
image = waker
memory = 4M
pool = quiet
cmdline = period_us=5000

[vm second]
image = spin
memory = 4M
pool = quiet

[vm third]
image = spin
memory = 4M
cmdline = phase_us=0
"""


@pytest.fixture(scope="module")
def takt():
    with Takt("sched", CONFIG, cpus=4) as t:
        # All VMs are made, and two are started. The third VM never sleeps, because its phase is 0.
        until(lambda: [v["switches"] for v in t("vcpu-list")] == [1, 0, 1])
        yield t


def vcpu(takt, name):
    return next(v for v in takt("vcpu-list") if v["vm"] == name)


def test_null_runs_one_and_does_not_switch(takt):
    first, second = vcpu(takt, "first"), vcpu(takt, "second")
    assert (first["state"], second["state"]) == ("running", "runnable")
    time.sleep(1)
    again = vcpu(takt, "first")
    # The VM sleeps two hundred times a second, and keeps its pCPU.
    assert again["switches"] == first["switches"] == 1
    assert again["running_ns"] > first["running_ns"]
    assert vcpu(takt, "second")["running_ns"] == 0


def test_a_cpu_and_a_vm_change_pools(takt):
    takt("cpupool-cpu-remove Pool-0 2")
    takt("cpupool-cpu-add quiet 2")
    until(lambda: vcpu(takt, "second")["state"] == "running")  # There is room for it now.
    takt("cpupool-migrate third quiet")
    assert vcpu(takt, "third")["state"] == "runnable"  # There is no room for a third one.
    takt("cpupool-cpu-remove quiet 2")
    until(lambda: [vcpu(takt, n)["state"] for n in ("second", "third")].count("running") == 0)
    takt("cpupool-cpu-add Pool-0 2")
    takt("cpupool-migrate third Pool-0")
    until(lambda: vcpu(takt, "third")["state"] == "running")


def test_who_leaves_makes_room(takt):
    takt("destroy first")
    until(lambda: vcpu(takt, "second")["state"] == "running")


def test_the_order_of_things(takt):
    """VMs and CPUs are removed, added, moved and pinned under load, over and over. At the end every
    VM runs."""
    takt("cpupool-migrate second Pool-0")
    for i in range(4):
        cpu = 2 + i % 2
        takt(f"vcpu-pin third 0 {cpu}")
        takt(f"cpupool-cpu-remove Pool-0 {cpu}")
        takt(f"cpupool-cpu-add quiet {cpu}")
        takt("cpupool-migrate second quiet" if i % 2 else "cpupool-migrate second Pool-0")
        if i % 2:
            takt("cpupool-migrate second Pool-0")
        takt(f"cpupool-cpu-remove quiet {cpu}")
        takt(f"cpupool-cpu-add Pool-0 {cpu}")
    takt("vcpu-pin third 0 all")
    until(lambda: all(vcpu(takt, n)["state"] == "running" for n in ("second", "third")))
