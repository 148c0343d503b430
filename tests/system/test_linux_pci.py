"""An unmodified Linux in a VM that was given devices of the machine: a virtual function of a
network card, whose physical function the driver domain has, and an NVMe disk. Linux drives them by
its own igbvf and nvme, with the kernel that has such drivers. On QEMU, the only emulator with these
devices and with an IOMMU."""
import os
import re

import pytest
from machine import IOMMU, Machine

from system.takt import linux_place, make_iso, vm
from system.test_linux import EXPECTED, PROMPT, Person

pytestmark = pytest.mark.long

CONFIG = "[hypervisor]\ntop = no\n" + "[pool io]\ncpus = 1\nsched = null\n" + "".join([
    vm("iodom", "iodom", "24M", pool="io", pci="01:00.0"),
    """
[vm tux]
kernel = vmlinuz
ramdisk = initrd.img
cmdline = console=ttyS0 loglevel=5 address=10.0.2.15/24
memory = 320M
vcpus = 2
vf = igb0/any
pci = 00:06.0
start = no
"""])
DEVICES = ("01:10.0", "00:06.0")
LABEL = b"Takt reads and writes this disk."


def owners(person):
    return [d["vm"] for d in person.takt("pci-list") if d["bdf"] in DEVICES]


def use(person):
    """Returns what Linux says of its devices, from the start of the VM to its end."""
    person.takt("create tux")
    person.enter()
    person.expect(PROMPT, 120)
    facts = re.findall(r"fact (\S+) ?(.*)", person.linux("sh /check-pci", 120))
    person.leave()
    had = owners(person)
    person.takt("shutdown tux")
    person.expect("tux: ends with code 0")
    person.expect("tux: destroyed")
    return {"facts": facts, "owners": had, "owners_then": owners(person)}


@pytest.fixture(scope="module")
def seen():
    directory = linux_place("linux-pci-qemu", "debian12", drivers=True)
    disk = os.path.join(directory, "nvme.img")
    with open(disk, "wb") as f:
        f.write(LABEL)
        f.truncate(4 << 20)
    extra = ["-drive", f"if=none,id=disk,format=raw,file={disk}",
             "-device", "nvme,serial=takt,drive=disk,addr=6.0"]
    with Machine("qemu", make_iso(directory, CONFIG), memory=768, directory=directory,
                 com1="socket", igb=1, iommu=IOMMU, extra=extra) as m:
        person = Person(m)
        person.expect("iodom: id")
        return [use(person), use(person)]


def facts(turn, name):
    return [value.strip() for key, value in turn["facts"] if key == name]


def test_linux_finds_its_devices(seen):
    """The host bridge, and the devices in the order of the keys. When the VM is switched off they
    are free, and work in the next VM."""
    assert len(seen) == 2
    for turn in seen:
        assert facts(turn, "id") == ["0000:00:00.0 0x1b36 0x0008 0x060000",
                                     "0000:00:01.0 0x8086 0x10ca 0x020000",
                                     "0000:00:02.0 0x1b36 0x0010 0x010802"]
        assert facts(turn, "end") == [""]
        assert turn["owners"] == ["tux", "tux"]
        assert turn["owners_then"] == ["", ""]


def test_virtual_function(seen):
    for turn in seen:
        assert facts(turn, "ping") == ["5 packets transmitted, 5 packets received, 0% packet loss"]


def test_disk(seen):
    for turn in seen:
        assert facts(turn, "label") == [LABEL.decode()]
        assert facts(turn, "disk") == ["same"]


def test_interrupts(seen):
    """Each queue interrupts the vCPU that Linux has chosen for it."""
    for turn in seen:
        rows = {words[-1]: [int(n) for n in words[1:3]]
                for words in map(str.split, facts(turn, "interrupts"))}
        assert sum(rows["eth0-rx-0"]) > 0 and sum(rows["eth0-tx-0"]) > 0, rows
        assert rows["nvme0q1"][0] > 60 and rows["nvme0q1"][1] == 0, rows
        assert rows["nvme0q2"][1] > 60 and rows["nvme0q2"][0] == 0, rows


def test_no_complaint(seen):
    odd = [line for turn in seen for line in facts(turn, "complaint")
           if not any(known in line for known in EXPECTED)]
    assert not odd
