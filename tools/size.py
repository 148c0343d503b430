#!/usr/bin/env python3
"""Prints how large the image is: lines of code by room, bytes of text and data.

  tools/size.py [--since COMMIT] OBJECTS-DIR IMAGE SOURCE...
A line of code is one that is neither blank nor a comment. What counts are the sources, and the
inline functions of the project's headers that they include (the objects' .d files name them). The
rest of those headers is counted separately, as declarations. With --since the lines are compared
with those of that commit. The number of lines is only information. Exits 1 if the image's text is
larger than TEXT_LIMIT.
"""
import argparse
import glob
import os
import re
import subprocess
from collections import Counter

import sentence

TEXT_LIMIT = 320 * 1024  # bytes


def lines_of(path, text):
    """Returns the lines without blank lines and comments."""
    if path.endswith((".asm", ".inc")):
        text = re.sub(r";[^\n]*", "", text)
    else:
        # Comments are removed. Strings and character constants stay, even if they look like
        # comments.
        keep = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|/\*.*?\*/|//[^\n]*', re.S)
        text = keep.sub(lambda m: re.sub(r"[^\n]", "", m[0]) if m[0].startswith("/") else m[0],
                        text)
    return [line for line in text.split("\n") if line.strip()]


def inline_lines(lines):
    """Returns how many of a header's lines are inline functions. One lasts from `static inline` to
    the brace that ends it."""
    depth = count = 0
    inside = False
    for line in lines:
        inside = inside or line.startswith("static inline ")
        if not inside:
            continue
        count += 1
        depth += line.count("{") - line.count("}")
        if depth == 0 and line.endswith(("}", ";")):
            inside = False
    return count


def code_of(path, text):
    """Returns (lines of code, lines of declarations)."""
    lines = lines_of(path, text)
    code = inline_lines(lines) if path.endswith(".h") else len(lines)
    return code, len(lines) - code


def linked(objects, sources):
    """Returns the sources, and the project's headers that they include."""
    files = set(sources)
    for d in glob.glob(objects + "/**/*.d", recursive=True):
        with open(d, encoding="utf-8") as f:
            names = f.read().replace("\\\n", " ").split()
        names = [os.path.normpath(n) for n in names if not n.endswith(":")]
        if not files.isdisjoint(names):
            files.update(n for n in names
                         if not n.startswith(("/", "build/", "..")) and os.path.exists(n))
    return sorted(files)


def room(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "hv" and len(parts) > 2 else parts[0]


def section_bytes(image):
    """Returns {"text", "data", "bss"}: the bytes of what is loaded."""
    sums = {"text": 0, "data": 0, "bss": 0}
    for line in subprocess.run(
        ["size", "-A", image], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines():
        m = re.match(r"(\.\S+)\s+(\d+)\s+(\d+)$", line)
        if not m or m[1].startswith((".debug", ".comment", ".note")):
            continue
        code = m[1].startswith((".text", ".init", ".boot", ".multiboot"))
        sums["text" if code else "bss" if m[1].startswith(".bss") else "data"] += int(m[2])
    return sums


def git(*args):
    return subprocess.run(["git", *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=True).stdout


def code_at(commit):
    """Returns {path: lines of code} at that commit. It is empty if git does not know the commit."""
    try:
        files = git("ls-tree", "-r", "--name-only", commit, "boot", "common", "drivers/uart.c",
                    "drivers/uart.h", "hv",
                    "include").split()
        return {p: code_of(p, git("show", f"{commit}:{p}"))[0] for p in files
                if p.endswith((".c", ".h", ".asm"))}
    except (OSError, subprocess.CalledProcessError):
        return {}


def print_changes(then, now):
    """Prints each file whose number of lines of code has changed since then."""
    for path in sorted(then.keys() | now.keys()):
        a, b = then.get(path, 0), now.get(path, 0)
        if a != b:
            print(f"{path:28} {a:6} {b:6} {b - a:+6}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--since", metavar="COMMIT",
                        help="compare with that commit, by file and by room")
    parser.add_argument("objects")
    parser.add_argument("image")
    parser.add_argument("source", nargs="+")
    args = parser.parse_args()
    files, declarations = {}, 0
    for path in linked(args.objects, args.source):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        files[path], other = code_of(path, text)
        declarations += other
    then = code_at(args.since) if args.since else {}
    rooms, before = Counter(), Counter()
    for counter, code in ((rooms, files), (before, then)):
        for path, lines in code.items():
            counter[room(path)] += lines
    total = sum(rooms.values())

    if then:
        print_changes(then, files)
    print(f"{'room':14} {'lines':>6}" + (f" {args.since:>10} {'since':>6}" if then else ""))
    for name in sorted(rooms.keys() | before.keys()):
        print(f"{name:14} {rooms[name]:6}"
              + (f" {before[name]:10} {rooms[name] - before[name]:+6}" if then else ""))
    print(f"{'all':14} {total:6}"
          + (f" {sum(before.values()):10} {total - sum(before.values()):+6}" if then else ""))
    print(
        f"{'declarations':14} {declarations:6} lines in headers; with the code "
        f"{total + declarations}"
    )
    b = section_bytes(args.image)
    print(
        f"{'text':14} {b['text']:6} bytes, limit {TEXT_LIMIT}; data {b['data']} bytes, bss "
        f"{b['bss']} bytes"
    )
    if b["text"] > TEXT_LIMIT:
        print(f"size: the image has {b['text']} bytes of text, limit {TEXT_LIMIT}")
    return b["text"] > TEXT_LIMIT


if __name__ == "__main__":
    sentence.run(main)
