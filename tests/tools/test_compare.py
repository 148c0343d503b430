"""tools/compare.py: settings that are added to a file, the table, what is refused, and what two
runs have in common."""
import argparse
import json
import os
import re
import subprocess

import compare
import experiment
import machine
import pytest
import sentence

from conftest import BUILD, ROOT

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


def arguments(platform="sim", seeds=3, seconds=4, percent=40, warm_up=None, loop="closed"):
    return argparse.Namespace(platform=platform, seeds=seeds, seed_list=list(range(1, seeds + 1)),
                              seconds=seconds, percent=percent, warm_up=warm_up, loop=loop,
                              hv=os.path.join(BUILD, "takt.elf"))


IN_STEP = "open jitter_pct=0 phase_us=0"  # in step with the ticks


def one(seed=1, share=25.0, latency=1000.0, switches=60.0, trace=None):
    vms = [{"vm": "mixed", "cpu_pct": share}, {"vm": "client", "cpu_pct": 1.0}]
    return {"seed": seed, "vms": vms, "switches_per_s": switches, "trace": trace or str(seed),
            "latency_us": {"mean": latency, "p99": 2 * latency, "max": 3 * latency}}


def measured(policy="hardened", runs=None, why=None):
    found = compare.Measured(policy, [(r, {}) for r in runs or [one()]], 2, why)
    found.instructions = 900
    return found


# ---- the VM file of a run ----

def test_a_value_is_replaced_and_a_new_one_follows_its_heading():
    text = compare.lay_over(BASE, {"pool core": {"cpus": "1-2", "sched_preset": "vslicer"}})
    assert "[pool core]   # the core\ncpus = 1-2\nsched_preset = vslicer\n" in text
    assert "cpus = 1\n" not in text and text.count("cpus") == 1
    assert text.count("pool = core") == 1  # A key of another section stays.


def test_a_new_section():
    text = compare.lay_over(BASE, {"pool io": {"cpus": "2"}, "vm mixed": {"pool": "io"}})
    assert (
        text.endswith("\n[pool io]\ncpus = 2\n")
        and "[vm mixed]\npool = io\nimage = mixed\n" in text
    )


def test_nothing_laid_over():
    assert compare.lay_over(BASE, {}) == BASE


def test_seed_goes_to_both_ends():
    text = compare.with_seed(BASE, 7, "percent=40 loop=open", 2, 4)
    assert "seed = 7\n" in text
    assert (
        "client=5 rate=300 seed=7 percent=40 loop=open start_ms=500 from_ms=2000 to_ms=6000\n"
        in text
    )
    assert "server=1 rate=300 seed=7" in text


def test_every_policy_fits_the_file():
    with open(compare.BASE, encoding="ascii") as f:
        base = f.read()
    for name, settings in compare.POLICIES.items():
        text = compare.lay_over(base, settings)
        assert "_" not in name and text.count("[vm mixed]") == 1


def test_a_policy_is_called_what_it_is():
    """The pool's own rules are `hardened`; papers call Xen's rules `credit`."""
    assert "credit" not in compare.POLICIES
    for name in ("hardened", "faithful-3.4", "faithful-4.0", "faithful-4.1", "faithful-4.2"):
        _, knobs = compare.run(name, 1, arguments(), 1)
        _, default = compare.run("hardened", 1, arguments(), 1)
        assert (knobs == default) == (name == "hardened")


def test_each_paper_has_its_baseline():
    assert set(compare.BASELINES) <= set(compare.POLICIES)
    assert all(set(of) <= set(compare.POLICIES) for of in compare.BASELINES.values())
    xen = {"vslicer": "3.4", "vturbo": "4.1", "pools": "4.1", "sc": "4.2", "aca": "4.2",
           "sc+aca": "4.2"}
    assert all(compare.BASELINES[policy][0] == f"faithful-{version}"
               for policy, version in xen.items())
    # A policy with a second core is also compared with those that have it as a regular core.
    for policy in ("vturbo", "pools"):
        assert {"faithful-4.1+core", "hardened+core"} <= set(compare.BASELINES[policy])
    assert compare.POLICIES["hardened+core"]["pool core"]["cpus"] == "1-2"


