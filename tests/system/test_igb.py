"""The 82576 (igb) behind root ports."""
import json
import os
import socket

import pytest
from machine import IGB_MAC, IOMMU, Machine

from system.takt import SCRIPTED, Boot, Takt, place, until, vm
from system.test_io import PINGS

pytestmark = pytest.mark.alone

PF = ["01:00.0", "02:00.0"]


@pytest.mark.parametrize("iommu", [None, IOMMU, "intremap=off,eim=off"])
def test_the_machine_has_them(iommu):
    """With an IOMMU and without one, the card is where tests look for it, and may be given to a
    VM."""
    boot = Boot(f"igb-there-{(iommu or 'none').replace(',', '-')}", SCRIPTED,
                ["@300ms pci-list -j=all", "+0ms pci-assignable-list -j=free", "+10ms poweroff"],
                "qemu", igb=2, iommu=iommu)
    found = {d["bdf"]: d for d in boot.results["all"]}
    assert [found[b]["id"] for b in PF] == ["8086:10c9"] * 2
    # These are their root ports.
    assert [found[b]["class"] for b in ("00:08.0", "00:09.0")] == ["060400"] * 2
    assert set(PF) <= {d["bdf"] for d in boot.results["free"]}


def test_a_qemu_without_igb(monkeypatch, tmp_path):
    monkeypatch.setattr("machine.qemu_has", lambda device: False)
    with pytest.raises(ValueError, match="this host's QEMU has no igb .7.2 has none"):
        Machine("qemu", "takt.iso", directory=str(tmp_path), igb=1)


def test_addresses_of_cards_differ():
    options = Machine("qemu", "takt.iso", igb=2).sriov()
    assert [o for o in options if o.startswith("igb,")] == [
        f"igb,bus=rp{n},netdev=igb{n},mac={IGB_MAC.format(n)}" for n in (1, 2)
    ]


def iodom(name, pci, **keys):
    return vm(name, "iodom", "12M", pci=pci, unsafe_dma="yes", cmdline="report_s=1", **keys)


def test_ping_and_be_pinged():
    """Two driver domains have a card each, on one hub. A VM behind the first pings the VM behind
    the second, and that one pings the hub's gateway."""
    config = SCRIPTED + iodom("iodom", PF[0]) + iodom("other", PF[1])
    config += vm("ping", "netping",
                 cmdline="ip=0x0a000001 to=0x0a000002 batches=5 batch=32 timeout_ms=3000",
                 net="iodom", start="no")
    config += vm("answer", "netping", cmdline="ip=0x0a000002", net="other")
    config += vm("out", "netping",
                 cmdline="ip=0x0a00020f to=0x0a000202 batches=5 batch=4 timeout_ms=3000",
                 net="other", start="no")
    boot = Boot(
        "igb-ping",
        config,
        "@1500ms list\n+0ms create ping\n+0ms wait ping 9s\n+0ms create out\n+0ms wait out 9s\n"
        "+1200ms create ping\n+0ms wait ping 9s\n+1300ms poweroff\n",
        "qemu",
        igb=2,
    )
    assert [said[:3] for said in boot.said(PINGS)] == [("160", "0", "0")] * 2, boot.log[-3000:]
    assert boot.said("out: netping: 20 sent, 0 lost, 0 wrong")
    assert boot.said("network card 01:00.0: igb, a port of the bridge")
    counts = [
        dict(c.split("=") for c in line.split())
        for line in boot.said(r"iodom: network card 01:00.0: (in=.*)")
    ]
    # The counts are those of the first time: pings, and ARP.
    assert int(counts[-1]["in"]) >= 161 and int(counts[-1]["out"]) >= 161, counts
    assert not {"ring_full", "bad", "damaged", "missed", "spoofed"} & set(counts[-1])


class Qmp:
    """QEMU's own monitor."""

    def __init__(self, path):
        self.link = socket.socket(socket.AF_UNIX)
        self.link.connect(path)
        self.lines = self.link.makefile("r", encoding="utf-8")
        self.lines.readline()
        self("qmp_capabilities")

    def __call__(self, command, **arguments):
        self.link.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        answer = {}
        while "return" not in answer:
            answer = json.loads(self.lines.readline())
            assert "error" not in answer, answer


def test_link_goes_and_comes_back():
    monitor = os.path.join(place("igb-link"), "monitor")
    config = "[hypervisor]\ntop = no\nguest_console = log\n" + iodom("iodom", PF[0])
    config += vm(
        "ping",
        "netping",
        cmdline="ip=0x0a00020f to=0x0a000202 batches=100000 batch=1 timeout_ms=100 interval_ms=5",
        net="iodom",
    )
    with Takt("igb-link", config, igb=1,
              extra=["-qmp", f"unix:{monitor},server=on,wait=off"]) as takt:
        def frames():
            return next((d["interrupts"] for d in takt("devices") if d["vm"] == "ping"), 0)

        def said(what):
            takt("list")  # This reads the console.
            return takt.serial().count(f"01:00.0: link is {what}")

        qmp = Qmp(monitor)
        until(lambda: said("up") == 1)
        until(lambda: frames() > 10)
        qmp("set_link", name="igb1", up=False)
        until(lambda: said("down") == 1)
        qmp("set_link", name="igb1", up=True)
        until(lambda: said("up") == 2)
        before = frames()
        until(lambda: frames() > before + 10)
        assert ": crashed" not in takt.serial()
