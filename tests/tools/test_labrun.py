"""tools/labrun.py: experiments on machines of a lab. The machine is the model of
test_labhost.py."""
import json
import os
import sys

import pytest
from conftest import ROOT
from test_labhost import Server

sys.path.insert(0, os.path.join(ROOT, "tools"))
import labrun  # noqa: E402
import papers  # noqa: E402

TOP = {"pcpus": [{"cpu": 0}],
       "vcpus": [{"vm": "ls", "vcpu": 0, "cpu_pct": 30.0},
                 {"vm": "nl-1", "vcpu": 0, "cpu_pct": 40.0},
                 {"vm": "nl-2", "vcpu": 0, "cpu_pct": 20.0}]}


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A lab of one machine. Results are written into a directory of the test."""
    server = Server()
    server.top = TOP
    (tmp_path / "pw").write_text("secret\n")
    (tmp_path / "lab.ini").write_text(
        f"[rack1]\npower = redfish\nbmc = http://127.0.0.1:{server.bmc.server_port}\nuser = admin\n"
        f"password_file = {tmp_path}/pw\nserial = tcp:127.0.0.1:{server.port}\n"
        f'install = cat "$VMS" >> {tmp_path}/installed\n')
    monkeypatch.setattr(papers, "RESULTS", str(tmp_path / "experiments"))
    monkeypatch.setitem(papers.PROGRAMS, "machine", os.path.join(ROOT, "tools", "labhost"))
    monkeypatch.setattr(labrun.experiment, "files_of", lambda vm_file: [vm_file])
    monkeypatch.setenv("TAKT_LAB", "")
    server.directory = tmp_path
    yield server
    server.close()


def planned(lab, seeds=2):
    """Returns the experiment on machines, and the directory of its first set-up."""
    e = papers.read("vslicer/fig10-fairness")
    path = str(lab.directory / "lab.ini")
    labrun.adopt(e, path)
    assert labrun.machines(path) == 1
    e.update(seeds=seeds, points=e["points"][:1], warm_up=[1, 3], seconds=4)
    return e, papers.plan(e, quick=False)[0]


def test_a_setup_is_measured_on_a_machine(lab):
    e, directory = planned(lab)
    papers.measure_setup(directory)
    runs = papers.finished(directory)
    assert [run["values"] for run in runs] == [{"ls": 30.0, "nl": 30.0}] * 2
    assert [run["seed"] for run in runs] == [0, 1] and runs[0]["trace"] is None
    assert {run["machine"] for run in runs} == {"rack1"} and runs[0]["warm_up_s"] == 3
    assert lab.boots == 2
    assert lab.commands == ["top -w 3 -d 4", "dmesg"] * 2
    installed = (lab.directory / "installed").read_text()
    assert installed.count("max_cpus = 1\n") == 2
    assert "seed = 0\n" in installed and "seed = 1\n" in installed
    done, _ = papers.result(e, quick=False)
    assert done["id"] == "vslicer/fig10-fairness/on-machines" and done["platform"] == "machine"
    assert "LAB=" in done["command"] and "Machines of a lab" in done["model"]


@pytest.mark.long
def test_a_change_of_the_vm_file_is_measured_again(lab):
    _, directory = planned(lab, seeds=1)
    papers.measure_setup(directory)
    papers.measure_setup(directory)
    assert lab.boots == 1  # labhost had a verdict
    with open(os.path.join(directory, "vms.cfg"), "a", encoding="utf-8") as f:
        f.write("# another file\n")
    papers.measure_setup(directory)
    assert lab.boots == 2


@pytest.mark.long
def test_a_machine_that_is_too_small(lab):
    lab.top = {**TOP, "pcpus": []}
    _, directory = planned(lab, seeds=1)
    with pytest.raises(labrun.Refused, match="rack1 has 0 CPUs, and the set-up wants 1"):
        papers.measure_setup(directory)


def test_a_run_that_fails_has_no_result(lab):
    lab.tricks = ["panic"]
    _, directory = planned(lab, seeds=1)
    path = os.path.join(labrun.place(directory), "verdict.json")
    os.makedirs(os.path.dirname(path))
    with pytest.raises(labrun.Refused, match="ended with exit status 2"):
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"script": "another"}, f)
        papers.measure_setup(directory)


def test_what_the_vm_file_of_a_boot_says():
    assert labrun.vm_file("[vm a]\n", 3, 1) == "[hypervisor]\nmax_cpus = 3\nseed = 1\n\n[vm a]\n"
    text = labrun.vm_file("[hypervisor]\ntop = no\n[vm a]\ncmdline = start_ms={start_ms}\n", 2, 0)
    assert text == ("[hypervisor]\nmax_cpus = 2\nseed = 0\ntop = no\n[vm a]\n"
                    "cmdline = start_ms=500\n")


def test_what_vms_have_printed():
    log = [{"line": "[   12.000001] io-1: iperf: tcp 5 bytes"}, {"line": "  VT-x   yes  guests"}]
    assert labrun.said(log) == [{"vm": "io-1", "text": "iperf: tcp 5 bytes"}]


def test_the_last_answer_to_a_line_counts(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps({"line": line, "result": result}) + "\n"
                            for line, result in [(4, "first"), (4, "top"), (5, "log")]))
    assert list(labrun.answers(path, 1)) == [("top", "log")]


@pytest.mark.parametrize("name, why", [
    ("vslicer/fig7-rtt", "a machine does not tell what the measure"),
    ("together/sensitive-switch", "a machine"),
    ("iorchestra/table2-arrivals", "its VMs arrive at times of the simulation"),
])
def test_what_no_machine_can_run_is_refused(name, why):
    with pytest.raises(labrun.Refused, match=why):
        labrun.adopt(papers.read(name), "lab.ini")


@pytest.mark.parametrize("text, why", [
    (None, "there is no such file"), ("", "has no machine"), ("power", "no section headers"),
])
def test_labs_that_are_none(tmp_path, text, why):
    path = tmp_path / "lab.ini"
    if text is not None:
        path.write_text(text)
    with pytest.raises(labrun.Refused, match=why):
        labrun.machines(str(path))
