#!/usr/bin/env python3
"""Runs random scenarios in build/sim and in a reference model, and tells the first difference of
each.

    tests/models/run.py MODEL SEED...       MODEL: credit, vslicer, vturbo, vturbo_default, workload
    tests/models/run.py MODEL FIRST-LAST
    tests/models/run.py units FIRST-LAST    what whole credits do to longest waits, against ns
"""
import importlib
import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(os.path.dirname(TESTS), "tools")]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    scenario = importlib.import_module("models.scenario")
    name, bad = sys.argv[1], 0
    model = importlib.import_module("models." + name)
    for word in sys.argv[2:]:
        first, _, last = word.partition("-")
        seeds = range(int(first), int(last or first) + 1)
        if name == "units":
            model.report(seeds)
            continue
        for seed in seeds:
            said, s = scenario.differences(model, name, seed)
            bad += bool(said)
            if said:
                print("\n".join(said[:6]))
            elif len(sys.argv) == 3 and not last:
                print(
                    f"{name}, seed {seed}: {'all the same' if s.exact else 'within the tolerance'}"
                )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
