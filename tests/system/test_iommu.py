"""Devices of VMs under an IOMMU (QEMU's intel-iommu). They reach what their VM has; a device that
reaches for more is named, and its VM is stopped."""
import re

import pytest
from machine import IOMMU, NIC_USER, qemu_has

from system.takt import SCRIPTED, Boot, vm

pytestmark = pytest.mark.alone

NIC, EDU = "00:03.0", "00:04.0"
MACHINE = {"nic": NIC_USER, "extra": ["-device", "edu,addr=4.0,dma_mask=0xffffffffffffffff"]}


def run(name, config, script, iommu=IOMMU, **machine):
    return Boot(f"iommu-{name}", SCRIPTED.replace("top = no", "top = no\nvfs = 7") + config,
                script + ["+10ms poweroff"], "qemu",
                timeout=150, iommu=iommu, **MACHINE, **machine)


def gone(name):
    """Returns commands that wait until the VM has ended, and then until it does not exist any more.
    A VM that has just ended may still be there."""
    return [f"+0ms wait {name} 8s"] * 2


def wild(name, device, **keys):
    words = keys.pop("words")
    return vm(name, "test-pci_wild", cmdline=f'"platform=qemu device={device} {words}"', start="no",
              pci=EDU if device == "edu" else NIC, **keys)


@pytest.mark.long
@pytest.mark.parametrize("options",
                         ["intremap=on,eim=off", "intremap=on,eim=on,caching-mode=on,aw-bits=39"])
def test_a_card_works(options):
    """The card is given, taken back and given again, without unsafe_dma."""
    once = ["+0ms create nic"] + gone("nic")
    boot = run(f"card-{len(options)}",
               vm("nic", "test-pci_nic", cmdline="platform=qemu", pci=NIC, start="no"),
               ["@300ms pci-list"] + once + ["+0ms info -j=first"] + once + ["+0ms info -j=last"],
               iommu=options)
    assert boot.said(f"coherent, {'xAPIC' if 'eim=off' in options else 'x2APIC'} ids")
    assert len(boot.said(r"\] nic: RESULT: SUCCESS")) == 2, boot.log[-3000:]
    assert not boot.said("VT-d fault|unsafe_dma")
    for what in ("free_frames", "heap_bytes"):
        assert boot.results["first"][what] == boot.results["last"][what], what


WILD = {  # VM: device, words, what is said about it
    "to-nowhere": ("edu", "at=0x30000000", "write to 30000000"),
    "from-nowhere": ("edu", "read at=0x200000000", "read from 200000000"),
    # Its own RAM ends at 4 MiB. What the machine has there does not belong to this VM.
    "to-hypervisor": ("edu", "at=0x800000", "write to 800000"),
    "ring": ("ring", "at=0x30000000", "read from 30000000"),
    "frame": ("frame", "at=0x31000000", "read from 31000000"),
}


def test_confined():
    """A card works as ever, without unsafe_dma. A VM whose device goes wild is named in a sentence
    and stopped, and no other VM is. Its device can be given to the next VM. At the end nothing is
    missing."""
    config = vm("nic", "test-pci_nic", cmdline="platform=qemu", pci=NIC, start="no") + vm(
        "other", "busy"
    )
    script = ["@300ms create nic"] + gone("nic") + ["+0ms info -j=first"]
    for name, (device, words, _) in WILD.items():
        config += wild(name, device, words=words, on_crash="preserve")
        script += [
            f"+0ms create {name}",
            f"+0ms wait {name} 8s",
            "+0ms pci-list -j=pci-" + name,
            f"+0ms destroy {name}",
        ] + gone(name)
    boot = run("confined", config, script
               + ["+0ms create nic"] + gone("nic") + ["+0ms info -j=last", "+0ms list -j=then"])
    assert boot.said(r"IOMMU +yes  confines the devices of VMs") and boot.said(
        "not coherent, x2APIC ids"
    )
    assert boot.said(r"nic: network card .*, DMA offset 0\n")
    assert len(boot.said(r"\] nic: RESULT: SUCCESS")) == 2, boot.log[-3000:]
    for name, (device, _, sentence) in WILD.items():
        bdf = EDU if device == "edu" else NIC
        assert boot.said(
            rf"\] {name}: crashed: PCI device {bdf} may not {sentence} \(VT-d fault [56]\)"
        ), (name, boot.log[-3000:])
        assert boot.said(rf"\] {name}: now it goes wild")
        assert next(d for d in boot.results["pci-" + name] if d["bdf"] == bdf)["faults"] >= 1
    assert len(boot.said(r"\] .*VT-d fault")) == len(WILD)
    assert not boot.said("it is still here|unsafe_dma")
    assert [(v["name"], v["state"]) for v in boot.results["then"]] == [("other", "running")]
    for what in ("free_frames", "heap_bytes"):
        assert boot.results["first"][what] == boot.results["last"][what], what


