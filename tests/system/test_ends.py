"""`make run` says how the machine ended, on QEMU, whose exit code does not tell."""
import os
import re
import subprocess
import sys

import pytest

from conftest import ROOT
from system.takt import SCRIPTED, make_iso, place


def run(name, command, *options):
    """Runs tools/machine.py run, as a person does, with a machine whose script gives one
    command."""
    directory = place(f"{name}-qemu")
    iso = make_iso(directory, SCRIPTED, modules={"script": f"@200ms {command}\n"})
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "machine.py"), "run",
                           "--platform", "qemu",
                           "--dir", directory, *options, iso], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=90,
                          check=False)
    assert "terminating on signal" not in done.stdout, "QEMU did not end when it was told to"
    with open(os.path.join(directory, "qemu.log"), encoding="utf-8") as f:
        return done.returncode, done.stdout.strip().splitlines()[-1], f.read()


def test_a_triple_fault_leaves_evidence():
    code, last, log = run("ends-triple", "fault triple")
    assert code == 1
    assert last.startswith("The hypervisor ended by a triple fault"), last
    end = log[log.index("Triple fault"):]
    # There are both CPUs. The CPU that caused it has no IDT and is in the hypervisor, in the top 2
    # GiB.
    assert len(re.findall(r"RIP=[0-9a-f]{16}", end)) == 2
    faulty = re.split(r"CPU#\d", end)
    assert any(
        re.search(r"RIP=ffffffff[8-f]", cpu) and re.search(r"IDT= +0+ 0+\s", cpu) for cpu in faulty
    ), end


@pytest.mark.parametrize("command, code, words", [
    ("poweroff", 0, "Takt switched the machine off."),
    ("fault ud", 3, "because it could not go on"),
])
def test_other_ends_are_told_apart(command, code, words):
    got, last, log = run("ends-" + command.split()[0], command)
    assert words in last, last
    assert got == code and "Triple fault" not in log


def test_acpi_ends_a_machine_without_an_exit_port():
    """QEMU says why it ended: state S5. No other port of the machine switches it off."""
    code, last, log = run("ends-acpi-poweroff", "poweroff", "--no-exit-port")
    assert "Takt switched the machine off." in last, last
    assert code == 0 and "Triple fault" not in log


def test_reboot_reboots():
    """The shell is there once more, and the machine still ends as it should."""
    directory = place("ends-reboot-qemu")
    iso = make_iso(directory, "[hypervisor]\ntop = no\n")
    command = [sys.executable, os.path.join(ROOT, "tools", "machine.py"), "run", "--platform",
               "qemu", "--dir", directory, iso]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as person:
        said = b""

        def type_at_prompt(n, text):
            """Types the text when there have been `n` prompts."""
            nonlocal said
            while said.count(b"takt> ") < n:
                more = os.read(person.stdout.fileno(), 4096)
                assert more, said[-2000:]
                said += more
            person.stdin.write(text)
            person.stdin.flush()

        try:
            type_at_prompt(1, b"reboot\r")
            type_at_prompt(2, b"poweroff\r")
            said += person.communicate(timeout=60)[0]
        finally:
            if person.poll() is None:
                person.stdin.write(b"\x01x")  # This ends QEMU.
                person.stdin.flush()
    assert said.count(b"Takt, a small hypervisor") == 2, said[-2000:]
    assert b"Takt switched the machine off." in said and person.returncode == 0