# ---- the table ----

def test_table():
    runs = [one(share=24), one(seed=2, share=26)]
    lines = compare.table([compare.summarise(measured(runs=runs)),
                           compare.summarise(measured("vturbo", why="it drifts"))],
                           {"x": "no such key"})
    assert lines[0].split()[:4] == ["policy", "W", "s", "mixed"] and "client" not in lines[0]
    # There are two runs, and the interval is as wide as the value.
    assert "25.0 ±12.7" not in lines[1]
    assert (
        "25.0, 24.0 to 26.0" in lines[1]
        and "1.00 (all)" in lines[1]
        and lines[1].split()[-1] == "900"
    )
    assert "2.00 (2.00 to 2.00)" in lines[1]
    assert "±" not in lines[2] and " 2! " in lines[2]
    assert lines[3:] == ["x  missing: no such key",
                         "! vturbo is not known to have settled: it drifts"]


def test_what_was_not_counted():
    found = measured()
    found.instructions = None
    assert compare.table([compare.summarise(found)], {})[1].split()[-1] == "-"


def test_an_interval_over_identical_runs_is_refused():
    runs = [one(seed, trace="ab") for seed in (1, 2, 3)]
    summary = compare.summarise(measured(runs=runs))
    assert "ci95" not in summary["latency_us"]["mean"] and "ci95" not in summary["cpu_pct"]["mixed"]
    assert compare.table([summary], {})[-1] == \
        "hardened: the seed changes nothing: all 3 runs have the trace ab"


def test_differences_are_of_runs_with_the_same_seed():
    baseline = [one(seed, latency=1000.0 * seed) for seed in (1, 2, 3, 4)]
    found = [one(seed, latency=1000.0 * seed - 500 + seed) for seed in (2, 3, 4, 5)]
    rows = compare.differences({"faithful-4.2": measured("faithful-4.2", baseline),
                                "aca": measured("aca", found)})
    assert [(r["policy"], r["baseline"]) for r in rows] == [("aca", "faithful-4.2")]
    assert rows[0]["latency_us"] == {"n": 3, "mean": -497.0, "ci95": 2.484}
    assert compare.table_of_differences(rows)[1].split()[:4] == ["aca", "faithful-4.2", "-0.50",
                                                                 "±0.00"]


def test_the_picture_says_what_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    runs = [one(seed, latency=x) for seed, x in enumerate((70, 70, 71, 70, 20000, 21000), 1)]
    for found in (measured(runs=runs),
                  measured(runs=[one(), one(2, latency=1100), one(3, latency=900)])):
        compare.draw([compare.summarise(found)], {"hardened": found}, "sim",
                     str(tmp_path / "a.png"))
        assert (tmp_path / "a.png").stat().st_size > 5000
    for word in ("Bars", "mean", "95 % interval", "median", "range"):
        assert word in compare.CAPTION


# ---- what is refused ----

@pytest.mark.parametrize("settings, why", [
    ({"pool core": {"no_such_knob": "1"}}, "no_such_knob"),
    ({"pool core": {"sched_preset": "nosuch"}}, 'credit has no preset "nosuch": expected hardened'),
    ({"pool core": {"tslice_us": "7"}}, "tslice_us must be a whole number from 50 to"),
    ({"vm mixed": {"weight": "0"}}, "weight must be a whole number from 1"),
    ({"pool core": {"sched": "nosuch"}}, "sched must be credit, null"),
])
def test_refused(monkeypatch, settings, why):
    monkeypatch.setitem(compare.POLICIES, "new", settings)
    known, missing = compare.check(["hardened", "new"], arguments())
    assert known == ["hardened"] and re.search(why, missing["new"])


def test_a_scheduler_of_ones_own_is_a_policy():
    found, knobs = compare.run("stride", 1, arguments(), 1)
    assert knobs["pools"]["core"]["policy"] == "stride" and found["events"] > 1000


def test_an_unknown_policy_ends_it():
    with pytest.raises(sentence.Problem, match="policy nosuch: .*sched must be credit, null,"):
        compare.check(["nosuch"], arguments())


