"""The driver domain is destroyed and made anew while a Linux VM uses its devices. Linux's driver
for virtio by MMIO cannot begin again with a device that needs a reset, so the device has to stay,
and the next driver domain has to go on with its rings. On QEMU, which has an NVMe controller, whose
disk keeps what was written."""
import os
import re

import pytest
from machine import Machine

from system.takt import linux_place, make_iso, vm
from system.test_linux import EXPECTED, PROMPT, Person

pytestmark = pytest.mark.long

CONFIG = "[hypervisor]\ntop = no\n" + "[pool io]\ncpus = 1\nsched = null\n" + "".join([
    vm("iodom", "iodom", "24M", pool="io", pci="00:04.0", unsafe_dma="yes"),
    vm("peer", "netping", net="iodom"),
    """
[vm tux]
kernel = vmlinuz
ramdisk = initrd.img
cmdline = console=ttyS0 loglevel=4 address=10.0.0.9/24
memory = 256M
vcpus = 2
net = iodom
disk = iodom dev=nvme size=32M
disk = iodom size=1M
start = no
"""])
PING = "ping -c 5 -W 5 10.0.0.2 | grep 'packets received'"
# Four programs write a pattern of 16 MiB to the disk, again and again, each of them a quarter.
WRITE = ("head -c 16777216 /dev/urandom > /tmp/pattern; for n in 0 1 2 3; do "
         "( (while [ ! -e /tmp/stop ]; do dd if=/tmp/pattern of=/dev/vda bs=16384 skip=$((n*256)) "
         "seek=$((n*256)) count=256 oflag=direct conv=notrunc 2> /dev/null || touch /tmp/failed; "
         "done) & ); done")
WRITTEN = "awk '{ print $5 }' /sys/block/vda/stat"  # how many writes have ended
STOP = ("touch /tmp/stop; while pidof dd > /dev/null; do sleep 1; done; "
        "echo 3 > /proc/sys/vm/drop_caches; [ ! -e /tmp/failed ] && "
        "dd if=/dev/vda bs=65536 count=256 2> /dev/null | cmp - /tmp/pattern && echo same")


def number(text):
    return int(text.split()[0])


def session(person):
    seen = {"written": []}
    person.expect("peer: id")
    person.takt("create tux")
    person.enter()
    person.expect(PROMPT, 120)
    seen["pings"] = [person.linux(PING)]
    person.linux("dd if=/dev/zero of=/dev/vdb bs=4096 count=1 conv=fsync 2> /dev/null")
    person.linux(WRITE)
    for _ in range(3):
        person.linux("sleep 1")
        person.leave()
        person.takt("destroy iodom")
        person.enter()
        before = person.linux("sleep 1; " + WRITTEN)
        after = person.linux("sleep 1; " + WRITTEN)
        person.leave()
        person.takt("create iodom")
        person.enter()
        end = person.linux("sleep 2; " + WRITTEN)
        seen["written"].append((number(before), number(after), number(end)))
        seen["pings"].append(person.linux(PING))
    seen["stop"] = person.linux(STOP, 120)
    seen["facts"] = re.findall(r"fact (\S+) ?(.*)", person.linux("sh /complaints"))
    seen["memory"] = person.linux("dd if=/dev/vdb of=/dev/null bs=4096 count=1")
    person.leave()
    return seen


@pytest.fixture(scope="module", params=["debian12", "debian13"])
def seen(request):
    directory = linux_place(f"linux-iodom-{request.param}", request.param)
    disk = os.path.join(directory, "nvme.img")
    with open(disk, "wb") as f:
        f.truncate(32 << 20)
    extra = ["-drive", f"if=none,id=disk,format=raw,file={disk}",
             "-device", "nvme,serial=takt,drive=disk,addr=4.0"]
    with Machine("qemu", make_iso(directory, CONFIG), memory=768, directory=directory,
                 com1="socket", extra=extra) as m:
        return session(Person(m))


def test_writes_wait_and_go_on(seen):
    """While there is no driver domain no request ends, and none fails; then they go on."""
    for before, after, end in seen["written"]:
        assert before == after < end, seen["written"]


def test_disk_has_what_was_written(seen):
    assert seen["stop"].splitlines()[-1] == "same", seen["stop"]


def test_network_goes_on(seen):
    assert len(seen["pings"]) == 4
    for said in seen["pings"]:
        assert "5 packets received, 0% packet loss" in said


def test_disk_in_memory_is_lost(seen):
    """What was on a disk in memory ended with the driver domain. Linux gets errors, and not zeros
    in the place of its data."""
    assert re.search("(?i)i/o error", seen["memory"])


def test_no_complaint(seen):
    odd = [line for kind, line in seen["facts"] if kind in ("complaint", "trouble")
           and not any(known in line for known in EXPECTED)]
    assert not odd
