"""tools/experiment.py: what a result says about its origin, when a mean is allowed, and when a
system has settled."""
import os
import random
import subprocess
import sys

import experiment
import machine
import pytest
from experiment import Look

# ---- provenance ----


@pytest.fixture
def vm_file(tmp_path):
    path = tmp_path / "one.cfg"
    path.write_text("[vm a]\nimage = spin  # computes\n[vm b]\nimage = no-such-guest\n",
                    encoding="ascii")
    return str(path)


def test_a_result_names_where_it_comes_from(vm_file):
    found = experiment.provenance("bochs", sys.executable, [vm_file], seeds=[1, 2], warm_up_s=4,
                                  seconds=2, knobs={"core": {"boost": "off"}})
    assert len(found["commit"]) == 40 or found["commit"] == "unknown"
    assert found["clean"] in (True, False, None)
    assert found["command"] and found["platform"] == "bochs"
    assert set(found["versions"]) == {"emulator", "compiler", "lwip", "python"}
    assert found["versions"]["emulator"].startswith("Bochs ")
    assert found["ips"] == machine.BOCHS_HZ
    assert found["seeds"] == [1, 2] and found["warm_up_s"] == 4 and found["seconds"] == 2
    assert found["knobs"] == {"core": {"boost": "off"}}
    assert all(len(sha) == 64 for sha in found["inputs"].values()) and len(found["inputs"]) == 4
    assert "/usr/share/bochs/BIOS-bochs-latest" in found["inputs"]


def test_only_bochs_has_instructions_a_second(vm_file):
    assert experiment.provenance("sim", sys.executable, [vm_file])["ips"] is None


def test_an_input_that_changes_has_another_hash(vm_file):
    before = experiment.provenance("sim", sys.executable, [vm_file])["inputs"]
    with open(vm_file, "a", encoding="ascii") as f:
        f.write("# more\n")
    after = experiment.provenance("sim", sys.executable, [vm_file])["inputs"]
    name = vm_file
    assert before[name] != after[name]
    assert {k: v for k, v in before.items() if k != name} == {
        k: v for k, v in after.items() if k != name
    }


def test_the_same_experiment_says_the_same_twice(vm_file):
    assert experiment.provenance("sim", sys.executable, [vm_file]) == \
        experiment.provenance("sim", sys.executable, [vm_file])


def test_a_changed_tree_is_not_clean(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=tmp_path,
                       check=True, capture_output=True)

    monkeypatch.setattr(machine, "ROOT", str(tmp_path))
    git("init", "-q")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-q", "-m", "one")
    assert experiment.commit()["clean"] is True
    (tmp_path / "file").write_text("two")
    assert experiment.commit()["clean"] is False


@pytest.fixture
def image(tmp_path):
    """Returns image(commit), which makes an ELF file that says it was built from that commit."""
    def build(commit):
        source, path = tmp_path / "version.c", tmp_path / f"image-{commit}"
        source.write_text(f'const char before[] = "x", version_commit[] = "{commit}";\n',
                          encoding="ascii")
        subprocess.run(["cc", "-nostdlib", "-static", "-Wl,-e0", "-o", path, source], check=True)
        return str(path)
    return build


@pytest.mark.parametrize("commit", ["0123456789", "0123456789+", "unknown"])
def test_an_image_says_what_commit_it_is_of(image, commit):
    assert experiment.image_commit(image(commit)) == commit


def test_a_program_without_a_version_has_no_commit(vm_file):
    assert experiment.image_commit(sys.executable) is None
    assert experiment.image_commit(vm_file) is None


@pytest.mark.parametrize("of_image, clean, told", [
    ("0123456789", True, ""), ("0123456789", False, ""), ("0123456789+", False, ""),
    ("0123456789+", True, "commit 0123456789 and changed files"),
    ("9876543210", True, "commit 9876543210,"),
    ("9876543210+", False, "commit 9876543210 and changed files"),
    ("unknown", True, "commit unknown,")])
