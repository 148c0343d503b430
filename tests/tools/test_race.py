"""tools/race.py: how policies are ranked, and what is refused."""
import pytest
import race
import sentence

MIXES = {"seconds": 20, "points": [{"name": "0", "percent": 0}, {"name": "50", "percent": 50}]}


def policy(name, p99, least=1.0):
    p = race.Policy(name, "")
    p.p99, p.least = p99, least
    return p


def places(policies):
    lines = list(race.board(policies, MIXES))
    return [line.split()[1] for line in lines[3:]], lines


def test_those_that_answer_sooner_come_first():
    names, lines = places([policy("xen", [10, 40]), policy("slow", [20, 80]),
                           policy("fast", [5, 10])])
    assert names == ["fast", "xen", "slow"]
    assert "2.83" in lines[3]  # the root of 2 * 4


def test_an_unfair_policy_comes_last():
    names, lines = places([policy("xen", [10, 40]), policy("fast", [1, 1], least=0.94)])
    assert names == ["xen", "fast"]
    assert lines[-1].endswith("unfair")


def test_a_policy_that_breaks_a_rule_is_out():
    bad = policy("bad", [])
    bad.why = "mix 0, seed 0: a sentence"
    names, lines = places([policy("xen", [10, 40]), bad])
    assert lines[-1] == "  - bad: out of the race: mix 0, seed 0: a sentence"


def test_a_file_without_a_policy_is_refused(tmp_path):
    path = tmp_path / "x.c"
    path.write_text("int x;\n")
    with pytest.raises(sentence.Problem, match="expected `const struct sched_policy"):
        race.read_policy(str(path))


def test_the_policies_of_labs_are_found():
    assert race.read_policy(race.ROOT + "/labs/stride.c") == ("stride", "stride_policy")
