#!/usr/bin/env python3
"""Takes the ELF file of a Linux kernel out of what distributions ship (vmlinuz, a bzImage).

  tools/vmlinux.py FILE OUT     OUT becomes a file that Takt can load; FILE may be ELF already

A bzImage holds the ELF file compressed (Linux, Documentation/arch/x86/boot.rst, "payload_offset").
Takt starts kernels by PVH, which needs the ELF file itself. The compressions are those that
distributions use: gzip, xz, zstd and lz4; the last two take the program of that name.
"""
import lzma
import os
import struct
import subprocess
import sys
import tempfile
import zlib

import sentence

ELF = b"\x7fELF"
# Offsets in a bzImage.
SETUP_SECTORS, HEADER, VERSION, PAYLOAD, LENGTH = 0x1f1, 0x202, 0x206, 0x248, 0x24c
SECTOR, DEFAULT_SECTORS = 512, 4
VERSION_WITH_PAYLOAD = 0x208
SIZE = 4  # in bytes: the size of the unpacked file, which is behind the compressed file


def payload(data, path):
    """Returns the compressed file in a bzImage."""
    if data[HEADER:HEADER + 4] != b"HdrS":
        raise sentence.Problem(f"{path}: expected a Linux kernel, an ELF file or a bzImage")
    if struct.unpack_from("<H", data, VERSION)[0] < VERSION_WITH_PAYLOAD:
        raise sentence.Problem(f"{path}: the kernel is older than 2.6.26, and does not say where "
                               "in it the ELF file is")
    offset, length = struct.unpack_from("<II", data, PAYLOAD)
    start = ((data[SETUP_SECTORS] or DEFAULT_SECTORS) + 1) * SECTOR + offset
    if length <= SIZE or start + length > len(data):
        raise sentence.Problem(f"{path}: the kernel is cut off: it has {len(data):,} bytes, and "
                               f"wants {start + length:,}")
    return data[start:start + length]


def by_program(name, data, path):
    try:
        done = subprocess.run([name, "-dc"], input=data, capture_output=True, check=False)
    except FileNotFoundError as e:
        raise sentence.Problem(f"{path}: unpacking it takes the program {name}: "
                               f"apt-get install {name}") from e
    if not done.stdout:
        raise sentence.Problem(f"{path}: {name} cannot unpack the kernel: "
                               f"{done.stderr.decode().strip()}")
    return done.stdout


def unpack(data, path):
    """Returns the unpacked data. The size at the end is left out where the format would take it for
    data."""
    try:
        if data.startswith(b"\x1f\x8b"):
            return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(data)
        if data.startswith(b"\xfd7zXZ\0"):
            return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(data)
    except (zlib.error, lzma.LZMAError) as e:
        raise sentence.Problem(f"{path}: the kernel in it cannot be unpacked: {e}") from e
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return by_program("zstd", data[:-SIZE], path)
    if data.startswith(b"\x02\x21\x4c\x18"):
        return by_program("lz4", data[:-SIZE], path)
    raise sentence.Problem(f"{path}: the kernel is compressed in a way that is not known here: "
                           "expected gzip, xz, zstd or lz4")


def elf_of(path):
    with open(path, "rb") as f:
        data = f.read()
    if data.startswith(ELF):
        return data
    data = unpack(payload(data, path), path)
    if not data.startswith(ELF):
        raise sentence.Problem(f"{path}: what is packed in it is no ELF file")
    return data


def main():
    if len(sys.argv) != 3:
        raise sentence.Problem("usage: tools/vmlinux.py FILE OUT")
    path, out = sys.argv[1:]
    data = elf_of(path)
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(out) or ".", delete=False) as f:
        f.write(data)
    # What Takt loads are the segments. The symbols, a quarter of the file, are left out.
    subprocess.run(["strip", f.name], check=True)
    os.replace(f.name, out)
    os.chmod(out, 0o644)
    return 0


if __name__ == "__main__":
    sentence.run(main)
