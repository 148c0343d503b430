"""Where the console is, and what it can take: ports that the firmware names or that PCI has, and
scripts that are sent without pauses."""
import os
import struct

import pytest

from machine import Machine
from system.takt import Boot, Takt, make_iso, place, vm

SCRIPTED = "[hypervisor]\nscript = s\n{}\n" + vm("hello", "hello")
SCRIPT = "@300ms info -j=seen\n+10ms poweroff\n"


def spcr(port, irq):
    """Returns Microsoft's table SPCR, revision 2, which names a port of 115,200 baud. The header is
    missing, because QEMU makes it."""
    address = struct.pack("<BBBBQ", 1, 8, 0, 1, port)
    body = struct.pack("<B3x", 0) + address + struct.pack("<BBIBBBBB", 1, irq, 0, 7, 0, 1, 0, 3)
    return (body + b"\0\xff\xff\xff\xff").ljust(44, b"\0")


def boot(name, settings, **machine):
    """Boots and waits for the end. Returns the directory and what COM1 has printed."""
    directory = place(name)
    os.makedirs(directory, exist_ok=True)
    iso = make_iso(directory, SCRIPTED.format(settings), modules={"s": SCRIPT})
    with Machine("qemu", iso, directory=directory, **machine) as m:
        how, _ = m.wait(timeout=90)
        assert how == "ended", f"{how}\n{m.serial()[-3000:]}"
        return m.serial()


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def test_the_firmwares_port():
    """Without `console` the console is where SPCR says. What was printed before the table was read
    came on com1."""
    directory = place("spcr")
    os.makedirs(directory, exist_ok=True)
    table = os.path.join(directory, "spcr.bin")
    with open(table, "wb") as f:
        f.write(spcr(0x2F8, 3))
    com2 = os.path.join(directory, "com2.txt")
    com1 = boot("spcr", "", com2=com2, extra=["-acpitable", f"sig=SPCR,rev=2,data={table}"])
    assert "Takt, a small hypervisor" in com1 and "takt> " not in com1
    text = read(com2)
    assert "console: com2 (SPCR), 115200 baud" in text
    assert '"id": "seen"' in text and "does not interrupt" not in text


def test_a_port_on_pci():
    directory = place("pci-serial")
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "pci.txt")
    com1 = boot("pci-serial", "console = pci:00:05.0,115200",
                extra=["-chardev", f"file,id=card,path={path}", "-device",
                       "pci-serial,chardev=card,addr=5.0"])
    assert "takt> " not in com1
    text = read(path)
    assert "console: pci:00:05.0, 115200 baud" in text and '"id": "seen"' in text


def test_a_device_that_is_no_port():
    com1 = boot("pci-no-serial", "console = pci:00:1f.2")
    assert (
        "console = pci:00:1f.2: that PCI device is no serial port: the console stays where it is"
        in com1
    )
    assert '"id": "seen"' in com1


def test_a_script_is_sent_at_once():
    """The sender does not wait for a prompt. All commands are answered, in their order."""
    with Takt("sent-at-once", "[hypervisor]\n" + vm("hello", "hello")) as takt:
        text = "".join(f"list -j=n{i}\r" for i in range(300))
        takt.link.close()
        said = b""
        with takt.machine.connect() as link:
            link.settimeout(60)
            link.sendall(text.encode())
            while b'"id": "n299"' not in said:
                said += link.recv(4096)
        answers = [line for line in said.decode().split("\n") if line.startswith('\x1e{"id": "n')]
        assert [a.split('"')[3] for a in answers] == [f"n{i}" for i in range(300)]
        assert "does not interrupt" not in takt.serial()


@pytest.mark.bochs
def test_bochs_interrupts():
    boot_of = Boot("console-irq", "[hypervisor]\nscript = script\n",
                   ["@200ms info -j=a", "+0ms poweroff"], "bochs", timeout=180)
    assert list(boot_of.results) == ["a"] and not boot_of.said("does not interrupt")
