#!/usr/bin/env python3
"""Writes the boot image to a USB stick, after it has made sure that it is one, and has asked.

  tools/flash.py IMAGE DEVICE         e.g. build/takt.iso /dev/sdc
  tools/flash.py DEVICE               only looks whether it is such a disk: before an image is built

DEVICE has to be a whole removable disk of which nothing is in use. The answer "yes" has to be
typed; there is no option that gives it. What was written is read back from the device and compared.
Exit status: 0 written and the same; 1 not; 2 usage.
"""
import fcntl
import json
import os
import stat
import subprocess
import sys

import progress
import sentence
from sentence import Problem

PIECE = 4 << 20  # bytes
BLKFLSBUF = 0x1261  # ioctl of Linux: forgets what is cached of a block device
FIELDS = "PATH,TYPE,RM,HOTPLUG,RO,SIZE,MOUNTPOINTS,MODEL,SERIAL,TRAN,LABEL,FSTYPE"


def no_disk(device, said):
    """Returns the sentence that says why lsblk knows no such device."""
    expected = "expected a device such as /dev/sdc (lsblk lists those of this machine)"
    if not os.path.exists(device):
        return f"{device}: there is no such device: {expected}"
    if os.path.isdir(device):
        return f"{device} is a directory: {expected}"
    if os.path.isfile(device):
        return f"{device} is a file: {expected}"
    return f"{device}: {said or 'lsblk does not know it'}: {expected}"


def look(device):
    """Returns what lsblk knows about the device: a dictionary, with its partitions as
    `children`."""
    done = subprocess.run(["lsblk", "--json", "--bytes", "--output", FIELDS, device],
                          capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise Problem(no_disk(device, done.stderr.strip()))
    found = json.loads(done.stdout)["blockdevices"]
    if len(found) != 1:
        raise Problem(f"{device}: lsblk knows {len(found)} devices by that name, expected one")
    return found[0]


def everything_on(disk):
    """Yields the disk itself and everything that lies on it, as lsblk lists it."""
    yield disk
    for child in disk.get("children") or []:
        yield from everything_on(child)


def check(disk, image_size):
    """Raises Problem unless the disk may be overwritten by an image of this many bytes."""
    path = disk["path"]
    if disk["type"] != "disk":
        raise Problem(
            f"{path} is not a whole disk but of type '{disk['type']}': expected a device such as "
            "/dev/sdc"
        )
    if not disk["rm"] and not disk["hotplug"]:
        raise Problem(f"{path} is not a removable disk: it may be this machine's own")
    if disk["ro"]:
        raise Problem(f"{path} is read-only: look for a switch on the stick")
    for part in everything_on(disk):
        mounted = [m for m in part.get("mountpoints") or [] if m]
        if mounted:
            raise Problem(f"{part['path']} is in use at {', '.join(mounted)}: umount it first")
        if part["type"] not in ("disk", "part"):
            raise Problem(
                f"{part['path']} on {path} is in use, as '{part['type']}': close it first"
            )
    if int(disk["size"]) < image_size:
        raise Problem(
            f"{path} is too small: it has {disk['size']} bytes, the image has {image_size}"
        )


def describe(disk):
    """Returns the description of the disk for the person who is asked."""
    name = (
        " ".join((disk.get(key) or "").strip() for key in ("model", "serial")).strip() or "no name"
    )
    lines = [
        f"{disk['path']}: {name}, {int(disk['size']) / 1e9:.1f} GB, "
        f"{disk.get('tran') or 'unknown bus'}"
    ]
    for part in list(everything_on(disk))[1:]:
        what = " ".join(filter(None, (part.get("fstype"), part.get("label")))) or "unknown contents"
        lines.append(f"  {part['path']}: {int(part['size']) / 1e9:.1f} GB, {what}")
    return "\n".join(lines)


def confirmed(disk, image):
    print(describe(disk))
    print(f"Everything on it will be lost. It gets {image}.")
    print("Type yes to go on: ", end="", flush=True)
    return sys.stdin.readline() == "yes\n"


def write(image, device):
    """Copies the image to the device. The kernel refuses to open a device that is in use
    (O_EXCL)."""
    total, done = os.path.getsize(image), 0
    try:
        fd = os.open(device, os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError as e:
        raise Problem(f"{device} cannot be opened for writing: {e.strerror}") from e
    with open(image, "rb") as source, open(fd, "wb", buffering=0) as target, \
            progress.Line(lambda: f"writes: {done * 100 // total} %"):
        while piece := source.read(PIECE):
            view = memoryview(piece)
            while view:
                view = view[target.write(view):]
            done += len(piece)
            os.fdatasync(fd)  # so that the line above says what is really on the device
        os.fsync(fd)


def same(image, device):
    """Returns whether the image is on the device. Reads the device itself, not what the kernel has
    cached of it."""
    with open(image, "rb") as source, open(device, "rb", buffering=0) as target:
        if stat.S_ISBLK(os.fstat(target.fileno()).st_mode):
            fcntl.ioctl(target.fileno(), BLKFLSBUF, 0)
        os.posix_fadvise(target.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while piece := source.read(PIECE):
            got = b""
            while len(got) < len(piece):
                more = target.read(len(piece) - len(got))
                if not more:
                    return False
                got += more
            if got != piece:
                return False
    return True


def flash(image, device):
    disk = look(device)
    check(disk, os.path.getsize(image))
    if not confirmed(disk, image):
        raise Problem("The answer was not yes: nothing was written")
    # While the person thought about the answer, the stick may have been mounted, or another one may
    # have taken its name.
    now = look(device)
    check(now, os.path.getsize(image))
    if describe(now) != describe(disk):
        raise Problem(
            f"{device} is not the disk any more that you were asked about: nothing was written"
        )
    write(image, device)
    with progress.Line("reads it back"):
        good = same(image, device)
    if not good:
        raise Problem(
            f"{device} does not hold what was written to it: the stick is broken, or not as large "
            "as it says"
        )
    print(f"{device} has the image, and reads as it was written. It may be taken out.")


def main():
    if len(sys.argv) == 2:
        check(look(sys.argv[1]), 0)
        return 0
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    flash(sys.argv[1], sys.argv[2])
    return 0


if __name__ == "__main__":
    sentence.run(main)
