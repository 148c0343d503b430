"""tools/flash.py: what it refuses, that it asks, and that it reads back what it wrote. lsblk is a
fake that describes a file as if it were a disk; the last tests use the real one."""
import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT
import flash

IMAGE = bytes(range(256)) * 40000  # 10 MB, which is more than two pieces
FAKE = """#!/bin/sh
cat "$(dirname "$0")/answer"
"""


class Desk:
    """A host with an image, and a device that lsblk describes as a test wants."""

    def __init__(self, directory, monkeypatch):
        self.image, self.device, self.directory = (
            directory / "takt.iso",
            directory / "stick",
            directory,
        )
        self.image.write_bytes(IMAGE)
        self.device.write_bytes(b"\xee" * (len(IMAGE) + 5000))
        (directory / "lsblk").write_text(FAKE)
        (directory / "lsblk").chmod(0o755)
        monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
        self.tell()

    def tell(self, children=(), **fields):
        disk = {"path": str(self.device), "type": "disk", "rm": True, "hotplug": True, "ro": False,
                "size": self.device.stat().st_size, "mountpoints": [None], "model": "DataTraveler",
                "serial": "0815",
                "tran": "usb", "label": None, "fstype": None, "children": list(children), **fields}
        (self.directory / "answer").write_text(json.dumps({"blockdevices": [disk]}))

    def run(self, typed="yes\n", device=None):
        """Returns (exit status, standard output, standard error)."""
        done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "flash.py"),
                               str(self.image),
                               str(device or self.device)], input=typed, capture_output=True,
                               text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def untouched(self):
        return self.device.read_bytes() == b"\xee" * (len(IMAGE) + 5000)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    return Desk(tmp_path, monkeypatch)


def part(path="/dev/sdx1", **fields):
    return {"path": path, "type": "part", "size": 4 << 30, "mountpoints": [None], "fstype": "vfat",
            "label": "PHOTOS",
            "children": [], **fields}


def test_it_writes_and_reads_back(desk):
    desk.tell([part()])
    code, said, wrong = desk.run()
    assert (code, wrong) == (0, "")
    assert (
        "DataTraveler 0815" in said
        and "vfat PHOTOS" in said
        and "Everything on it will be lost" in said
    )
    assert "reads as it was written" in said
    got = desk.device.read_bytes()
    assert got[:len(IMAGE)] == IMAGE and got[len(IMAGE):] == b"\xee" * 5000


@pytest.mark.parametrize("typed", ["", "\n", "no\n", "y\n", "Yes\n", "yes please\n", "yes"])
def test_only_a_typed_yes_will_do(desk, typed):
    code, _, wrong = desk.run(typed)
    assert code == 1 and "the answer was not yes" in wrong.lower()
    assert desk.untouched()


@pytest.mark.parametrize("children, fields, why", [
    ([], {"type": "part"}, "is not a whole disk but of type 'part'"),
    ([], {"type": "loop"}, "is not a whole disk but of type 'loop'"),
    ([], {"rm": False, "hotplug": False}, "is not a removable disk"),
    ([], {"ro": True}, "is read-only"),
    ([], {"mountpoints": ["/media/stick"]}, "is in use at /media/stick"),
    ([part(), part("/dev/sdx2", mountpoints=["/boot", "/srv"])], {},
     "/dev/sdx2 is in use at /boot, /srv"),
    ([part(mountpoints=["[SWAP]"])], {}, "is in use at [SWAP]"),
    ([part(children=[part("/dev/mapper/c", type="crypt")])], {}, "/dev/mapper/c on"),
    ([part(children=[part("/dev/mapper/v", type="lvm", mountpoints=["/"])])], {},
     "/dev/mapper/v is in use at /"),
    ([], {"size": len(IMAGE) - 1}, "is too small"),
])
def test_what_is_refused(desk, children, fields, why):
    desk.tell(children, **fields)
    code, said, wrong = desk.run()
    assert code == 1 and why in wrong, wrong
    assert "Type yes" not in said and desk.untouched()


@pytest.mark.parametrize("fields, why", [
    ({"mountpoints": ["/media/me"]}, "is in use at /media/me"),
    ({"serial": "4711"}, "is not the disk any more"),
    ({"children": [part()]}, "is not the disk any more"),
])
def test_it_looks_again_after_the_answer(desk, fields, why):
    """While the person thinks about the answer, the stick is mounted, or another one takes its
    name."""
    tool = subprocess.Popen([sys.executable, os.path.join(ROOT, "tools", "flash.py"),
                             str(desk.image), str(desk.device)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)
    said = ""
    while "Type yes" not in said:
        said += tool.stdout.read(1)
    desk.tell(**fields)
    _, wrong = tool.communicate("yes\n", 30)
    assert tool.returncode == 1 and why in wrong
    assert desk.untouched()


def test_a_stick_that_lost_a_byte_is_noticed(desk):
    flash.write(str(desk.image), str(desk.device))
    assert flash.same(str(desk.image), str(desk.device))
    with open(desk.device, "r+b") as f:
        f.seek(flash.PIECE + 77)
        f.write(b"\xff\xfe")
    assert not flash.same(str(desk.image), str(desk.device))
    os.truncate(desk.device, len(IMAGE) - 1)
    assert not flash.same(str(desk.image), str(desk.device))


def test_what_is_no_device(tmp_path):
    """The real lsblk decides this."""
    (tmp_path / "file").write_text("")
    for path, what in ((tmp_path / "nothing", ": there is no such device: "),
                       (tmp_path, " is a directory: "),
                       (tmp_path / "file", " is a file: "), ("/dev/null", "not a block device: ")):
        with pytest.raises(flash.Problem,
                           match=f"^{path}.*{what}expected a device such as /dev/sdc"):
            flash.look(str(path))


def test_make_looks_at_the_device_before_it_builds(tmp_path):
    done = subprocess.run(["make", "flash", f"DEV={tmp_path}", f"B={tmp_path}/build"], cwd=ROOT,
                          capture_output=True,
                          text=True, check=False)
    assert done.returncode and f"flash: {tmp_path} is a directory" in done.stderr
    assert not list(tmp_path.rglob("*.iso")) and not list(tmp_path.rglob("*.o"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a loop device")
def test_a_block_device(desk):
    made = subprocess.run(["losetup", "--find", "--show", str(desk.device)], capture_output=True,
                          text=True, check=False)
    if made.returncode:
        pytest.skip(f"no loop device can be made here: {made.stderr.strip()}")
    loop = made.stdout.strip()
    try:
        desk.tell(path=loop)
        assert desk.run(device=loop)[0] == 0
        assert flash.same(str(desk.image), loop)
        os.unlink(desk.directory / "lsblk")  # The real one knows what it is.
        code, _, wrong = desk.run(device=loop)
        assert code == 1 and f"{loop} is not a whole disk but of type 'loop'" in wrong
    finally:
        subprocess.run(["losetup", "--detach", loop], check=True)


def test_make_wants_a_device():
    done = subprocess.run(["make", "-s", "flash"], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    assert done.returncode and "which device?" in done.stderr
