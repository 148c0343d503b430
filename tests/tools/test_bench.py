"""make bench and tools/sched-cost.py: what they install and build first. A limit that is printed is
the one that is checked."""
import importlib.util
import os
import shutil
import re
import subprocess
import sys

import pytest
from conftest import ROOT

import bench

spec = importlib.util.spec_from_file_location("sched_cost",
                                              os.path.join(ROOT, "tools", "sched-cost.py"))
sched_cost = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sched_cost)


def groups(target):
    """Returns the groups of tools/deps.sh that a target of the Makefile installs first."""
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True,
                          check=True)
    return set(re.search(r"^tools/deps.sh (.*)", done.stdout, re.M)[1].split())


def test_bench_installs_what_it_needs_alone():
    assert groups("bench") == {"build", "qemu", "bochs", "net", "cost"}


def test_a_limit_that_is_printed_is_the_one_that_is_checked(capsys):
    for most in (0, 4096, bench.MEMORY_BUDGET):
        assert bench.within("memory", most, most) and not bench.within("memory", most + 1, most)
        kept, exceeded = capsys.readouterr().out.splitlines()
        assert kept == f"memory: {most} bytes (at most {most})"
        assert exceeded == f"memory: {most + 1} bytes (at most {most})   OVER BUDGET"


def test_the_worst_layout_is_judged(capsys):
    lines = "".join(f"LAYOUT {op} {kind} {most if kind == 'pair' else 10} 5\n"
                    for op, most in bench.WORST.items() for kind in bench.LAYOUTS)
    assert bench.print_worst(bench.layouts(lines)) == (bench.WORST, [])
    more = lines.replace(f"LAYOUT cpuid pair {bench.WORST['cpuid']}",
                         f"LAYOUT cpuid pair {bench.WORST['cpuid'] + 1}")
    assert bench.print_worst(bench.layouts(more))[1] == ["cpuid in the worst layout"]
    none = re.sub(r"LAYOUT rdmsr .*\n", "", lines)
    worst, bad = bench.print_worst(bench.layouts(none))
    assert worst["rdmsr"] is None and bad == ["rdmsr in the worst layout"]
    assert "NO FIGURE" in capsys.readouterr().out


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not here")
def test_what_is_measured_is_built_first():
    if os.path.exists(sched_cost.PROGRAM):
        os.unlink(sched_cost.PROGRAM)
    sched_cost.build()
    assert os.access(sched_cost.PROGRAM, os.X_OK)


def test_without_valgrind_a_sentence_is_the_end(monkeypatch):
    monkeypatch.setattr(sched_cost.shutil, "which", lambda name: None)
    monkeypatch.setattr(sched_cost.sys, "argv", ["sched-cost"])
    with pytest.raises(SystemExit,
                       match="valgrind, .* is not here: tools/deps.sh cost installs it"):
        sched_cost.main()


def test_what_a_wake_may_grow_by_on_many_cpus_is_judged(capsys):
    most = sched_cost.WIDE_GROWTH
    wide = {p: {"pinned": {2: 900.0, 256: 900.0}, "free": {2: 900.0, 16: 800.0, 256: 900.0 * most}}
            for p in ("credit", "aca")}
    assert sched_cost.print_wide(wide, sys.stdout)
    assert f"a wake grows by {most:.2f} (at most {most}): ok" in capsys.readouterr().out
    wide["aca"]["free"][16] = 901.0 * most
    assert not sched_cost.print_wide(wide, sys.stdout)
    assert "EXCEEDED" in capsys.readouterr().out


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not here")
def test_a_wake_costs_the_same_on_many_cpus():
    sched_cost.build()
    assert sched_cost.print_wide({"credit": sched_cost.measure_wide("credit")}, sys.stdout)
