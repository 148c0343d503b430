"""tools/mkiso.sh --net: the tree for a TFTP server. It replaces nothing that it has not made."""
import filecmp
import os
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT

CONFIG = "[hypervisor]\nscript = s\n\n[vm hello]\nimage = hello\n"


@pytest.fixture
def mkpxe(tmp_path):
    (tmp_path / "my.cfg").write_text(CONFIG)
    (tmp_path / "s").write_text("@1s poweroff\n")

    def run(*options):
        return subprocess.run(["tools/mkiso.sh", str(tmp_path / "pxe"), str(tmp_path / "my.cfg"),
                               "--net", *options],
                              cwd=ROOT, capture_output=True, text=True, check=False)

    return run


def test_the_tree(mkpxe, tmp_path):
    boot = tmp_path / "pxe" / "boot"
    assert mkpxe().returncode == 0
    for name in ("grub/i386-pc/core.0", "grub/x86_64-efi/core.efi", "takt.elf", "takt-efi.elf",
                 "takt.cfg", "hello", "s"):
        assert (boot / name).stat().st_size > 0, name
    assert "http" not in (boot / "grub/grub.cfg").read_text()
    (boot / "hello").unlink()
    # It is made anew, in its place.
    done = mkpxe("--http", "192.168.7.1", "--cmdline", "loglvl=debug")
    assert done.returncode == 0, done.stderr
    assert (boot / "hello").exists() and sorted(os.listdir(tmp_path / "pxe")) == ["boot"]
    text = (boot / "grub/grub.cfg").read_text()
    assert (
        "insmod http\nset root=(http,192.168.7.1)\n" in text
        and "multiboot2 $takt loglvl=debug" in text
    )


def test_an_image_stays_as_it_is(mkpxe, tmp_path):
    """Some images have their multiboot header where a tool that strips them would lose it."""
    image = os.path.join(BUILD, "guests", "hello.elf")  # has debugging information
    (tmp_path / "my.cfg").write_text("[vm mine]\nimage = mine.elf\n")
    shutil.copy(image, tmp_path / "mine.elf")
    done = mkpxe()
    assert done.returncode == 0, done.stderr
    assert filecmp.cmp(image, tmp_path / "pxe/boot/mine.elf", shallow=False)


@pytest.mark.parametrize("server", ["http://192.168.7.1", "192.168.7.1/x", "a b", "a,b", "a:",
                                    "a:x", "-a", "a:123456"])
def test_what_is_no_web_server(mkpxe, tmp_path, server):
    done = mkpxe("--http", server)
    assert done.returncode == 1 and not (tmp_path / "pxe").exists()
    assert done.stderr == (
        f"mkiso: HTTP={server}: expected the name or the address of a web server, perhaps with a "
        "port, as 192.168.7.1 or boot.example.org:8080\n"
    )


def test_a_web_server_with_a_port(mkpxe, tmp_path):
    done = mkpxe("--http", "boot-1.example.org:8080")
    assert done.returncode == 0, done.stderr
    assert (
        "set root=(http,boot-1.example.org:8080)\n"
        in (tmp_path / "pxe/boot/grub/grub.cfg").read_text()
    )


def test_a_file_in_the_place_of_the_tree(mkpxe, tmp_path):
    (tmp_path / "pxe").write_text("mine")
    done = mkpxe()
    assert done.returncode == 1 and done.stderr.startswith(
        f"mkiso: PXE={tmp_path}/pxe: it is no directory: expected"
    )
    assert (tmp_path / "pxe").read_text() == "mine"


def test_a_stranger_is_left_alone(mkpxe, tmp_path):
    theirs = tmp_path / "pxe" / "boot" / "theirs"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    done = mkpxe()
    assert done.returncode == 1 and "is not Takt's: it is left as it is" in done.stderr
    assert theirs.read_text() == "mine" and os.listdir(theirs.parent) == ["theirs"]


def memory_disk(tmp_path, name, *options):
    out = tmp_path / name
    done = subprocess.run(["tools/mkiso.sh", str(out), str(tmp_path / "my.cfg"), "--memory-disk",
                           *options],
                          cwd=ROOT, capture_output=True, text=True, check=False)
    return done, out


def test_a_disk_in_memory(mkpxe, tmp_path):
    """It is a kernel by Linux's boot protocol (HdrS, at 0x202), and each run makes the same one."""
    done, out = memory_disk(tmp_path, "one")
    assert done.returncode == 0, done.stderr
    assert out.read_bytes()[0x202:0x206] == b"HdrS"
    assert memory_disk(tmp_path, "two")[1].read_bytes() == out.read_bytes()


def test_a_disk_in_memory_that_is_too_large(mkpxe, tmp_path):
    (tmp_path / "large").write_bytes(os.urandom(600 << 10))
    done, out = memory_disk(tmp_path, "one", "--module", f"large={tmp_path / 'large'}")
    assert done.returncode == 1 and "too big" in done.stderr and not out.exists()
