"""tools/fresh.sh: how it counts. Fakes stand in for the programs that make and run a fresh system;
`make fresh` uses the real ones."""
import os
import subprocess

import pytest
from conftest import ROOT

# A system is an empty tar. Inside it, `make demo` succeeds and everything else fails.
FAKES = {"mmdebstrap": 'for a; do case $a in *.tar*) tar -cf "$a" -T /dev/null ;; esac; done',
         "bwrap": 'case "$*" in *"make demo") ;; *) echo "the reason"; exit 3 ;; esac',
         "apt-get": "exit 0",
         "git": 'mkdir -p "$5"'}


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """fresh(WORD...) runs tools/fresh.sh. It returns the exit status and the lines that were
    printed."""
    def run(*words, user=None, **fakes):
        tools = tmp_path / "bin"
        tools.mkdir(mode=0o755)
        for name, text in {**FAKES, **fakes}.items():
            (tools / name).write_text(f"#!/bin/sh\n{text}\n")
            (tools / name).chmod(0o755)
        env = dict(os.environ, TAKT_FRESH_DIR=str(tmp_path / "fresh"),
                   PATH=f"{tools}:/usr/sbin:/usr/bin:/sbin:/bin")
        done = subprocess.run([ROOT + "/tools/fresh.sh", *words], env=env, user=user,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout.splitlines()
    return run


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@as_root
def test_a_step_that_fails_is_told_with_its_last_words(fresh):
    status, lines = fresh("--steps", "demo needs", "debian12")
    assert status == 1
    assert any(line.startswith("debian12: demo: passed in ") for line in lines), lines
    assert any(line.startswith("debian12: needs: FAILED (exit status 3) ") for line in lines), lines
    assert lines[-2:] == ["    the reason", "1 passed, 1 failed, 0 skipped"]


@as_root
def test_an_archive_out_of_reach_is_skipped_and_not_passed(fresh):
    status, lines = fresh("debian12", "debian13",
                          mmdebstrap="echo 'E: Failed to fetch InRelease'; exit 1")
    assert status == 0
    assert "debian13: skipped: its archive cannot be reached: E: Failed to fetch InRelease" in lines
    assert lines[-1] == "0 passed, 0 failed, 2 skipped"


@as_root
def test_without_root_it_says_so(fresh):
    try:
        status, lines = fresh("debian12", user=65534,
                              sudo="echo 'sudo: a password is required'; exit 1")
    except PermissionError:
        pytest.skip("this tree is where others than root may not read it")
    assert status == 0
    assert "needs root" in lines[0] and lines[-1] == "0 passed, 0 failed, 1 skipped"


@as_root
def test_a_release_that_is_not_known(fresh):
    assert fresh("debian11") == (2, ["fresh: debian11 is none of debian12 debian13 ubuntu24.04"])
