"""Virtual functions of an igb are given to VMs, taken back and given again, at boot and while the
VMs run."""
import re

import pytest
from machine import IOMMU, qemu_has

from system.takt import SCRIPTED, Boot, vm

pytestmark = [pytest.mark.alone,
              pytest.mark.skipif(not qemu_has("igb"), reason="this host's QEMU has no igb")]
VF = ["01:10.0", "01:10.2", "01:10.4", "01:10.6", "01:11.0", "01:11.2", "01:11.4"]
UNSAFE = {"unsafe_dma": "yes", "start": "no"}
CONFIG = SCRIPTED.replace("top = no", "top = no\nvfs = 7")


def run(name, vms, script, **machine):
    return Boot(f"sriov-{name}", CONFIG + "".join(vms), script + ["+10ms poweroff"], "qemu",
                timeout=240, igb=1, **machine)


def error(boot, tag):
    return next(a for a in boot.answers if a["id"] == tag)["error"]


def message(boot, tag):
    return next(a for a in boot.answers if a["id"] == tag)["message"]


@pytest.mark.parametrize("iommu", [pytest.param(None, marks=pytest.mark.long), IOMMU])
def test_comes_and_goes(iommu):
    """A running VM gets a function, and gives it up when it is told to. Afterwards the VM finds
    nothing of the function."""
    rounds = ["+300ms pci-attach hot igb0/any", "+300ms pci-info -j=has 01:10.0",
              "+0ms pci-detach hot 01:10.0"]
    unsafe = "no" if iommu else "yes"
    boot = run("hot" + ("-iommu" if iommu else ""),
               [vm("hot", "test-pci_hot", cmdline="touches", on_crash="preserve", unsafe_dma=unsafe,
                   start="no")],
               ["@300ms create hot", "+300ms info -j=first"] + 3 * rounds +
               ["+0ms sriov -j=sriov", "+0ms pci-detach -j=twice hot 01:10.0", "+0ms wait hot 5s",
                "+0ms list -j=list"],
               iommu=iommu)
    assert re.search(r"hot: RESULT: SUCCESS", boot.log), boot.log[-3000:]
    assert len(boot.said(r"hot: round \d: has 180")) == 3
    assert boot.results["has"][0]["vm"] == "hot" and boot.results["has"][0]["pf"] == "01:00.0"
    assert boot.results["has"][0]["group"] == "01:10.0" and boot.results["has"][0]["vectors"] == 3
    assert boot.results["sriov"] == [{"name": "igb0", "bdf": "01:00.0", "vfs": 7, "given": 0,
                                      "lost": 0, "first": "01:10.0"}]
    assert message(boot, "twice") == "hot: it has no such device"
    assert boot.said(r"hot: crashed: read of guest-physical fe[0-9a-f]{6}: no device there")


def test_not_let_go_of():
    """A VM that does not listen loses its device after two seconds, or at once. A device that does
    not come back belongs to no VM."""
    boot = run("forced", [vm("deaf", "spin", cpus="1", **UNSAFE)], [
        "@300ms create deaf", "+0ms pci-attach deaf 01:10.0", "+0ms pci-attach deaf igb0/3",
        "+0ms pci-attach -j=none deaf igb0/9",
        "+0ms pci-list -j=has deaf", "+0ms pci-detach -f deaf 01:10.6",
        "+0ms pci-list -j=left deaf", "+0ms pci-detach deaf 01:10.0", "+0ms pci-list -j=gone deaf",
        "+0ms pci-attach deaf igb0/any",
        "+0ms fault flr deaf", "+0ms pci-detach -f deaf 01:10.0",
        "+0ms pci-attach -j=lost deaf 01:10.0",
        "+0ms pci-attach deaf igb0/any", "+0ms pci-list -j=other deaf", "+0ms sriov -j=sriov",
        "+0ms destroy deaf"])
    assert {t: [d["bdf"] for d in boot.results[t]] for t in ("has", "left", "gone", "other")} == \
        {"has": [VF[0], VF[3]], "left": [VF[0]], "gone": [], "other": [VF[1]]}
    assert (
        message(boot, "none")
        == "deaf: no free virtual function matches the one that is asked for"
    )
    assert message(boot, "lost") == "deaf: PCI device 01:10.0: it did not come back from its reset"
    assert (
        "PCI device 01:10.0 did not come back from its reset; nobody gets it any more" in boot.log
    )
    assert boot.results["sriov"][0]["lost"] == 1


def test_seven_of_them_and_four_gigabytes():
    """All functions have their registers below 4 GiB, also where firmware would put them above.
    Each function is what it says."""
    boot = run(
        "all",
        [
            vm("a", "test-pci_vf", vf="igb0/any\nvf = igb0/any\nvf = igb0/any", **UNSAFE),
            vm("b", "hello", vf="igb0/any\nvf = igb0/6\nvf = 01:00.0/5\nvf = igb0/any", **UNSAFE),
            vm("c", "hello", vf="igb0/any", **UNSAFE),
        ],
        [
            "@300ms create a",
            "+0ms create b",
            "+0ms create -j=c c",
            "+0ms pci-list -j=all",
            "+0ms wait a 8s",
        ],
        memory=4096,
    )
    owners = {d["bdf"]: d["vm"] for d in boot.results["all"] if d["bdf"] in VF}
    assert sorted(owners) == VF and all(owners.values()) and sum(o == "a"
                                                                 for o in owners.values()) == 3
    assert message(boot, "c") == "no free virtual function matches the one that is asked for"
    assert all(d["id"] == "8086:10ca" for d in boot.results["all"] if d["bdf"] in VF)
    places = [int(p, 16) for p in boot.said(r"registers at ([0-9a-f]+)")]
    assert places and all(p < 1 << 32 for p in places)


@pytest.mark.parametrize("times", [pytest.param(n, marks=pytest.mark.long) for n in (5, 100)])
def test_given_again(times):
    """A VM that had functions leaves nothing behind."""
    once = ["+0ms create one", "+0ms wait one 8s", "+0ms destroy one", "+0ms wait one 8s"]
    boot = run(f"again-{times}", [vm("one", "hello", vf="igb0/any\nvf = igb0/any", **UNSAFE)],
               ["@300ms list"] + 2 * once + ["+0ms info -j=first"] + times * once
               + ["+0ms info -j=last", "+0ms sriov -j=sriov"])
    for what in ("free_frames", "heap_bytes"):
        assert boot.results["first"][what] == boot.results["last"][what], what
    assert boot.results["sriov"][0]["given"] == 0
    assert len(boot.said(r"one: destroyed")) >= times
