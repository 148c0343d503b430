#!/usr/bin/env python3
"""make machines: prints what Takt says of real machines.

  tools/machines.py [-v] [--json FILE] [DIRECTORY | FILE]...      tests/machines by default
  tools/machines.py --from-log LOG FILE       writes to FILE the description that is in LOG, the
                                              serial log of a machine that was booted with the word
                                              `probe`

Runs Takt's probes (build/machine-check) over each description and compares what they find with what
the description expects. Prints a table (-v: also what Takt would log there); exits 1 if anything
differs.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys

import sentence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHECK = os.path.join(ROOT, "build", "machine-check")
MACHINES = os.path.join(ROOT, "tests", "machines")
TIMEOUT = 60  # seconds for one machine, which normally takes milliseconds
KINDS = {"cpuid": "CPUID", "msr": "MSRs", "apic-ids": "APIC ids", "table": "ACPI", "pci": "PCI"}
VERDICTS = ("yes", "no", "not known", "fault", "not asked")
WIDTHS = (46, 9, 19)
BEGINS, ENDS = (f"---- the description of this machine {word} ----" for word in ("begins", "ends"))


def read(path):
    """Returns a description without its numbers: {key: value}. What is expected is under "expect
    KEY"."""
    out, kinds = {}, set()
    with open(path, encoding="utf-8") as f:
        for line in f:
            key, _, value = line.rstrip("\n").partition(":")
            kind = key.split(" ")[0]
            kinds.add(kind)
            if kind in ("name", "source", "licence", "verdict", "says", "expect"):
                out[key] = value.strip()
    for key in ("name", "source", "licence"):
        if key not in out:
            sys.exit(f"{path}: a line `{key}: ...` was expected")
    out["checked"] = [what for kind, what in KINDS.items() if kind in kinds]
    return out


def run(path):
    """Returns what Takt's probes find: {key: value}, [what could not be checked], [lines of Takt's
    log]."""
    done = subprocess.run([CHECK, path], capture_output=True, text=True, timeout=TIMEOUT,
                          check=False, env={**os.environ, "TAKT_TEST_LOG": "1"})
    found, unchecked = {}, []
    for line in done.stdout.splitlines():
        key, _, value = line.partition(": ")
        if key == "unchecked":
            unchecked.append(value)
        else:
            found[key] = value
    for line in done.stderr.splitlines():
        row = re.match(r"<\d>   (\S.{21}) (yes|no) ", line)
        if row:
            found["row " + row[1].strip()] = row[2]
    if done.returncode:
        words = done.stderr.strip()[-300:]
        found["failed"] = f"machine-check ended with {done.returncode}: {words}"
    return found, unchecked, done.stderr.splitlines()


def check(path):
    """Checks one machine. Returns what the table and the JSON file say about it."""
    expected = read(path)
    found, unchecked, log = run(path)
    wrong = [found["failed"]] if "failed" in found else []
    for key, value in expected.items():
        if key not in ("verdict", "says") and not key.startswith("expect "):
            continue
        key = key.removeprefix("expect ")
        if found.get(key) != value:
            wrong.append(f"{key}: {value!r} was expected, Takt says {found.get(key)!r}")
    if "CPUID" in expected["checked"] and "verdict" not in expected:
        wrong.append("a line `verdict: ...` was expected")
    return {"file": os.path.basename(path), "name": expected["name"], "source": expected["source"],
            "licence": expected["licence"], "checked": expected["checked"], "unchecked": unchecked,
            "verdict": found.pop("verdict", "not asked"), "sentence": found.pop("says", ""),
            "found": found, "log": log, "wrong": wrong}


def descriptions(places):
    out = []
    for place in places:
        out += sorted(glob.glob(os.path.join(place, "*.txt"))) if os.path.isdir(place) else [place]
    return out


def from_log(log, path):
    """Cuts the description out of a serial log. Its lines must not have prefixes that another tool
    has put before them."""
    with open(log, encoding="utf-8", errors="replace", newline="") as f:
        found = re.findall(BEGINS + r"\s*\n(.*?)" + ENDS, f.read(), re.DOTALL)
    if not found:
        sys.exit(
            f"machines: {log}: there is no whole description in it: it stands between `{BEGINS}` "
            f"and `{ENDS}`"
        )
    with open(path, "w", encoding="utf-8") as f:
        f.write(found[-1].replace("\r", ""))


def check_all(paths):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(check, paths))


def print_table(results, verbose):
    row = "{:%d}  {:%d}  {:%d}  {}" % WIDTHS
    print(row.format("machine", "verdict", "checked", "what its owner reads"))
    for r in results:
        said = r["sentence"] or ", ".join(f"{v} {k}" for k, v in r["found"].items())
        print(row.format(r["name"][:WIDTHS[0]], r["verdict"], " ".join(r["checked"]), said))
        for line in r["wrong"]:
            print(f"    WRONG {line}")
        if verbose:
            print(f"    {r['file']}: {r['source']} ({r['licence']})")
            for what in r["unchecked"]:
                print(f"    not checked: {what}")
            for line in r["log"]:
                print(f"    {line}")


def main():
    parser = argparse.ArgumentParser(description="What Takt says of real machines.")
    parser.add_argument("place", nargs="*", default=[MACHINES],
                        help="directories of descriptions, or files")
    parser.add_argument("--json", help="also write the table as JSON to this file")
    parser.add_argument("-v", "--verbose", action="store_true",
                        help="also print what Takt would log there")
    parser.add_argument("--from-log", metavar="LOG",
                        help="write the description that is in this serial log to the one FILE")
    args = parser.parse_args()
    if args.from_log:
        if len(args.place) != 1 or args.place == [MACHINES]:
            parser.error("--from-log LOG takes the FILE to write")
        return from_log(args.from_log, args.place[0])
    if not os.path.exists(CHECK):
        sys.exit("machines: build/machine-check is not built: make machines")
    paths = descriptions(args.place)
    if not paths:
        sys.exit(f"machines: there is no description in {' '.join(args.place)}")
    for path in paths:
        if not os.path.isfile(path):
            sys.exit(f"machines: {path}: there is no such description")
    results = check_all(paths)
    print_table(results, args.verbose)
    if args.json:
        os.makedirs(os.path.dirname(os.path.abspath(args.json)), exist_ok=True)
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)
    count = {v: sum(r["verdict"] == v for r in results) for v in VERDICTS}
    wrong = sum(bool(r["wrong"]) for r in results)
    told = ", ".join(f"{n} {verdict}" for verdict, n in count.items() if n)
    print(f"{sentence.count(len(results), 'machine')}: {told}; {wrong} not as expected")
    if count["not known"]:
        print(
            "not known: what is written down here lacks a number that decides. If you have such a "
            "machine, "
            "tools/takt-check under its Linux tells."
        )
    return wrong > 0


if __name__ == "__main__":
    sentence.run(main)
