"""Guests and devices do their worst, on a machine with an IOMMU: a virtual function is turned
against all others, a device writes after its VM has ended, and devices raise NMIs."""
import re
import socket
import time

import pytest
from machine import IOMMU, Machine, qemu_has

from system.takt import SCRIPTED, Boot, make_iso, place, vm

pytestmark = [pytest.mark.alone,
              pytest.mark.skipif(not qemu_has("igb"), reason="this host's QEMU has no igb")]

ABUSE = SCRIPTED.replace("top = no", "top = no\nvfs = 2") + vm("iodom", "iodom", "12M",
                                                               pci="01:00.0", start="no") + \
    vm("victim", "test-pci_abuse", vf="igb0/0", start="no") + vm("other", "busy",
                                                                 cmdline="percent=5") + \
    vm("abuser", "test-pci_abuse", vf="igb0/1", cmdline='"abuser to=0"', on_crash="preserve",
       start="no")


@pytest.mark.long
def test_a_virtual_function_turned_against_everybody():
    """The attempts change nothing, and each is counted. A forged message is reported and has no
    effect. The function itself and its neighbour work afterwards. When the function reaches for
    memory that its VM does not have, its VM is stopped, and no other one."""
    boot = Boot("abuse", ABUSE, ["@300ms create iodom", "+0ms create victim", "+0ms create abuser",
                                 "+0ms wait victim 30s",
                                 "+0ms wait abuser 10s", "+0ms pci-list -j=pci abuser",
                                 "+0ms counters -j=counts",
                                 "+0ms list -j=then", "+0ms poweroff"], "qemu", igb=1, iommu=IOMMU)
    for name in ("abuser", "victim"):
        assert boot.said(rf"\] {name}: RESULT: SUCCESS"), boot.log[-3000:]
    assert boot.said(r"\] victim: [1-4] interrupts of its function"), boot.log[-3000:]
    refused = int(boot.said(r"abuser: (\d+) registers refused")[0])
    counts = {c["name"]: c["value"] for c in boot.results["counts"]}
    assert counts["device_registers_refused"] == boot.results["pci"][0]["refused"] == refused > 2000
    assert boot.said(
        r"\] nobody's: PCI device ff:1f.7 may not interrupt by entry 255: there is none \(VT-d "
        r"fault 22\); 1 so far"
    )
    assert boot.said(
        r"\] abuser: crashed: PCI device 01:10.2 may not read from 30000000 \(VT-d fault [56]\)"
    ), boot.log[-3000:]
    assert counts["dma_faults"] == len(boot.said(r"\] .*VT-d fault")) == 2
    assert not boot.said("stray interrupt|it is still here|goes on interrupting")
    assert {v["name"] for v in boot.results["then"] if v["state"] == "running"} == {
        "iodom",
        "other",
    }


EDU, ECAM = "00:04.0", 0xb0000000
EDU_RUN, TO_RAM, MASTER = 0x98, 3, 0x06
LATE = SCRIPTED + vm("other", "busy", vcpus=2, cmdline="percent=90") + \
    vm("leaves", "test-pci_late", "8M", cmdline='"role=leaves edu"', pci=EDU, start="no") + \
    vm("heir", "test-pci_late", "8M", cmdline='"role=heir edu ms=600000"', start="no")
LATE_SCRIPT = "@300ms create leaves\n+0ms wait leaves 20s\n+0ms wait leaves 20s\n+0ms create heir\n"


class Outside:
    """A machine that is acted on from outside: by QEMU's monitor, and by its protocol for tests
    (docs/devel/testing/qtest)."""

    def __init__(self, name):
        directory = place(name)
        self.paths = [f"{directory}/{what}.sock" for what in ("monitor", "qtest")]
        options = ["-device", "edu,addr=4.0,dma_mask=0xffffffffffffffff", "-qtest-log", "none"]
        for option, path in zip(("-monitor", "-qtest"), self.paths):
            options += [option, f"unix:{path},server=on,wait=off"]
        iso = make_iso(directory, LATE, modules={"script": LATE_SCRIPT})
        self.machine = Machine("qemu", iso, directory=directory, iommu=IOMMU, extra=options)

    def says(self, what):
        """Waits until the machine says this, after what was waited for before."""
        how, match = self.machine.wait(what, 60)
        assert how == "matched", f"{how}: {what}\n{self.machine.serial()[-3000:]}"
        return match

    def ask(self, path, line, answer):
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(20)
            link.connect(path)
            link.sendall(line.encode() + b"\n")
            said = b""
            while not re.search(answer, said):
                said += link.recv(4096)

    def nmi(self):
        self.ask(self.paths[0], "nmi", rb"\n\(qemu\)(.|\n)*\n\(qemu\)")

    def write(self, at, value, letter):
        self.ask(self.paths[1], f"write{letter} {at:#x} {value:#x}", rb"OK")


@pytest.fixture(scope="module")
def outside():
    machine = Outside("late-iommu")
    with machine.machine:
        yield machine


def test_a_device_that_writes_after_its_vm_has_ended(outside):
    """The device has no reset, and here it does not obey what Takt does to the bus either. It is
    blocked, reported and counted, and the VM that has that RAM now sees nothing of its writes."""
    registers = int(outside.says("leaves: its registers are at ([0-9a-f]+)")[1], 16)
    outside.says("leaves: RESULT: SUCCESS")
    outside.says("heir: nothing so far")
    for n in (1, 2):
        time.sleep(1.1 * (n - 1))  # There is one message a second.
        outside.write(ECAM + (4 << 15) + 4, MASTER, "w")
        outside.write(registers + EDU_RUN, TO_RAM, "q")
        outside.says(
            rf"nobody's: PCI device {EDU} may not write to [0-9a-f]+: it is blocked \(VT-d fault "
            rf"2\); {n} so far"
        )
    outside.says("heir: nothing so far")
    assert "FAILURE" not in outside.machine.serial()


def test_nmis_of_devices(outside):
    """The NMIs are as those of SERR. A few of them are logged, whichever pCPU gets them; the VMs go
    on and do not notice."""
    sentence = r"CPU {}: NMI that nobody sent, at [0-9a-f]+; going on"
    outside.says("heir: nothing so far")
    end = time.monotonic() + 30
    while outside.machine.serial().count("NMI that nobody sent") < 16:
        assert time.monotonic() < end, outside.machine.serial()[-3000:]
        outside.nmi()
        time.sleep(0.02)
    outside.nmi()
    outside.says(r"heir: nothing so far(.|\n)*heir: nothing so far")
    text = outside.machine.serial()
    assert len(re.findall(sentence.format(r"\d"), text)) == 16
    assert re.search(sentence.format(0), text) and re.search(sentence.format(1), text)
    assert not re.search("crashed|panic|exception", text), text[-3000:]
