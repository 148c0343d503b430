"""tools/mutants.py: which faults are chosen. `make mutants` shows that the faults are noticed."""
import argparse
import os
import subprocess

import faults
import mutants
import pytest
from conftest import ROOT


def names(chosen):
    return [fault.name for fault in chosen]


def test_every_part_of_the_list_together_is_the_list():
    everything = faults.all_faults()
    for of in (1, 3, 10, 5 * len(everything)):
        parts = [mutants.cut(everything, number, of) for number in range(1, of + 1)]
        assert sorted(names(sum(parts, []))) == sorted(names(everything))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_faults_of_one_test_stay_together():
    chosen = [faults.Fault(name, [test], "", "f", "list:1")
              for name, test in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "y"))]
    assert names(mutants.cut(chosen, 1, 2)) == ["a", "c"]
    assert names(mutants.cut(chosen, 2, 2)) == ["b", "d"]


@pytest.mark.parametrize("text", ["3", "0/10", "11/10", "x/10", "3/", ""])
def test_a_part_that_makes_no_sense(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a part such as 3/10"):
        mutants.part(text)


def test_every_test_is_known():
    chosen = faults.all_faults()
    assert len(chosen) > 700
    for fault in chosen:
        for test in fault.tests:
            mutants.commands(test)


def test_a_name_that_is_not_in_the_list():
    done = subprocess.run([os.path.join(ROOT, "tools", "mutants.py"), "no_such"],
                          capture_output=True,
                          text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "mutants: no_such: not in tests/mutants\n"
