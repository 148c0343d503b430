"""Virtio block devices on an NVMe controller that was given to the driver domain. What a guest
writes is in the host's file, and what it flushed is there whatever happens then. Only QEMU has the
controller."""
import io
import os
import re
import struct
import subprocess

import pytest
from machine import nvme

from system.takt import Takt, place, until

MIB = 1 << 20
IMAGE = 64 * MIB
CONFIG = """\
[hypervisor]
top = no
guest_console = log
noreboot = no

[vm iodom]
image = iodom
memory = 12M
pci = 00:04.0
unsafe_dma = yes

[vm disk]
image = blktest
memory = 4M
cmdline = requests=100 depth=16 kib=80
disk = iodom dev=nvme offset=8M size=16M
start = no

[vm journal]
image = journal
memory = 4M
cmdline = flush=4 pause_ms=20
disk = iodom dev=nvme offset=32M size=24M
start = no

[vm file]
image = bursts
memory = 8M
vcpus = 2
cmdline = kib=200 bursts=30 pause_ms=30 cache=128 background=35 dirty=40
disk = iodom dev=nvme offset=0 size=2M
start = no

[vm over]
image = blktest
memory = 4M
disk = iodom dev=nvme offset=24575K size=16M
start = no

[vm beyond]
image = blktest
memory = 4M
disk = iodom dev=nvme offset=60M size=5M
start = no

[vm strange]
image = blktest
memory = 4M
disk = iodom dev=nvme ofset=60M size=1M
start = no
"""


def machine(name):
    """Starts a machine with the disk, an empty file of the host. The emulator logs the disk's
    writes and flushes."""
    directory = place(name)
    os.makedirs(directory, exist_ok=True)
    paths = [os.path.join(directory, f) for f in ("disk.img", "disk.log")]
    for path, size in zip(paths, (IMAGE, 0)):
        with open(path, "wb") as f:
            f.truncate(size)
    extra = []
    for node in (f"driver=file,node-name=file,discard=unmap,filename={paths[0]}",
                 f"driver=file,node-name=log,filename={paths[1]}",
                 "driver=blklogwrites,node-name=disk,discard=unmap,file=file,log=log"):
        extra += ["-blockdev", node]
    extra += ["-device", "nvme,drive=disk,serial=takt-test,addr=4.0"]
    return Takt(name, CONFIG, extra=extra), *paths


def part(image, offset, size):
    with open(image, "rb") as f:
        f.seek(offset)
        return f.read(size)


