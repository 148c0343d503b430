"""Experiments as jobs of Slurm: a controller and a node of the distribution's packages, both on
this machine, run a small sweep through Snakemake's profile (experiments/slurm). Needs root, as
slurmd does."""
import contextlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time

import pytest
from conftest import ROOT

sys.path.insert(0, os.path.join(ROOT, "tools"))
import papers  # noqa: E402

PROFILE = os.path.join(ROOT, "experiments", "slurm")
PROGRAMS = ("snakemake", "munged", "slurmctld", "slurmd", "sbatch", "scontrol", "sinfo")
PATIENCE = 120  # s until the node is idle


def load_status():
    path = os.path.join(PROFILE, "status.py")
    spec = importlib.util.spec_from_file_location("slurm_status", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("said,state", [
    ("JobId=1 JobState=RUNNING Reason=None", "running"),
    ("JobId=1 JobState=PENDING Reason=Resources", "running"),
    ("JobId=1 JobState=COMPLETED Reason=None", "success"),
    ("JobId=1 JobState=FAILED Reason=NonZeroExitCode", "failed"),
    ("JobId=1 JobState=TIMEOUT Reason=TimeLimit", "failed"),
    ("", "success"),
])
def test_what_snakemake_is_told_of_a_job(said, state):
    assert load_status().state(said) == state


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def configuration(directory, host):
    """Returns a slurm.conf for one node, which is this machine."""
    facts = subprocess.run(["slurmd", "-C"], capture_output=True, text=True, check=True).stdout
    cpus = re.search(r"CPUs=\d+", facts)[0]
    return "\n".join([
        "ClusterName=takt", f"SlurmctldHost={host}(127.0.0.1)", "SlurmUser=root",
        f"SlurmctldPort={free_port()}", f"SlurmdPort={free_port()}",
        f"AuthInfo=socket={directory}/munge.socket",
        f"StateSaveLocation={directory}/state", f"SlurmdSpoolDir={directory}/spool",
        f"SlurmctldPidFile={directory}/slurmctld.pid", f"SlurmdPidFile={directory}/slurmd.pid",
        f"SlurmctldLogFile={directory}/slurmctld.log", f"SlurmdLogFile={directory}/slurmd.log",
        "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "SwitchType=switch/none",
        "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "ReturnToService=2",
        "MpiDefault=none", f"NodeName={host} NodeAddr=127.0.0.1 {cpus}",
        f"PartitionName=all Nodes={host} Default=YES State=UP", ""
    ])


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A Slurm of one node, for the length of the test."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        pytest.skip(f"{', '.join(missing)} missing (tools/deps.sh experiments slurm)")
    if os.geteuid():
        pytest.skip("slurmd needs root")
    directory = tmp_path / "slurm"
    for name in ("state", "spool"):
        (directory / name).mkdir(parents=True)
    directory.chmod(0o755)
    key = directory / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    conf = directory / "slurm.conf"
    conf.write_text(configuration(directory, socket.gethostname()))
    monkeypatch.setenv("SLURM_CONF", str(conf))
    commands = [["munged", "--foreground", "--force", f"--key-file={key}",
                 f"--socket={directory}/munge.socket", f"--pid-file={directory}/munge.pid",
                 f"--log-file={directory}/munge.log", f"--seed-file={directory}/munge.seed"],
                ["slurmctld", "-D"], ["slurmd", "-D"]]
    with contextlib.ExitStack() as stack:
        for command in commands:
            with open(directory / f"{command[0]}.out", "wb") as out:
                running = subprocess.Popen(command, stdout=out, stderr=out)
            stack.callback(running.wait, 60)
            stack.callback(running.terminate)
            time.sleep(1)
        end = time.monotonic() + PATIENCE
        said = ""
        while "idle" not in said:
            assert time.monotonic() < end, f"the node is not idle: {said}, see {directory}"
            time.sleep(1)
            said = subprocess.run(["sinfo", "--noheader", "--format=%T"], capture_output=True,
                                  text=True, check=False).stdout
        yield directory


@pytest.mark.long
def test_a_sweep_through_slurm(slurm, tmp_path, monkeypatch, capfd):
    """Each set-up is a job that Slurm has accepted, started and seen to its end. The results are
    those of a run without Slurm, byte for byte. A set-up that fails fails its job, and no other."""
    subprocess.run(["make", "-s", "build/sim"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    e = papers.read("vslicer/fig10-fairness")
    e["seconds"] = 2
    monkeypatch.setattr(papers, "RESULTS", str(tmp_path / "plain"))
    plain = papers.plan(e, quick=True)
    assert papers.snakemake(plain, 2, [])
    monkeypatch.setattr(papers, "RESULTS", str(tmp_path / "jobs"))
    directories = papers.plan(e, quick=True)
    bad = str(tmp_path / "jobs" / "bad")
    papers.write_if_new(os.path.join(bad, "vms.cfg"), "[vm x]\nimage = nothing\n")
    with open(os.path.join(directories[0], "task.json"), encoding="utf-8") as f:
        papers.write_if_new(os.path.join(bad, "task.json"), f.read())
    assert not papers.snakemake([bad, *directories], 2, [f"--profile={PROFILE}"])
    assert "1 failed" in capfd.readouterr().err
    assert not papers.finished(bad)
    for one, other in zip(plain, directories):
        values = [[(run["seed"], run["values"], run["trace"]) for run in papers.finished(d)]
                  for d in (one, other)]
        assert values[0] == values[1] and len(values[0]) == 3
    log = (slurm / "slurmctld.log").read_text()
    assert len(set(re.findall(r"sched: Allocate JobId=(\d+)", log))
               | set(re.findall(r"_slurm_rpc_submit_batch_job: JobId=(\d+)", log))) >= 7
    assert log.count("WEXITSTATUS 0") >= 6