def test_a_policy_that_the_image_does_not_know_is_refused_before_anything_boots(monkeypatch):
    monkeypatch.setattr(machine, "Machine", None)
    with pytest.raises(sentence.Problem,
                       match="the image build/takt.elf does not know it .*LABS=labs/stride.c"):
        compare.check(["stride"], arguments("bochs"))


def test_what_one_platform_refuses_none_begins(monkeypatch):
    monkeypatch.setattr(compare, "measure", None)
    monkeypatch.setattr("sys.argv", ["compare", "--platform", "sim", "--platform", "bochs",
                                     "--policy", "stride"])
    with pytest.raises(sentence.Problem, match="the image build/takt.elf does not know it"):
        compare.main()


# ---- runs ----

def test_a_run():
    r, knobs = compare.run("hardened", 3, arguments(seconds=2, percent=100), 1)
    assert r["seed"] == 3 and r["warm_up_s"] == 1 and 500 < r["events"] < 700
    assert [vm["vm"] for vm in r["vms"]] == ["mixed", "hog-1", "hog-2", "hog-3", "client"]
    assert sum(vm["cpu_pct"] for vm in r["vms"][:4]) == pytest.approx(100, abs=0.1)
    assert 0 < r["latency_us"]["mean"] < r["latency_us"]["p99"] <= r["latency_us"]["max"]
    assert sum(half["events"] for half in r["halves"]) == r["events"]
    assert knobs["pools"]["core"]["tslice_us"] == 30000 and knobs["vms"]["mixed"]["weight"] == 256


def test_runs_side_by_side_have_directories_of_their_own():
    places = {os.path.dirname(compare.place(policy, seed, arguments(), warm_up))
              for policy in ("hardened", "vturbo") for seed in (1, 2) for warm_up in (2, 4)}
    assert len(places) == 8


def test_an_image_is_told_to_measure_both_halves(tmp_path):
    path = tmp_path / "a.cfg"
    path.write_text(BASE)
    pools, vms, text = compare.script(str(path), arguments("bochs", seconds=3), 4)
    assert pools == ["Pool-0", "core"] and vms == ["mixed", "client"]
    assert text.splitlines() == ["@2000ms param -j=pool-Pool-0 -p Pool-0",
                                 "+0ms param -j=pool-core -p core",
                                 "+0ms param -j=vm-mixed -d mixed",
                                 "+0ms param -j=vm-client -d client",
                                 "@4000ms vcpu-list -j=begin", "+0ms top -j=first -d 1.5",
                                 "+0ms top -j=second -d 1.5"]


def rows(**kinds):
    """Returns rows of `vcpu-list` or `top`: a row for each vCPU of a VM, by its class."""
    return [{"vm": vm, "vcpu": n, "class": kind} for vm, of_it in kinds.items()
            for n, kind in enumerate(of_it)]


def test_a_label_is_the_monitors():
    """A turbo vCPU is of another class than the VM's other vCPUs. The monitor has no part in
    that."""
    before = rows(mixed=["turbo", ""], other=["LS"])
    assert compare.relabelled(before, before) == []
    assert compare.relabelled(before, rows(mixed=["turbo", "io"], other=["LS"])) == ["mixed"]
    assert compare.relabelled(rows(mixed=["turbo", "io"], other=["LS+io"]),
                              rows(mixed=["turbo", ""], other=["NL"])) == ["mixed", "other"]
    assert compare.relabelled(rows(mixed=["io"]), rows(mixed=["LS+io"])) == []


def test_few_runs_are_measured_for_longer():
    assert [compare.seconds_of("bochs", seeds) for seeds in (10, 5, 4, 1)] == [4, 4, 16, 16]
    assert compare.seconds_of("sim", 1) == 30


def test_a_short_measurement_of_one_run_does_not_settle_and_a_longer_one_does():
    """This is why few runs are measured for longer: the halves of 4 s differ, however long the
    warm-up is."""
    def why(seconds):
        args = arguments(seeds=1, seconds=seconds)
        looks = [compare.look(compare.run("faithful-4.1", 1, args, 8)[0])]
        return experiment.unsettled(looks, compare.FLOORS)

    assert "from one half to the other" in why(compare.SECONDS["bochs"])
    assert why(compare.seconds_of("bochs", 1)) is None


