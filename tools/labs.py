#!/usr/bin/env python3
"""The labs of the course (docs/labs.md).

  tools/labs.py list               lists them
  tools/labs.py tree N OUT         writes a student's tree of lab N
  tools/labs.py course OUT         writes the trees of all labs, with a page about the course
  tools/labs.py fit                checks, without building anything, that holes and wrong
                                   solutions still fit the sources
  tools/labs.py check [N...]       checks the labs and their graders: solution, starter, and wrong
                                   solutions get the points and hints that they should

A lab is a directory labs/N. Its lab.toml says what a student edits, where the solution of that is,
and which parts of the solution are holes in the student's file. So solution and starter are one
source. labs/frame has what all labs share: the grader, and rules for make.
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.parse

import faults
import sentence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LABS = os.path.join(ROOT, "labs")
WORK = os.path.join(ROOT, "build", "labs-check")
PLAYGROUND = os.path.join(ROOT, "build", "playground", "index.html")  # of `make playground`

# What a student's tree is made of, by the kind of the lab: sources to compile. The headers that
# these include are found by the compiler.
KINDS = {
    "sim": {
        "sources": ["hv/sched/*.c", "hv/lib/*.c", "hv/config*.c", "common/*.c", "tests/sim/*.c"],
        "without": ["hv/sched/machine.c", "common/string.c", "tests/sim/cost.c",
                    "tests/sim/scale.c"],
        "include": ["include", "hv", ".", "tests/sim", "guestlib/include"],
    },
    "host": {
        "sources": [],
        "without": [],
        "include": ["include", "hv", ".", "tests/unit", "guestlib/include", "labs/frame"],
    },
    "image": {"sources": [], "without": []},
}
# All that the hypervisor's image and a guest are made of. Takt's own Makefile builds them.
IMAGE = ["Makefile", "mk/*.mk", "boot/boot.asm", "boot/*.inc", "boot/layout.h", "boot/takt.ld",
         "hv/**/*.*", "common/*", "drivers/**/*.*", "include/**/*.*", "guestlib/**/*.*",
         "tools/cfgdump.c", "tools/stamp.sh", "tools/mksyms.sh", "tools/version.sh",
         "tools/mkiso.sh", "tools/machine.py", "tools/sentence.py", "tools/progress.py",
         "tools/lastwords.py"]
CHECK_TIMEOUT = "5"  # seconds of CPU time for a program that is graded, when labs are checked
SAME_LINES = 3  # so many lines of a solution's hole in a row must not be in a student's tree
# Statements that are so common that they tell nothing of a solution.
TRIVIAL = re.compile(r"[{}();\s]*|;.*|return( \w+)?;|break;|else \{?|\} else \{|#.*")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def numbers():
    """Returns the numbers of all labs."""
    found = glob.glob(os.path.join(LABS, "*", "lab.toml"))
    return sorted(int(os.path.basename(os.path.dirname(path))) for path in found)


# ---- holes ----

def item(text, name):
    """Returns begin and end of what is between the braces of the function, structure or table
    `name`, which begins at the first column. Without braces there is no such item. In a source for
    NASM an item is what is between the lines `; begin name` and `; end name`."""
    region = re.search(rf"^; begin {re.escape(name)}\n(.*?)^; end {re.escape(name)}\n", text,
                       re.M | re.S)
    if region:
        return region.span(1)
    head = re.search(rf"^(?=\S)(?!\*|/|#)[^;{{}}]*?\b{re.escape(name)}\b[^;{{}}]*\{{", text, re.M)
    if not head:
        raise sentence.Problem(f"there is no function or structure `{name}`")
    line_end = text.index("\n", head.end())
    if text[line_end - 1] == "}" or text[line_end - 2:line_end] == "};":
        return head.end(), text.rindex("}", head.end(), line_end)
    end = re.compile(r"^\}", re.M).search(text, head.end())
    return head.end(), end.start()


class Lab:
    """What labs/N/lab.toml says."""

    def __init__(self, number):
        self.number, self.folder = number, os.path.join("labs", str(number))
        path = os.path.join(self.folder, "lab.toml")
        if not os.path.exists(os.path.join(ROOT, path)):
            known = ", ".join(map(str, numbers()))
            raise sentence.Problem(f"there is no lab {number}; there are {known}")
        try:
            told = tomllib.loads(read(path))
        except tomllib.TOMLDecodeError as e:
            raise sentence.Problem(f"{path}: {e}") from None
        self.title, self.hours, self.kind = told["title"], told["hours"], told["kind"]
        self.files, self.holes = told["files"], told.get("holes", {})
        self.patches = told.get("patches", {})  # what a solution has more than the file of Takt
        self.places = told.get("places", {})    # where Takt's Makefile looks for a student's file
        self.more, self.docs = told.get("more", {}), told.get("docs", [])
        self.run, self.cpus = told.get("run"), told.get("cpus", 1)
        self.more_sources = told.get("sources", [])
        self.guests = told.get("guests", [])
        self.policy = told.get("policy", "")  # LABS= of an image that is built beside a simulation
        self.boots = self.kind == "image" or bool(self.policy)
        self.given = told.get("given", {})  # files that a student writes from a given text
        self.scenes = told.get("playground", [])  # what to look at there

    def solution(self, name):
        text = read(self.files[name])
        if name in self.patches:
            text = self.patch(name).apply(text)
        return text

    def patch(self, name):
        """Returns what the solution changes in a file of Takt that a student changes, too."""
        path = self.patches[name]
        return next(faults.parse(path, f"solution: lab\n{read(path)}\n"))

    def starter(self, name):
        """Returns the solution with its holes."""
        if name in self.given:
            return self.given[name].lstrip("\n")
        text = read(self.files[name])
        if name in self.patches:
            self.patch(name).apply(text)  # so that a patch that does not fit any more is found
        for what, body in self.holes.get(name, {}).items():
            try:
                begin, end = item(text, what)
            except sentence.Problem as e:
                raise sentence.Problem(f"{self.files[name]}: {e}, which lab {self.number} makes a "
                                       "hole") from None
            lines = [f"    {line}".rstrip() for line in body.strip().split("\n")]
            head = "" if text[begin - 1] == "\n" else "\n"  # a brace, and not a line, was before
            text = text[:begin] + head + "".join(f"{line}\n" for line in lines if body) + text[end:]
        return text

    def secrets(self):
        """Returns runs of lines of the solution that must not be in a student's tree, without the
        lines that tell nothing and without blanks."""
        out = []
        for name in self.files:
            text = self.solution(name)
            if name in self.given:
                given = telling(self.given[name])
                out.append([line for line in telling(text) if line not in given])
            for what in self.holes.get(name, {}):
                lines = telling(text[slice(*item(text, what))])
                out += [lines[i:i + SAME_LINES] for i in range(len(lines) - SAME_LINES + 1)]
            if name in self.patches:
                known = telling(read(self.files[name]))
                added = [[line for line in telling("\n".join(place.new)) if line not in known]
                         for place in self.patch(name).places]
                out += [lines for lines in added if lines]
        return out

    def sources(self):
        """Returns the files of Takt that a student's tree has: sources, and what they include."""
        kind = KINDS[self.kind]
        own = set(self.files.values()) | set(self.more.values())
        copied = set()
        if self.boots:
            copied = {os.path.relpath(path, ROOT) for pattern in IMAGE
                      for path in glob.glob(os.path.join(ROOT, pattern), recursive=True)
                      if os.path.isfile(path)} - own
        if self.kind == "image":
            return sorted(copied)
        sources = self.compiled()
        include = [word for folder in kind["include"] for word in ("-I", folder)]
        rules = subprocess.run(
            [os.environ.get("CC", "gcc"), "-MM", "-MG", "-D_GNU_SOURCE", *include, *sources,
             *(path for path in [*self.files.values(), *self.more.values()]
               if path.endswith(".c"))],
            cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
        headers = {os.path.normpath(word) for word in rules.replace("\\\n", " ").split()
                   if word.endswith((".h", ".inc"))}
        headers = {path for path in headers if os.path.exists(os.path.join(ROOT, path))}
        return sorted(copied | set(sources) | headers - set(self.more.values()))

    def compiled(self):
        """Returns the C files of Takt that are compiled into the simulation, or into the programs
        that test a student's files."""
        kind, own = KINDS[self.kind], set(self.files.values())
        here = {os.path.relpath(path, ROOT) for pattern in kind["sources"] + self.more_sources
                for path in glob.glob(os.path.join(ROOT, pattern))}
        return sorted(here - own - set(kind["without"]))

    def text(self, name):
        """Returns a VM file of the lab as a student gets it."""
        return self.starter(name) if name in self.files else read(self.folder, name)

    def look(self):
        """Returns the section of the assignment about the playground, and what its links lead to:
        each carries a VM file, and would be too long within the text."""
        links, targets = [], []
        for number, scene in enumerate(self.scenes, 1):
            words = {"file": self.text(scene["file"]), "pcpus": self.cpus}
            if "other" in scene:
                words |= {"compare": "yes", "other": scene["other"]}
            links.append(f"- [{scene['words']}][scene-{number}]\n")
            targets.append(f"[scene-{number}]: playground.html#{urllib.parse.urlencode(words)}\n")
        return LOOK + "\n" + "".join(links), "\n" + "".join(targets)

    def page(self, playground=False):
        """Returns the assignment, with the table of its steps, and with those parts of docs/ that
        it asks for. With `playground` it has links to the playground, too."""
        def section(match):
            text = read(match[1])
            found = re.search(rf"^(#+) {re.escape(match[2])}\n(.*?)(?=^#|\Z)", text, re.M | re.S)
            if not found:
                raise sentence.Problem(f"{match[1]} has no section {match[2]!r}")
            return found[2].strip()

        text = read(self.folder, "README.md")
        text = re.sub(r"^\{section (\S+) (.+)\}$", section, text, flags=re.M)
        if playground and self.scenes:
            look, targets = self.look()
            text = text.replace("## Hand in\n", f"{look}\n## Hand in\n") + targets
        return text.replace("{steps}", self.table())

    def table(self):
        """Returns the steps and their points, as the grader has them."""
        frame, steps = os.path.join(LABS, "frame"), os.path.join(ROOT, self.folder, "steps.py")
        code = ("import json,sys; sys.path[:0] = sys.argv[1:]; import grader; "
                "grader.Lab.main = lambda lab: print(json.dumps([s[:2] for s in lab.steps])); "
                "import steps")
        told = subprocess.run([sys.executable, "-B", "-c", code, os.path.dirname(steps), frame],
                              stdout=subprocess.PIPE, check=True, text=True).stdout
        rows = [f"| {number} | {title} | {points} |"
                for number, (points, title) in enumerate(json.loads(told), 1)]
        return "\n".join(["| step | what has to work | points |", "|---|---|---|", *rows])

    def wrong(self):
        folder = os.path.join(ROOT, self.folder, "wrong")
        return [Wrong(os.path.join(folder, name)) for name in sorted(os.listdir(folder))]


def telling(text):
    """Returns the lines of a text that tell something of a solution, without their blanks. Comments
    tell nothing: those of a front end and of a back end may be the same."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return ["".join(line.split()) for line in text.split("\n")
            if not TRIVIAL.fullmatch(line.strip())]


class Wrong:
    """A wrong solution, labs/N/wrong/NAME:

        points: 70
        fails: weights, late
        hint: words that are in what the grader says at the first of these steps
        A sentence that says what is wrong.
        stride.c
        -    a line of the solution
        +    what is there instead

    The lines at the end are as in tests/mutants (tools/faults.py)."""

    def __init__(self, path):
        self.name = os.path.basename(path).removesuffix(".txt")
        where = os.path.relpath(path, ROOT)
        with open(path, encoding="utf-8") as f:
            lines = f.read().rstrip("\n").split("\n")
        told = {}
        for key in ("points", "fails", "hint"):
            head, _, value = lines.pop(0).partition(": ")
            if head != key:
                raise sentence.Problem(f"{where}: expected `{key}: ...`, not `{head}`")
            told[key] = value
        self.points, self.hint = int(told["points"]), told["hint"]
        self.fails = [name for name in told["fails"].split(", ") if name != "none"]
        text = "\n".join(lines)
        self.fault = next(faults.parse(where, f"{self.name.replace('-', '_')}: lab\n{text}\n"))

    def apply(self, lab):
        """Returns the file that is wrong, and its text."""
        name = self.fault.path
        try:
            return name, self.fault.apply(lab.solution(name))
        except ValueError as why:
            raise sentence.Problem(f"{self.fault.where}: {lab.files[name]}: {why}") from None


# ---- trees ----

def without_dead_links(text, there):
    """Turns links of a page to what a student's tree does not have into plain words."""
    def link(match):
        target = match[2].split("#")[0]
        if not target or "://" in target or target in there:
            return match[0]
        return match[1]
    return re.sub(r"(?<!!)\[([^]]*)\]\(([^)\s]+)\)", link, text)


LOOK = """\
## To look at

Open `playground.html` in a browser: it is the simulation with Takt's own policies, and draws who
ran where, and why. You can change everything in it. These links show VM files of this lab:
"""
MAKEFILE = """\
# Lab {number}: {title}. The assignment is in README.md; {kind}.mk says what there is to make.
FILES    := {files}
"""
SCENARIO = """\
SCENARIO := {run}
CPUS     := {cpus}
"""
GUESTS = """\
GUESTS   := {guests}
LABS     := {policy}
"""
SOURCES = """\
# What the simulation is made of, beside your files.
SOURCES  := {sources}
"""


def tree(number, out, playground=None):
    """Writes the student's tree of a lab to `out`, which must be empty or not there. `playground`
    is the page of the playground, if there is one and the student is to have it."""
    lab = Lab(number)
    if os.path.exists(out) and (not os.path.isdir(out) or os.listdir(out)):
        raise sentence.Problem(f"{out} is there already, and is not an empty directory: name "
                               "another one")
    for path in lab.sources():
        write(os.path.join(out, "takt", path), read(path))
        shutil.copymode(os.path.join(ROOT, path), os.path.join(out, "takt", path))
    for name, place in lab.places.items():
        place = os.path.join(out, "takt", place)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.symlink(os.path.relpath(os.path.join(out, name), os.path.dirname(place)), place)
    for name, path in lab.more.items():
        write(os.path.join(out, name), read(path))
    pages = {os.path.basename(path) for path in lab.docs}
    for path in lab.docs:
        write(os.path.join(out, "docs", os.path.basename(path)),
              without_dead_links(read(path), pages))
    for path in sorted(glob.glob(os.path.join(ROOT, lab.folder, "*.cfg"))
                       + glob.glob(os.path.join(ROOT, lab.folder, "*.script"))):
        write(os.path.join(out, os.path.basename(path)), read(path))
    write(os.path.join(out, "tests", "grader.py"), read("labs/frame/grader.py"))
    write(os.path.join(out, "tests", "steps.py"), read(lab.folder, "steps.py"))
    write(os.path.join(out, f"{lab.kind}.mk"), read(f"labs/frame/{lab.kind}.mk"))
    write(os.path.join(out, ".gitignore"), "build/\ngrade.json\n__pycache__/\n")
    write(os.path.join(out, "LICENSE"), read("LICENSE"))
    makefile = MAKEFILE.format(number=number, title=lab.title, kind=lab.kind,
                               files=" ".join(lab.files))
    if lab.run:
        makefile += SCENARIO.format(run=lab.run, cpus=lab.cpus)
    if lab.boots:
        makefile += GUESTS.format(guests=" ".join(lab.guests), policy=lab.policy)
        write(os.path.join(out, "boot.mk"), read("labs/frame/boot.mk"))
    if lab.kind == "sim":
        sources = [f"takt/{path}" for path in lab.compiled()]
        sources += [path for path in lab.more if path.startswith("takt/labs/")]
        makefile += SOURCES.format(sources=" \\\n\t".join(sources))
    makefile += f"\ninclude {lab.kind}.mk\n"
    if lab.policy:
        makefile += "include boot.mk\n"
    write(os.path.join(out, "Makefile"), makefile)
    for name in lab.files:
        write(os.path.join(out, name), lab.starter(name))
    there = {os.path.join("docs", page) for page in pages}
    if playground and lab.scenes:
        there.add("playground.html")
        shutil.copy(playground, os.path.join(out, "playground.html"))
    write(os.path.join(out, "README.md"), without_dead_links(lab.page(bool(playground)), there))
    return lab


def playground_page():
    """Returns the page of the playground, or None if it was not made."""
    return PLAYGROUND if os.path.exists(PLAYGROUND) else None


def say_without(written):
    """Says that the pages of these labs would have links if there was a playground."""
    if any(lab.scenes for lab in written) and not playground_page():
        print("without links to the playground, which is not there: `make playground` makes it")


def course(out):
    """Writes the trees of all labs, and a page that lists them."""
    if os.path.exists(out) and (not os.path.isdir(out) or os.listdir(out)):
        raise sentence.Problem(f"{out} is there already, and is not an empty directory: name "
                               "another one")
    rows, written = [], []
    for number in numbers():
        lab = tree(number, os.path.join(out, f"lab{number}"), playground_page())
        written.append(lab)
        rows.append(f"| [{number}](lab{number}/README.md) | {lab.title} | {lab.hours} |")
    page = read("labs/frame/course.md").replace("{labs}", "\n".join(rows))
    write(os.path.join(out, "README.md"), page)
    write(os.path.join(out, "LICENSE"), read("LICENSE"))
    print(f"{out}: {sentence.count(len(rows), 'lab')}")
    say_without(written)


# ---- checks ----

def grade(folder):
    """Grades a tree. Returns what grade.json says, and all that was written."""
    done = subprocess.run([sys.executable, "-B", "tests/steps.py"], cwd=folder,
                          env=os.environ | {"GRADE_TIMEOUT": CHECK_TIMEOUT},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise sentence.Problem(f"{folder}: the grader ended with status {done.returncode}: "
                               f"{(done.stderr.strip() or done.stdout).splitlines()[-1]}")
    with open(os.path.join(folder, "grade.json"), encoding="utf-8") as f:
        text = f.read()
    result = json.loads(text)
    if (done.returncode == 0) != (result["points"] == result["of"]):
        raise sentence.Problem(f"{folder}: exit status {done.returncode}, but "
                               f"{result['points']} of {result['of']} points")
    return result, (done.stdout, done.stderr, text)


def add_hidden(lab, folder):
    """Puts the steps that students do not have into a tree. Returns the files that were added."""
    added = []
    for path in sorted(glob.glob(os.path.join(ROOT, lab.folder, "hidden", "*"))):
        if os.path.isfile(path):
            added.append(shutil.copy(path, os.path.join(folder, "tests")))
    return added


def copied(folder, lab):
    """Returns a sentence if lines of the solution are in a student's tree, else None."""
    texts = {}
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)
            with open(path, encoding="utf-8") as f:
                texts[path] = "\n".join(telling(f.read()))
    for run in lab.secrets():
        for path, text in texts.items():
            if "\n".join(run) in text:
                return f"{os.path.relpath(path, folder)} has lines of the solution: {run[0]}"
    return None


def failed(result):
    return [step["name"] for step in result["steps"] if step["points"] < step["of"]]


class Check:
    """The checks of one lab. Each prints a line."""

    def __init__(self, number):
        self.folder = os.path.join(WORK, str(number))
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lab, self.bad = tree(number, self.folder), 0

    def say(self, what, why, told=""):
        word = "wrong" if why else "ok"
        print(f"lab {self.lab.number}: {what:<26} {word:<5} {why or told}", flush=True)
        self.bad += bool(why)

    def put(self, texts):
        for name, text in texts.items():
            write(os.path.join(self.folder, name), text)

    def starter(self):
        self.say("tree", copied(self.folder, self.lab), "nothing of the solution is in it")
        result, _ = grade(self.folder)
        points, most = result["points"], result["of"] // 4
        why = None
        if "compiles" in failed(result):
            why = f"it does not build: {result['steps'][0]['came']}"
        elif points > most:
            why = f"{points} of {result['of']} points, although nothing was done"
        self.say("starter", why, f"{points} of {result['of']}")

    def solution(self):
        self.put({name: self.lab.solution(name) for name in self.lab.files})
        result, first = grade(self.folder)
        _, second = grade(self.folder)
        lost = ", ".join(failed(result))
        self.say("solution", lost and f"loses points: {lost}", f"{result['points']} of "
                 f"{result['of']}")
        self.say("graded twice", "" if first == second else "not the same bytes",
                 "the same bytes")
        hidden = add_hidden(self.lab, self.folder)
        result, _ = grade(self.folder)
        for path in hidden:
            os.remove(path)
        lost = ", ".join(failed(result))
        why = None
        if not hidden:
            why = "there are none"
        elif lost:
            why = f"loses points: {lost}"
        self.say("hidden steps", why, f"{result['points']} of {result['of']}")

    def wrong(self):
        wrong = self.lab.wrong()
        if len(wrong) < 5:
            self.say("wrong solutions", f"there are {len(wrong)}, not five")
        for w in wrong:
            self.put({name: self.lab.solution(name) for name in self.lab.files})
            self.put(dict([w.apply(self.lab)]))
            result, _ = grade(self.folder)
            lost = failed(result)
            steps = {step["name"]: step for step in result["steps"]}
            first = steps[lost[0]] if lost else {}
            said = f"{first.get('came')} {first.get('hint')}"
            why = None
            if (result["points"], lost) != (w.points, w.fails):
                why = (f"{result['points']} points, fails {', '.join(lost) or 'none'}; expected "
                       f"{w.points}, {', '.join(w.fails)}")
            elif w.hint not in said:
                why = f"the grader says `{said}`, without `{w.hint}`"
            self.say(f"wrong/{w.name}", why, f"{w.points} of {result['of']}: {w.hint}")


def check(which):
    bad = 0
    for number in which or numbers():
        c = Check(number)
        c.starter()
        c.solution()
        c.wrong()
        bad += c.bad
    return bad > 0


def fit():
    """Makes all starters and all wrong solutions. What does not fit any more ends it with a
    sentence, because a function that was renamed would otherwise be found much later."""
    for lab in map(Lab, numbers()):
        for name in lab.files:
            lab.starter(name)
        for w in lab.wrong():
            w.apply(lab)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    one = commands.add_parser("tree")
    one.add_argument("number", type=int)
    one.add_argument("out")
    every = commands.add_parser("course")
    every.add_argument("out")
    commands.add_parser("fit")
    some = commands.add_parser("check")
    some.add_argument("number", type=int, nargs="*")
    args = parser.parse_args()
    if args.command == "list":
        for number in numbers():
            lab = Lab(number)
            print(f"{number:3}  {lab.title:<60} {lab.hours} hours")
    elif args.command == "tree":
        lab = tree(args.number, args.out, playground_page())
        print(f"{args.out}: lab {lab.number}, {lab.title}; begin with its README.md")
        say_without([lab])
    elif args.command == "course":
        course(args.out)
    elif args.command == "fit":
        fit()
    else:
        return check(args.number)
    return 0


if __name__ == "__main__":
    sentence.run(main)
