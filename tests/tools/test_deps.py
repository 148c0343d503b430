"""tools/deps.sh: where the source of the backports comes from."""
import os
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