def test_a_policy_that_runs_away_is_told():
    """This is vSlicer's prototype with a VM that keeps time with the ticks. After a while that VM
    is always boosted, and the debts of the others grow for ever."""
    found = compare.measure_in_simulation("vslicer-prototype",
                                          arguments(seeds=5, seconds=20, loop=IN_STEP))
    assert found.warm_up == compare.LONGEST and "the credit of hog-" in found.why
    assert [w for w, _ in found.tried] == [2, 4, 8, 16, 32]


def test_what_settles_at_once_is_not_warmed_up_longer():
    found = compare.measure_in_simulation("hardened", arguments(seeds=5, seconds=20))
    assert (
        found.warm_up == 2
        and found.why is None
        and [r["seed"] for r in found.runs] == [1, 2, 3, 4, 5]
    )


def test_a_given_warm_up_is_taken_and_judged():
    found = compare.measure_in_simulation("vslicer-prototype",
                                          arguments(seeds=5, seconds=20, warm_up=3, loop=IN_STEP))
    assert found.warm_up == 3 and found.why


@pytest.mark.long
@pytest.mark.parametrize("policy", ["hardened", "faithful-4.2", "vslicer", "vturbo", "sc+aca"])
def test_twice_the_warm_up_gives_the_same(policy):
    args = arguments(seeds=10, seconds=20)
    found = compare.measure_in_simulation(policy, args)
    later = [compare.run(policy, seed, args, 4 * found.warm_up)[0] for seed in args.seed_list]
    short, long = ([compare.look(one).whole for one in runs] for runs in (found.runs, later))
    assert experiment.compared(short, long, compare.FLOORS) is None


def permuted(text, order):
    """Returns the VM file with its VMs in another order. The VMs name each other by their numbers
    in the file."""
    head, *vms = re.split(r"(?m)^(?=\[vm )", text)
    number = {old + 1: order.index(old) + 1 for old in range(len(vms))}
    vms = [
        re.sub(r"\b(client|server)=(\d+)", lambda m: f"{m[1]}={number[int(m[2])]}", vms[at])
        for at in order
    ]
    return head + "".join(vm.rstrip("\n") + "\n\n" for vm in vms)


@pytest.mark.long
@pytest.mark.parametrize("policy", ["hardened", "faithful-4.2", "vslicer", "vturbo", "sc"])
def test_the_order_of_the_vms_changes_nothing(policy, monkeypatch, tmp_path):
    """Each order of the VMs in the file is another run. The means of these runs differ no more than
    those of other seeds do."""
    args = arguments(seeds=10, seconds=20)
    with open(compare.BASE, encoding="ascii") as f:
        text = f.read()
    looks = []
    for order in ([0, 1, 2, 3, 4], [1, 2, 3, 0, 4], [4, 3, 0, 2, 1]):
        path = tmp_path / "-".join(map(str, order))
        path.write_text(permuted(text, order))
        monkeypatch.setattr(compare, "BASE", str(path))
        looks.append([compare.look(compare.run(policy, seed, args, 4)[0]).whole
                      for seed in args.seed_list])
    for other in looks[1:]:
        assert experiment.compared(looks[0], other, compare.FLOORS) is None


@pytest.mark.long
def test_the_same_bytes_twice():
    """compare's results file has nothing in it that depends on the time, and nothing else changes
    either."""
    path = os.path.join(BUILD, "results", "compare-sim.json")
    command = ["/usr/bin/python3", "tools/compare.py", "--seeds", "2", "--seconds", "4",
               "--policy", "hardened", "--policy", "vturbo", "--policy", "sc"]
    found = []
    for _ in range(2):
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        with open(path, "rb") as f:
            found.append(f.read())
    assert found[0] == found[1]
    result = json.loads(found[0])
    assert (
        result["provenance"]["seeds"] == [1, 2]
        and "boot/mixed.cfg" in result["provenance"]["inputs"]
    )
    vturbo = result["policies"]["vturbo"]
    assert vturbo["knobs"]["pools"]["turbo"]["tslice_us"] == 100 and vturbo["warm_up_s"] >= 2
    traces = {r["trace"] for policy in result["policies"].values() for r in policy["runs"]}
    assert len(traces) == 6
