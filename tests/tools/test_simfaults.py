"""build/sim-faults: the whole machine with faults that a seed chooses."""
import os
import re
import subprocess

import pytest
import simfaults
import tracestream


def prepared():
    os.makedirs(simfaults.DIRECTORY, exist_ok=True)


@pytest.mark.long
def test_seeds_pass_and_have_faults():
    """make sim-faults runs many more. Over some seeds, each kind of fault comes."""
    prepared()
    counts = {}
    for seed in range(1, 25):
        why, said = simfaults.run(seed)
        assert why is None, said
        for n, what in re.findall(r"(?<=, )(\d+) ([a-zA-Z ]+)", said.rpartition("\nseed ")[2]):
            counts[what] = counts.get(what, 0) + int(n)
    assert len(counts) == 10 and all(counts.values()), counts


@pytest.mark.long
def test_frames_are_reordered():
    """On links that reorder, frames overtake others, and the streams arrive as they were sent. Only
    back ends that live for a second tell what they have done."""
    prepared()
    reordered = 0
    for seed in range(1, 101):
        why, said = simfaults.run(seed)
        assert why is None, said
        reordered += sum(int(n) for n in re.findall(r" reordered=(\d+)", said))
    assert reordered > 10


@pytest.mark.long
def test_back_ends_and_managers_die_while_others_use_them():
    prepared()
    for seed in range(1, 41):
        why, said = simfaults.run(seed)
        assert why is None, said


def test_a_seed_repeats_and_can_be_traced(tmp_path):
    prepared()
    path = str(tmp_path / "trace.bin")
    said = [simfaults.run(3, trace)[1] for trace in (None, None, path)]
    assert said[0] == said[1] == said[2]
    trace = tracestream.load(path)
    assert trace.records and not trace.lost and not trace.gaps


def test_only_one_program_injects_faults(tmp_path):
    path = tmp_path / "vms.cfg"
    path.write_text("[vm h]\nimage = hello\nmemory = 6M\n")
    sim = os.path.join(os.path.dirname(simfaults.SIM), "sim-whole")
    done = subprocess.run([sim, "--faults", "1", str(path)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 2 and "only build/sim-faults injects faults" in done.stderr
