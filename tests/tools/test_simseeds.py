"""tools/simseeds.py: several seeds of one VM file, and what is said about them."""
import json
import os
import subprocess

import simseeds

from conftest import ROOT

FILE = """\
[pool one]
cpus = 1
[vm server]
image = mixed
pool = one
cmdline = client=2 percent=40
[vm client]
image = client
cmdline = server=1
cpus = 0
[vm hog]
image = spin
pool = one
"""


def run(path, *options):
    path.write_text(FILE)
    return subprocess.run(["tools/simseeds.py", "--seeds", "3", *options, "-p", "2", "-w", "1s",
                           "-t", "4s", str(path)],
                          cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_preset_is_of_every_pool():
    text = simseeds.with_preset(FILE, "faithful-4.2")
    assert text.count("sched_preset = faithful-4.2") == 2
    assert (
        "[pool one]\nsched_preset = faithful-4.2\n" in text
        and "[hypervisor]\nsched_preset = faithful-4.2" in text
    )


def test_each_seed_is_a_run_with_that_preset(tmp_path):
    out = str(tmp_path / "out.json")
    done = run(tmp_path / "a.cfg", "--preset", "faithful-4.2", "--json", out, "-c", "seed=77", "-c",
               "io_threshold=9")
    assert done.returncode == 0, done.stderr
    with open(out, encoding="utf-8") as f:
        found = json.load(f)
    assert [said["seed"] for said in found["runs"]] == [1, 2, 3] == found["provenance"]["seeds"]
    for said in found["runs"]:
        assert said["command_line"].startswith("seed=77 io_threshold=9 seed=")
        assert {p["params"]["requeue"] for p in said["pools"]} == {"tail"}
    assert [(r["vm"], r["vcpu"]) for r in found["summary"]] == [("server", 0), ("client", 0),
                                                                ("hog", 0)]
    assert (
        found["summary"][0]["event_us"]["max"]["n"] == 3 and found["summary"][2]["event_us"] is None
    )
    assert done.stdout.splitlines()[1].split()[:3] == ["vCPU", "CPU", "%"]


def test_what_the_simulation_refuses_is_one_sentence(tmp_path):
    done = run(tmp_path / "a.cfg", "--preset", "nosuch")
    assert (
        done.returncode == 1
        and done.stderr.startswith("simseeds: ")
        and "no preset \"nosuch\"" in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_a_run_that_is_not_settled_is_told(tmp_path):
    """vSlicer's prototype boosts one VM for ever, and the debts of the other grow for ever."""
    path = os.path.join(ROOT, "boot", "mixed.cfg")
    path, text = tmp_path / "mixed.cfg", open(path, encoding="ascii").read()
    load = "percent=40 loop=open jitter_pct=0 phase_us=0 start_ms=500"
    path.write_text(text.replace("rate=300 work_us=50", "rate=300 work_us=50 " + load)
                    .replace("server=1 rate=300", "server=1 rate=300 start_ms=500")
                    .replace("[vm mixed]\n", "[vm mixed]\nmicro_us = 5000\n"))
    done = subprocess.run(["tools/simseeds.py", "--seeds", "5", "--preset",
                           "vslicer-paper-prototype",
                           "-p", "3", "-w", "2s", "-t", "30s", str(path)], cwd=ROOT,
                           capture_output=True, text=True,
                          check=True)
    assert "not settled: the credit of hog-" in done.stdout
