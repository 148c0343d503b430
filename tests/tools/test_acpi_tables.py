"""ACPICA, whose interpreter Linux has, finds no error in the ACPI tables of a VM that is a PC:
iasl takes each apart, and makes the same bytes again from what it has read."""
import os
import re
import subprocess

import pytest

from conftest import ROOT


def iasl(*words, directory):
    done = subprocess.run(["iasl", *words], cwd=directory, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def dump(directory, vcpus):
    subprocess.run(["make", "-s", "build/unit/acpi_dump"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run([os.path.join(ROOT, "build/unit/acpi_dump"), str(vcpus), str(directory)],
                   check=True)


@pytest.mark.parametrize("vcpus", [1, 2, 64])
def test_acpica_finds_no_error(tmp_path, vcpus):
    dump(tmp_path, vcpus)
    names = sorted(path.stem for path in tmp_path.iterdir())
    assert names == ["apic", "dsdt", "facp", "xsdt"]
    for name in names:
        before = (tmp_path / f"{name}.dat").read_bytes()
        said = iasl("-d", f"{name}.dat", directory=tmp_path)
        assert not re.search(r"(?i)error|warning|invalid|incorrect", said), said
        source = (tmp_path / f"{name}.dsl").read_text(encoding="ascii", errors="replace")
        assert not re.search(r"(?i)\*\*\*\*|incorrect checksum|invalid", source), source
        # The compiler has rules of its own for what a table has to say.
        said = iasl("-p", f"{name}-again", f"{name}.dsl", directory=tmp_path)
        assert re.search(r"\b0 Errors", said) and not re.search(r"[1-9]\d* Warnings", said), said
        after = (tmp_path / f"{name}-again.aml").read_bytes()
        # The compiler writes its own name, and so another checksum.
        assert after[:9] + after[10:28] + after[36:] == before[:9] + before[10:28] + before[36:]
    cpus = re.findall(r"Subtable Type : 00 \[Processor Local APIC\]",
                      (tmp_path / "apic.dsl").read_text(encoding="ascii"))
    assert len(cpus) == vcpus
