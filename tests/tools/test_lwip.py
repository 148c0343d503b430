"""tools/lwip.sh: an lwIP that is not the one that we know is refused, and each way to fail gives
one sentence."""
import os
import subprocess

from conftest import ROOT

CHECKED = "lwip_2.1.3+dfsg1.orig.tar.xz"


def lwip(tmp_path, tarball=None, source=None):
    apt = tmp_path / "apt"
    apt.mkdir(exist_ok=True)
    (apt / "os-release").write_text("VERSION_CODENAME=bookworm\n")
    if source:
        (apt / "sources.list").write_text(source)
    env = dict(os.environ, TAKT_APT_DIR=str(apt), TAKT_OS_RELEASE=str(apt / "os-release"))
    env.pop("LWIP_TARBALL", None)
    if tarball:
        env["LWIP_TARBALL"] = str(tarball)
    done = subprocess.run([ROOT + "/tools/lwip.sh", str(tmp_path / "lwip")], env=env,
                          stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300)
    return done.returncode, done.stdout


def nothing_left(tmp_path):
    return not (tmp_path / "lwip").exists() and not (tmp_path / "lwip.new").exists()


def one_sentence(output, *words):
    output = output.replace("lwip: getting its source through apt\n", "")
    assert output.startswith("lwip: ") and output.count("\n") == 1, output
    for word in words:
        assert word in output


def test_another_content_under_a_known_name(tmp_path):
    (tmp_path / CHECKED).write_bytes(b"not lwIP")
    code, output = lwip(tmp_path, tmp_path / CHECKED)
    assert code == 1 and nothing_left(tmp_path)
    one_sentence(output, CHECKED, "checksum")


def test_an_unknown_version(tmp_path):
    (tmp_path / "lwip_9.orig.tar.xz").write_bytes(b"")
    code, output = lwip(tmp_path, tmp_path / "lwip_9.orig.tar.xz")
    assert code == 1 and nothing_left(tmp_path)
    one_sentence(output, "lwip_9.orig.tar.xz", "none of the versions")


def test_a_file_that_is_not_there(tmp_path):
    code, output = lwip(tmp_path, tmp_path / "none")
    assert code == 1 and nothing_left(tmp_path)
    one_sentence(output, "no file")


def test_offline(tmp_path):
    code, output = lwip(tmp_path,
                        source="deb [trusted=yes] http://127.0.0.1:9/debian bookworm main\n")
    assert code == 1 and nothing_left(tmp_path)
    one_sentence(output, "apt cannot get the source package lwip")


def test_no_source_to_derive_from(tmp_path):
    code, output = lwip(tmp_path)
    assert code == 1 and nothing_left(tmp_path)
    one_sentence(output, "apt has no source of this release")


def test_what_is_there_stays(tmp_path):
    (tmp_path / "lwip").mkdir()
    (tmp_path / "lwip" / "VERSION").write_text("1\n")
    assert lwip(tmp_path, tmp_path / "none") == (0, "")
