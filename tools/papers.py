#!/usr/bin/env python3
"""Runs the experiments of experiments/, each of which repeats a figure or table of a paper.

  tools/papers.py run [NAME...]   runs these experiments (vturbo/table1), or all, and judges them
  tools/papers.py check NAME...   only looks for mistakes in these experiments' files
  tools/papers.py report          makes build/results/report/index.html of all that is finished
  tools/papers.py list            prints the table of docs/experiments.md
  tools/papers.py one DIRECTORY   measures one set-up; Snakemake calls this

An experiment is one file (docs/experiments.md says what is in it). Each of its set-ups, which is
one line of the figure at one point, has a directory below build/results/experiments. Snakemake
decides which set-ups have to be measured: a finished one is not measured again unless its VM file
or the simulation has changed, and one that fails does not stop the others.
"""
import argparse
import fnmatch
import functools
import glob
import hashlib
import importlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib

import arrivals
import experiment
import labrun
import machine
import paperreport
import paperstats
import progress
import sentence
import tracestream

event_times = importlib.import_module("event-times")  # its name is none that `import` takes

SOURCES = os.path.join(machine.ROOT, "experiments")
RESULTS = os.path.join(machine.BUILD, "results", "experiments")
REPORT = os.path.join(machine.BUILD, "results", "report")
PROGRAMS = {"sim": os.path.join(machine.BUILD, "sim"),
            "whole": os.path.join(machine.BUILD, "sim-whole"),
            "machine": os.path.join(machine.BUILD, "takt.elf")}
GUESTS = os.path.join(machine.BUILD, "whole")  # of sim-whole
IMAGES = os.path.join(machine.BUILD, "guests")  # of takt.elf
QUICK_SEEDS = 3
BOCHS_MHZ = 100  # millions of instructions a second, on `whole`, if an experiment does not say


class Refused(sentence.Problem):
    """A sentence for the person who wrote an experiment."""


# ---- experiment files ----

def names():
    """Returns the names of all experiments, such as "vturbo/table1"."""
    found = glob.glob(os.path.join(SOURCES, "*", "*.toml"))
    inside = [os.path.relpath(path, SOURCES)[:-len(".toml")] for path in found]
    return sorted(name for name in inside if not name.endswith("/missing"))


def load(path):
    with open(path, "rb") as f:
        try:
            return tomllib.load(f)
        except tomllib.TOMLDecodeError as e:
            raise Refused(f"{experiment.inside(path)}: {e}") from None


@functools.cache
def schema(name):
    with open(os.path.join(SOURCES, name + ".schema.json"), encoding="utf-8") as f:
        return json.load(f)


def conform(what, name, where):
    """Refuses an object that is not as the schema says."""
    import jsonschema
    for error in jsonschema.Draft7Validator(schema(name)).iter_errors(what):
        place = ".".join(str(part) for part in error.absolute_path) or "the file"
        raise Refused(f"{where}: {place}: {error.message}")


def read(name):
    """Returns the experiment of that name, checked. Refuses a condition or a figure that names a
    measure, a series or a point that there is not."""
    path = os.path.join(SOURCES, name + ".toml")
    if not os.path.exists(path):
        raise Refused(f"there is no experiment {name}; tools/papers.py list names all of them")
    e = load(path)
    where = experiment.inside(path)
    conform(e, "experiment", where)
    known = {"series": {s["name"] for s in e["series"]}, "point": {p["name"] for p in e["points"]},
             "measure": set(e["measure"])}
    for condition in e["expect"]:
        for place in (condition, condition.get("value", {}), condition.get("over", {})):
            for key, all_of in known.items():
                if key in place and place[key] not in all_of:
                    raise Refused(f"{where}: a condition names the {key} {place[key]!r}, which the "
                                  f"file has not; it has {', '.join(sorted(all_of))}")
    for measure in e["figure"]["measures"]:
        if measure not in known["measure"]:
            raise Refused(f"{where}: the figure names the measure {measure!r}, which the file has "
                          "not")
    e["id"] = name
    return e