def test_an_image_of_another_commit_is_told(image, monkeypatch, capsys, of_image, clean, told):
    monkeypatch.setattr(experiment, "commit", lambda: {"commit": "0123456789" * 4, "clean": clean})
    assert experiment.provenance("bochs", image(of_image))["image_commit"] == of_image
    said = capsys.readouterr().err
    assert told in said and bool(told) == bool(said)


def test_an_image_from_outside_a_repository_is_not_told(image, monkeypatch, capsys):
    monkeypatch.setattr(experiment, "commit", lambda: {"commit": "unknown", "clean": None})
    experiment.provenance("bochs", image("unknown"))
    assert capsys.readouterr().err == ""


def test_outside_a_repository_the_commit_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "ROOT", str(tmp_path))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert experiment.commit() == {"commit": "unknown", "clean": None}


def test_an_elf_file_names_its_compiler(tmp_path):
    source, program = tmp_path / "a.c", tmp_path / "a.o"
    source.write_text("int x;\n")
    subprocess.run(["gcc", "-c", "-o", program, source], check=True)
    assert experiment.compiler(str(program)).startswith("GCC: ")
    assert experiment.compiler(str(source)) is None


def test_the_image_names_its_compiler_by_its_objects():
    assert experiment.compiler(os.path.join(machine.BUILD, "takt.elf"))


def test_an_image_is_made_of_the_guests_that_its_file_names(vm_file):
    found = [os.path.relpath(path, machine.BUILD) for path in experiment.files_of(vm_file)[1:]]
    spin = ["guests/spin.elf"] if os.path.exists(os.path.join(machine.BUILD,
                                                              "guests/spin.elf")) else []
    assert found == ["takt.elf", *spin]


# ---- statistics ----

def test_a_mean_has_an_interval():
    # The standard deviation is 1.5811, and t of 4 degrees of freedom is 2.776. Their product is
    # divided by the root of 5.
    assert experiment.estimate([11, 12, 13, 14, 15]) == {"n": 5, "mean": 13, "ci95": 1.963}
    # For ten values it is 2.262 * 3.02765 / 3.16228.
    assert experiment.estimate(list(range(1, 11))) == {"n": 10, "mean": 5.5, "ci95": 2.166}


def test_one_run_has_no_interval():
    assert experiment.estimate([4]) == {"n": 1, "values": [4], "why": "one run has no interval"}


def test_an_interval_over_identical_runs_is_refused():
    found = experiment.estimate([7.0, 7.0, 7.0])
    assert found == {"n": 3, "value": 7, "why": "all 3 runs gave the same value"}
    # Values that differ only beyond the digits that are written down are the same.
    assert "ci95" not in experiment.estimate([7.00001, 7.00002, 7.00001])


def test_an_interval_over_two_groups_is_refused():
    found = experiment.estimate([0.07, 21.0, 0.07, 0.08, 20.5, 0.07, 0.07, 0.08, 21.5, 0.07])
    assert [(g["n"], g["min"], g["max"]) for g in found["groups"]] == [
        (7, 0.07, 0.08),
        (3, 20.5, 21.5),
    ]
    assert "ci95" not in found and "mean" not in found
    assert experiment.text(found) == "0.1 (7) or 21.0 (3)"


def test_a_single_run_of_another_kind_is_a_group():
    found = experiment.estimate([0.07] * 8 + [0.08, 4.8])
    assert [g["n"] for g in found["groups"]] == [9, 1]


def test_groups_that_hardly_differ_are_one():
    # These are shares of a CPU in per cent. A difference of 0.01 does not matter.
    found = experiment.estimate([25.0, 25.01] * 5)
    assert found["mean"] == 25.005 and found["ci95"] < 0.01
    # A difference has no mean that it could be compared with.
    assert "groups" in experiment.estimate([0.0, 0.01] * 5, signed=True)
    assert experiment.estimate([0.0, 0.01] * 5, signed=True, floor=0.1)["mean"] == 0.005
    assert (
        experiment.paired(
            dict.fromkeys(range(10), 1), {n: 1 + n % 2 / 100 for n in range(10)}, 0.1
        )["mean"]
        == 0.005
    )


