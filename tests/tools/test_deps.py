"""tools/deps.sh: where the source of the backports comes from, and what apt is asked for."""
import os
import shutil
import subprocess

import pytest
from conftest import ROOT

DEB822 = """\
# made at installation
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm-security
Components: main
Signed-By: /keys/security.gpg

Types: deb deb-src
URIs: http://mirror.example/debian
 http://second.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /keys/debian.gpg
"""

WANT822 = """\
sources
Types: deb
URIs: http://mirror.example/debian
 http://second.example/debian
Suites: bookworm-backports
Components: main contrib
Signed-By: /keys/debian.gpg
"""

LIST = """\
# deb http://old.example/debian bookworm main
deb http://mirror.example/debian bookworm-updates main
deb-src http://mirror.example/debian bookworm main
deb [arch=amd64 signed-by=/keys/debian.gpg] http://mirror.example/debian bookworm main contrib
"""

WANT_LIST = """\
list
deb [arch=amd64 signed-by=/keys/debian.gpg] http://mirror.example/debian \
bookworm-backports main contrib
"""


WANT_SOURCES = WANT822.replace("Types: deb", "Types: deb-src").replace(
    "bookworm-backports", "bookworm"
)
WANT_SOURCE_LINE = WANT_LIST.replace("\ndeb ", "\ndeb-src ").replace("bookworm-backports",
                                                                     "bookworm")


def backports(tmp_path, what="--backports", **files):
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_CODENAME=bookworm\n')
    (tmp_path / "sources.list.d").mkdir()
    for name, text in files.items():
        (tmp_path / name.replace("__", "/").replace("_dot_", ".")).write_text(text)
    env = dict(os.environ, TAKT_APT_DIR=str(tmp_path), TAKT_OS_RELEASE=str(tmp_path / "os-release"))
    done = subprocess.run([ROOT + "/tools/deps.sh", what], env=env, stdout=subprocess.PIPE,
                          text=True)
    return done.returncode, done.stdout


def test_deb822(tmp_path):
    assert backports(tmp_path, **{"sources_dot_list_dot_d__debian_dot_sources": DEB822}) == (
        0,
        WANT822,
    )


@pytest.mark.parametrize("name", ["sources_dot_list", "sources_dot_list_dot_d__main_dot_list"])
def test_one_line(tmp_path, name):
    assert backports(tmp_path, **{name: LIST}) == (0, WANT_LIST)


def test_disabled_stanza_does_not_count(tmp_path):
    text = DEB822.replace("Signed-By: /keys/debian.gpg", "Signed-By: /keys/debian.gpg\nEnabled: no")
    assert backports(tmp_path, **{"sources_dot_list_dot_d__debian_dot_sources": text}) == (1, "")


def test_no_source(tmp_path):
    assert backports(tmp_path)[0] == 1


def test_source_packages(tmp_path):
    assert backports(
        tmp_path, "--deb-src", **{"sources_dot_list_dot_d__debian_dot_sources": DEB822}
    ) == (0, WANT_SOURCES)


def test_source_packages_one_line(tmp_path):
    assert backports(tmp_path, "--deb-src", sources_dot_list=LIST) == (0, WANT_SOURCE_LINE)


# ---- what apt is asked for, with an apt that only notes it ----

APT_GET = """#!/bin/sh
echo "$*" >> {log}
case "$*" in *"{fails}"*) exit 100 ;; esac
"""
APT_CACHE = "#!/bin/sh\necho '  Candidate: 1:7.2+dfsg-7'\n"
ID = "#!/bin/sh\necho 0\n"
TOOLS = ("awk", "bash", "cat", "env", "grep", "sed", "sh", "tee")


def installs(tmp_path, group, fails="nothing"):
    """Returns (exit status, the lines `install` of apt-get) on a Debian 12 that has none of the
    packages of the group. apt-get fails if its arguments contain `fails`."""
    log, path = tmp_path / "log", tmp_path / "bin"
    path.mkdir()
    for name in TOOLS:
        (path / name).symlink_to(shutil.which(name))
    for name, text in (("apt-get", APT_GET.format(log=log, fails=fails)),
                       ("apt-cache", APT_CACHE), ("id", ID)):
        (path / name).write_text(text)
        (path / name).chmod(0o755)
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_CODENAME=bookworm\n')
    (tmp_path / "sources.list.d").mkdir(exist_ok=True)
    (tmp_path / "sources.list").write_text(LIST)
    env = dict(os.environ, PATH=str(path), TAKT_APT_DIR=str(tmp_path),
               TAKT_OS_RELEASE=str(tmp_path / "os-release"))
    done = subprocess.run([ROOT + "/tools/deps.sh", group], env=env, stdout=subprocess.DEVNULL)
    lines = log.read_text().splitlines()
    return done.returncode, [line.split("--no-install-recommends ")[1] for line in lines
                             if " install " in line]


QEMU = [f"{name}/bookworm-backports" for name in ("qemu-system-x86", "qemu-system-common",
                                                  "qemu-system-data", "seabios")]


def test_no_library_of_the_release_is_replaced_for_qemu(tmp_path):
    """A library from the backports would keep gdb from being installed after `make demo`."""
    assert installs(tmp_path, "qemu") == (0, [" ".join(QEMU)])


def test_qemu_comes_with_its_libraries_if_it_has_to(tmp_path):
    assert installs(tmp_path, "qemu", fails="seabios") == (0, [
        " ".join(QEMU), "-t bookworm-backports qemu-system-x86"])


def test_what_cannot_be_installed_is_an_error(tmp_path):
    assert installs(tmp_path, "debug", fails="--no-install-recommends gdb") == (1, ["gdb"])


def test_packages_come_from_the_backports_that_apt_has(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "b.list").write_text(WANT_LIST.split("\n", 1)[1])
    assert installs(tmp_path, "debug", fails="--no-install-recommends gdb") == (0, [
        "gdb", "-t bookworm-backports gdb"])
