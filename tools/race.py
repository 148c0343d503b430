#!/usr/bin/env python3
"""A race of scheduling policies on the eight mixes of experiments/together/mixes.toml.

  tools/race.py FILE.c...      each file has one policy (docs/writing-a-policy.md)

Builds the simulation with these policies, runs each of them on each mix with each seed, and prints
a scoreboard. Beside them run Takt's default (hardened) and Credit as in Xen 4.2.

Four VMs share a core: a server handles 300 events a second and computes for a part of the time,
which is what differs between the mixes, and three VMs only compute. A policy is better if the
server's events are handled sooner (99th percentile) and the three still have their share. So:

  score     the geometric mean, over mixes, of p99 under Xen 4.2 divided by p99 under this policy
  least     the least that a VM which computes got of what it is entitled to, in any mix

A policy under which somebody gets less than 95 % of that comes after all others.
"""
import argparse
import json
import math
import os
import re
import subprocess
import tomllib

import sentence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIXES = os.path.join(ROOT, "experiments", "together", "mixes.toml")
WORK = os.path.join(ROOT, "build", "race")
FAIR = 0.95
EVENTS_PCT = 1.5  # 300 events a second of 50 us
OURS = {"Xen 4.2": "sched_preset = faithful-4.2", "hardened": "sched_preset = hardened"}


class Policy:
    """`settings`: the lines of a VM file that choose it."""

    def __init__(self, name, settings):
        self.name, self.settings = name, settings
        self.p99, self.least, self.why = [], math.inf, ""


def read_policy(path):
    """Returns the name of a file's policy, and how its structure is called."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    symbol = re.search(r"^const struct sched_policy (\w+) = \{", text, re.M)
    name = re.search(r"^\s*\.name = \"([^\"]+)\"", text, re.M)
    if not symbol or not name:
        raise sentence.Problem(f"{path}: expected `const struct sched_policy ... = {{` and `.name "
                               "= \"...\"`, and there is none")
    return name[1], symbol[1]


def build(files):
    """Builds the simulation with the policies of these files. Returns the policies."""
    found = [read_policy(path) for path in files]
    for names in zip(*found):
        for name in names:
            if names.count(name) > 1:
                raise sentence.Problem(f"two of the files have a policy {name}: give one of them "
                                       "another name")
    os.makedirs(WORK, exist_ok=True)
    listed = os.path.join(WORK, "policies.c")
    with open(listed, "w", encoding="utf-8") as f:
        f.write('#include "sched/policy.h"\n')
        for _, symbol in found:
            f.write(f"extern const struct sched_policy {symbol};\n")
        pointers = ", ".join(f"&{symbol}" for _, symbol in found)
        f.write("const struct sched_policy *const sched_policies[] = {\n"
                f"    &credit_policy, &null_policy, {pointers}, NULL,\n}};\n")
    archives = [os.path.join(ROOT, "build", name) for name in
                ("host/tests/sim/main.o", "libsim.a", "libhv.a")]
    done = subprocess.run(
        [os.environ.get("CC", "gcc"), "-std=gnu11", "-O2", "-g", "-w", "-Iinclude", "-Ihv", "-I.",
         "-D_GNU_SOURCE", "-Dsched_yield=hv_sched_yield", "-fno-strict-aliasing", "-DTAKT_CHECKED",
         "-o", os.path.join(WORK, "sim"), listed, *map(os.path.abspath, files), *archives],
        cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise sentence.Problem(f"the policies do not compile: {done.stderr.strip()}")
    return [Policy(name, f"sched = {name}") for name, _ in found]


def measure(policy, mixes, percent, seed):
    """Runs one mix. Returns p99 of the server in ms, and the least part of its share that a VM
    which computes got. Raises an exception of the kind ValueError if the policy cannot do it."""
    text = mixes["vms"].format(core="cpus = 1\n" + policy.settings, second="", hog="",
                               server="pool = core", percent=percent)
    path = os.path.join(WORK, f"{policy.name.replace(' ', '-')}-{percent}.cfg")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    done = subprocess.run(
        [os.path.join(WORK, "sim"), "-C", "-j", "-q", "-p", str(mixes["pcpus"]), "-w",
         f"{mixes['warm_up'][0]}s", "-t", f"{mixes['seconds']}s", "-c", f"seed={seed}", path],
        capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise ValueError((done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0])
    vcpus = json.loads(done.stdout)["vcpus"]
    server = next(v for v in vcpus if v["vm"] == "server")
    hogs = [v["cpu_pct"] for v in vcpus if v["vm"].startswith("hog-")]
    wanted = min(percent + EVENTS_PCT, 100 / (len(hogs) + 1))
    fair = (100 - wanted) / len(hogs)
    if not server["event_us"]["p99"]:
        raise ValueError("the server handled no event")
    return server["event_us"]["p99"] / 1000, min(hogs) / fair


def run(policy, mixes, seeds):
    """Measures a policy on all mixes."""
    for point in mixes["points"]:
        values = []
        try:
            for seed in range(seeds):
                p99, least = measure(policy, mixes, point["percent"], seed)
                values.append(p99)
                policy.least = min(policy.least, least)
        except (ValueError, subprocess.TimeoutExpired) as e:
            policy.why = f"mix {point['name']}, seed {seed}: {e}"
            return
        policy.p99.append(sum(values) / len(values))


def score(policy, reference):
    ratios = [r / p for r, p in zip(reference.p99, policy.p99)]
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def board(policies, mixes):
    """Yields the lines of the scoreboard."""
    reference = policies[0]
    done = [p for p in policies if not p.why]
    done.sort(key=lambda p: (p.least < FAIR, -score(p, reference)))
    heads = [point["name"] for point in mixes["points"]]
    yield ("p99 in ms of a server that computes for so many % of the core: "
           f"{mixes['seconds']} s, simulated")
    yield ""
    yield f"{'':3} {'policy':<16} {'score':>6} {'least':>6}  " + " ".join(f"{h:>6}" for h in heads)
    for place, p in enumerate(done, 1):
        yield (f"{place:2}. {p.name:<16} {score(p, reference):6.2f} {100 * p.least:5.1f}%  "
               + " ".join(f"{v:6.2f}" for v in p.p99)
               + ("   unfair" if p.least < FAIR else ""))
    for p in policies:
        if p.why:
            yield f"  - {p.name}: out of the race: {p.why}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int)
    parser.add_argument("files", nargs="+", metavar="FILE.c")
    args = parser.parse_args()
    with open(MIXES, "rb") as f:
        mixes = tomllib.load(f)
    policies = [Policy(name, settings) for name, settings in OURS.items()] + build(args.files)
    for p in policies:
        run(p, mixes, args.seeds or mixes["seeds"])
    if policies[0].why:
        raise sentence.Problem(f"Xen 4.2 cannot be measured: {policies[0].why}")
    print("\n".join(board(policies, mixes)))


if __name__ == "__main__":
    sentence.run(main)
