#!/usr/bin/env python3
"""Grades what a class has handed in (docs/labs.md).

  tools/grade-all.py [-o OUT] [-j JOBS] [--lab N] DIR...

Each DIR is what one student handed in: the tree of a lab, or at least the files that the student
edits, and then --lab says which lab it is. Only these files are taken. They are put into a fresh
tree, with the hidden steps, and graded there in a sandbox (bubblewrap): without network, and with
nothing of this computer to write to but that tree.

Writes to OUT (build/grades): a directory for each student with the tree, grade.json and grade.txt;
grades.csv; and similar.txt, which names pairs of students whose own lines are much the same.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import re
import shutil
import stat
import subprocess

import labs
import sentence

OUT = os.path.join(labs.ROOT, "build", "grades")
LONGEST = 1800          # seconds for one student; each program that is graded has its own limit
LARGEST = 1 << 20       # bytes of a file that is handed in
MUCH = 70               # per cent of a student's own lines that are another one's, to be named
SANDBOX = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv",
           "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/tmp",
           "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib",
           "/lib", "--symlink", "usr/lib64", "/lib64", "--ro-bind-try", "/etc/alternatives",
           "/etc/alternatives", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]


def number_of(folder):
    """Returns the number of the lab, which the first line of a tree's Makefile names."""
    try:
        with open(os.path.join(folder, "Makefile"), encoding="utf-8", errors="replace") as f:
            found = re.match(r"# Lab (\d+):", f.readline())
    except OSError:
        found = None
    if not found:
        raise sentence.Problem(f"{folder}: there is no Makefile that says which lab this is; "
                               "--lab N says it for all directories")
    return int(found[1])


class Student:
    """What one student handed in, and what becomes of it."""

    def __init__(self, folder, number, out):
        self.folder, self.number = folder, number
        self.name = os.path.basename(os.path.normpath(os.path.abspath(folder)))
        self.tree, self.note, self.result = os.path.join(out, self.name), "", None

    def take(self):
        """Makes a fresh tree with the student's files and the hidden steps."""
        shutil.rmtree(self.tree, ignore_errors=True)
        lab = labs.tree(self.number, self.tree)
        labs.add_hidden(lab, self.tree)
        missing = []
        for name in lab.files:
            path = os.path.join(self.folder, name)
            try:
                info = os.lstat(path)
                if not stat.S_ISREG(info.st_mode) or info.st_size > LARGEST:
                    raise OSError
                shutil.copyfile(path, os.path.join(self.tree, name))
            except OSError:
                missing.append(name)
        if missing:
            self.note = f"no file {', '.join(missing)} (of at most {LARGEST >> 20} MiB)"

    def grade(self, seconds):
        """Grades the tree in the sandbox."""
        for name in ("grade.json", "build"):  # what the grader writes, and the only place to write
            path = os.path.join(self.tree, name)
            if name == "build":
                os.makedirs(path)
            else:
                labs.write(path, "")
        command = [*SANDBOX, "--setenv", "GRADE_TIMEOUT", seconds, "--ro-bind", self.tree, "/lab",
                   "--bind", os.path.join(self.tree, "build"), "/lab/build",
                   "--bind", os.path.join(self.tree, "grade.json"), "/lab/grade.json",
                   "--chdir", "/lab", "/usr/bin/python3", "-B", "tests/steps.py"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=LONGEST, check=False)
        except subprocess.TimeoutExpired:
            self.note = f"not finished after {LONGEST} s"
            return
        text = (done.stdout + done.stderr).decode("utf-8", "replace")
        labs.write(os.path.join(self.tree, "grade.txt"), text)
        try:
            with open(os.path.join(self.tree, "grade.json"), encoding="utf-8") as f:
                self.result = json.load(f)
        except ValueError:
            self.note = f"the grader did not work: {(text.strip() or 'no word').splitlines()[-1]}"

    def row(self):
        points = of = failed = ""
        if self.result:
            points, of = self.result["points"], self.result["of"]
            failed = " ".join(labs.failed(self.result))
        return [self.name, self.number, points, of, failed, self.note]

    def own_lines(self):
        """Returns those lines of the student's C files that the starter does not have."""
        lab = labs.Lab(self.number)
        out = []
        for name in lab.files:
            if not name.endswith(".c"):
                continue
            given = set(lab.starter(name).splitlines())
            with open(os.path.join(self.tree, name), encoding="utf-8", errors="replace") as f:
                out += [line for line in f.read().splitlines() if line not in given]
        return "\n".join(out) + "\n"


def similar(students, out):
    """Compares the students' own lines, by tokens and whatever names are called. Returns the lines
    of the report."""
    if not shutil.which("sim_c"):
        return ["There is no report, because sim_c is not installed (package similarity-tester)."]
    folder = os.path.join(out, "own")
    shutil.rmtree(folder, ignore_errors=True)
    for s in students:
        labs.write(os.path.join(folder, f"{s.number}", s.name + ".c"), s.own_lines())
    lines = []
    for number in sorted({s.number for s in students}):
        names = sorted(s.name + ".c" for s in students if s.number == number)
        done = subprocess.run(["sim_c", "-p", "-a", "-s", "-T", "-r8", f"-t{MUCH}", *names],
                              cwd=os.path.join(folder, str(number)), stdout=subprocess.PIPE,
                              check=True, text=True)
        for found in re.finditer(r"^(.*)\.c consists for (\d+) % of (.*)\.c material$",
                                 done.stdout, re.M):
            lines.append(f"lab {number}: {found[2]} % of what {found[1]} wrote is in what "
                         f"{found[3]} wrote")
    shutil.rmtree(folder)
    return lines or [f"No two students have {MUCH} % of their own lines in common."]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-o", "--out", default=OUT)
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--lab", type=int)
    parser.add_argument("--timeout", default="10", help="GRADE_TIMEOUT of each program")
    parser.add_argument("folders", nargs="+", metavar="DIR")
    args = parser.parse_args()
    if not shutil.which("bwrap"):
        raise sentence.Problem("bwrap is not installed (package bubblewrap; tools/deps.sh grade "
                               "installs it), and without a sandbox nothing is graded")
    students = [Student(folder, args.lab or number_of(folder), args.out)
                for folder in args.folders]
    names = [s.name for s in students]
    for name in names:
        if names.count(name) > 1:
            raise sentence.Problem(f"two directories have the name {name}, which is to tell who "
                                   "the student is")
    for s in students:
        s.take()
    with concurrent.futures.ThreadPoolExecutor(max(args.jobs, 1)) as pool:
        for s in pool.map(lambda s: (s.grade(args.timeout), s)[1], students):
            _, _, points, of, failed, note = s.row()
            print(f"{s.name}: {points} of {of}; {note or failed or 'all steps'}", flush=True)
    with open(os.path.join(args.out, "grades.csv"), "w", encoding="utf-8", newline="") as f:
        table = csv.writer(f, lineterminator="\n")
        table.writerow(["student", "lab", "points", "of", "failed", "note"])
        table.writerows(s.row() for s in students)
    lines = similar(students, args.out)
    labs.write(os.path.join(args.out, "similar.txt"), "\n".join(lines) + "\n")
    print("\n".join(lines))
    print(f"{args.out}: grades.csv, similar.txt, and a directory for each student")


if __name__ == "__main__":
    sentence.run(main)
