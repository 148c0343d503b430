"""tools/mkiso.sh --net: the tree for a TFTP server, and that it takes no stranger's place."""
import os
import subprocess

import pytest

from conftest import ROOT

CONFIG = "[hypervisor]\nscript = s\n\n[vm hello]\nimage = hello\n"


@pytest.fixture
def mkpxe(tmp_path):
    (tmp_path / "my.cfg").write_text(CONFIG)
    (tmp_path / "s").write_text("@1s poweroff\n")

    def run(*options):
        return subprocess.run(["tools/mkiso.sh", str(tmp_path / "pxe"), str(tmp_path / "my.cfg"), "--net", *options],
                              cwd=ROOT, capture_output=True, text=True, check=False)

    return run


def test_the_tree(mkpxe, tmp_path):
    boot = tmp_path / "pxe" / "boot"
    assert mkpxe().returncode == 0
    for name in ("grub/i386-pc/core.0", "grub/x86_64-efi/core.efi", "takt.elf", "takt-efi.elf", "takt.cfg", "hello", "s"):
        assert (boot / name).stat().st_size > 0, name
    assert "http" not in (boot / "grub/grub.cfg").read_text()
    (boot / "hello").unlink()
    done = mkpxe("--http", "192.168.7.1", "--cmdline", "loglvl=debug")  # anew, in its place
    assert done.returncode == 0, done.stderr
    assert (boot / "hello").exists() and sorted(os.listdir(tmp_path / "pxe")) == ["boot"]
    text = (boot / "grub/grub.cfg").read_text()
    assert "insmod http\nset root=(http,192.168.7.1)\n" in text and "multiboot2 $takt loglvl=debug" in text


def test_a_stranger_is_left_alone(mkpxe, tmp_path):
    theirs = tmp_path / "pxe" / "boot" / "theirs"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    done = mkpxe()
    assert done.returncode == 1 and "is not Takt's: it is left as it is" in done.stderr
    assert theirs.read_text() == "mine" and os.listdir(theirs.parent) == ["theirs"]
