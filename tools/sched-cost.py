#!/usr/bin/env python3
"""Counts with callgrind on the host build what scheduling costs in instructions, for every policy.

A decision is wake + insert + charge + pick + switch; a handover is yield + pick + switch. Each may
take 1.5 times as much as under plain credit. From 2 to 256 vCPUs on a CPU it may grow by a factor
of 2, and by 4 if vCPUs are ordered by credit or deadline. An accounting pass with the sorting after
it may take 220 instructions for each active vCPU, in addition to the fixed cost of a pass (two
timers, the tick of the current vCPU). vTurbo's exchange of shares may take 1,500 for 8 VMs. The
machine's part (clock, timer, kick) is left out.

On many pCPUs a vCPU wakes, runs and blocks again, while others compute (tests/sim/cost.c has the
cases). In each case, and under every policy, that may grow by a factor of 2 from 2 to 256 pCPUs.
For plain credit each case is a row; for every other policy one row shows the case that grows most.

Prints a table; exits 1 if a limit is exceeded. With -j the table goes to stderr and JSON to stdout;
with -w only wakes on many pCPUs are measured.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import sentence

SIZES = (2, 16, 256)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "build", "sched-cost")
MODES = ("decision", "handover")
PLAIN = "credit"
ORDERED = ("vslicer-edf", "vslicer-frequency")
MOST, GROWTH, ORDERED_GROWTH, PASS, EXCHANGE, WIDE_GROWTH = 1.5, 2, 4, 220, 1500, 2


def build():
    """Builds what is measured, so that it exists and is made of these sources."""
    if not shutil.which("valgrind"):
        sys.exit("sched-cost: valgrind, which counts instructions, is not here: "
                 "tools/deps.sh cost installs it")
    command = ["make", "-s", "build/sched-cost"]
    if subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode:
        sys.exit("sched-cost: build/sched-cost, which is measured, cannot be built: see above")


def measure(mode, vcpus, policy=PLAIN):
    out = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no",
         f"--toggle-collect=measured_{mode}", PROGRAM, mode, str(vcpus), policy],
        capture_output=True, text=True, check=True)
    collected = int(re.search(r"Collected\s*:\s*(\d+)", out.stderr).group(1))
    return round(collected / int(out.stdout), 1)


def measure_wide(policy):
    """Returns what a wake costs on many pCPUs: {case: {pCPUs: instructions}}. The program says on
    stdout which case it has measured, and callgrind adds a total to its file at the beginning and
    at the end of each case."""
    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(directory, "counts")
        out = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={file}", "--combine-dumps=yes",
             "--collect-atstart=no", "--toggle-collect=measured_wake",
             "--dump-after=measured_case", PROGRAM, "wide", policy],
            capture_output=True, text=True, check=True)
        with open(file, encoding="utf-8") as f:
            totals = [int(n) for n in re.findall(r"^totals: (\d+)", f.read(), re.M)]
    cases = {}
    for i, line in enumerate(out.stdout.splitlines()):
        name, pcpus, rounds = line.rsplit(" ", 2)
        cases.setdefault(name, {})[int(pcpus)] = round(totals[2 * i + 1] / int(rounds), 1)
    return cases


def growth_of(costs):
    """Returns by how much the costs, {number: instructions}, grow from the least number on."""
    return max(costs.values()) / costs[min(costs)]


def print_wide(wide, file):
    """Prints what a wake costs on many pCPUs, and returns whether it grows by no more than it may.
    wide: {policy: what measure_wide() returned}"""
    sizes = next(iter(wide[PLAIN].values()))
    print(f"{'pCPUs':50}" + "".join(f"{n:>8}" for n in sizes), file=file)
    for policy, cases in wide.items():
        shown = cases if policy == PLAIN else [max(cases, key=lambda c: growth_of(cases[c]))]
        for case in shown:
            print(f"{'wake, ' + policy + ': ' + case:50}"
                  + "".join(f"{n:8.0f}" for n in cases[case].values())
                  + f"  instructions, grows by {growth_of(cases[case]):.2f}", file=file)
    most = max(growth_of(costs) for cases in wide.values() for costs in cases.values())
    ok = most <= WIDE_GROWTH
    print(f"from {min(sizes)} to {max(sizes)} pCPUs a wake grows by {most:.2f} "
          f"(at most {WIDE_GROWTH}): {'ok' if ok else 'EXCEEDED'}", file=file)
    return ok


def exceeded(name, costs, plain):
    """Returns which limits a policy's decisions, {vCPUs: instructions}, exceed."""
    growth = costs[SIZES[-1]] / costs[SIZES[0]]
    if growth > (ORDERED_GROWTH if name in ORDERED else GROWTH):
        return f"grows by {growth:.2f}"
    worst = max(costs[n] / plain[n] for n in SIZES)
    return f"{worst:.2f} times plain credit" if worst > MOST else ""


