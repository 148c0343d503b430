#!/usr/bin/env python3
"""Applies the faults of tests/mutants.txt one at a time, in a scratch copy; each has to turn its test red.

  tools/mutants.py [NAME...]      all by default; exits 1 if a fault goes unnoticed or the list is out of date

A line is `name|file|sed expression|test`. A test is the name of a unit test (test_sched), of a guest test (tests/guest/NAME.c;
on QEMU, or NAME@bochs), `demo`, or a path for pytest. Before the faults every test named is run once as it is: it must pass.
"""
import os
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIST = os.path.join(ROOT, "tests", "mutants.txt")
COPY = os.path.join(ROOT, "build", "mutants", "tree")
LOGS = os.path.join(ROOT, "build", "mutants")
TIMEOUT = 600


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


def copy_tree():
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    shutil.rmtree(COPY, ignore_errors=True)
    for name in files.stdout.decode().split("\0"):
        source, target = os.path.join(ROOT, name), os.path.join(COPY, name)
        if name and os.path.isfile(source):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(source, target)


def commands(test):
    """How to build a test and how to run it."""
    make = ["make", "-s", "-j2"]
    if os.path.exists(os.path.join(ROOT, "tests", "unit", test + ".c")):
        return make + [f"build/unit/{test}"], [f"build/unit/{test}"]
    name, _, platform = test.partition("@")
    if os.path.exists(os.path.join(ROOT, "tests", "guest", name + ".c")):
        return make + ["all"], ["make", "-s", "test-guest", f"PLATFORM={platform or 'qemu'}", f"GUEST={name}"]
    if test == "demo":
        return make + ["iso"], ["make", "-s", "demo", f"PLATFORM={platform or 'qemu'}"]
    path = test.split("::")[0]
    if os.path.exists(os.path.join(ROOT, path)):
        return make + ["test-needs"], ["make", "-s", "pytest", f"TESTS=--long {test}"]
    sys.exit(f"tests/mutants.txt: no test is called {test}")


def run(command, log):
    """True if it succeeds. A test that hangs has noticed as well."""
    log.write(f"$ {' '.join(command)}\n")
    log.flush()
    try:
        return subprocess.run(command, cwd=COPY, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=TIMEOUT,
                              check=False).returncode == 0
    except subprocess.TimeoutExpired:
        log.write("timeout\n")
        return False


def main():
    chosen = [f for f in faults() if not sys.argv[1:] or f[0] in sys.argv[1:]]
    if not chosen:
        sys.exit("mutants: no such fault in tests/mutants.txt")
    copy_tree()
    bad = 0
    with open(os.path.join(LOGS, "mutants.log"), "w", encoding="utf-8") as log:
        green = {}
        for test in dict.fromkeys(f[3] for f in chosen):
            build, command = commands(test)
            green[test] = run(build, log) and run(command, log)
            if not green[test]:
                print(f"{'-':28} {test:24} fails without any fault", flush=True)
                bad += 1
        for name, path, expression, test in chosen:
            if not green[test]:
                continue
            start = time.monotonic()
            target = os.path.join(COPY, path)
            with open(target, encoding="utf-8") as f:
                original = f.read()
            log.write(f"==== {name}\n")
            log.flush()
            done = subprocess.run(["sed", "-i", expression, target], stderr=log, check=False)
            with open(target, encoding="utf-8") as f:
                changed = f.read() != original
            build, command = commands(test)
            if done.returncode or not changed:
                verdict, bad = "OUT OF DATE: the expression changes nothing", bad + 1
            elif not run(build, log):
                verdict, bad = "DOES NOT BUILD", bad + 1
            elif run(command, log):
                verdict, bad = "NOT NOTICED", bad + 1
            else:
                verdict = "noticed"
            with open(target, "w", encoding="utf-8") as f:
                f.write(original)
            print(f"{name:28} {test:24} {verdict} ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"mutants: {len(chosen)} faults, {bad} problems; log in build/mutants/mutants.log")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