def unmeasured():
    """Returns the results that have no experiment: experiments/PAPER/missing.toml."""
    rows = []
    for path in sorted(glob.glob(os.path.join(SOURCES, "*", "missing.toml"))):
        what = load(path)
        conform(what, "missing", experiment.inside(path))
        paper = os.path.basename(os.path.dirname(path))
        for i, row in enumerate(what["result"]):
            rows.append({**row, "paper": what["paper"], "id": f"{paper}/missing-{i + 1}"})
    return rows


def words_of(e, series, point):
    return {**e.get("defaults", {}), **series, **point}


def filled(e, series, point):
    """Returns the VM file of a set-up: the template, in which {NAME} is what the point, the series
    or the defaults say, and a {NAME} of [blocks] is that block, repeated that many times."""
    words = words_of(e, series, point)
    blocks = e.get("blocks", {})

    def word(match):
        name = match[1]
        if name == "start_ms" and e["platform"] == "whole":
            return match[0]  # each seed has another one: whole()
        if name not in words:
            raise Refused(f"experiments/{e['id']}.toml: nothing says what {{{name}}} is at "
                          f"{series['name']}, {point['name']}")
        if name not in blocks:
            return str(words[name])
        return "\n".join(blocks[name].replace("{i}", str(i + 1)) for i in range(words[name]))

    text = e["vms"]
    for _ in range(3):  # what is put in may have names of its own
        text = re.sub(r"\{(\w+)\}", word, text)
    return text


def slug(text):
    return re.sub(r"[^a-z0-9.+-]+", "-", text.lower()).strip("-")


def own_series(e, policy):
    """Returns the series of a policy that the user has written (a file of labs/)."""
    with open(policy, encoding="utf-8") as f:
        found = re.search(r"\.name\s*=\s*\"([\w-]+)\"", f.read())
    if not found:
        raise Refused(f"{policy} has no `.name = \"...\"`, so it has no scheduling policy")
    known = json.loads(subprocess.run([PROGRAMS["sim"], "-l"], capture_output=True, text=True,
                                      check=True).stdout)
    if found[1] not in [p["policy"] for p in known["policies"]]:
        raise Refused(f"the simulation does not know the policy {found[1]} of {policy}: add it to "
                      "labs/policies.c (docs/writing-a-policy.md), and build again")
    if "policy" not in e:
        raise Refused(f"experiments/{e['id']}.toml has no [policy], so it does not say which pool "
                      "a policy of one's own would run")
    like = next(s for s in e["series"] if s["name"] == e["policy"]["like"])
    return {**like, **e["policy"], "name": found[1], "core": f"sched = {found[1]}"}


# ---- what has to be measured ----

def write_if_new(path, text):
    """Writes a file, but leaves one that has this text already as it is, with its time."""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            if f.read() == text:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def setups(e, quick):
    """Yields (series, point, directory, seeds) of each set-up."""
    seeds = e["seeds"]
    if quick:
        seeds = min(seeds, QUICK_SEEDS)
    under = f"{seeds}-seeds"
    if e["platform"] == "machine":
        under = f"machines-{seeds}-seeds"
    for series in e["series"]:
        for point in e["points"]:
            yield series, point, os.path.join(RESULTS, e["id"], under, slug(series["name"]),
                                              slug(point["name"])), seeds


def measures_of(e, words):
    """Returns the measures of a set-up: a scale that is a word is what the words say."""
    found = {}
    for name, rule in e["measure"].items():
        scale = rule.get("scale", 1)
        if isinstance(scale, str):
            if not isinstance(words.get(scale), (int, float)):
                raise Refused(f"experiments/{e['id']}.toml: measure {name}: nothing says which "
                              f"number {scale} is at {words['name']}")
            scale = words[scale]
        found[name] = {**rule, "scale": scale}
    return found


