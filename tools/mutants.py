#!/usr/bin/env python3
"""Puts the faults of tests/mutants/ into the sources, one at a time: each has to turn its test
red.

  tools/mutants.py [NAME...]           all faults, or those with these names
  tools/mutants.py --slice 3/10        the third of ten parts of the list, to run it piece by piece

Works in scratch copies of the tree. Before the faults, every test that is named runs once without a
fault: it must pass. For each fault the program prints whether its test noticed, and how long that
took; at the end how many faults each test was red for. Exits 1 if a fault goes unnoticed, if a test
fails without a fault, or if the list is out of date.

How a fault is written is told in tools/faults.py. A test is the name of a unit test (test_sched),
of a guest test (tests/guest/NAME.c; on QEMU, or NAME@bochs), `demo`, or a path for pytest.
"""
import argparse
import concurrent.futures
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter

import sentence
from faults import SHORT, all_faults

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOGS = os.path.join(ROOT, "build", "mutants")
TIMEOUT, UNIT_TIMEOUT = 600, 120  # in seconds; a fault may well make a test hang


class Tree:
    """A scratch copy of the sources, in which one fault at a time is made, built and tested."""

    emulator = threading.Lock()  # A test that judges by the host's clock runs alone on the host.

    def __init__(self, number):
        self.root = os.path.join(LOGS, f"tree-{number}")
        log = os.path.join(LOGS, f"mutants-{number}.log")
        self.log = open(log, "w", encoding="utf-8")  # pylint: disable=consider-using-with
        files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT,
                               stdout=subprocess.PIPE, check=True)
        shutil.rmtree(self.root, ignore_errors=True)
        for name in files.stdout.decode().split("\0"):
            source, target = os.path.join(ROOT, name), os.path.join(self.root, name)
            if name and os.path.isfile(source):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy2(source, target)

    def run(self, command, timeout=TIMEOUT):
        """Returns whether the command succeeds. A test that hangs has noticed the fault as well."""
        self.log.write(f"$ {' '.join(command)}\n")
        self.log.flush()
        try:
            done = subprocess.run(command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=self.log,
                                  stderr=self.log, timeout=timeout, check=False)
            return done.returncode == 0
        except subprocess.TimeoutExpired:
            self.log.write("timeout\n")
            return False

    def test(self, command):
        if command[0] != "make":
            return self.run(command, UNIT_TIMEOUT)
        with self.emulator:
            return self.run(command)

    def is_green(self, test):
        build, command = commands(test)
        return self.run(build) and self.test(command)

    def verdicts(self, fault, tests):
        """Returns what became of each of these tests with the fault in."""
        target = os.path.join(self.root, fault.path)
        with open(target, encoding="utf-8") as f:
            original = f.read()
        self.log.write(f"==== {fault.name}\n")
        self.log.flush()
        try:
            changed = fault.apply(original)
        except ValueError as why:
            return [f"OUT OF DATE: {why}"] * len(tests)
        try:
            with open(target, "w", encoding="utf-8") as f:
                f.write(changed)
            return [self.verdict(test) for test in tests]
        finally:
            with open(target, "w", encoding="utf-8") as f:
                f.write(original)

    def verdict(self, test):
        build, command = commands(test)
        if not self.run(build):
            return "DOES NOT BUILD"
        return "NOT NOTICED" if self.test(command) else "noticed"


def commands(test):
    """Returns how to build a test and how to run it."""
    make = ["make", "-s", "-j2"]
    if os.path.exists(os.path.join(ROOT, "tests", "unit", test + ".c")):
        return make + [f"build/unit/{test}"], [f"build/unit/{test}"]
    name, _, platform = test.partition("@")
    if os.path.exists(os.path.join(ROOT, "tests", "guest", name + ".c")):
        run = ["make", "-s", "test-guest", f"PLATFORM={platform or 'qemu'}", f"GUEST={name}"]
        return make + ["with-lwip"], run
    if test == "demo":
        return make + ["iso"], ["make", "-s", "demo", f"PLATFORM={platform or 'qemu'}"]
    path = test.split("::")[0]
    if os.path.exists(os.path.join(ROOT, path)):
        return make + ["test-needs"], ["make", "-s", "pytest", f"TESTS=--long {test}"]
    raise sentence.Problem(f"{SHORT}: no test is called {test}")


def part(text):
    """Returns (number, of how many) for `3/10`; for argparse."""
    number, _, of = text.partition("/")
    if not (number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text}: expected a part such as 3/10")
    return int(number), int(of)


def cut(chosen, number, of):
    """Returns part `number` of `of`. Faults of one test stay together as far as possible, so that
    few tests have to run without a fault more than once."""
    chosen = sorted(chosen, key=lambda fault: fault.tests)
    return chosen[len(chosen) * (number - 1) // of:len(chosen) * number // of]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--slice", type=part, metavar="K/N", help="part K of N of the list")
    parser.add_argument("name", nargs="*", help="a fault of tests/mutants")
    args = parser.parse_args()
    chosen = all_faults()
    unknown = set(args.name) - {fault.name for fault in chosen}
    if unknown:
        raise sentence.Problem(f"{', '.join(sorted(unknown))}: not in {SHORT}")
    if args.name:
        chosen = [fault for fault in chosen if fault.name in args.name]
    if args.slice:
        chosen = cut(chosen, *args.slice)
    if not chosen:
        print("mutants: no fault is in this part of the list")
        return False
    begin, red = time.monotonic(), Counter()
    os.makedirs(LOGS, exist_ok=True)
    trees = queue.SimpleQueue()
    workers = min(os.cpu_count(), len(chosen))
    for number in range(workers):
        trees.put(Tree(number))

    def on_a_tree(work):
        def worked(item):
            tree = trees.get()
            try:
                return item, *work(tree, item)
            finally:
                trees.put(tree)
        return worked

    def judge(tree, fault):
        start = time.monotonic()
        tests = [test for test in fault.tests if test in green]
        verdicts = tree.verdicts(fault, tests)
        return list(zip(tests, verdicts)), time.monotonic() - start

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        tests = dict.fromkeys(test for fault in chosen for test in fault.tests)
        runs = pool.map(on_a_tree(lambda tree, test: (tree.is_green(test),)), tests)
        green = {test for test, ok in runs if ok}
        for test in tests.keys() - green:
            print(f"{'-':28} {test:24} fails without any fault", flush=True)
        bad = len(tests.keys() - green)
        judged = pool.map(on_a_tree(judge), [f for f in chosen if green & set(f.tests)])
        for fault, verdicts, took in judged:
            for test, verdict in verdicts:
                print(f"{fault.name:28} {test:24} {verdict} ({took:.0f} s)", flush=True)
                red[test] += verdict == "noticed"
            missed = sum(verdict != "noticed" for _, verdict in verdicts)
            if missed:
                print(f"    {fault.why} ({fault.path})", flush=True)
            bad += missed
    for test in tests:
        print(f"{test}: red for {sentence.count(red[test], 'fault')}")
    print(f"mutants: {sentence.count(len(chosen), 'fault')}, {sentence.count(bad, 'problem')} "
          f"in {time.monotonic() - begin:.0f} s; logs in build/mutants")
    return bad > 0


if __name__ == "__main__":
    sentence.run(main)
