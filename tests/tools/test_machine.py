"""The machines of tools/machine.py themselves."""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import ROOT

import machine

ABORTS = """#!/bin/sh
echo '00000000000i[PLUGIN] loaded plugin libbx_speaker.so'
echo '*** buffer overflow detected ***: terminated' >&2
kill -ABRT $$
"""


@pytest.fixture
def dying_bochs(tmp_path, monkeypatch):
    """A Bochs that ends as Bochs 2.7 did on machines without a sound card."""
    path = tmp_path / "bin" / "bochs"
    path.parent.mkdir()
    path.write_text(ABORTS)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


def assert_told(sentence):
    words = "*** buffer overflow detected ***: terminated"
    assert f"Bochs was ended by SIGABRT; its last words: {words} (see " in sentence, sentence
    assert "libbx_speaker" not in sentence and "Traceback" not in sentence, sentence


def test_a_dead_emulator_is_told_by_its_last_words(dying_bochs, tmp_path):
    with pytest.raises(machine.Died) as told:
        machine.Machine("bochs", tmp_path / "no.iso", directory=str(tmp_path)).start()
    assert_told(str(told.value))


@pytest.mark.parametrize("words", [["tools/machine.py", "run", "--platform", "bochs", "no.iso"],
                                   ["tools/machine.py", "check", "--platform", "bochs"]])
def test_a_command_tells_of_it_in_a_sentence(dying_bochs, words):
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert_told(done.stderr)


def test_tests_are_not_begun_with_a_dead_emulator(dying_bochs):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--platform", "bochs", "tests/guest"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "no test was run, as bochs does not work here" in done.stdout + done.stderr
    assert_told(done.stdout + done.stderr)


def test_emulators_live_long_enough_to_look_for_a_disk(platform, tmp_path):
    machine.check(platform, str(tmp_path))


def test_bochs_leaves_the_sound_card_alone(tmp_path):
    machine.check("bochs", str(tmp_path))
    with open(tmp_path / "bochs.log", encoding="utf-8", errors="replace") as log:
        drivers = {line.rpartition("libbx_sound")[2].strip() for line in log if "libbx_sound" in line}
    assert drivers == {"dummy.so"}


@pytest.mark.bochs
def test_bochs_has_its_display_when_the_next_one_starts(tmp_path):
    iso = tmp_path / "empty.iso"
    iso.write_bytes(bytes(1 << 20))
    machines = [machine.Machine("bochs", iso, cpus=1, memory=32, directory=str(tmp_path / str(n))) for n in range(4)]

    def displays(m):
        with m:
            with open(m.dir + "/bochs.log", encoding="utf-8", errors="replace") as log:
                return log.read().count("listening for connections on port")

    with ThreadPoolExecutor(len(machines)) as pool:
        assert list(pool.map(displays, machines)) == [1] * len(machines)