def test_a_normal_sample_is_rarely_taken_for_two_groups():
    draw = random.Random(1)
    wrong = sum(bool(experiment.two_groups([draw.gauss(100, 30) for _ in range(n)]))
                for n in (5, 7, 10, 20) for _ in range(1000))
    assert wrong <= 12  # of 4,000; 4 are expected


def test_two_groups_are_nearly_always_found():
    draw = random.Random(1)
    found = sum(
        bool(experiment.two_groups([draw.gauss(100 if i % 2 else 10, 6) for i in range(10)]))
        for _ in range(1000)
    )
    assert found >= 990


def test_a_mean_that_says_nothing_is_refused():
    # This is vSlicer's prototype after 2 s of warm-up.
    found = experiment.estimate([0.07, 1.51, 0.07, 14.6, 19.08, 9.39, 0.07, 21.54, 0.07, 16.66])
    assert found["values"][0] == 0.07 and "scatter" in found["why"] and "ci95" not in found
    assert experiment.text(found) == "5.5, 0.1 to 21.5"


def test_a_difference_may_be_around_zero():
    assert experiment.estimate([-1, 2, -2, 1], signed=True)["ci95"] > 1
    assert "ci95" not in experiment.estimate([-1, 2, -2, 1])


def test_points_have_no_interval():
    assert experiment.points([3, 1, 2, 10]) == {"n": 4, "median": 2.5, "min": 1, "max": 10}
    assert experiment.text(experiment.points([3, 1, 2, 10])) == "2.5 (1.0 to 10.0)"


def test_pairs_are_of_common_seeds():
    # The seed has a large effect on both, and none on the difference.
    before, after = {1: 10, 2: 20, 3: 30, 4: 99}, {1: 11.1, 2: 21, 3: 30.9, 7: 0}
    assert experiment.paired(before, after) == {"n": 3, "mean": 1.0, "ci95": 0.248}
    assert experiment.paired({1: 1}, {2: 2}) is None


def test_seeds_that_change_nothing_are_told():
    assert experiment.same_trace(["ab", "ab", "ab"]) == \
        "the seed changes nothing: all 3 runs have the trace ab"
    assert experiment.same_trace(["ab", "ab", "cd"]) is None
    assert experiment.same_trace(["ab"]) is None and experiment.same_trace([None, None]) is None


def test_text():
    assert experiment.text(experiment.estimate([11, 12, 13, 14, 15]), 1, 10) == "130.0 ±19.6"
    assert experiment.text(experiment.estimate([2, 2]), 2) == "2.00 (all)"
    assert experiment.text(experiment.estimate([2]), 2) == "2.00"
    assert experiment.text(1.25, 2) == "1.25" and experiment.text(None) == "-"


# ---- warm-up ----

SEEDS = range(1, 11)


def looks(value, warm_up, labels=(), credit=()):
    """Returns a Look for each seed at value(time, seed), of a measurement of 10 s in two halves."""
    found = []
    for seed in SEEDS:
        halves = [
            {"latency": sum(value(warm_up + at + s, seed) for s in range(5)) / 5} for at in (0, 5)
        ]
        whole = {"latency": (halves[0]["latency"] + halves[1]["latency"]) / 2}
        found.append(Look(whole, tuple(halves), labels, credit))
    return found


def test_what_is_stationary_needs_no_more():
    def value(time, seed):
        return 8 + (seed * 7 + int(time) * 13) % 5 / 5

    found = experiment.settle(lambda w: looks(value, w), 2, 64)
    assert found.warm_up == 2 and found.why is None and not found.tried and len(found.looks) == 10


def test_warm_up_doubles_until_an_absorbing_state_is_reached():
    """Each run is bad for a while, and then good for ever. The last one becomes good after 29 s."""
    def value(time, seed):
        return 20.0 + time % 2 if time < 3 * seed - 1 else 0.07

    found = experiment.settle(lambda w: looks(value, w), 2, 128)
    assert found.warm_up == 32 and found.why is None
    assert [w for w, _ in found.tried] == [2, 4, 8, 16] and all(why for _, why in found.tried)


