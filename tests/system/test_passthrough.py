"""Devices of the machine are given to VMs, one after the other. All of them come back, and no
device writes where its VM's RAM was."""
import re

import pytest
from machine import NIC_USER

from system.takt import SCRIPTED, Boot, vm

pytestmark = pytest.mark.alone

NIC = "00:03.0"
# It lasts this long, because a VM that has ended is gone soon.
DESTROYED = "+0ms top -j=pause -w 0.1 -d 0.2"
EDU = ["-device", "edu,addr=4.0"]


def run(name, platform, script, device=""):
    """Returns (log, {tag: answer}) of a boot with these commands. The VM `leaves`, and then the VM
    `heir`, has the network card or another device."""
    role, mine = f'"role={{}} {device} platform={platform}"', "00:04.0" if device else NIC
    unsafe = {"unsafe_dma": "yes", "start": "no"}
    config = SCRIPTED + "".join([
        vm("nic", "test-pci_nic", cmdline=f"platform={platform}", pci=NIC, **unsafe),
        vm("rival", "hello", pci=NIC, **unsafe),
        vm("trusted", "hello", pci=NIC, start="no"),
        vm("leaves", "test-pci_late", "8M", cmdline=role.format("leaves"), pci=mine, **unsafe),
        vm("heir", "test-pci_late", "8M", cmdline=role.format("heir"),
           **({} if device else {"pci": NIC}), **unsafe),
    ])
    boot = Boot(f"passthrough-{name}", config, script + ["+10ms poweroff"], platform, timeout=150,
                nic=NIC_USER,
                extra=EDU if platform != "bochs" else [])
    return boot.log, {a["id"]: a for a in boot.answers}


def test_given_back_and_given_again(platform):
    once = ["+0ms create nic", "+0ms wait nic 8s", DESTROYED]
    script = ["@300ms pci-list -j=before"] + once + ["+0ms info -j=first"] + once + once
    script += ["+0ms info -j=last", "+0ms pci-list -j=after"]
    text, answers = run("again", platform, script)
    assert len(re.findall(r"\] nic: RESULT: SUCCESS", text)) == 3, text[-3000:]
    for what in ("free_frames", "heap_bytes"):
        assert answers["first"]["result"][what] == answers["last"]["result"][what], what
    card = {
        a: next(d for d in answers[a]["result"] if d["bdf"] == NIC) for a in ("before", "after")
    }
    # This is about the last VM that had it.
    assert card["before"]["interrupts"] == 0 and card["after"]["interrupts"] >= 3
    assert card["after"]["vm"] == ""
    assert card["after"]["pin_source"] == ("its interrupt line register" if platform == "bochs"
                                           else "the MP table")


def test_refusals(platform):
    text, answers = run("refused", platform, [
        "@300ms create -j=trusted trusted", "+0ms create -j=bridge rival pci=00:00.0",
        "+0ms create -j=gone rival pci=07:00.0",
        "+0ms create nic", "+0ms create -j=rival rival", "+0ms pci-list -j=its nic",
        "+0ms pci-assignable-list -j=free",
        "+0ms wait nic 8s", DESTROYED, "+0ms create -j=then rival", "+100ms list"])
    said = {i: a.get("message") for i, a in answers.items()}
    assert (
        said["trusted"]
        == "PCI device 00:03.0 reaches all memory, as no IOMMU is in use: it needs unsafe_dma = yes"
    )
    assert said["bridge"] == "PCI device 00:00.0: it is a part of the machine itself"
    assert said["gone"] == "there is no PCI device 07:00.0"
    assert said["rival"] == "PCI device 00:03.0 belongs to nic"
    assert [d["bdf"] for d in answers["its"]["result"]] == [NIC]
    assert NIC not in [d["bdf"] for d in answers["free"]["result"]]
    assert answers["then"]["error"] == 0, text[-2000:]
    assert "unsafe_dma: who controls this VM can read and write all memory of the machine" in text


@pytest.mark.parametrize("device", ["nic", "edu"])
def test_nothing_is_written_after_the_end(platform, device):
    """Bochs' card does not obey COMMAND. The device edu does, and its transfer is under way when it
    loses its right to it."""
    if device == "edu" and platform == "bochs":
        pytest.skip("Bochs has no edu")
    text, answers = run(f"late-{device}", platform, ["@300ms create leaves", "+0ms wait leaves 8s",
                                                     "+0ms list", "+0ms create heir",
                                                     "+0ms wait heir 8s", "+20ms list"],
                                                     "edu" if device == "edu" else "")
    assert re.search(r"\] leaves: RESULT: SUCCESS", text), text[-3000:]
    assert re.search(r"\] heir: RESULT: SUCCESS", text), text[-3000:]