def plan(e, quick):
    """Writes what each set-up is, and returns their directories."""
    found = []
    for series, point, directory, seeds in setups(e, quick):
        words = words_of(e, series, point)
        task = {"id": e["id"], "platform": e["platform"], "series": series["name"],
                "point": point["name"], "model": e["model"], "pcpus": e["pcpus"],
                "warm_up": e["warm_up"], "seconds": e["seconds"], "seeds": seeds,
                "measure": measures_of(e, words), "switch_us": words.get("switch_us"),
                "mhz": e.get("mhz", BOCHS_MHZ), "memory": e.get("memory", 256)}
        if "arrivals" in e:
            task["arrivals"] = {key: filled({**e, "vms": text}, series, point)
                                for key, text in e["arrivals"].items()}
        if "script" in e:
            task["script"] = filled({**e, "vms": e["script"]}, series, point)
        write_if_new(os.path.join(directory, "vms.cfg"), filled(e, series, point))
        write_if_new(os.path.join(directory, "task.json"), json.dumps(task, indent=1) + "\n")
        found.append(directory)
    return found


# ---- one set-up ----

REDUCE = {"sum": sum, "mean": paperstats.mean, "max": max, "min": min, "count": len}


def field(record, path):
    for part in path.split("."):
        if part not in record:
            raise Refused(f"a vCPU has no field {path}: there is no {part}, but "
                          f"{', '.join(sorted(record))}")
        record = record[part]
    return record


def scaled(rule, value):
    """Returns the value in the unit of the measure; with "from", what it lacks to that."""
    value *= rule.get("scale", 1)
    if "from" in rule:
        value = rule["from"] - value
    return value


def measured(rule, vcpus, half=None):
    """Returns the value of one measure of a result of build/sim, or of one of its halves. `rule` is
    a [measure.NAME] of the experiment: which vCPUs ("vm.vcpu", with * and ?), which field of them,
    and what is made of the fields of several vCPUs."""
    chosen = [v for v in vcpus if fnmatch.fnmatchcase(f"{v['vm']}.{v['vcpu']}", rule["vcpus"])]
    if not chosen:
        if "absent" in rule:
            return rule["absent"]
        raise Refused(f"no vCPU of the VM file is named as {rule['vcpus']}")
    if half is not None:
        chosen = [v["halves"][half] for v in chosen]
    value = REDUCE[rule.get("reduce", "sum")](field(v, rule["field"]) for v in chosen)
    return scaled(rule, value)


