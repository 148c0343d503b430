"""tools/compare.py: intervals, settings laid over a file, the table; that settings which a build does not know are refused."""
import argparse

import compare
import pytest

BASE = """\
[hypervisor]
seed = 1

[pool core]   # the core
cpus = 1

[vm mixed]
image = mixed
cmdline = client=5 rate=300
pool = core

[vm client]
image = client
cmdline = server=1 rate=300
"""


def one(policy="credit", share=25.0, latency=1000.0, switches=60.0, instructions=900):
    return {"policy": policy, "vms": [{"vm": "mixed", "cpu_pct": share}, {"vm": "client", "cpu_pct": 1.0}],
            "latency_us": {"mean": latency, "p99": 2 * latency, "max": 3 * latency}, "switches_per_s": switches,
            "instructions_per_decision": instructions}


def test_interval():
    # standard deviation 1.5811, t of 4 degrees of freedom 2.776, over the root of 5
    assert compare.interval([1, 2, 3, 4, 5]) == {"mean": 3, "ci95": 1.963}
    assert compare.interval([7, 7, 7]) == {"mean": 7, "ci95": 0}
    # ten: 2.262 * 3.02765 / 3.16228
    assert compare.interval(list(range(1, 11))) == {"mean": 5.5, "ci95": 2.166}


def test_interval_of_one():
    assert compare.interval([4]) == {"mean": 4, "ci95": None}


def test_interval_beyond_the_table():
    samples = [0, 2000] * 50  # t of 99 degrees of freedom is 1.984
    assert compare.interval(samples)["ci95"] == pytest.approx(1984 * 1.00504 / 10, rel=0.002)


def test_a_value_is_replaced_and_a_new_one_follows_its_heading():
    text = compare.lay_over(BASE, {"pool core": {"cpus": "1-2", "sched_preset": "vslicer"}})
    assert "[pool core]   # the core\ncpus = 1-2\nsched_preset = vslicer\n" in text
    assert "cpus = 1\n" not in text and text.count("cpus") == 1
    assert text.count("pool = core") == 1  # another section's key stays


def test_a_new_section():
    text = compare.lay_over(BASE, {"pool io": {"cpus": "2"}, "vm mixed": {"pool": "io"}})
    assert text.endswith("\n[pool io]\ncpus = 2\n") and "[vm mixed]\npool = io\nimage = mixed\n" in text


def test_nothing_laid_over():
    assert compare.lay_over(BASE, {}) == BASE


def test_seed_goes_to_both_ends():
    text = compare.with_seed(BASE, 7, 40, 2, 4)
    assert "seed = 7\n" in text
    assert "client=5 rate=300 seed=7 percent=40 start_ms=500 from_ms=2000 to_ms=6000\n" in text
    assert "server=1 rate=300 seed=7" in text


def test_every_policy_fits_the_file():
    with open(compare.BASE, encoding="ascii") as f:
        base = f.read()
    for name, settings in compare.POLICIES.items():
        text = compare.lay_over(base, settings)
        assert "_" not in name and text.count("[vm mixed]") == 1


def test_table():
    runs = [one(share=24), one(share=26)]
    lines = compare.table([compare.summarise(runs), compare.summarise([one("vturbo")])], {"x": "no such key"})
    assert lines[0].split()[:3] == ["policy", "mixed", "%"] and "client" not in lines[0]
    assert "25.0 ±12.7" in lines[1] and "1.00 ±0.00" in lines[1] and lines[1].split()[-1] == "900"
    assert "±" not in lines[2]
    assert lines[3].startswith("x") and lines[3].endswith("missing: no such key")
    assert len({len(line) for line in lines[:3]}) == 1


def test_what_was_not_counted():
    assert compare.table([compare.summarise([one(instructions=None)])], {})[1].split()[-1] == "-"


@pytest.mark.parametrize("settings, why", [
    ({"pool core": {"no_such_knob": "1"}}, "no_such_knob"),
    ({"pool core": {"sched_preset": "nosuch"}}, 'credit has no preset "nosuch": expected hardened'),
    ({"pool core": {"tslice_us": "7"}}, "tslice_us must be a whole number from 50 to"),
    ({"vm mixed": {"weight": "0"}}, "weight must be a whole number from 1"),
    ({"pool core": {"sched": "nosuch"}}, "sched must be credit, null"),
])
def test_refused(monkeypatch, settings, why):
    monkeypatch.setitem(compare.POLICIES, "new", settings)
    with pytest.raises(compare.Refused, match=why):
        compare.run("new", 1, argparse.Namespace(platform="sim", warm_up=0, percent=40, seconds=1, commit="-"))


def test_a_run():
    r = compare.run("credit", 3, argparse.Namespace(platform="sim", warm_up=1, percent=100, seconds=2, commit="-"))
    assert r["policy"] == "credit" and r["seed"] == 3 and r["pcpus"] == 3 and 500 < r["events"] < 700
    assert [vm["vm"] for vm in r["vms"]] == ["mixed", "hog-1", "hog-2", "hog-3", "client"]
    assert sum(vm["cpu_pct"] for vm in r["vms"][:4]) == pytest.approx(100, abs=0.1)
    assert 0 < r["latency_us"]["mean"] < r["latency_us"]["p99"] <= r["latency_us"]["max"]
