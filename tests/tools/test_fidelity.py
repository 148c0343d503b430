"""tools/fidelity.py: what it reads from a machine's output, and what it takes for the same."""
import json

import fidelity
import pytest


@pytest.mark.parametrize("kind, sim, bochs, within", [
    ("share", 41.4, 40.0, True), ("share", 41.6, 40.0, False), ("share", 38.4, 40.0, False),
    ("goodput", 10.9, 10.0, True), ("goodput", 8.9, 10.0, False),
    ("latency", 11.4, 10.0, True), ("latency", 11.6, 10.0, False),
    ("rate", 109.0, 100.0, True), ("rate", 89.0, 100.0, False),
    ("rate", 3.0, 1.5, True), ("rate", 0.0, 0.0, True), ("goodput", 1.0, None, False),
    ("goodput", None, None, False)])
def test_bounds(kind, sim, bochs, within):
    assert fidelity.judge("credit", "x", kind, sim, bochs)["within"] is within


def test_what_was_calibrated_is_not_judged():
    assert not fidelity.judge("demo", "x", "share", 1.0, 1.0)["judged"]
    judged = [name for name, s in fidelity.SCENARIOS.items() if s.judged]
    assert {"credit", "vslicer", "vturbo", "sc+aca", "pools"} <= set(judged)
    assert any(n.startswith("net") for n in judged) and any(n.startswith("disk") for n in judged)


def row(vm, share, exits):
    return {"vm": vm, "vcpu": 0, "cpu_pct": share, "exits_per_s": exits,
            "wake_us": {"count": 0, "p50": 0, "p99": 0}}


def said(injected, *lines):
    answers = {"before": [{"name": "interrupts_injected", "value": 1000}],
               "top": {"pcpus": [{"hv_pct": 0.5}, {"hv_pct": 1.0}],
                       "vcpus": [row("hog-1", 30, 40), row("hog-2", 31, 50), row("mixed", 9, 7)]},
               "after": [{"name": "interrupts_injected", "value": 1000 + injected}]}
    text = [f'\x1e{json.dumps({"id": tag, "error": 0, "result": result})}'
            for tag, result in answers.items()]
    return "\n".join([*text, *lines, ""])


def test_figures_of_a_run():
    seconds = fidelity.SCENARIOS["credit"].seconds + 0.5
    found = fidelity.figures("credit", said(round(100 * seconds), "[ 1.0] mixed: mixed: whole: 7 "
                                            "events, ns from raised to done: mean 12, p99 34, "
                                            "max 56"))
    assert found["hog-1: share"] == ("share", 30) and found["hog-*: exits"] == ("rate", 90)
    assert found["hypervisor"] == ("share", 1.5)
    assert found["interrupts"] == ("rate", pytest.approx(100))
    assert found["event mean"] == ("latency", 12) and found["event p99"] == ("latency", 34)


def test_what_a_guest_did_not_print_is_missing():
    runs = {p: [fidelity.figures("credit", said(10))] for p in ("sim", "bochs")}
    rows = {r["figure"]: r for r in fidelity.compared("credit", runs)}
    assert rows["event mean"]["simulation"] is None and not rows["event mean"]["within"]
    assert rows["hog-1: share"]["within"]


def test_both_platforms_get_the_same_commands():
    s = fidelity.SCENARIOS["net turbo"]
    lines = fidelity.script(s).splitlines()
    assert [line.split()[1] for line in lines] == ["counters", "top", "counters", "poweroff"]
    assert lines[0].startswith("@400ms ") and f"-d {s.seconds:g}" in lines[1]


def rows_of(bochs, sims):
    of = {"bochs": [bochs], "sim": sims}
    return fidelity.compared("credit", {
        platform: [{"event mean": ("latency", v)} for v in values]
        for platform, values in of.items()})


def test_seeds_are_a_reason_only_if_they_reach_what_bochs_has():
    """A figure that is another with each seed proves nothing when it is another on Bochs, too."""
    row, = rows_of(16.0, [22.0, 13.0, 18.0])
    assert not row["within"] and row["reason"].startswith("seeds: 13.00 to 22.00 with 3 seeds")
    row, = rows_of(16.0, [22.0, 19.0, 18.0])
    assert not row["within"] and row["reason"] is None
    row, = rows_of(16.0, [17.0, 30.0, 40.0])
    assert row["within"] and row["reason"] is None
    row, = rows_of(16.0, [None, 13.0])
    assert not row["within"] and row["reason"] is None


def test_the_quick_form_has_judged_scenarios():
    assert all(fidelity.SCENARIOS[name].judged for name in fidelity.QUICK)