@pytest.mark.long
def test_logged_and_counted():
    """With on_dma_fault = log, the VM goes on. There is at most one sentence a second, and all
    faults are counted."""
    boot = run("log", wild("wild", "edu", words="at=0x30000000 times=40", on_dma_fault="log"),
               ["@300ms create wild", "+0ms wait wild 20s", "+0ms pci-list -j=pci"])
    assert boot.said(r"\] wild: RESULT: SUCCESS it is still here"), boot.log[-3000:]
    sentences = boot.said(
        r"\] wild: PCI device 00:04.0 may not write to 30000000 \(VT-d fault 5\); (\d+) so far"
    )
    span = boot.said(r"\[ *([\d.]+)\] wild: now it goes wild") + boot.said(
        r"\[ *([\d.]+)\] wild: RESULT"
    )
    assert 1 <= len(sentences) <= 2 + float(span[1]) - float(span[0])
    assert next(d for d in boot.results["pci"] if d["bdf"] == EDU)["faults"] >= 10


@pytest.mark.long
@pytest.mark.parametrize("options, why", [
    (None, "no IOMMU is in use"),
    ("intremap=off", "its IOMMU does not remap interrupts"),
])
def test_refused_without(options, why):
    """The boot goes on. Without unsafe_dma no device is given; with it devices are given as
    ever."""
    boot = run(f"refused-{'off' if options else 'none'}",
               vm("safe", "hello", pci=NIC, start="no") +
               vm("nic", "test-pci_nic", cmdline="platform=qemu", pci=NIC, unsafe_dma="yes",
                  start="no"),
               ["@300ms create -j=safe safe", "+0ms create nic", "+0ms wait nic 8s"], iommu=options)
    assert [a["message"] for a in boot.answers if a["id"] == "safe"] == [
        f"PCI device {NIC} reaches all memory, as {why}: it needs unsafe_dma = yes"]
    assert boot.said("IOMMU +no   unsafe_dma alone gives VMs devices") and boot.said(
        f"Devices are not confined: {why}"
    )
    assert boot.said(r"\] nic: RESULT: SUCCESS"), boot.log[-3000:]


@pytest.mark.long
def test_interrupts_come_by_their_entry():
    """The device edu interrupts by MSI through its own entry. A message that it forges by DMA, of
    an entry that does not exist, has no effect. QEMU only says for real messages which device they
    come from."""
    boot = run("msi", vm("msi", "test-pci_msi", cmdline="platform=qemu", pci=EDU, start="no") +
               wild("wild", "edu", words="interrupt at=0xfee01ff0"),
               ["@300ms create msi"] + gone("msi") + ["+0ms create wild", "+0ms wait wild 8s"])
    assert boot.said(r"\] msi: RESULT: SUCCESS"), boot.log[-3000:]
    assert boot.said(
        r"may not interrupt by entry 255: there is none \(VT-d fault 22\); 1 so far"
    ), boot.log[-3000:]
    assert not boot.said("stray interrupt")


def test_windows_of_a_back_end():
    """The device of a back end reaches what the back end has mapped of a front end, at the same
    address. When the front end has gone, the device reaches nothing of the VM that has the frames
    then. What is unmapped cannot be reached any more."""
    boot = run("window", vm("back", "test-pci_window", cmdline="vm=2", pci=EDU, on_crash="preserve",
                            start="no") +
               vm("front", "test-pci_window", "8M", cmdline="vm=1", net="back", start="no") +
               vm("heir", "test-pci_late", "8M", cmdline='"role=heir edu"', start="no"),
               ["@300ms create back", "+0ms create front"] + gone("front") +
               ["+0ms create heir", "+0ms wait heir 8s", "+0ms wait back 8s"])
    assert boot.said(r"\] front: RESULT: SUCCESS"), boot.log[-3000:]
    assert boot.said(r"\] heir: RESULT: SUCCESS"), boot.log[-3000:]
    assert boot.said(r"\] back: it wrote all the time"), boot.log[-3000:]
    assert boot.said(
        r"\] back: crashed: PCI device 00:04.0 may not write to 4000[0-9a-f]+ \(VT-d fault 5\)"
    ), boot.log[-3000:]
    assert not boot.said("it is still here")


@pytest.mark.long
@pytest.mark.skipif(not qemu_has("igb"), reason="this host's QEMU has no igb")
def test_a_virtual_function_comes_and_goes():
    """The function is confined by its own number, by way of its bridge. No table of the firmware
    has that number, and its VM had no device before."""
    rounds = 3 * ["+300ms pci-attach hot igb0/any", "+300ms pci-list -j=has hot",
                  "+0ms pci-detach hot 01:10.0"]
    boot = run("vf", vm("hot", "test-pci_hot", cmdline="touches", on_crash="preserve", start="no"),
               ["@300ms create hot"] + rounds
               + ["+0ms wait hot 5s", "+0ms destroy hot"] + gone("hot"), igb=1)
    assert boot.said(r"\] hot: RESULT: SUCCESS"), boot.log[-3000:]
    assert [d["bdf"] for d in boot.results["has"]] == ["01:10.0"]
    assert not boot.said("VT-d fault|unsafe_dma")
