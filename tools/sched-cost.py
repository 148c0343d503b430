#!/usr/bin/env python3
"""What scheduling costs, in instructions, counted by callgrind on the host build.

A decision is wake + insert + charge + pick; it must not grow by more than a factor of 2 from 2 to 256 vCPUs on a
CPU. An accounting pass with the sorting that follows may take 150 instructions per active vCPU, beyond what a pass
costs whoever is active (two timers, the tick of the current vCPU). The machine's part (clock, timer, kick) is left
out. Prints a table, with -j JSON; exits 1 if a limit is exceeded.
"""

import json
import re
import subprocess
import sys

SIZES = (2, 16, 256)
PROGRAM = "build/sched-cost"


def measure(mode, vcpus):
    out = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no",
         f"--toggle-collect=measured_{mode}", PROGRAM, mode, str(vcpus)],
        capture_output=True, text=True, check=True)
    collected = int(re.search(r"Collected\s*:\s*(\d+)", out.stderr).group(1))
    return collected / int(out.stdout)


def main():
    result = {"decision": {}, "handover": {}, "pass": {}}
    for n in SIZES:
        result["decision"][n] = round(measure("decision", n), 1)
        result["handover"][n] = round(measure("handover", n), 1)
        result["pass"][n] = round(measure("pass", n), 1)
    growth = result["decision"][SIZES[-1]] / result["decision"][SIZES[0]]
    few, many = result["pass"][SIZES[0]], result["pass"][SIZES[-1]]
    per_vcpu = (many - few) / (SIZES[-1] - SIZES[0])
    result["pass_per_vcpu"], result["pass_fixed"] = round(per_vcpu, 1), round(few - SIZES[0] * per_vcpu, 1)
    ok = growth <= 2 and per_vcpu <= 150
    if "-j" in sys.argv[1:]:
        print(json.dumps({**result, "growth": round(growth, 3), "ok": ok}))
    else:
        print(f"{'vCPUs on the CPU':28}" + "".join(f"{n:>8}" for n in SIZES))
        for key, what in (("decision", "decision"), ("handover", "handover by yield"),
                          ("pass", "accounting, a pass")):
            print(f"{what:28}" + "".join(f"{result[key][n]:8.0f}" for n in SIZES) + "  instructions")
        print(f"a decision grows by {growth:.2f} (at most 2); accounting {result['pass_fixed']:.0f} and "
              f"{per_vcpu:.0f} per active vCPU (at most 150): {'ok' if ok else 'EXCEEDED'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
