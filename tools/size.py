#!/usr/bin/env python3
"""Counts what is linked into the image: lines of code without blank and comment lines, bytes of text and data.

  tools/size.py OBJECTS-DIR IMAGE SOURCE...      exits 1 if a budget is exceeded
Code is what becomes instructions or data: the sources, and the inline functions of the project's headers that they
include (its objects' .d files name them). What else is in those headers is declarations, printed on a line of its own.
"""
import glob
import os
import re
import subprocess
import sys
from collections import Counter

BUDGET_LINES = 15000  # when all is there; the foundation alone, without the papers' mechanisms, 9,500
BUDGET_TEXT = 256 * 1024


def lines_of(path):
    """Without blank lines and comments."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
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


def main():
    objects, image, sources = sys.argv[1], sys.argv[2], sys.argv[3:]
    rooms, declarations = Counter(), 0
    for path in linked(objects, sources):
        lines = lines_of(path)
        code = inline_lines(lines) if path.endswith(".h") else len(lines)
        rooms[room(path)] += code
        declarations += len(lines) - code
    total = sum(rooms.values())
    for name, lines in sorted(rooms.items()):
        print(f"{name:14} {lines:6}")
    print(f"{'all':14} {total:6} lines of code in the image, budget {BUDGET_LINES}")
    print(f"{'declarations':14} {declarations:6} lines in headers; with the code {total + declarations}")
    b = section_bytes(image)
    print(f"{'text':14} {b['text']:6} bytes, budget {BUDGET_TEXT}; data {b['data']} bytes, bss {b['bss']} bytes")
    over = [w for w, is_over in (("lines", total > BUDGET_LINES), ("text", b["text"] > BUDGET_TEXT)) if is_over]
    if over:
        print("size: over budget:", ", ".join(over))
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
