#!/usr/bin/env python3
"""Checks that includes go down only: the floors are those of the table in docs/architecture.md.

A file may include headers of its own room and of rooms on lower floors. Prints each include that does not, and exits 1.
"""
import glob
import os
import re
import sys

import sentence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def floors():
    """[(path prefix, floor)], longest prefix first."""
    out = {}
    with open(os.path.join(ROOT, "docs", "architecture.md"), encoding="utf-8") as f:
        for line in f:
            m = re.match(r"\|\s*(\d+)\s*\|([^|]*)\|", line)
            if m:
                for name in re.findall(r"`([^`]+)`", m[2]):
                    out[name[:-2] if name.endswith(".c") else name] = int(m[1])
    return sorted(out.items(), key=lambda x: -len(x[0]))


def room_of(path, table):
    for prefix, floor in table:
        if path.startswith(prefix):
            return prefix, floor
    return None, None


def main():
    table = floors()
    if not any(prefix == "hv/sched/" for prefix, _ in table):
        sys.exit("floors: docs/architecture.md has no table of floors")
    bad = 0
    for path in sorted(glob.glob("hv/**/*.[ch]", root_dir=ROOT, recursive=True)):
        room, floor = room_of(path, table)
        if room is None:
            continue
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
                if not m:
                    continue
                target = "hv/" + m[1] if "/" in m[1] or m[1] == "config.h" else os.path.join(os.path.dirname(path), m[1])
                other, height = room_of(target, table)
                if other in (None, room) or height < floor:
                    continue
                print(f"{path}:{number}: floor {floor} includes {m[1]} of floor {height}")
                bad += 1
    return bad > 0


if __name__ == "__main__":
    sentence.run(main)
