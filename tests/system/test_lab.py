"""A sweep over machines of a lab, for which two QEMU stand in: `make experiment E=... LAB=...`."""
import os
import subprocess

import labrun
import papers
import pytest
from conftest import ROOT

pytestmark = pytest.mark.long

MACHINES = ("one", "two")


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Two stand-ins, which are switched off at the end."""
    pytest.importorskip("snakemake", reason="tools/deps.sh experiments installs Snakemake")
    path = tmp_path / "lab.ini"
    path.write_text("".join(f"[{name}]\npower = qemu\ndirectory = {tmp_path}/{name}\n"
                            for name in MACHINES))
    monkeypatch.setattr(papers, "RESULTS", str(tmp_path / "experiments"))
    monkeypatch.setenv("TAKT_LAB", str(path))
    yield path
    for name in MACHINES:
        labhost(name, "power", "off")
        assert labhost(name, "power", "status") == "off\n"


def labhost(*words):
    return subprocess.run([os.path.join(ROOT, "tools", "labhost"), *words], capture_output=True,
                          text=True, check=True).stdout


def test_a_sweep_over_two_machines(lab, capsys):
    """Each machine of the lab gets a set-up. VMs that compute share the pCPU, all of which is
    used."""
    e = papers.read("vslicer/fig10-fairness")
    labrun.adopt(e, str(lab))
    e.update(seeds=1, points=e["points"][:1], warm_up=[1, 1], seconds=5)
    directories = papers.plan(e, quick=False)
    assert len(directories) == 2 and papers.snakemake(directories, labrun.machines(str(lab)), [])
    runs = [papers.finished(directory)[0] for directory in directories]
    assert sorted(run["machine"] for run in runs) == sorted(MACHINES)
    for run in runs:
        assert 90 < run["values"]["ls"] + 2 * run["values"]["nl"] <= 101
        assert min(run["values"].values()) > 10
    papers.finish(e, False, None)
    assert "on-machines" in capsys.readouterr().out
    assert papers.results_of(e["id"])[0]["platform"] == "machine"