def test_what_only_ends_in_few_runs_is_not_believed():
    """Nine of ten runs are settled. Neither the mean nor the interval of the difference would show
    the tenth."""
    def value(time, seed):
        return 20.0 if seed == 10 and time < 30 else 0.07

    assert experiment.settle(lambda w: looks(value, w), 2, 128).warm_up == 32


def test_a_drift_is_never_settled():
    found = experiment.settle(lambda w: looks(lambda time, seed: 1 + time ** 2, w), 2, 64)
    assert found.warm_up == 64 and found.why.startswith("latency changes from")
    assert [w for w, _ in found.tried] == [2, 4, 8, 16, 32]


def test_halves_that_differ_are_not_settled():
    def observe(warm_up):
        return [Look({"latency": 2.0}, ({"latency": 1.5}, {"latency": 2.5})) for _ in SEEDS]

    found = experiment.settle(observe, 2, 8)
    assert found.why == "latency changes from 1.5 to 2.5 from one half to the other"
    assert found.warm_up == 8 and [w for w, _ in found.tried] == [2, 4]


def test_a_warm_up_twice_as_long_has_to_give_the_same():
    """The halves agree at each warm-up, because the measurement is short compared with the
    change."""
    def observe(warm_up):
        x = 1.0 if warm_up < 4 or warm_up > 16 else 3.0
        return [Look({"latency": x}, ({"latency": x}, {"latency": x})) for _ in SEEDS]

    found = experiment.settle(observe, 2, 64)
    assert found.warm_up == 32
    assert found.tried[0] == (2, "latency changes from 1 to 3 from a warm-up of 2 s to one of 4 s")


def test_the_longest_warm_up_has_to_give_the_same():
    """A state that lasts for a while looks settled if one looks only at that while."""
    def observe(warm_up):
        x = 1.0 if warm_up < 16 else 3.0
        return [Look({"latency": x}, ({"latency": x}, {"latency": x})) for _ in SEEDS]

    found = experiment.settle(observe, 2, 64)
    assert found.warm_up == 16
    assert found.tried[0] == (2, "latency changes from 1 to 3 from a warm-up of 2 s to one of 64 s")


def test_without_a_longer_warm_up_nothing_is_settled():
    found = experiment.settle(lambda w: looks(lambda time, seed: 1.0, w), 2, 3)
    assert found.why == "there is nothing longer to compare with"


def test_a_label_that_comes_late_is_waited_for():
    def observe(warm_up):
        labels = [{"mixed": "io" if warm_up + at > 5 else "cpu"} for at in (0, 10)]
        return looks(lambda time, seed: 1.0, warm_up, labels)

    found = experiment.settle(observe, 2, 64)
    assert found.warm_up == 8
    assert found.tried[0] == (2, "the label of mixed changes during the measurement")


def test_credit_that_drifts_is_waited_for():
    def observe(warm_up):
        credit = [{"mixed": max(-15 * (warm_up + at), -300)} for at in (0, 10)]
        return looks(lambda time, seed: 1.0, warm_up, credit=credit)

    found = experiment.settle(observe, 2, 64)
    assert found.warm_up == 32 and found.tried[0][1].startswith(
        "the credit of mixed changes from -30 to -180 ms"
    )


def test_credit_may_move_within_an_accounting_period():
    credit = ({"mixed": -10}, {"mixed": 15})
    assert (
        experiment.settle(lambda w: looks(lambda time, seed: 1.0, w, credit=credit), 2, 64).warm_up
        == 2
    )


def test_a_difference_that_nobody_minds():
    def observe(warm_up):
        return looks(lambda time, seed: 0.1 / (1 + time), warm_up)

    assert experiment.settle(observe, 2, 64, {"latency": 0.05}).warm_up == 2
    assert experiment.settle(observe, 2, 64).warm_up > 2
