"""Measures a set-up of an experiment on a machine of a lab instead of in a simulation: each seed is
one boot of tools/labhost, which takes a machine that is free (docs/lab.md)."""
import configparser
import hashlib
import json
import os
import re
import shlex
import subprocess

import experiment
import machine
import sentence

SLACK = 60  # seconds that the answer of `top` may take beyond its measurement
# Fields of build/sim that the shell's `top` has as well.
FIELDS = ("cpu_pct",)


class Refused(sentence.Problem):
    """A sentence for the person who runs an experiment."""


def machines(path):
    """Returns how many machines a lab has, and has labhost use it. labhost itself checks the rest
    of the file."""
    lab = configparser.ConfigParser(interpolation=None)
    try:
        if not lab.read(path):
            raise Refused(f"{path}: there is no such file; docs/lab.md has an example")
    except configparser.Error as e:
        raise Refused(f"{path}: {e}") from None
    if not lab.sections():
        raise Refused(f"{path} has no machine")
    os.environ["TAKT_LAB"] = os.path.abspath(path)
    return len(lab.sections())


def adopt(e, lab):
    """Makes an experiment of a simulation one of the machines of a lab. Refuses an experiment that
    asks for what a machine cannot tell, or cannot be."""
    if "arrivals" in e:
        raise Refused(f"{e['id']}: its VMs arrive at times of the simulation, so no machine of a "
                      "lab can run it")
    for name, rule in e["measure"].items():
        if "said" not in rule and rule.get("field") not in FIELDS:
            raise Refused(f"{e['id']}: a machine does not tell what the measure {name} wants; it "
                          f"tells {', '.join(FIELDS)} of vCPUs, and what VMs print")
    for series in e["series"]:
        if "switch_us" in series:
            raise Refused(f"{e['id']}: {series['name']} says what a switch costs, and a machine "
                          "cannot be told that")
    e.update(platform="machine", lab=lab,
             model="Machines of a lab. The file describes this for a simulation: " + e["model"])


def vm_file(text, pcpus, seed):
    """Returns the VM file of one boot: with the number of CPUs and the seed, which a simulation
    takes from its command line."""
    text = text.replace("{start_ms}", str(experiment.start_ms(seed)))
    keys = f"max_cpus = {pcpus}\nseed = {seed}\n"
    if re.search(r"(?m)^\[hypervisor\]", text):
        return re.sub(r"(?m)^\[hypervisor\][ \t]*$", "[hypervisor]\n" + keys[:-1], text, count=1)
    return f"[hypervisor]\n{keys}\n{text}"


def script(task):
    """Returns the script of labhost for all seeds of a set-up. The measurement begins after the
    longest warm-up that the experiment permits: nothing here finds out whether a shorter one would
    do."""
    warm_up, seconds = task["warm_up"][1], task["seconds"]
    lines = []
    for seed in range(task["seeds"]):
        lines += [f"@install seed-{seed}.cfg", "@boot", f"@timeout {warm_up + seconds + SLACK}",
                  f"top -w {warm_up} -d {seconds}", "dmesg"]
    return "\n".join(lines) + "\n"


def answers(path, seeds):
    """Yields (result of `top`, result of `dmesg`) of each seed. If labhost had to boot again, there
    are several results for one line of the script, of which the last one counts."""
    last = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            entry = json.loads(line)
            last[entry["line"]] = entry["result"]
    for seed in range(seeds):
        yield last[5 * seed + 4], last[5 * seed + 5]


def said(log):
    """Returns the lines of the log that VMs have printed, as build/sim-whole tells them."""
    found = []
    for entry in log:
        match = re.match(r"(?:\[ *([\d.]+)\] )?([\w.-]+): (.*)", entry["line"])
        if match:
            found.append({"vm": match[2], "text": match[3]})
    return found


def place(directory):
    """Returns the directory of labhost's results. It depends on all that the images are made of, so
    that a run which was stopped goes on there, and one of other images does not."""
    inputs = "".join(experiment.digest(path)
                     for path in experiment.files_of(os.path.join(directory, "vms.cfg")))
    return os.path.join(directory, "lab-" + hashlib.sha256(inputs.encode()).hexdigest()[:12])


def measure(task, directory):
    """Runs all seeds of a set-up on one machine of the lab, the first that is free. Returns the
    name of the machine, and [(command, what was found)]."""
    with open(os.path.join(directory, "vms.cfg"), encoding="utf-8") as f:
        text = f.read()
    for seed in range(task["seeds"]):
        with open(os.path.join(directory, f"seed-{seed}.cfg"), "w", encoding="utf-8") as f:
            f.write(vm_file(text, task["pcpus"], seed))
    path = os.path.join(directory, "script")
    with open(path, "w", encoding="utf-8") as f:
        f.write(script(task))
    out = place(directory)
    command = ["tools/labhost", "any", "run", experiment.inside(path), "--out",
               experiment.inside(out)]
    done = subprocess.run(command, cwd=machine.ROOT, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Refused(f"{shlex.join(command)} ended with exit status {done.returncode}")
    with open(os.path.join(out, "verdict.json"), encoding="utf-8") as f:
        name = json.load(f)["machine"]
    runs = []
    for top, log in answers(os.path.join(out, "results.jsonl"), task["seeds"]):
        has = len(top["pcpus"])
        if has < task["pcpus"]:
            raise Refused(f"{name} has {sentence.count(has, 'CPU')}, and the set-up wants "
                          f"{task['pcpus']}")
        runs.append((shlex.join(command),
                     {"vcpus": top["vcpus"], "said": said(log), "trace": None,
                      "file_vms": re.findall(r"(?m)^\[vm (\S+)\]", text)}))
    return name, runs
