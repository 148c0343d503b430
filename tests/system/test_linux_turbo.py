"""A Linux with a turbo vCPU (docs/policies.md, vTurbo): Takt tells Linux by its command line to
handle interrupts on CPU 0, which is the turbo vCPU, and to run programs elsewhere. Two VMs that
only compute share the other pCPU with it. When the interrupts are moved to the CPU that computes,
answers to pings wait until the other VMs have had their slices."""
import re

import pytest
from machine import Machine

from system.takt import linux_place, make_iso, vm
from system.test_linux import PROMPT, Person

pytestmark = pytest.mark.long

CPUS = 3
PINGS = 20
# The regular pCPU is 0, the driver domain's is 1, and the turbo pCPU is 2. The VM that pings is on
# the driver domain's pCPU, so that what it measures is the wait of `tux` alone.
CONFIG = "[hypervisor]\ntop = no\nguest_console = log\n[pool io]\ncpus = 1\n" + """
[pool turbo]
turbo_of = Pool-0
cpus = 2
""" + "".join([
    vm("iodom", "iodom", "24M", pool="io"),
    vm("asks", "netping", net="iodom", pool="io", start="no",
       cmdline=f"to=0x0a000009 ip=0x0a000003 batches={PINGS} batch=1 interval_ms=50"),
    vm("hog-1", "spin", start="no"),
    vm("hog-2", "spin", start="no"),
    """
[vm tux]
kernel = vmlinuz
ramdisk = initrd.img
cmdline = console=ttyS0 loglevel=5 address=10.0.0.9/24
memory = 256M
vcpus = 1
turbo = yes
net = iodom
disk = iodom size=8M
start = no
"""])


def ping(person):
    """Returns how long an answer took on average, in ns, while tux and two other VMs compute."""
    for name in ("hog-1", "hog-2", "asks"):
        person.takt(f"create {name}")
    said = person.expect(r"(\d+) sent, (\d+) lost, \d+ wrong, first answer of a batch after "
                         r"(\d+) ns", 120)
    person.expect("asks: destroyed")
    for name in ("hog-1", "hog-2"):
        person.takt(f"destroy {name}")
    assert said[2] == "0"
    return int(said[3])


def interrupts(person):
    """Returns how many interrupts of virtio devices each CPU of Linux has had."""
    rows = [line.split() for line in person.linux("grep virtio /proc/interrupts").splitlines()]
    cpus = len(person.linux("head -1 /proc/interrupts").split())
    return [sum(int(row[1 + cpu]) for row in rows) for cpu in range(cpus)]


def session(person):
    """Returns what Linux says about itself, and its answers to pings."""
    seen = {}
    person.expect("iodom: id")
    person.takt("create tux")
    person.enter()
    person.expect(PROMPT, 120)
    seen["cmdline"] = person.linux("cat /proc/cmdline").split()
    # A program that computes, while the disk and the network interrupt.
    person.linux("while :; do :; done & dd if=/dev/vda of=/dev/null bs=65536 count=64 2> /dev/null")
    seen["ran_on"] = person.linux("cat /proc/$!/stat").split()[38]  # proc(5): `processor`
    person.leave()
    seen["turbo"] = ping(person)
    person.enter()
    seen["interrupts"] = interrupts(person)
    person.linux("for i in $(awk '/virtio/ { print $1 + 0 }' /proc/interrupts); do "
                 "echo 2 > /proc/irq/$i/smp_affinity; done")
    person.leave()
    seen["regular"] = ping(person)
    return seen


@pytest.fixture(scope="module")
def seen(platform):
    directory = linux_place(f"linux-turbo-{platform}", "debian12")
    iso = make_iso(directory, CONFIG)
    with Machine(platform, iso, cpus=CPUS, memory=768, directory=directory, com1="socket") as m:
        found = session(Person(m))
    print(found)
    return found


def test_command_line(seen):
    assert [word for word in seen["cmdline"] if re.match("isolcpus|irqaffinity", word)] == [
        "isolcpus=0", "irqaffinity=0"]


def test_interrupts(seen):
    """All interrupts of devices go to CPU 0, and programs run on CPU 1."""
    first, other = seen["interrupts"]
    assert first > 50
    assert other == 0
    assert seen["ran_on"] == "1"


def test_ping(seen, platform):
    """With its interrupts on the turbo vCPU, Linux answers without waiting for the VMs that
    compute."""
    if platform != "bochs":
        pytest.skip("needs virtual time: QEMU's clock goes on while the host does something else")
    assert seen["turbo"] * 4 < seen["regular"]
