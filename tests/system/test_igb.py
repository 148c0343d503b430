"""The 82576 (igb) behind root ports."""
import pytest
from machine import IGB_MAC, IOMMU, Machine

from system.takt import SCRIPTED, Boot

PF = ["01:00.0", "02:00.0"]


@pytest.mark.parametrize("iommu", [None, IOMMU, "intremap=off,eim=off"])
def test_the_machine_has_them(iommu):
    """With an IOMMU and without, the card is where tests look for it, and may be given to a VM."""
    boot = Boot(f"igb-there-{(iommu or 'none').replace(',', '-')}", SCRIPTED,
                ["@300ms pci-list -j=all", "+0ms pci-assignable-list -j=free", "+10ms poweroff"], "qemu", igb=2, iommu=iommu)
    found = {d["bdf"]: d for d in boot.results["all"]}
    assert [found[b]["id"] for b in PF] == ["8086:10c9"] * 2
    assert [found[b]["class"] for b in ("00:08.0", "00:09.0")] == ["060400"] * 2  # their root ports
    assert set(PF) <= {d["bdf"] for d in boot.results["free"]}


def test_a_qemu_without_igb(monkeypatch, tmp_path):
    monkeypatch.setattr("machine.qemu_has", lambda device: False)
    with pytest.raises(ValueError, match="this host's QEMU has no igb .7.2 has none"):
        Machine("qemu", "takt.iso", directory=str(tmp_path), igb=1)


def test_addresses_of_cards_differ():
    options = Machine("qemu", "takt.iso", igb=2).sriov()
    assert [o for o in options if o.startswith("igb,")] == [f"igb,bus=rp{n},netdev=igb{n},mac={IGB_MAC.format(n)}" for n in (1, 2)]
