#!/usr/bin/env python3
"""Counts what is linked into the image: lines of code without blank and comment lines, bytes of text and data.

  tools/size.py [--since REV] OBJECTS-DIR IMAGE SOURCE...      exits 1 if a budget is exceeded
Code is what becomes instructions or data: the sources, and the inline functions of the project's headers that they
include (its objects' .d files name them). What else is in those headers is declarations, printed on a line of its own.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
from collections import Counter

BUDGET_LINES = 15000  # when all is there
BUDGET_FOUNDATION = 9500  # what runs VMs under the credit scheduler: all without the papers' mechanisms
BUDGET_TEXT = 256 * 1024

# The papers' mechanisms: files of their own, and the lines that came with them into files that were there before,
# by room. Counted with --since foundation, before anything else was added to those files (docs/testing.md).
PAPERS = {f"hv/sched/{name}.c" for name in ("vslicer", "vturbo", "shared", "monitor", "governor")}
PAPERS |= {"hv/lib/choose.c", "hv/x86/topology.c"}  # which pCPUs become turbo cores
PAPERS_SHARE = {"hv": 46, "hv/lib": 17, "hv/sched": 290, "hv/shell": 151, "hv/vdev": 1, "hv/vm": 29}


def lines_of(path, text):
    """Without blank lines and comments."""
    if path.endswith((".asm", ".inc")):
        text = re.sub(r";[^\n]*", "", text)
    else:
        # comments go; strings and character constants stay, whatever they look like
        keep = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|/\*.*?\*/|//[^\n]*', re.S)
        text = keep.sub(lambda m: re.sub(r"[^\n]", "", m[0]) if m[0].startswith("/") else m[0], text)
    return [line for line in text.split("\n") if line.strip()]


def inline_lines(lines):
    """How many of a header's lines are inline functions, from `static inline` to the brace that ends them."""
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
    """(lines of code, lines of declarations)"""
    lines = lines_of(path, text)
    code = inline_lines(lines) if path.endswith(".h") else len(lines)
    return code, len(lines) - code


def linked(objects, sources):
    """The sources, and the project's headers that they include."""
    files = set(sources)
    for d in glob.glob(objects + "/**/*.d", recursive=True):
        with open(d, encoding="utf-8") as f:
            names = f.read().replace("\\\n", " ").split()
        names = [os.path.normpath(n) for n in names if not n.endswith(":")]
        if not files.isdisjoint(names):
            files.update(n for n in names if not n.startswith(("/", "build/", "..")) and os.path.exists(n))
    return sorted(files)


def room(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "hv" and len(parts) > 2 else parts[0]


def section_bytes(image):
    """{"text", "data", "bss"} of what is loaded."""
    sums = {"text": 0, "data": 0, "bss": 0}
    for line in subprocess.run(["size", "-A", image], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
        m = re.match(r"(\.\S+)\s+(\d+)\s+(\d+)$", line)
        if not m or m[1].startswith((".debug", ".comment", ".note")):
            continue
        code = m[1].startswith((".text", ".init", ".boot", ".multiboot"))
        sums["text" if code else "bss" if m[1].startswith(".bss") else "data"] += int(m[2])
    return sums


def git(*args):
    return subprocess.run(["git", *args], stdout=subprocess.PIPE, text=True, check=True).stdout


def print_changes(rev, now):
    """Each file whose lines of code are not as many as in `rev`: then, now, difference."""
    old = git("ls-tree", "-r", "--name-only", rev, "boot", "drivers", "hv", "include").split()
    then = {p: code_of(p, git("show", f"{rev}:{p}"))[0] for p in old if p.endswith((".c", ".h", ".asm"))}
    for path in sorted(then.keys() | now.keys()):
        a, b = then.get(path, 0), now.get(path, 0)
        if a != b:
            print(f"{path:28} {a:6} {b:6} {b - a:+6}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--since", help="also what has changed since that commit, by file")
    parser.add_argument("objects")
    parser.add_argument("image")
    parser.add_argument("source", nargs="+")
    args = parser.parse_args()
    files, declarations = {}, 0
    for path in linked(args.objects, args.source):
        with open(path, encoding="utf-8") as f:
            files[path], other = code_of(path, f.read())
        declarations += other
    rooms, papers = Counter(), Counter(PAPERS_SHARE)
    for path, lines in files.items():
        rooms[room(path)] += lines
        papers[room(path)] += lines if path in PAPERS or path.startswith("labs/") else 0
    total, foundation = sum(rooms.values()), sum(rooms.values()) - sum(papers.values())

    if args.since:
        print_changes(args.since, files)
    print(f"{'room':14} {'lines':>6} {'papers':>6}")
    for name, lines in sorted(rooms.items()):
        print(f"{name:14} {lines:6} {papers[name] or '':6}")
    print(f"{'foundation':14} {foundation:6} lines without the papers' mechanisms, budget {BUDGET_FOUNDATION}")
    print(f"{'all':14} {total:6} lines of code in the image, budget {BUDGET_LINES}")
    print(f"{'declarations':14} {declarations:6} lines in headers; with the code {total + declarations}")
    b = section_bytes(args.image)
    print(f"{'text':14} {b['text']:6} bytes, budget {BUDGET_TEXT}; data {b['data']} bytes, bss {b['bss']} bytes")
    limits = (
        ("foundation", foundation > BUDGET_FOUNDATION),
        ("lines", total > BUDGET_LINES),
        ("text", b["text"] > BUDGET_TEXT),
    )
    over = [what for what, is_over in limits if is_over]
    if over:
        print("size: over budget:", ", ".join(over))
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
