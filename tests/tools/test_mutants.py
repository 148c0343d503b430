"""tools/mutants.py: which faults are chosen. That faults are noticed is what `make mutants` is
for."""
import argparse
import os
import subprocess

import mutants
import pytest
from conftest import ROOT


def test_every_part_of_the_list_together_is_the_list():
    everything = list(mutants.faults())
    for of in (1, 3, 10, 5 * len(everything)):
        parts = [mutants.cut(everything, number, of) for number in range(1, of + 1)]
        assert sorted(fault for part in parts for fault in part) == sorted(everything)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_faults_of_one_test_stay_together():
    chosen = [("a", "f", "s", "x"), ("b", "f", "s", "y"), ("c", "f", "s", "x"),
              ("d", "f", "s", "y")]
    assert [fault[0] for fault in mutants.cut(chosen, 1, 2)] == ["a", "c"]
    assert [fault[0] for fault in mutants.cut(chosen, 2, 2)] == ["b", "d"]


@pytest.mark.parametrize("text", ["3", "0/10", "11/10", "x/10", "3/", ""])
def test_a_part_that_makes_no_sense(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a part such as 3/10"):
        mutants.part(text)


def test_every_name_is_there_once_and_every_test_is_known():
    names = [fault[0] for fault in mutants.faults()]
    assert len(names) > 700 and len(set(names)) == len(names)
    for fault in mutants.faults():
        mutants.commands(fault[3])


def test_a_name_that_is_not_in_the_list():
    done = subprocess.run([os.path.join(ROOT, "tools", "mutants.py"), "no_such"],
                          capture_output=True,
                          text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "mutants: no_such: not in tests/mutants.txt\n"
