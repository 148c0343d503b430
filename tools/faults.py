#!/usr/bin/env python3
"""The faults that the tests have to notice: reads tests/mutants/*.txt, and puts a fault in a file.

  tools/faults.py     checks that each fault can still be made, exits 1 if one cannot

A fault is a small patch with a name, the test that has to turn red (or several tests with blanks in
between, each of which has to), and a sentence that says what goes wrong:

    npt_no_bump: test_tlbgen
    A changed table does not tell the vCPUs that have translations of it.
    hv/mm/npt.c
    -    if (stale)
    +    if (false)

Lines with `-` are replaced by those with `+`; lines with a blank in front stay, they say which
place is meant. A line `@@` begins another place in the same file. Blanks and line ends do not count
when a place is looked up, so that a fault survives another formatting. What is looked up must be in
the file once. An empty line ends the fault; between faults, lines that begin with `#` are comments.
"""
import itertools
import os
import re
import sys

import sentence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "tests", "mutants")
SHORT = os.path.relpath(FOLDER, ROOT)
CHANGE = " -+"  # how a line of a change begins
TO_BE_WRITTEN = "TODO."


class Place:
    """One replacement. `old` and `new` are texts of whole lines."""

    def __init__(self):
        self.old, self.new = [], []

    def add(self, line):
        if line[0] in " -":
            self.old.append(line[1:])
        if line[0] in " +":
            self.new.append(line[1:])

    def apply(self, text):
        """Returns the text with the replacement. Raises an exception of the kind ValueError if the
        place cannot be found."""
        old = squeezed("\n".join(self.old))[0]
        if not old:
            raise ValueError("no line says what is replaced")
        dense, positions = squeezed(text)
        start = dense.find(old)
        if start < 0:
            raise ValueError(f"the file does not hold `{self.old[0].strip()}`...")
        if dense.find(old, start + 1) >= 0:
            raise ValueError(f"the file holds `{self.old[0].strip()}`... more than once")
        begin, end = positions[start], positions[start + len(old) - 1] + 1
        return text[:begin] + "\n".join(self.new).lstrip() + text[end:]


class Fault:
    """One fault. The names in `tests` are as tools/mutants.py describes them; `path` is the file
    that is changed."""

    def __init__(self, name, tests, why, path, where):
        self.name, self.tests, self.why, self.path = name, tests, why, path
        self.where = where  # file:line of the list
        self.places = [Place()]

    def apply(self, text):
        for place in self.places:
            text = place.apply(text)
        return text

    def patch(self):
        """Returns what the fault changes, without blanks, to compare it with other faults."""
        return self.path, *((squeezed("\n".join(place.old))[0], squeezed("\n".join(place.new))[0])
                            for place in self.places)


def squeezed(text):
    """Returns the text without blanks and line ends, and for each character of it where it is in
    the text."""
    positions = [i for i, c in enumerate(text) if not c.isspace()]
    return "".join(text[i] for i in positions), positions


def parse(path, text):
    """Returns the faults that one file of the list describes."""
    lines = []
    for number, line in enumerate(text.split("\n") + [""], 1):
        if line and (lines or not line.startswith("#")):
            lines.append((f"{path}:{number}", line))
        elif not line and lines:
            yield fault_of(lines)
            lines = []


def fault_of(lines):
    """Returns the fault that is written in `lines`, each of which is a pair of a place in the list
    and a text."""
    where, head = lines[0]
    m = re.fullmatch(r"(\w+): (\S+(?: \S+)*)", head)
    if not m:
        raise sentence.Problem(f"{where}: expected `name: test`, not `{head}`")
    rest = [text for _, text in lines[1:]]
    words = list(itertools.takewhile(lambda text: text[0] not in CHANGE, rest))
    changes = lines[1 + len(words):]
    if len(words) < 2 or not words[-2].endswith("."):
        raise sentence.Problem(f"{where}: expected a sentence and the name of a file")
    if not changes:
        raise sentence.Problem(f"{where}: expected lines to replace")
    if words[0] == TO_BE_WRITTEN:
        raise sentence.Problem(f"{where}: expected a sentence that says what goes wrong, not "
                               f"`{TO_BE_WRITTEN}`")
    fault = Fault(m[1], m[2].split(" "), " ".join(words[:-1]), words[-1], where)
    for where, text in changes:
        if text == "@@":
            fault.places.append(Place())
        elif text[0] in CHANGE:
            fault.places[-1].add(text)
        else:
            raise sentence.Problem(f"{where}: expected a line that begins with -, + or a blank")
    return fault


def all_faults():
    """Returns every fault of the list, sorted by file. Raises an exception if a name is there
    twice, or the same patch under two names."""
    out, seen = [], {}
    for name in sorted(os.listdir(FOLDER)):
        if not name.endswith(".txt"):
            continue
        with open(os.path.join(FOLDER, name), encoding="utf-8") as f:
            out += parse(f"{SHORT}/{name}", f.read())
    for fault in out:
        if fault.name in seen:
            raise sentence.Problem(f"{fault.where}: {fault.name} is also at {seen[fault.name]}")
        seen[fault.name] = fault.where
        if fault.patch() in seen:
            raise sentence.Problem(f"{fault.where}: {fault.name} is the same patch as "
                                   f"{seen[fault.patch()]}, which may name both tests")
        seen[fault.patch()] = fault.name
    return out


def main():
    bad = 0
    for fault in all_faults():
        with open(os.path.join(ROOT, fault.path), encoding="utf-8") as f:
            text = f.read()
        try:
            changed = fault.apply(text)
            if changed == text:
                raise ValueError("it changes nothing")
        except ValueError as why:
            print(f"{fault.where}: {fault.name} cannot be made in {fault.path}: {why}")
            bad += 1
    return bad > 0


if __name__ == "__main__":
    sentence.run(main)