def print_table(result, faults, growth, ok, file):
    """Prints what main() measured. faults: {(mode, policy): what it exceeds}; growth: that of plain
    credit's decision."""
    print(f"{'vCPUs on the CPU':28}" + "".join(f"{n:>8}" for n in SIZES), file=file)
    for mode in MODES:
        plain = result["policies"][mode][PLAIN]
        for p, of in result["policies"][mode].items():
            worst = max(of[n] / plain[n] for n in SIZES)
            fault = f": {faults[mode, p]}" if faults[mode, p] else ""
            print(f"{mode + ', ' + p:28}" + "".join(f"{of[n]:8.0f}" for n in SIZES) +
                  f"  instructions, at most {worst:.2f} times plain credit's{fault}", file=file)
    print(f"{'accounting, a pass':28}"
          + "".join(f"{result['pass'][n]:8.0f}" for n in SIZES) + "  instructions", file=file)
    print(
        f"a decision grows by {growth:.2f} (at most {GROWTH}, by {ORDERED_GROWTH} if ordered by "
        "deadline)"
        f" and takes at most {MOST} times plain credit's; accounting {result['pass_fixed']:.0f} and"
        f" {result['pass_per_vcpu']:.0f} per active vCPU (at most {PASS}); vTurbo's exchange for 8 "
        "VMs"
        f" {result['exchange_8_vms']:.0f} (at most {EXCHANGE}): {'ok' if ok else 'EXCEEDED'}",
        file=file,
    )


def one_pcpu(policies, pool):
    """Measures decisions, accounting and vTurbo's exchange. Returns the results, which policies
    exceed what ({(mode, policy): sentence}), the growth of plain credit's decision, and whether
    all limits are kept."""
    jobs = {
        mode: {p: {n: pool.submit(measure, mode, n, p) for n in SIZES} for p in policies}
        for mode in MODES
    }
    passes = {n: pool.submit(measure, "pass", n) for n in SIZES}
    exchange = pool.submit(measure, "exchange", 8).result()
    costs = {
        mode: {p: {n: j.result() for n, j in of.items()} for p, of in jobs[mode].items()}
        for mode in MODES
    }
    plain = {mode: costs[mode][PLAIN] for mode in MODES}
    passes = {n: j.result() for n, j in passes.items()}
    few, many = passes[SIZES[0]], passes[SIZES[-1]]
    per_vcpu = (many - few) / (SIZES[-1] - SIZES[0])
    result = {**plain, "pass": passes, "pass_per_vcpu": round(per_vcpu, 1),
              "pass_fixed": round(few - SIZES[0] * per_vcpu, 1),
              "policies": costs, "exchange_8_vms": exchange}
    faults = {(mode, p): exceeded(p, costs[mode][p], plain[mode]) for mode in MODES
              for p in policies}
    growth = plain["decision"][SIZES[-1]] / plain["decision"][SIZES[0]]
    ok = not any(faults.values()) and per_vcpu <= PASS and exchange <= EXCHANGE
    return result, faults, growth, ok


def main():
    parser = argparse.ArgumentParser(description="what scheduling costs in instructions")
    parser.add_argument("-j", action="store_true", help="JSON on stdout, the table on stderr")
    parser.add_argument("-w", action="store_true", help="only wakes on many pCPUs")
    args = parser.parse_args()
    file = sys.stderr if args.j else sys.stdout
    result, ok = {}, True

    build()
    policies = subprocess.run([PROGRAM], capture_output=True, text=True, check=True).stdout.split()
    with ThreadPoolExecutor(2) as pool:
        if not args.w:
            result, faults, growth, ok = one_pcpu(policies, pool)
            print_table(result, faults, growth, ok, file)
            result["growth"] = round(growth, 3)
        wide = dict(zip(policies, pool.map(measure_wide, policies)))
    ok &= print_wide(wide, file)
    if args.j:
        print(json.dumps({**result, "wide": wide, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sentence.run(main)
