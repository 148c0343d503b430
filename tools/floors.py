#!/usr/bin/env python3
"""Checks that the rooms of hv/ depend downwards only. The floors are those of docs/architecture.md.

  tools/floors.py [--circles] [OBJECTS-DIR]      build/image by default, which has to be built

A file may use its own room and rooms on lower floors. Two things are looked at: the headers that
it includes, and the symbols that its object needs (by nm), because a function that is declared by
hand, or in a header of a lower floor, would hide a call upwards from the first. Prints each use
that does not go down, each file that is on no floor, and each circle of files that is not within
one room; exits 1 if there is any. With --circles it also prints the circles within rooms, which
are allowed. EXCEPTIONS names the symbols that may be used from below.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
from collections import defaultdict

import sentence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Whether symbols and circles fail the check. Until hv/ is free of them they are only printed.
STRICT = False

# {symbol: why a lower room may use it}. A symbol that no lower room uses any more is reported as an
# error.
EXCEPTIONS = {
    "panic": "declared by hv/lib; the platform's ends the machine, a test's ends the test",
    "log_at": "declared by hv/lib; the platform's writes to the console, a test's to a buffer",
}


def floors(text):
    """Returns [(beginning of a path, floor)] from the table in docs/architecture.md, longest
    first."""
    out = {}
    for line in text.split("\n"):
        m = re.match(r"\|\s*(\d+)\s*\|([^|]*)\|", line)
        if m:
            for name in re.findall(r"`([^`]+)`", m[2]):
                out[name[:-2] if name.endswith(".c") else name] = int(m[1])
    return sorted(out.items(), key=lambda x: -len(x[0]))


def room_of(path, table):
    for beginning, floor in table:
        if path.startswith(beginning):
            return beginning, floor
    return None, None


def includes(path, text):
    """Yields (line, path of the header, as written) for each header of hv/ that a file includes."""
    for number, line in enumerate(text.split("\n"), 1):
        m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if m:
            beside = os.path.join(os.path.dirname(path), m[1])
            is_beside = os.path.exists(os.path.join(ROOT, beside))
            above = "" if m[1].startswith(("common/", "hv/")) else "hv/"
            yield number, beside if is_beside else above + m[1], m[1]


def symbols(listing):
    """Returns ({symbol: object that defines it}, {object: symbols that it needs}), from what nm()
    prints."""
    defined, needed = {}, defaultdict(set)
    for line in listing.split("\n"):
        m = re.match(r"(.*): (\S+) (\w)\b", line)
        if m and m[3] in "Uwv":
            needed[m[1]].add(m[2])
        elif m:
            defined[m[2]] = m[1]
    return defined, needed


def uses_by_symbol(listing, source_of):
    """Returns (source that needs it, source that defines it, symbol) for each symbol that an object
    needs. `source_of` gives an object's source."""
    defined, needed = symbols(listing)
    for user, names in sorted(needed.items()):
        for name in sorted(names & defined.keys()):
            yield source_of(user), source_of(defined[name]), name


def circles(uses):
    """Returns sets of files of which each file reaches each other one, by Tarjan's algorithm.
    `uses` has pairs (user, used)."""
    graph = defaultdict(set)
    for user, used in uses:
        graph[user].add(used)
    index, low, stack, found = {}, {}, [], []

    def visit(file):
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in sorted(graph.get(file, ())):
            if other not in index:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], index[other])
        if low[file] == index[file]:
            at = stack.index(file)
            if len(stack) - at > 1:
                found.append(set(stack[at:]))
            del stack[at:]

    for file in sorted(graph):
        if file not in index:
            visit(file)
    return found


def module(path):
    """Returns one name for a header and the source of the same name, because each of them names the
    other."""
    return os.path.splitext(path)[0]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def nm(objects):
    """Returns (what nm prints for the objects of hv/, {object: source}). An object whose source
    does not exist any more does not count. Raises Problem if there is no object."""
    sources = {}
    for path in glob.glob(objects + "/hv/**/*.o", recursive=True):
        for suffix in (".c", ".asm"):
            source = os.path.relpath(path, objects)[:-2] + suffix
            if os.path.exists(os.path.join(ROOT, source)):
                sources[path] = source
    if not sources:
        raise sentence.Problem(f"{objects}: no objects of hv/ are there; make all builds them")
    command = ["nm", "-A", "-g", "-P", *sorted(sources)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout, sources


def goes_up(user, used, table):
    room, floor = room_of(user, table)
    other, height = room_of(used, table)
    return None not in (room, other) and room != other and height >= floor


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--circles", action="store_true", help="also tell the circles within rooms")
    parser.add_argument("objects", nargs="?", default=os.path.join(ROOT, "build", "image"))
    args = parser.parse_args()
    table = floors(read("docs/architecture.md"))
    if not any(beginning == "hv/sched/" for beginning, _ in table):
        raise sentence.Problem("docs/architecture.md has no table of floors")
    files = sorted(glob.glob("hv/**/*.[ch]", root_dir=ROOT, recursive=True))
    homeless = [path for path in files if not room_of(path, table)[0]]
    bad = [f"{path}: is on no floor of docs/architecture.md" for path in homeless]
    arrows, unused = set(), set(EXCEPTIONS)  # (user, used): which file uses which

    def look(user, used, place, how, findings):
        if goes_up(user, used, table):
            floor, height = room_of(user, table)[1], room_of(used, table)[1]
            findings.append(f"{place}: floor {floor} {how} of floor {height}")
        arrows.add((module(user), module(used)))

    for path in files:
        for number, target, name in includes(path, read(path)):
            look(path, target, f"{path}:{number}", f"includes {name}", bad)
    hidden = []  # the uses that only symbols show
    listing, sources = nm(args.objects)
    for user, used, symbol in uses_by_symbol(listing, sources.get):
        if symbol not in EXCEPTIONS:
            look(user, used, user, f"needs {symbol}, which is in {used}", hidden)
        elif goes_up(user, used, table):
            unused.discard(symbol)
    for symbol in sorted(unused):
        hidden.append(f"tools/floors.py: the exception {symbol} is not needed any more: delete it")
    for circle in circles(arrows):
        rooms = {room_of(name + ".c", table)[0] for name in circle}
        text = " ".join(sorted(circle))
        if len(rooms) > 1:
            hidden.append(f"a circle of {len(circle)} files in {len(rooms)} rooms: {text}")
        elif args.circles:
            print(f"{rooms.pop()}: a circle of {len(circle)} files: {text}")
    for finding in bad + hidden:
        print(finding)
    return bool(bad or STRICT and hidden)


if __name__ == "__main__":
    sentence.run(main)