def simulate(task, directory, seed, warm_up):
    """Returns the command that measures one seed, and what it printed."""
    command = [experiment.inside(PROGRAMS["sim"]), "-j", "-p", str(task["pcpus"]),
               "-w", f"{warm_up}s", "-t", f"{task['seconds']}s", "-c", f"seed={seed}"]
    if task["switch_us"] is not None:
        command += ["-s", f"{task['switch_us']}us"]
    command.append(experiment.inside(os.path.join(directory, "vms.cfg")))
    done = subprocess.run(command, cwd=machine.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{shlex.join(command)}: {done.stderr.strip()}")
    return shlex.join(command), json.loads(done.stdout)


def last_said(pattern, vms, found):
    """Returns {VM: the numbers in its last line that is as the pattern says}, of the VMs whose
    names are as `vms` says (with * and ?)."""
    last = {}
    for line in found["said"]:
        if line["vm"] and fnmatch.fnmatchcase(line["vm"], vms):
            match = re.search(pattern, line["text"])
            if match:
                last[line["vm"]] = [float(number) for number in match.groups()]
    return last


def heard(rule, found):
    """Returns the value of a measure that guests of build/sim-whole have printed. Of each VM that
    the rule names, the last line that is as the rule says counts: its first number, divided by the
    second one if there are two. With "per", the sum of all VMs is divided by the sum of the first
    numbers in lines that are as "per" says, so that a VM counts by how much it did. Each VM of the
    VM file that the rule names has to say such a line: if the simulation ends too early, those that
    are through are the quick ones. With "absent" some or all may be missing."""
    last = last_said(rule["said"], rule["vm"], found)
    if not last and "absent" in rule:
        return rule["absent"]
    silent = [vm for vm in found.get("file_vms", [])
              if fnmatch.fnmatchcase(vm, rule["vm"]) and vm not in last]
    if not last or (silent and "absent" not in rule):
        raise Refused(f"{(silent or [rule['vm']])[0]} has not said {rule['said']!r}")
    values = []
    for numbers in last.values():
        if len(numbers) > 1 and not numbers[1]:
            raise Refused(f"{rule['vm']} said 0 where {rule['said']!r} divides by it")
        values.append(numbers[0] / numbers[1] if len(numbers) > 1 else numbers[0])
    value = REDUCE[rule.get("reduce", "sum")](values)
    if "per" in rule:
        per = sum(numbers[0] for numbers in last_said(rule["per"], rule["vm"], found).values())
        if not per:
            raise Refused(f"{rule['vm']} has not said {rule['per']!r}, or 0")
        value /= per
    return scaled(rule, value)


def whole(task, directory, seed):
    """Runs one seed with real guests. Returns the command, and what it found, as simulate() does.
    A seed moves the beginning of the traffic within the 120 ms in which four VMs have a slice. With
    [arrivals] the VM file and a script of the shell follow from rate and seed (tools/arrivals.py).
    """
    vm_file, commands, more = os.path.join(directory, f"seed-{seed}.cfg"), task.get("script"), []
    with open(os.path.join(directory, "vms.cfg"), encoding="utf-8") as f:
        text = f.read().replace("{start_ms}", str(experiment.start_ms(seed)))
    if "arrivals" in task:
        a = task["arrivals"]
        text, commands, _ = arrivals.files(float(a["rate"]), task["seconds"], seed, a["driver"],
                                           a["guest"], int(a.get("io", 0)))
    if commands:
        script = os.path.join(directory, f"seed-{seed}.script")
        write_if_new(script, commands)
        more = ["--script", experiment.inside(script)]
    write_if_new(vm_file, text)
    answer = os.path.join(directory, f"seed-{seed}.json")
    trace = os.path.join(directory, f"seed-{seed}.trace")
    traced = any("waits" in rule for rule in task["measure"].values())
    command = [experiment.inside(PROGRAMS["whole"]), "-p", str(task["pcpus"]),
               "-f", str(task["mhz"]), "-m", str(task["memory"]),
               "-w", f"{task['warm_up'][0]}s", "-t", f"{task['seconds']}s", "-c", f"seed={seed}",
               "--json", experiment.inside(answer),
               *(["--trace", experiment.inside(trace)] if traced else []), *more,
               experiment.inside(vm_file)]
    done = subprocess.run(command, cwd=machine.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{shlex.join(command)}: {done.stderr.strip()}")
    with open(answer, encoding="utf-8") as f:
        found = json.load(f)
    facts = json.dumps([found["said"], found["top"]]).encode()
    vcpus = []
    if found["top"]:
        vcpus = found["top"]["result"]["vcpus"]
    if traced:
        found["waits"] = event_waits(trace, found["said"], experiment.start_ms(seed))
        os.remove(trace)  # of some hundred MB
    return shlex.join(command), {**found, "vcpus": vcpus,
                                 "file_vms": re.findall(r"^\[vm (\S+)\]", text, re.M),
                                 "trace": hashlib.sha256(facts).hexdigest()[:16]}


def event_waits(trace, said, since_ms):
    """Returns how long the events of a run waited and what they carried, by direction and VM
    (tools/event-times.py). Those before the traffic begins do not count: while VMs start, some wait
    for a whole slice of another one, and carry nothing."""
    log = "".join(f"[] {line['vm']}: {line['text']}\n" for line in said if line["vm"])
    return event_times.directions(tracestream.load(trace), log, since_ms=since_ms)


def waited(rule, rows):
    """Returns for how many ms the events wait that carry a megabyte, towards the driver domain
    ("to") or from it ("from"). With "vm" only the events that these VMs take count, and the bytes
    of these VMs."""
    chosen = [row for row in rows if row["direction"] == rule["waits"]
              and fnmatch.fnmatchcase(row["to"], rule.get("vm", "*"))]
    if not chosen:
        raise Refused(f"no VM that took events is named as {rule['vm']}")
    return sum(row["waited_us"] for row in chosen) / 1000 / sum(row["mb"] for row in chosen)


def busy(chosen, pcpus):
    """Returns for how many per cent of the run the chosen pCPUs were busy on average. `pcpus` are
    all of them, as build/sim-whole tells them."""
    for cpu in chosen:
        if cpu >= len(pcpus):
            raise Refused(f"there are {len(pcpus)} pCPUs, so there is no pCPU {cpu}")
    worked = sum(pcpus[cpu]["busy_s"] for cpu in chosen)
    return 100 * worked / (worked + sum(pcpus[cpu]["idle_s"] for cpu in chosen))


def measure_whole(task, directory):
    """Returns the Settled and the runs of a set-up with real guests. Their traffic begins at a time
    that the VM file says, so there is no warm-up to find."""
    runs = [whole(task, directory, seed) for seed in range(task["seeds"])]
    return experiment.Settled(task["warm_up"][0], None, [], []), runs


def look(task, found):
    """Returns what one run looked like, for experiment.settle(). Measures that are maxima do not
    tell whether the system has settled, so an experiment may exclude them."""
    rules = {name: rule for name, rule in task["measure"].items() if rule.get("settles", True)}
    whole = {name: measured(rule, found["vcpus"]) for name, rule in rules.items()}
    halves = [{name: measured(rule, found["vcpus"], half) for name, rule in rules.items()}
              for half in (0, 1)]
    return experiment.Look(whole, halves)


def value_of(rule, found):
    if "said" in rule:
        return heard(rule, found)
    if "waits" in rule:
        return scaled(rule, waited(rule, found["waits"]))
    if "busy" in rule:
        return scaled(rule, busy(rule["busy"], found["pcpus"]))
    return measured(rule, found["vcpus"])


def measure_setup(directory):
    """Measures one set-up with all its seeds, and writes runs.jsonl: a line for each seed."""
    with open(os.path.join(directory, "task.json"), encoding="utf-8") as f:
        task = json.load(f)
    runs = {}

    def observe(warm_up):
        if warm_up not in runs:
            runs[warm_up] = [simulate(task, directory, seed, warm_up)
                             for seed in range(task["seeds"])]
        return [look(task, found) for _, found in runs[warm_up]]

    floors = {name: rule.get("floor", 0.0) for name, rule in task["measure"].items()}
    where = {}
    if task["platform"] == "whole":
        settled, measurements = measure_whole(task, directory)
    elif task["platform"] == "machine":
        name, measurements = labrun.measure(task, directory)
        settled = experiment.Settled(task["warm_up"][1], None, [], [])
        where = {"machine": name}
    else:
        settled = experiment.settle(observe, *task["warm_up"], floors)
        measurements = runs[settled.warm_up]
    program = PROGRAMS[task["platform"]]
    vm_file = os.path.join(directory, "vms.cfg")
    common = {**experiment.commit(), **where, "program": experiment.inside(program),
              "program_sha256": experiment.digest(program),
              "versions": {"compiler": experiment.compiler(program)},
              "vm_file": experiment.inside(vm_file), "vm_file_sha256": experiment.digest(vm_file),
              "platform": task["platform"], "model": task["model"], "id": task["id"],
              "series": task["series"], "point": task["point"], "warm_up_s": settled.warm_up,
              "unsettled": settled.why, "seconds": task["seconds"]}
    lines = []
    for seed, (command, found) in enumerate(measurements):
        line = {**common, "seed": seed, "command": command, "trace": found["trace"],
                "knobs": {"pools": found.get("pools", []),
                          "vms": [{"vm": vm["vm"], "params": vm["params"]}
                                  for vm in found.get("vms", [])]},
                "values": {name: value_of(rule, found) for name, rule in task["measure"].items()}}
        conform(line, "run", f"{directory}, seed {seed}")
        lines.append(json.dumps(line))
    part = os.path.join(directory, "runs.part")
    with open(part, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    os.replace(part, os.path.join(directory, "runs.jsonl"))


# ---- Snakemake ----

STEPS = re.compile(r"^(\d+) of (\d+) steps \(\d+%\) done")


def snakemake(directories, jobs, extra):
    """Measures the set-ups that are not finished. Shows how many are done, failed, and how long the
    rest may take. Returns False if Snakemake ended because of a failure or of Ctrl-C."""
    if not shutil.which("snakemake"):
        raise Refused("snakemake is missing; tools/deps.sh experiments installs it")
    os.makedirs(RESULTS, exist_ok=True)
    targets = os.path.join(RESULTS, "targets.json")
    with open(targets, "w", encoding="utf-8") as f:
        json.dump([os.path.relpath(d, RESULTS) for d in directories], f)
    command = ["snakemake", "--snakefile", os.path.join(SOURCES, "Snakefile"), "--directory",
               RESULTS, "--cores", str(jobs), "--keep-going", "--rerun-incomplete",
               "--rerun-triggers", "mtime", "--nocolor",
               "--config", f"papers={os.path.abspath(__file__)}", f"python={sys.executable}",
               f"sim={PROGRAMS['sim']}", f"whole={PROGRAMS['whole']}", f"guests={GUESTS}",
               f"machine={PROGRAMS['machine']}", f"images={IMAGES}", *extra]
    begin, state = time.monotonic(), {"done": 0, "all": 0, "failed": 0}

    def told():
        text = f"experiments: {state['done']} of {state['all']} set-ups, {state['failed']} failed"
        if state["done"]:
            rest = (time.monotonic() - begin) / state["done"] * (state["all"] - state["done"])
            text += f", about {progress.duration(rest)} left"
        return text

    with open(os.path.join(RESULTS, "snakemake.log"), "w", encoding="utf-8") as log, \
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             start_new_session=True) as running, progress.Line(told) as line:
        try:
            for text in running.stdout:
                log.write(text)
                log.flush()
                steps = STEPS.match(text)
                if steps:  # the rule `all` is a step as well
                    state["done"], state["all"] = int(steps[1]), int(steps[2])
                if text.startswith("Error in rule"):
                    state["failed"] += 1
                if (steps or text.startswith("Error in rule")) and not line.thread:
                    print(told(), file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print("\nEnding; what is finished is kept.", file=sys.stderr)
            os.killpg(running.pid, signal.SIGINT)
            running.communicate()
            raise
        return running.wait() == 0


# ---- results ----

def finished(directory):
    """Returns the lines of a set-up, or [] if it is not finished."""
    path = os.path.join(directory, "runs.jsonl")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def remark(e, said):
    """Returns what follows the broken conditions in the text behind a verdict: why the result is
    not as in the paper, or that nobody has said why."""
    if said == paperstats.SHAPE_HOLDS:
        return ""
    if "remark" in e:
        return ". " + e["remark"]
    if said == paperstats.DIFFERS:
        return ". The experiment's file has no remark yet that says why"
    return ""


def result(e, quick, policy=None):
    """Returns what the report says of an experiment, from the runs that are finished. A series of
    the user's own policy is shown, and no condition speaks of it."""
    figures, notes, missing, lines, warm_ups = paperstats.Figures(), [], [], [], {}
    for series, point, directory, _ in setups(e, quick):
        found = finished(directory)
        place = f"{series['name']}, {point['name']}"
        if not found:
            missing.append(place)
            continue
        lines += found
        warm_ups[place] = found[0]["warm_up_s"]
        same = experiment.same_trace([line["trace"] for line in found])
        if same and not e.get("exact"):
            notes.append(f"{place}: {same}")
        if found[0]["unsettled"] and series["name"] != policy:
            notes.append(f"{place} never settles: {found[0]['unsettled']}")
        for line in found:
            figures.add(series["name"], point["name"], line["seed"], line["values"])
    points = [p["name"] for p in e["points"]]
    conditions = [paperstats.check(c, figures, points) for c in e["expect"]]
    said, why = paperstats.verdict(conditions, notes)
    why += remark(e, said)
    if missing:
        said, why = paperstats.FAILED, "not finished: " + "; ".join(missing)
    values, intervals = {}, {}
    for measure, series, point in figures.found:
        found = figures.estimate(measure, series, point)
        key = f"{measure} | {series} | {point}"
        values[key], intervals[key] = found["mean"], found["interval"]
    command = f"make experiment E={e['id']}"
    if e["platform"] == "machine":
        command += f" LAB={e['lab']}"
    if policy:
        command += f" POLICY={e['own']}"
    if quick:
        command += " QUICK=1"
    name = os.path.relpath(place_of(e, policy), RESULTS)
    done = {"paper": e["paper"], "id": name, "result": e["result"], "claim": e["claim"],
            "section": e["section"], "platform": e["platform"], "model": e["model"],
            "seeds": sorted({line["seed"] for line in lines}), "verdict": said, "why": why,
            "conditions": conditions, "values": values, "interval": intervals,
            "warm_up_s": warm_ups, "seconds": e["seconds"], "command": command,
            "commits": sorted({f"{line['commit'][:10]}{'' if line['clean'] else '+'}"
                               for line in lines})}
    conform(done, "result", e["id"])
    return done, figures


def place_of(e, policy):
    """Returns where the results of an experiment are; on machines, and with a policy of one's own,
    elsewhere."""
    if e["platform"] == "machine":
        return os.path.join(RESULTS, e["id"], "on-machines")
    if policy:
        return os.path.join(RESULTS, e["id"], "with-" + policy)
    return os.path.join(RESULTS, e["id"])


def results_of(name):
    """Returns the results of an experiment that are finished: its own, those on machines, and those
    with policies of users."""
    found = []
    for where in ("", "on-machines", "with-*"):
        for path in sorted(glob.glob(os.path.join(RESULTS, name, where, "result.json"))):
            with open(path, encoding="utf-8") as f:
                found.append(json.load(f))
    return found


def finish(e, quick, policy):
    """Judges an experiment, draws it, and prints its verdict. Returns the verdict."""
    done, figures = result(e, quick, policy)
    where = place_of(e, policy)
    os.makedirs(where, exist_ok=True)
    with open(os.path.join(where, "result.json"), "w", encoding="utf-8") as f:
        json.dump(done, f, indent=1)
        f.write("\n")
    with open(os.path.join(where, "runs.jsonl"), "w", encoding="utf-8") as f:
        for _, _, directory, _ in setups(e, quick):
            for line in finished(directory):
                f.write(json.dumps(line) + "\n")
    paperreport.draw(e, figures, where)
    print(f"{e['id']}: {done['verdict']}: {done['why']}")
    for condition in done["conditions"]:
        print(f"  {condition['state']:9}  {condition['says']}: {condition['found']} "
              f"(section {condition['section']})")
    if policy:
        for key, value in done["values"].items():
            if key.split(" | ")[1] == policy:
                print(f"  {key}: {paperreport.number(value, done['interval'][key])}")
    print(f"  {experiment.inside(where)}: figure.svg, figure.png, result.json, runs.jsonl",
          flush=True)
    return done["verdict"]


def run(args):
    chosen = [read(name) for name in args.names or names()]
    if args.quick and not args.names:
        chosen = [e for e in chosen if e.get("quick", True)]
    policy = None
    if args.lab:
        if args.policy:
            raise Refused("a policy of one's own runs in the simulation alone: leave out POLICY= "
                          "or LAB=")
        for e in chosen:
            labrun.adopt(e, args.lab)
        args.jobs = labrun.machines(args.lab)
    elif args.policy:
        for e in chosen:
            own = own_series(e, args.policy)
            e["series"].append(own)
            e["own"], policy = args.policy, own["name"]
    directories = [d for e in chosen for d in plan(e, args.quick)]
    begin = time.monotonic()
    good = snakemake(directories, args.jobs, args.snakemake)
    verdicts = [finish(e, args.quick, policy) for e in chosen]
    counts = {v: verdicts.count(v) for v in sorted(set(verdicts))}
    print(f"{len(verdicts)} experiments in {progress.duration(time.monotonic() - begin)}: "
          + ", ".join(f"{n} {v}" for v, n in counts.items()))
    if not good:
        tell_failures(directories)
        return 1
    return 0


def tell_failures(directories):
    """Prints why set-ups are not finished: the last sentence that each of them has written."""
    for directory in directories:
        log = os.path.join(directory, "log.txt")
        if finished(directory) or not os.path.exists(log):
            continue
        with open(log, encoding="utf-8", errors="replace") as f:
            said = f.read().strip()
        if "\npapers: " in "\n" + said:
            said = ("\n" + said).rpartition("\npapers: ")[2]
        else:
            said = said.rpartition("\n")[2]  # of a traceback
        print(f"{os.path.relpath(directory, RESULTS)} failed: {said}\n"
              f"{experiment.inside(log)} has all that it said.", file=sys.stderr)
    print(f"{experiment.inside(os.path.join(RESULTS, 'snakemake.log'))} has what Snakemake said.",
          file=sys.stderr)


def check(args):
    """Looks for mistakes in files of experiments, as far as that is possible before anything is
    built."""
    for e in [read(name) for name in args.names]:
        for series in e["series"]:
            for point in e["points"]:
                filled(e, series, point)
                measures_of(e, words_of(e, series, point))
    return 0


def report(_):
    rows = []
    for name in names():
        rows += results_of(name)
    for row in unmeasured():
        verdict = paperstats.CANNOT
        if row.pop("todo", False):
            verdict = paperstats.TODO
        rows.append({**row, "platform": "-", "seeds": [], "verdict": verdict,
                     "values": {}, "interval": {}, "command": ""})
    if not any(row["seeds"] for row in rows):
        raise Refused("no experiment is finished yet: make experiments QUICK=1 runs all of them")
    os.makedirs(REPORT, exist_ok=True)
    for row in rows:
        conform(row, "result", row["id"])
    with open(os.path.join(REPORT, "results.json"), "w", encoding="utf-8") as f:
        json.dump(rows, f, indent=1)
        f.write("\n")
    paperreport.write(rows, RESULTS, REPORT)
    print(f"{experiment.inside(REPORT)}/index.html: {len(rows)} results")
    return 0


def inventory():
    """Returns the lines of the table in docs/experiments.md."""
    lines = ["| paper | result | claim | file, or why not |", "|---|---|---|---|"]
    rows = []
    for name in names():
        e = read(name)
        file = f"`{name}` ({e['platform']})"
        rows.append((e["paper"], e["result"], e["claim"], file))
    for row in unmeasured():
        rows.append((row["paper"], row["result"], row["claim"], row["why"]))
    for row in sorted(rows):
        lines.append("| " + " | ".join(" ".join(cell.split()) for cell in row) + " |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("run")
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--quick", action="store_true", help=f"at most {QUICK_SEEDS} seeds")
    p.add_argument("--policy", metavar="FILE", help="a policy of your own, as one more line")
    p.add_argument("--lab", metavar="FILE", help="on machines of this lab (docs/lab.md)")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--snakemake", nargs="*", default=[], metavar="WORD",
                   help="more words for Snakemake, such as --snakemake=--profile=DIRECTORY")
    p.set_defaults(do=run)
    p = commands.add_parser("check")
    p.add_argument("names", nargs="+", metavar="NAME")
    p.set_defaults(do=check)
    commands.add_parser("report").set_defaults(do=report)
    commands.add_parser("list").set_defaults(do=lambda _: print("\n".join(inventory())))
    p = commands.add_parser("one")
    p.add_argument("directory")
    p.set_defaults(do=lambda args: measure_setup(args.directory))
    args = parser.parse_args()
    return args.do(args)


if __name__ == "__main__":
    sentence.run(main)