def places(capacity, sectors, requests, seed=1):
    """Returns where blktest writes."""
    for _ in range(requests):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        yield (seed >> 33) % ((capacity - 1) // sectors) * sectors


def sector_of(number):
    return struct.pack("<64Q",
                       *(((number << 32 | i) * 0x9E3779B97F4A7C15) % (1 << 64) for i in range(64)))


def said(takt, what):
    """Returns the matches in what was printed on the console since the first time that this was
    asked. It does not use the emulator's log, which has some letters twice if nothing reads fast
    enough."""
    takt.link.log = takt.link.log or io.BytesIO()
    takt("list")  # Everything that comes before its answer has been read then.
    return re.findall(what, takt.link.log.getvalue().decode("utf-8", "replace"))


def test_a_pattern_is_in_the_file():
    """Each sector is written, in requests that take two commands, and nothing beside the sectors is
    changed. The next VM finds the pattern, and the VM after it discards it. Three disks are
    refused."""
    takt, image, _ = machine("disk-pattern")
    with takt:
        said(takt, "")
        until(lambda: "iodom: NVMe controller 00:04.0: 65536 KiB" in takt.serial())
        for n, words in enumerate(("", "", " discard"), 1):
            takt(f"create disk 'cmdline=requests=100 depth=16 kib=80{words}'")
            until(
                lambda n=n: len(said(takt, r"disk: blktest: 16384 KiB, .* ended, 0 errors, 0 bad"))
                == n,
                60,
            )
            if not words:
                written = part(image, 8 * MIB, 16 * MIB)
            takt("wait disk 5s")
        assert len(said(takt, "disk: blktest: verifies what it has found")) == 2
        takt("create journal")
        for vm in ("over", "beyond", "strange"):
            takt("create " + vm)
        until(lambda: said(takt, "iodom: strange.0: cannot be served"))
        takt("destroy over")
        takt("destroy journal")
        for sentence in (r"over\.0: its range overlaps that of journal\.0",
                         r"beyond\.0: its range is not within the NVMe disk",
                         r'strange\.0: what is "ofset=60M size=1M"',
                         r"strange\.0: its options make no sense"):
            assert said(takt, "iodom: " + sentence), sentence
    sectors = {s + i for s in places(16 * MIB // 512, 160, 100) for i in range(160)}
    assert len(sectors) > 3000
    wrong = [
        s
        for s in range(32767)
        if written[512 * s : 512 * s + 512] != (sector_of(s) if s in sectors else bytes(512))
    ]
    assert not wrong, (len(wrong), wrong[:10])
    data = part(image, 8 * MIB, 16 * MIB)
    assert (
        not any(data[: 512 * 32767])
        and struct.unpack_from("<Q", data, 512 * 32767)[0] == 0x6B72616D64656D72
    )
    assert not any(part(image, 0, 8 * MIB)) and not any(part(image, 24 * MIB, 8 * MIB))


def record_of(number):
    return struct.pack(
        "<512Q", *(((number << 9 | i) * 0x9E3779B97F4A7C15 + 1) % (1 << 64) for i in range(512))
    )


def records(data, first=0):
    """Returns how many records there are without a gap, from record one on."""
    n = first
    while (n + 1) * 4096 <= len(data) and data[n * 4096:(n + 1) * 4096] == record_of(n):
        n += 1
    return n - first


def at_each_flush(log):
    """Returns how many records the disk had at each flush, if everything that was written after the
    flush were lost. The log is one of dm-log-writes' kind."""
    disk, pending, n, counts = bytearray(24 * MIB), [], 0, []
    with open(log, "rb") as f:
        magic, _, _, sector = struct.unpack("<QQQI", f.read(28))
        assert magic == 0x6A736677736872
        f.seek(sector)
        while len(head := f.read(sector)) == sector:
            at, length, flags, _ = struct.unpack_from("<QQQQ", head)
            assert not flags & ~1, "neither forced nor discarded"
            pending.append((at * sector - 32 * MIB, f.read(length * sector)))
            if flags & 1:
                for where, data in pending:
                    disk[where:where + len(data)] = data
                pending = []
                n += records(disk, n)
                counts.append(n)
    return counts


def safe(takt):
    return [int(n) for n in said(takt, r"journal: (\d+) are safe")]


def found(takt):
    return [int(n) for n in said(takt, r"journal: found (\d+)")]


def goes_on(takt, times, told):
    """Waits until guests have found earlier records `times` times, at least `told` of them the last
    time, and have written more."""
    until(lambda: len(found(takt)) == times, 30)
    assert found(takt)[-1] >= told
    until(lambda: safe(takt)[-1:] >= [found(takt)[-1] + 40], 30)


@pytest.mark.long
def test_a_file_outlives_the_driver_domain():
    """The driver domain is destroyed again and again, at whatever moment it is, under a guest that
    writes a file through its page cache. What the disk refused meanwhile is written when it is
    back, so the guest finds its file as it wrote it last."""
    takt, _, _ = machine("disk-outlives")
    with takt:
        said(takt, "")
        takt("create file")
        until(lambda: said(takt, "iodom: file.0: disk"))
        for n in range(4):
            takt("destroy iodom")
            until(lambda n=n: len(said(takt, "file: disk: the device is gone")) == n + 1)
            takt("create iodom")
            until(lambda n=n: len(said(takt, "file: disk: the device is back")) == n + 1)
        until(lambda: said(takt, "file: ends with"), 60)
        assert said(takt, "file: ends with code 0")
        assert said(takt, r"file: bursts: took_us=\d+ .* wrong=0 ")
        assert said(takt, r"file: bursts: writes=\d+ write_kib=6000 ")


def test_what_was_flushed_is_there():
    """The VM is destroyed again and again in the middle of its work, and then the driver domain is.
    Whatever was flushed is in the file. The next VM finds it, and it would be there if the disk had
    lost its power."""
    takt, image, log = machine("disk-flushed")
    told = 0
    with takt:
        said(takt, "")
        for n in range(4):
            takt("create journal")
            goes_on(takt, n + 1, told)
            takt("destroy journal")
            told = safe(takt)[-1]
            assert records(part(image, 32 * MIB, 24 * MIB)) >= told > 0
        takt("create journal")
        goes_on(takt, 5, told)
        takt("destroy iodom")
        told = safe(takt)[-1]
        assert (
            said(takt, "journal: the device is gone")
            and records(part(image, 32 * MIB, 24 * MIB)) >= told
        )
        takt("create iodom")
        goes_on(takt, 6, told)
        takt("destroy journal")
        told = safe(takt)
        assert ": crashed" not in takt.serial()
    counts = at_each_flush(log)
    assert set(told) <= set(counts), set(told) - set(counts)


@pytest.mark.long
def test_an_image_in_qcow2():
    """The disk is an image in QEMU's own format. What a guest writes is in it."""
    directory = place("disk-qcow2")
    os.makedirs(directory, exist_ok=True)
    image, raw = (os.path.join(directory, f) for f in ("disk.qcow2", "disk.raw"))
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, str(IMAGE)], check=True)
    with Takt("disk-qcow2", CONFIG, extra=nvme(image)) as takt:
        said(takt, "")
        until(lambda: "iodom: NVMe controller 00:04.0: 65536 KiB" in takt.serial())
        takt("create disk")
        until(lambda: said(takt, r"disk: blktest: 16384 KiB, .* ended, 0 errors, 0 bad"), 60)
        takt("wait disk 5s")
    subprocess.run(["qemu-img", "convert", "-O", "raw", image, raw], check=True)
    written = part(raw, 8 * MIB, 16 * MIB)
    sectors = {s + i for s in places(16 * MIB // 512, 160, 100) for i in range(160)}
    assert all(written[512 * s:512 * s + 512] == sector_of(s) for s in sectors)
    assert os.path.getsize(image) < IMAGE // 2
