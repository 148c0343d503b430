"""What a session printed last is shown by the next one: after a panic, a reset from outside, and a
hang. This runs on QEMU, whose RAM outlives a reset as a real machine's may."""
import json
import os
import re
import socket
import struct

import pytest

from machine import Machine
from system.takt import make_iso, place

SETTINGS = "[hypervisor]\nscript = s\nguest_console = log\ntop = no\n"
SPIN = "[vm spin]\nimage = spin\nmemory = 4M\n"
# The first boot has nothing to show yet, so the second boot's answer is the first one without an
# error.
ASK = "@300ms crash -t -j=records\n@320ms info -j=info\n@340ms crash -j=log\n"
ANSWER = r'\x1e({"id": "log", "command": "crash", "error": 0.*\]})\n'


class TwoBoots:
    """Boots a machine whose script asks for what was kept and then runs `script`; types `command`
    into QEMU's monitor at `when`, if given. Ends when a boot has something to show.

        .text    all that came over COM1
        .told    the lines that the second boot printed of the first
        .log, .records, .info    what the second boot's shell answered
    """

    def __init__(self, name, script="", when=None, command=None, settings="", **machine):
        directory = place(name)
        iso = make_iso(directory, SETTINGS + settings + SPIN, modules={"s": ASK + script})
        monitor = f"{directory}/monitor.sock"
        extra = ["-monitor", f"unix:{monitor},server=on,wait=off", *machine.pop("extra", [])]
        with Machine("qemu", iso, directory=directory, exit_port=False, resets=True, extra=extra,
                     **machine) as m:
            if command:
                assert m.wait(when, 60)[0] == "matched", m.serial()[-2000:]
                with socket.socket(socket.AF_UNIX) as s:
                    s.connect(monitor)
                    s.sendall(command.encode() + b"\n")
                    s.recv(100)
            how, match = m.wait(ANSWER, 90)
            self.text = m.serial()
            assert how == "matched", f"{how}\n{self.text[-3000:]}"
        self.told = re.findall(r"\] \| (.*)", self.text)
        self.log = [row["line"] for row in json.loads(match[1])["result"]]
        self.info, self.records = (self.answer(tag) for tag in ("info", "records"))

    def answer(self, tag):
        """Returns the last answer with this tag that is no error."""
        return json.loads(re.findall(rf'\x1e({{"id": "{tag}".*"error": 0.*}})\n', self.text)[-1])[
            "result"
        ]


@pytest.mark.parametrize("uefi", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_panic_is_told_by_the_next_boot(uefi):
    boots = TwoBoots("crash-panic" + "-uefi" * uefi,
                     "@400ms trace start\n@410ms trace keep\n@2s fault pf\n", uefi=uefi)
    assert "The last session could not go on." in boots.text
    assert boots.info["last_session"] == "could not go on"
    for lines in (boots.told, boots.log):
        assert any("exception 14 (page fault)" in line for line in lines), lines
        assert any(re.search(r"page_fault\+0x", line) for line in lines), lines
        assert "PANIC on CPU 0" in lines[-2] and "Rebooting." in lines[-1]
    assert len(boots.log) >= len(boots.told)
    # The records are those of the last moments.
    times = [r["ns"] for r in boots.records if r["cpu"] == 0]
    assert len(times) > 50 and times == sorted(times)
    fault = float(re.search(r"\[ *([0-9.]+)\] fault on request", boots.text)[1])
    assert abs(fault - times[-1] / 1e9) < 0.5, (fault, times[-1])


def wdat(directory):
    """Writes a table WDAT that describes the TCO timer of QEMU's q35, as firmware of newer machines
    does. Returns the options for QEMU. (Microsoft: Hardware Watchdog Timers Design Specification;
    ACPI 6.5, 5.2.3.2.)"""
    tco, gcs = 0x660, 0xfed1f410
    read, write, count, preserve = 0, 2, 3, 0x80

    def entry(action, operation, port, value, mask):
        return struct.pack("<BBH BBBB Q II", action, operation, 0, 1, 16, 0, 2, port, value, mask)

    def in_memory(action, operation, address, value, mask):
        return struct.pack("<BBH BBBB Q II", action, operation, 0, 0, 32, 0, 3, address, value,
                           mask)

    entries = [entry(0x01, write, tco, 1, 0xffff),
               entry(0x06, count | preserve, tco + 0x12, 0, 0x3ff),
               entry(0x08, read, tco + 8, 0, 0x800),
               entry(0x09, write | preserve, tco + 8, 0, 0x800),
               entry(0x0b, write | preserve, tco + 8, 0x800, 0x800),
               in_memory(0x11, write | preserve, gcs, 0, 0x20), in_memory(0x10, read, gcs, 0, 0x20)]
    path = os.path.join(directory, "wdat.bin")
    with open(path, "wb") as f:
        f.write(struct.pack("<I HBBBBBB III B3s I", 32, 0xff, 0, 0, 0, 0, 0, 0, 1200, 0x3ff, 4, 1,
                            b"", len(entries)))
        f.write(b"".join(entries))
    return ["-acpitable", f"sig=WDAT,rev=1,data={path}"]


@pytest.mark.long
@pytest.mark.parametrize("name, cpus", [
    ("TCO", 2),
    ("TCO", 1),  # No other CPU is left that could dump the CPU that hangs.
    ("WDAT", 2),
])
def test_a_watchdog_resets_a_machine_that_hangs(name, cpus):
    directory = f"crash-watchdog-{name}-{cpus}"
    os.makedirs(place(directory), exist_ok=True)
    extra = wdat(place(directory)) if name == "WDAT" else []
    boots = TwoBoots(directory, "@2s fault freeze\n", settings="watchdog = 8\n", cpus=cpus,
                     extra=["-global", "ICH9-LPC.noreboot=false", *extra])
    assert re.search(f"watchdog: .* {name}.*, 8400 ms", boots.text), boots.text
    assert "The last session was reset while it ran: did it hang?" in boots.text
    assert any("fault on request: freeze" in line for line in boots.told)
    if cpus > 1:
        assert any("CPU 0 was silent; it is here:" in line for line in boots.told)
        assert any(re.search(r"freeze\+0x", line) for line in boots.told), boots.told


@pytest.mark.long
def test_a_reset_from_outside_is_told():
    boots = TwoBoots("crash-reset", when="boot took", command="system_reset")
    assert "The last session was reset while it ran: did it hang?" in boots.text
    assert boots.info["last_session"] == "was reset while it ran"
    assert any("boot took" in line for line in boots.log)


@pytest.mark.long
def test_an_orderly_end_is_not_told():
    boots = TwoBoots("crash-reboot", "@2s reboot\n")
    assert "ast session" not in re.sub('\x1e.*', "", boots.text)
    assert boots.info["last_session"] == "ended in order"
