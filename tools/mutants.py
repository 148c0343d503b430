#!/usr/bin/env python3
"""Applies the faults of tests/mutants.txt, one at a time in each scratch copy; each has to turn its test red.

  tools/mutants.py [NAME...]      all by default; exits 1 if a fault goes unnoticed or the list is out of date

A line is `name|file|sed expression|test`. A test is the name of a unit test (test_sched), of a guest test (tests/guest/NAME.c;
on QEMU, or NAME@bochs), `demo`, or a path for pytest. Before the faults every test named is run once as it is: it must pass.
"""
import concurrent.futures
import os
import queue
import shutil
import subprocess
import sys
import threading
import time

import sentence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIST = os.path.join(ROOT, "tests", "mutants.txt")
LOGS = os.path.join(ROOT, "build", "mutants")
TIMEOUT, UNIT_TIMEOUT = 600, 120  # seconds: a fault may well make a test hang


def faults():
    with open(LIST, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            name, path, rest = line.split("|", 2)
            expression, _, test = rest.rpartition("|")  # the expression itself may hold a bar
            if not expression:
                sys.exit(f"tests/mutants.txt:{number}: expected name|file|sed expression|test")
            yield name, path, expression, test


class Tree:
    """A scratch copy of the sources, in which one fault at a time is made, built and tested."""

    emulator = threading.Lock()  # who judges times by the host's clock has the host for itself

    def __init__(self, number):
        self.root = os.path.join(LOGS, f"tree-{number}")
        self.log = open(os.path.join(LOGS, f"mutants-{number}.log"), "w", encoding="utf-8")  # pylint: disable=consider-using-with
        files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        shutil.rmtree(self.root, ignore_errors=True)
        for name in files.stdout.decode().split("\0"):
            source, target = os.path.join(ROOT, name), os.path.join(self.root, name)
            if name and os.path.isfile(source):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy2(source, target)

    def run(self, command, timeout=TIMEOUT):
        """True if it succeeds. A test that hangs has noticed as well."""
        self.log.write(f"$ {' '.join(command)}\n")
        self.log.flush()
        try:
            return subprocess.run(command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                  timeout=timeout, check=False).returncode == 0
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

    def verdict(self, name, path, expression, test):
        target = os.path.join(self.root, path)
        with open(target, encoding="utf-8") as f:
            original = f.read()
        self.log.write(f"==== {name}\n")
        self.log.flush()
        done = subprocess.run(["sed", "-i", expression, target], stderr=self.log, check=False)
        with open(target, encoding="utf-8") as f:
            changed = f.read() != original
        build, command = commands(test)
        try:
            if done.returncode or not changed:
                return "OUT OF DATE: the expression changes nothing"
            if not self.run(build):
                return "DOES NOT BUILD"
            return "NOT NOTICED" if self.test(command) else "noticed"
        finally:
            with open(target, "w", encoding="utf-8") as f:
                f.write(original)


def commands(test):
    """How to build a test and how to run it."""
    make = ["make", "-s", "-j2"]
    if os.path.exists(os.path.join(ROOT, "tests", "unit", test + ".c")):
        return make + [f"build/unit/{test}"], [f"build/unit/{test}"]
    name, _, platform = test.partition("@")
    if os.path.exists(os.path.join(ROOT, "tests", "guest", name + ".c")):
        return make + ["with-lwip"], ["make", "-s", "test-guest", f"PLATFORM={platform or 'qemu'}", f"GUEST={name}"]
    if test == "demo":
        return make + ["iso"], ["make", "-s", "demo", f"PLATFORM={platform or 'qemu'}"]
    path = test.split("::")[0]
    if os.path.exists(os.path.join(ROOT, path)):
        return make + ["test-needs"], ["make", "-s", "pytest", f"TESTS=--long {test}"]
    sys.exit(f"tests/mutants.txt: no test is called {test}")


def main():
    chosen = [f for f in faults() if not sys.argv[1:] or f[0] in sys.argv[1:]]
    if not chosen:
        sys.exit("mutants: no such fault in tests/mutants.txt")
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
        return tree.verdict(*fault), time.monotonic() - start

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        tests = dict.fromkeys(f[3] for f in chosen)
        green = {test for test, ok in pool.map(on_a_tree(lambda tree, test: (tree.is_green(test),)), tests) if ok}
        for test in tests.keys() - green:
            print(f"{'-':28} {test:24} fails without any fault", flush=True)
        bad = len(tests.keys() - green)
        for (name, _, _, test), verdict, took in pool.map(on_a_tree(judge), [f for f in chosen if f[3] in green]):
            print(f"{name:28} {test:24} {verdict} ({took:.0f} s)", flush=True)
            bad += verdict != "noticed"
    print(f"mutants: {sentence.count(len(chosen), 'fault')}, {sentence.count(bad, 'problem')}; logs in build/mutants")
    return bad > 0


if __name__ == "__main__":
    sentence.run(main)
