"""tools/vmlinux.py: the ELF file in a distribution's kernel, and what it says about files that are
no kernel."""
import gzip
import lzma
import os
import struct
import subprocess

import pytest
import sentence
import vmlinux
from conftest import ROOT

BODY = b"\x7fELF" + bytes(range(256)) * 40


def bzimage(packed, sectors=3, version=0x20f):
    image = bytearray((sectors + 1) * 512)
    image[vmlinux.SETUP_SECTORS] = sectors
    image[vmlinux.HEADER:vmlinux.HEADER + 4] = b"HdrS"
    struct.pack_into("<H", image, vmlinux.VERSION, version)
    packed += struct.pack("<I", len(BODY))
    struct.pack_into("<II", image, vmlinux.PAYLOAD, 100, len(packed))
    return bytes(image) + bytes(100) + packed + b"behind it"


def elf_of(tmp_path, data):
    path = tmp_path / "vmlinuz"
    path.write_bytes(data)
    return vmlinux.elf_of(str(path))


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_the_elf_file_comes_out(tmp_path, pack):
    assert elf_of(tmp_path, bzimage(pack(BODY))) == BODY


@pytest.mark.parametrize("program, options", [("zstd", ["-c"]), ("lz4", ["-l", "-c"])])
def test_the_elf_file_comes_out_by_a_program(tmp_path, program, options):
    try:
        packed = subprocess.run([program, *options], input=BODY, capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip(f"{program} is not installed")
    assert elf_of(tmp_path, bzimage(packed.stdout)) == BODY


def test_an_elf_file_stays_as_it_is(tmp_path):
    assert elf_of(tmp_path, BODY) == BODY


@pytest.mark.parametrize("data, why", [
    (b"no kernel at all", "expected a Linux kernel"),
    (b"", "expected a Linux kernel"),
    (bzimage(gzip.compress(BODY), version=0x207), "older than 2.6.26"),
    (bzimage(gzip.compress(BODY))[:-200], "cut off"),
    (bzimage(b"\x1f\x8bnothing that can be unpacked"), "cannot be unpacked"),
    (bzimage(b"BZh9 is bzip2"), "expected gzip, xz, zstd or lz4"),
    (bzimage(gzip.compress(b"no ELF")), "no ELF file"),
], ids=["text", "empty", "old", "cut", "broken", "bzip2", "no-elf"])
def test_what_is_no_kernel(tmp_path, data, why):
    with pytest.raises(sentence.Problem, match=why):
        elf_of(tmp_path, data)


def test_a_file_that_is_not_there():
    done = subprocess.run([os.path.join(ROOT, "tools", "vmlinux.py"), "/no/such", "out"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "/no/such" in done.stderr
