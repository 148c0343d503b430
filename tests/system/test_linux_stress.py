"""A Linux under stress on a pCPU that is overcommitted: stress-ng fills and checks memory, arms
timers and reads clocks on both of the VM's vCPUs, while two other VMs compute on the same pCPU.
Linux has to keep its clock, and to find nothing to complain of. `--stress 600` takes ten minutes.
On QEMU, as Bochs would need hours."""
import re

import pytest
from machine import Machine

from system.takt import linux_place, make_iso, vm
from system.test_linux import PROMPT, Person, facts, odd

pytestmark = pytest.mark.long

CONFIG = "[hypervisor]\ntop = no\n[pool one]\ncpus = 1\n" + "".join([
    vm("hog-1", "spin", pool="one", start="no"),
    vm("hog-2", "spin", pool="one", start="no"),
    """
[vm tux]
kernel = vmlinuz
ramdisk = initrd.img
cmdline = console=ttyS0 loglevel=4
memory = 256M
vcpus = 2
pool = one
start = no
"""])
STRESSORS = ("vm", "timer", "clock")
COMMAND = ("stress-ng --vm 1 --vm-bytes 32M --timer 1 --clock 1 --verify --metrics-brief "
           "--temp-path /tmp --timeout {} 2>&1; echo exit $?")
CLOCKSOURCE = "cat /sys/devices/system/clocksource/clocksource0/current_clocksource"
PATIENCE = 5  # How much longer than stress-ng runs the host may need, which is busy.


def clocks(person):
    """Returns the seconds that have passed by Linux and by Takt, one after the other."""
    person.enter()
    linux = float(re.search(r"[\d.]+", person.linux("cat /proc/uptime"))[0])
    person.leave()
    return linux, person.takt("info")["uptime_s"]


def session(person, seconds):
    seen = {}
    # What is typed before Takt's shell has started is lost.
    person.expect("takt> ")
    person.takt("create tux")
    person.enter()
    person.expect(PROMPT, 240)
    seen["clocksource"] = [person.linux(CLOCKSOURCE)]
    person.leave()
    for name in ("hog-1", "hog-2"):
        person.takt(f"create {name}")
    before = clocks(person)
    person.enter()
    seen["stress"] = person.linux(COMMAND.format(seconds), PATIENCE * (seconds + 60))
    person.leave()
    after = clocks(person)
    seen["passed"] = [end - start for start, end in zip(before, after)]
    rows = person.takt("vcpu-list tux")
    seen["ran"] = sum(row["running_ns"] for row in rows)
    seen["waited"] = sum(row["runnable_ns"] for row in rows)
    person.enter()
    seen["clocksource"].append(person.linux(CLOCKSOURCE))
    seen["facts"] = re.findall(r"fact (\S+) ?(.*)", person.linux("sh /complaints", 120))
    person.leave()
    return seen


@pytest.fixture(scope="module")
def seen(request):
    directory = linux_place("linux-stress", "debian12", programs="stress")
    with Machine("qemu", make_iso(directory, CONFIG), memory=768, directory=directory,
                 com1="socket") as m:
        return session(Person(m), request.config.getoption("--stress"))


def test_stress_finds_no_fault(seen):
    """stress-ng verifies the memory and the clocks, and each stressor has done something."""
    assert "exit 0" in seen["stress"], seen["stress"]
    done = dict(re.findall(r"\] (\w+) +(\d+) +[\d.]+ +[\d.]+", seen["stress"]))
    assert all(int(done.get(name, 0)) > 0 for name in STRESSORS), seen["stress"]


def test_was_overcommitted(seen):
    """Two others took more than half of what the VM asked for."""
    assert seen["waited"] > seen["ran"]


def test_clocksource_stays(seen):
    assert seen["clocksource"] == ["kvm-clock\n"] * 2


def test_clock_agrees_with_the_machine(seen):
    """Linux's clock has gone as far as Takt's, within 1 %."""
    linux, takt = seen["passed"]
    assert abs(linux - takt) < takt / 100


def test_no_complaint(seen):
    assert facts(seen, "complaint")  # Each boot has one line that is expected.
    assert not odd(seen)
