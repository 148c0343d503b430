"""Takt's probes say about real machines (tests/machines/) what they should say."""
import os
import subprocess
import sys

import machines
import pytest

ALL = machines.descriptions([machines.MACHINES])


@pytest.fixture(scope="module", name="results")
def all_results():
    return {r["file"]: r for r in machines.check_all(ALL)}


@pytest.mark.parametrize("path", ALL, ids=[os.path.basename(p) for p in ALL])
def test_machine(results, path):
    assert not results[os.path.basename(path)]["wrong"]


def test_enough_of_each_kind():
    """If a kind of machine lost its last description, nothing else would show it."""
    told = [machines.read(p) for p in ALL]
    assert sum("MSRs" in d["checked"] for d in told) >= 60
    assert sum(d.get("verdict") == "no" for d in told) >= 10
    assert sum("PCI" in d["checked"] for d in told) >= 5


def test_what_differs_is_told(tmp_path):
    """The comparison can fail: by a verdict, a sentence, or an MSR that the machine does not
    have."""
    good = os.path.join(machines.MACHINES, "intel-506e3-skylake.txt")
    with open(good, encoding="utf-8") as f:
        text = f.read()
    for old, new, told in (("verdict: yes", "verdict: no", "verdict: 'no' was expected"),
                           ("says: Guests", "says: Cats", "says: 'Cats can run.' was expected"),
                           ("\nmsr 480: ", "\nmsr 480: faults\nmsr 9999: ", "Takt says 'fault'"),
                           ("\nmsr 480: ", "\nmsr 480: x", "a hexadecimal number was expected")):
        assert old in text
        path = tmp_path / "changed.txt"
        path.write_text(text.replace(old, new), encoding="utf-8")
        assert told in "\n".join(machines.check(str(path))["wrong"])


# What commands print on a made-up machine with two CPUs that run, one that does not, and a unit of
# VT-d.
CPUID = """CPU 0:
   0x00000000 0x00: eax=0x0000000d ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69
   0x00000001 0x00: eax=0x000306c3 ebx=0x00100800 ecx=0x7ffafbff edx=0xbfebfbff
   0x80000000 0x00: eax=0x80000008 ebx=0x00000000 ecx=0x00000000 edx=0x00000000
CPU 1:
   0x00000000 0x00: eax=0x0000000d ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69
   0x00000001 0x00: eax=0x000306c3 ebx=0x02100800 ecx=0x7ffafbff edx=0xbfebfbff
   0x80000000 0x00: eax=0x80000008 ebx=0x00000000 ecx=0x00000000 edx=0x00000000
"""
MADT = bytes.fromhex("0000e0fe01000000" "0008000001000000" "0008010201000000"
                     "0008020400000000" "010c02000000c0fe00000000" "020a0000020000000000")
DMAR = bytes.fromhex("260100000000000000000000" "00001800010000000000d9fe00000000"
                     "030800000200f001")


def acpidump(signature, body):
    """Returns a table as acpidump prints it."""
    length = (36 + len(body)).to_bytes(4, "little")
    table = bytearray(signature.encode() + length + bytes(28) + body)
    table[9] = -sum(table) & 0xff
    out = f"{signature} @ 0x0\n"
    for at in range(0, len(table), 16):
        out += f"    {at:04X}: {table[at:at + 16].hex(' ').upper()}  text\n"
    return out + "\n"


def own(tmp_path, tables):
    """Returns the description that extract.py makes of that machine."""
    printed = {"cpuid": CPUID, "acpi": tables, "msr": "3A: 1\n480: DA040000000004\n"}
    for name, text in printed.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    extract = os.path.join(machines.MACHINES, "extract.py")
    command = [sys.executable, extract, "--own", "mine", *(tmp_path / name for name in printed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    path = tmp_path / "mine.txt"
    path.write_text(done.stdout, encoding="utf-8")
    return path


def test_own_machine(tmp_path):
    path = own(tmp_path, acpidump("APIC", MADT) + acpidump("DMAR", DMAR))
    result = machines.check(str(path))
    assert not result["wrong"]
    assert result["checked"] == ["CPUID", "MSRs", "APIC ids", "ACPI"]
    assert result["sentence"].startswith("the firmware has switched VT-x off")
    found = result["found"]
    assert (found["cpus"], found["ioapics"], found["overrides"]) == ("2", "1", "1")
    assert (found["iommu table"], found["iommu units"], found["iommu scopes"]) == ("good", "1", "1")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("expect cpus: 2", "expect cpus: 3"), encoding="utf-8")
    assert machines.check(str(path))["wrong"] == ["cpus: '3' was expected, Takt says '2'"]
