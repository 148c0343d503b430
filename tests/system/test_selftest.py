"""The self test and the description of a machine, both of which the command line asks for."""
import os
import re
import socket
import subprocess

import pytest
from machine import IOMMU, ROOT, Machine

from system.takt import make_iso, place, taktctl, vm

HOLDS = {"entry and exit", "TLB", "timer", "kicks", "NMIs", "device interrupt"}
NVME = ["-drive", "if=none,id=d,driver=null-co,size=1M", "-device", "nvme,drive=d,serial=1"]
XHCI = ["-device", "qemu-xhci"]


def boot(platform, name, word, **machine):
    directory = place(f"selftest-{name}-{platform}")
    m = Machine(platform, make_iso(directory, "[hypervisor]\n", word), directory=directory,
                **machine)
    m.start()
    try:
        how, _ = m.wait(None, 90)
        assert how == "ended", f"{how}\n{m.serial()[-3000:]}"
        return m.serial()
    finally:
        m.stop()


def rows(text):
    """Returns {check: (verdict, sentence)}."""
    return {
        m[1].strip(): (m[2], m[3])
        for m in re.finditer(r"\]   (\S.{17}) (ok|FAILS|-) +(.*?)\r?\n", text)
    }


def holding(checks):
    return {what for what, (verdict, _) in checks.items() if verdict == "ok"}


def test_selftest(platform):
    """The machine has two CPUs, and nothing that confines devices."""
    text = boot(platform, "two", "selftest")
    checks = rows(text)
    assert holding(checks) == HOLDS, text[-3000:]
    assert "on 2 CPUs" in checks["entry and exit"][1]
    assert checks["DMA"] == ("-", "nothing confines devices: no IOMMU is in use")
    assert "Self test: 6 checks held, 0 failed, 1 could not be made" in text
    assert "The self test passed." in text


@pytest.mark.parametrize("controller, slot", [("nvme", NVME), ("xhci", XHCI)])
def test_dma_is_stopped(controller, slot):
    """Interrupts are remapped, and a controller that no VM has is stopped when it reads memory."""
    text = boot("qemu", controller, "selftest", iommu=IOMMU, extra=slot)
    checks = rows(text)
    assert holding(checks) == HOLDS | {"DMA"}, text[-3000:]
    assert checks["device interrupt"][1].endswith("remapped by the IOMMU")
    assert re.search(
        r"nobody's: PCI device \S+ may not read from [0-9a-f]+.*VT-d fault", text
    ), text[-3000:]
    assert "The self test passed." in text


@pytest.mark.long
def test_one_cpu():
    """A check that needs two CPUs is reported as not made."""
    text = boot("qemu", "one", "selftest", cpus=1)
    checks = rows(text)
    assert holding(checks) == HOLDS - {"kicks", "NMIs"}, text[-3000:]
    assert "on 1 CPU;" in checks["entry and exit"][1]
    assert checks["kicks"] == checks["NMIs"] == ("-", "there is one CPU")


@pytest.mark.parametrize("uefi", [False, pytest.param(True, marks=pytest.mark.long)])
def test_menu(uefi):
    """GRUB's menu in the image of `make iso` can be used from the serial port. Its second entry is
    the self test.

    What taktctl and other programs type before that has no effect: only Esc shows the menu.
    """
    directory = place(f"selftest-menu{uefi}")
    m = Machine("qemu", make_iso(directory, "[hypervisor]\n", menu=True), directory=directory,
                com1="socket", uefi=uefi)
    m.start()
    try:
        assert m.wait("Press Esc for a menu", 60)[0] == "matched", m.serial()[-2000:]
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(60)
            line.connect(m.socket_path)
            line.sendall(b"\x1b")
            said = b""
            while b"Describe this machine" not in said:
                said += line.recv(4096)
            line.sendall(b"\x0e\r")  # ^N selects the next entry.
            while (part := line.recv(4096)):  # until the machine ends
                said += part
        assert b"The self test passed" in said, said[-3000:].decode(errors="replace")
    finally:
        m.stop()


def test_taktctl_while_grub_waits():
    """Keys come that GRUB would know at its menu (e: edit, c: its shell), and the machine starts as
    if no key had been pressed. Then it answers taktctl, which began while GRUB waited, and leaves
    the live table that Takt shows then."""
    directory = place("selftest-menu-taktctl")
    iso = make_iso(directory, "[hypervisor]\ntop = yes\n" + vm("stays", "spin"), menu=True)
    m = Machine("qemu", iso, directory=directory, com1="socket")
    m.start()
    try:
        assert m.wait("Press Esc for a menu", 60)[0] == "matched", m.serial()[-2000:]
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(m.socket_path)
            line.sendall(b"\x1d\x03metrics\rec\r")
        with taktctl.Takt("unix:" + m.socket_path, 60) as takt:
            assert [row["name"] for row in takt.run("list")] == ["stays"]
        assert "GNU GRUB" not in m.serial()
    finally:
        m.stop()


@pytest.mark.parametrize("name, machine",
                         [("plain", {}), ("pci", {"iommu": IOMMU, "extra": NVME + XHCI})])
def test_probe(platform, name, machine, tmp_path):
    """The machine describes itself. Takt's probes on the host know only that description. They come
    to the same verdict, and find as many CPUs and functions as the machine has."""
    if platform == "bochs" and machine:
        pytest.skip("Bochs has no IOMMU")
    text = boot(platform, f"probe-{name}", "probe", **machine)
    log, path = tmp_path / "log", tmp_path / "machine.txt"
    with open(log, "w", encoding="utf-8", newline="") as f:
        f.write(text)
    done = subprocess.run([os.path.join(ROOT, "tools", "machines.py"), "--from-log", log, path],
                          capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    with open(path, "a", encoding="utf-8") as f:
        f.write("expect cpus: 2\n")
        f.write("expect pci functions: {}\n".format(re.search(r"(\d+) PCI devices", text)[1]))
        for what, verdict in re.findall(r"\]   (\S.{21}) (yes|no) ", text):
            # The host knows no IOMMU; and a key of a description has no colon in it.
            if what.strip() != "IOMMU" and ":" not in what:
                f.write(f"expect row {what.strip()}: {verdict}\n")
        if machine:  # The table of the machine came completely.
            f.write("expect iommu table: good\nexpect iommu units: 1\n")
    done = subprocess.run([os.path.join(ROOT, "tools", "machines.py"), "-v", path],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 machine: 1 yes; 0 not as expected" in done.stdout
