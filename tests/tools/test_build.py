"""The Makefile and mk/*.mk: what is built anew, and when. Compiler, assembler and linker are fakes
that write down their arguments."""
import os
import re
import subprocess

import pytest
from conftest import ROOT

IMAGE = "takt.elf"
FAKE = """#!/bin/sh
# Writes its own arguments to the file behind -o.
all="$*"
while [ $# -gt 1 ]; do [ "$1" != -o ] || echo "$all" > "$2"; shift; done
"""


def clean():
    """Returns the environment without what a make above this test has put there."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "WERROR"))}


def dry(*words):
    """Returns what `make -n` says that it would do, its sub-makes included."""
    done = subprocess.run(["make", "-n", "CC=cc", *words], cwd=ROOT, env=clean(),
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def make(tmp_path, monkeypatch):
    """make(VARIABLE=value ...) makes the image, or another `target`, and returns the names of the
    objects that it was linked from."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("cc", "ld", "nasm", "nm", "ar"):
        (tools / name).write_text(FAKE)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    build = tmp_path / "build"

    def run(*options, target=IMAGE, **variables):
        variables = {"CC": "cc", "NASM": "nasm", "B": build, **variables}
        words = [f"{name}={value}" for name, value in variables.items()]
        done = subprocess.run(["make", "-j2", *options, *words, str(build / target)], cwd=ROOT,
                              env=clean(),
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        run.said = done.stdout.splitlines()
        if target.endswith(".a"):
            return None
        return set(re.findall(r"(?:image|host)/(\S+)\.o", (build / target).read_text()))

    run.build = build
    return run


def compiled(make, suffix=".c", directory="image"):
    """Returns {object: when it was compiled} for all objects of sources of this kind."""
    top = make.build / directory
    return {path: path.stat().st_mtime_ns for path in top.rglob("*.o")
            if os.path.exists(os.path.join(ROOT, path.relative_to(top).with_suffix(suffix)))}


@pytest.mark.parametrize("target", [IMAGE, "cfgdump"])
def test_a_program_has_the_policies_that_were_asked_for_last(make, target):
    labs = {"labs/lottery", "labs/policies", "labs/stride"}
    plain = make(target=target)
    assert not plain & labs
    assert make(target=target, LABS="labs/stride.c") == plain | labs
    assert make(target=target) == plain
    assert make(target=target, LABS="labs/stride.c") == plain | labs


def test_an_image_with_one_policy_of_labs_has_all_that_the_list_names(make, tmp_path):
    mine = tmp_path / "mine.c"
    mine.write_text("")
    assert {"labs/stride", "labs/policies"} <= make(LABS=mine)


def test_other_flags_compile_anew_and_the_same_ones_do_not(make):
    make()
    before = compiled(make)
    make()
    assert compiled(make) == before
    make(CC="cc -DOTHER")
    after = compiled(make)
    assert len(before) > 50 and before.keys() == after.keys()
    assert not [path for path in before if after[path] == before[path]]


@pytest.mark.parametrize("target, suffix, directory, change", [
    (IMAGE, ".asm", "image", {"NASM": "nasm -w"}),
    ("libguest.a", ".c", "guestlib", {"CC": "cc -DOTHER"}),
    ("libhv.a", ".c", "host", {"CC": "cc -DOTHER"}),
    ("libhv.a", ".c", "host", {"WERROR": "-Werror"}),
])
def test_every_object_depends_on_its_flags(make, target, suffix, directory, change):
    make(target=target)
    before = compiled(make, suffix, directory)
    make(target=target)
    assert before and compiled(make, suffix, directory) == before
    make(target=target, **change)
    after = compiled(make, suffix, directory)
    assert not [path for path in before if after[path] == before[path]]


def test_warnings_end_a_build_only_in_make_check(tmp_path):
    compilers = [line
                 for line in dry("all", f"B={tmp_path}").splitlines() if line.startswith("cc ")]
    assert len(compilers) > 50 and not [line for line in compilers if "-Werror " in line]
    compilers = [line
                 for line in dry("check", f"B={tmp_path}").splitlines() if line.startswith("cc ")]
    warned = [line for line in compilers if "-Wall" in line]
    assert len(warned) > 50 and not [line for line in warned if "-Werror " not in line]


def test_a_build_gets_nothing_from_the_network(tmp_path):
    said = dry("all", f"B={tmp_path}")
    assert "lwip.sh" not in said and "the guests with a network stack are left out" in said
    assert "lwip.sh" in dry("lwip", f"B={tmp_path}")


def test_a_make_that_is_started_by_a_rule_shares_the_jobs_of_the_one_above(tmp_path):
    assert "make -j2 all" in dry("test-needs", f"B={tmp_path}")
    # dry() checks that there is no warning.
    assert "make  all" in dry("-j2", "test-needs", f"B={tmp_path}")


@pytest.mark.parametrize("word, expected", [
    ("CPUS=0", "a whole number from 1 to 256"),
    ("CPUS=257", "a whole number from 1 to 256"),
    ("CPUS=x", "a whole number from 1 to 256"),
    ("CPUS=", "a whole number from 1 to 256"),
    ("CPUS=1 2", "a whole number from 1 to 256"),
    ("MEMORY=x", "a whole number of MiB (such as 256)"),
    ("MEMORY=1G", "a whole number of MiB (such as 256)"),
    ("MEMORY=0", "a whole number of MiB (such as 256)"),
    ("SECONDS=x", "a number of seconds (such as 1 or 0.5)"),
    ("SECONDS=0.0", "a number of seconds (such as 1 or 0.5)"),
    ("VMS=", "the name of one VM file with no blank in it"),
    ("VMS=my file.cfg", "the name of one VM file with no blank in it"),
    ("SCENARIO=", "the name of one VM file with no blank in it"),
])
def test_a_wrong_value_is_refused_with_its_name(word, expected):
    done = subprocess.run(["make", "-n", "help", word], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    assert done.returncode and f"*** {word}: expected {expected}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_right_values_are_taken():
    words = ["CPUS=64", "MEMORY=1024", "SECONDS=0.25", "VMS=labs/shared.cfg",
             "SCENARIO=boot/demo.cfg"]
    subprocess.run(["make", "-n", "help", *words], cwd=ROOT, capture_output=True, check=True)


def test_a_build_says_what_it_does_in_short_lines(make):
    make()
    assert len(make.said) > 50
    assert not [line for line in make.said if not re.fullmatch(r"  (CC|NASM|LD) +\S+", line)]
    assert "  CC   image/hv/main.o" in make.said and make.said[-1] == "  LD   takt.elf"
    make()
    assert make.said == []


def test_a_person_can_have_whole_commands_or_silence(make):
    make("-s")
    assert make.said == []
    make(V=1, CC="cc -DOTHER")
    assert any(line.startswith("cc -DOTHER -std=") for line in make.said)


@pytest.mark.parametrize("goal", ["run", "run-gdb"])
def test_an_image_to_run_does_not_replace_that_of_make_iso(goal, tmp_path):
    said = dry(goal, f"B={tmp_path}")
    assert f"tools/mkiso.sh {tmp_path}/run.iso" in said
    assert re.search(rf"tools/machine.py [^&]* {tmp_path}/run.iso", said)
    assert "takt.iso" not in said
