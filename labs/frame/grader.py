"""Grades a lab: runs the steps of tests/steps.py and prints the points of each.

A step is a function with points and a hint:

    lab = Lab(5, "stride scheduling")

    @lab.step(10, "a VM runs", hint="wake(): which pCPU has to look?")
    def alone(t):
        result = t.sim("alone.cfg")
        t.near("CPU time of hog in %", result.cpu("hog"), 100, 1)

    lab.test("map", 15, "pages are mapped", hint="entry_for()")

    lab.main()

The last one is a test of tests/check.c. A step gives all of its points, or none if one of its
checks fails. The first step is always that the files compile. Time is virtual in all that is
measured. The clock of this computer only ends a program that would never end: one that has used
GRADE_TIMEOUT seconds of CPU time (10 by default), or has slept for so long.

Prints the steps, writes grade.json, and exits with 0 (all points), 1 (not all) or 2 (the grader
itself cannot work).
"""
import glob
import importlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap

BUILD = "build"
MOST_OUTPUT = 4 << 20  # bytes that a program may print
MOST_BUILT = 64 << 20  # bytes of a file that the compiler may write
MOST_MEMORY = 1024     # MiB that a program may use
MACHINE_FACTOR = 12    # a machine that Bochs plays may use so many times the CPU time
WAIT_FACTOR = 20       # and what waits for Bochs may sleep for so many times that time
TICKS = 100_000_000    # of Bochs' clock, in a virtual second
LONGEST = 300          # characters of a message that are shown
WIDTH = 78             # columns of what is said of a step


class Failed(Exception):
    """A check that failed. `hint` takes the place of the step's hint if it is not empty."""

    def __init__(self, what, expected, came, hint=""):
        super().__init__(what)
        self.what, self.expected, self.came, self.hint = what, str(expected), str(came), hint


class Broken(Exception):
    """A sentence: the grader cannot work here, and the student cannot help it."""


def time_limit():
    """Returns how many seconds of CPU time a program may use."""
    text = os.environ.get("GRADE_TIMEOUT", "10")
    if not re.fullmatch(r"[1-9]\d{0,4}", text):
        raise Broken(f"GRADE_TIMEOUT={text}: expected a whole number of seconds (such as 60)")
    return int(text)


def short(text):
    """Returns the text on one line, cut off if it is long."""
    text = " ".join(text.split())
    if len(text) > LONGEST:
        return text[:LONGEST] + " ..."
    return text


class Ended:
    """How a program ended: `status` as of subprocess, or None if it slept for too long and was
    ended; `out` and `err` what it printed."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def fault(self):
        """Returns a sentence if the program crashed or did not end, else None."""
        if self.status is None:
            return (f"it slept for {time_limit()} s, so it was ended: it probably waits for "
                    "something that never comes")
        if self.status in (-signal.SIGXCPU, -signal.SIGKILL):
            return (f"it did not end within {time_limit()} s of CPU time: there is probably a loop "
                    "that never ends (on a slow computer GRADE_TIMEOUT=60 gives it more time)")
        if self.status == -signal.SIGXFSZ:
            return f"it printed more than {MOST_OUTPUT >> 20} MiB, so it was stopped"
        report = re.search(r"(\S+:\d+(?::\d+)?): runtime error: (.*)", self.err)
        if report:
            return f"it did something that C does not define: {report[1]}: {report[2]}"
        if re.search(r"AddressSanitizer: hard rss limit exhausted", self.err):
            return (f"it used more than {MOST_MEMORY} MiB of memory: there is probably a loop that "
                    "asks for more and more")
        report = re.search(r"Direct leak of (\d+) byte.*", self.err, re.S)
        if report:
            return (f"it lost memory: {report[1]} bytes were allocated{first_place(report[0])}, "
                    "and were not freed although nothing points to them any more")
        report = re.search(r"ERROR: AddressSanitizer:? ([\w-]+)", self.err)
        if report:
            kind = "a stack that is full (endless recursion)"
            if report[1] != "stack-overflow":
                kind = f"a wrong access to memory ({report[1]})"
            return f"it crashed by {kind}{first_place(self.err)}"
        if self.status < 0:
            return f"it was ended by the signal {signal.Signals(-self.status).name}"
        return None


def first_place(report):
    """Returns where a report of a sanitizer says that the program was: the first function whose
    source is here, and not that of a library."""
    for function, path, line in re.findall(r"#\d+ \S+ in (\w+) (\S+?):(\d+)", report):
        if os.path.exists(path):
            return f", in {function}() at {os.path.relpath(path)}:{line}"
    return ""


def limits(seconds, size):
    """Returns a function that a new process calls: it may use so many seconds of CPU time, and
    write files of so many bytes."""
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return limit


def make(goal):
    """Builds something. Returns how make ended."""
    return subprocess.run(["make", "-s", goal], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", check=False,
                          preexec_fn=limits(MACHINE_FACTOR * time_limit(), MOST_BUILT))


def sleeps(process):
    """Returns whether all threads of a process sleep, or are stopped. A thread that only waits for
    its turn on a busy computer does not sleep."""
    states = set()
    for path in glob.glob(f"/proc/{process.pid}/task/*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                states.add(f.read().rpartition(") ")[2][0])
        except OSError:
            pass  # The thread has ended.
    return states <= set("STtZ")


def wait(process, longest):
    """Waits for the end of a process. Returns its status, or None if the process slept for so many
    seconds without a pause and was ended for that."""
    asleep = 0
    while asleep < longest:
        try:
            return process.wait(1)
        except subprocess.TimeoutExpired:
            asleep = asleep + 1 if sleeps(process) else 0
    process.kill()
    process.wait()
    return None


def run(command, factor=1, wait_factor=1):
    """Runs a program within the limits, and returns how it ended. It may use `factor` times the CPU
    time of other programs, and sleep for `wait_factor` times this time."""
    seconds = factor * time_limit()
    out, err = (os.path.join(BUILD, name) for name in ("grade.out", "grade.err"))
    os.makedirs(BUILD, exist_ok=True)
    environment = os.environ | {"ASAN_OPTIONS": f"hard_rss_limit_mb={MOST_MEMORY}"}
    try:
        with open(out, "wb") as o, open(err, "wb") as e, subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=o, stderr=e, env=environment,
                preexec_fn=limits(seconds, MOST_OUTPUT)) as process:
            status = wait(process, wait_factor * seconds)
    except FileNotFoundError as e:
        raise Broken(f"{e.filename}: there is no such program") from None
    texts = []
    for path in (out, err):
        with open(path, encoding="utf-8", errors="replace") as f:
            texts.append(f.read())
    return Ended(status, *texts)


class Result:
    """What a simulation printed with -j."""

    def __init__(self, text, again):
        self.data, self.again = json.loads(text), again

    def vcpu(self, vm, number=0):
        for v in self.data["vcpus"]:
            if (v["vm"], v["vcpu"]) == (vm, number):
                return v
        raise Broken(f"the simulation says nothing of vCPU {number} of VM {vm}")

    def cpu(self, vm):
        """Returns the CPU time of a VM, all of its vCPUs together, in % of a pCPU."""
        return round(sum(v["cpu_pct"] for v in self.data["vcpus"] if v["vm"] == vm), 2)


class Checks:
    """What a step asks with. A check that fails ends the step."""

    booted = {}  # what each machine said

    def __init__(self, graded=()):
        self.again = None  # the command that shows the last measurement once more
        self.graded = graded  # the steps before this one

    def needs(self, name):
        """Ends the step if the step `name` has failed. Then this one would fail as well, and take
        long to do it."""
        before = next(step for step in self.graded if step["name"] == name)
        number = before["step"]
        self.true("this step", before["points"] == before["of"], f"that step {number} works",
                  "it does not work yet", f"step {number}")

    def true(self, what, holds, expected, came, hint=""):
        if not holds:
            raise Failed(what, expected, came, hint)

    def equal(self, what, came, expected, hint=""):
        self.true(what, came == expected, expected, came, hint)

    def near(self, what, came, expected, within, hint=""):
        self.true(what, abs(came - expected) <= within, f"{expected}, at most {within} off", came,
                  hint)

    def at_most(self, what, came, most, hint=""):
        self.true(what, came <= most, f"at most {most}", came, hint)

    def at_least(self, what, came, least, hint=""):
        self.true(what, came >= least, f"at least {least}", came, hint)

    def program(self, what, command, hint="", unsaid=()):
        """Runs a program that has to end with status 0. Returns what it printed. `unsaid` are words
        of the command that nobody needs who wants to see the same once more."""
        self.again = " ".join(word for word in command if word not in unsaid)
        ended = run(command)
        fault = ended.fault()
        if fault is None and ended.status:
            # One fault often causes others. The first line tells most.
            fault = (ended.err or ended.out).partition("\n")[0] or f"exit status {ended.status}"
        if fault:
            raise Failed(what, "that it runs to its end", short(fault), hint)
        return ended.out

    def check(self, name, program="check", hint=""):
        """Runs a test of tests/check.c (or of another program of tests/)."""
        command = [f"{BUILD}/{program}", name]
        self.again = " ".join(command)
        ended = run(command)
        told = ended.out.rstrip("\n").rpartition("\n")[2].split("\t")
        if ended.status == 1 and len(told) == 3:
            what, expected, came = told
            raise Failed(what, expected.removeprefix("expected "), came.removeprefix("came "), hint)
        fault = ended.fault()
        if fault is None and ended.status:
            fault = ended.err or f"exit status {ended.status}"
        if fault:
            raise Failed(f"the test {name}", "that it runs to its end", short(fault), hint)

    def sim(self, scenario, cpus=1, warm_up="2s", time="10s", options=(), hint=""):
        """Runs a VM file in the simulation of the scheduler, where rules are checked (-C)."""
        command = [f"{BUILD}/sim", "-C", "-q", "-j", "-p", str(cpus), "-w", warm_up, "-t", time,
                   *options, scenario]
        out = self.program(f"the simulation of {scenario}", command, hint, ("-q", "-j"))
        return Result(out, self.again)

    def machine(self, name, seconds, cpus=1):
        """Boots the VMs of NAME.cfg on Bochs, once for all steps. After so many seconds of virtual
        time the machine ends at the latest. Returns what it said on its serial port."""
        self.again = f"make boot SCENARIO={name}.cfg CPUS={cpus}"
        if name not in self.booted:
            self.booted[name] = boot(name, seconds, cpus)
        return self.booted[name]

    def says(self, text, what, pattern, hint=""):
        """Checks that a machine has said a line. Returns the match."""
        found = re.search(pattern, text)
        lines = [line for line in text.splitlines() if line.strip()] or ["nothing"]
        self.true(what, found, f"a line like `{pattern}`", f"not that; its last line is "
                  f"`{short(lines[-1])}`", hint)
        return found


def boot(name, seconds, cpus):
    """Returns what a machine said."""
    image = f"{BUILD}/{name}.iso"
    made = make(image)
    if made.returncode:
        raise Failed("the image to boot", "that it can be made", short(made.stderr))
    ended = run([sys.executable, "-B", "takt/tools/machine.py", "watch", "--platform", "bochs",
                 "--cpus", str(cpus), "--memory", "128", "--ticks", str(seconds * TICKS),
                 "--timeout", str(WAIT_FACTOR * MACHINE_FACTOR * time_limit()), "--dir",
                 f"{BUILD}/{name}", image], MACHINE_FACTOR, WAIT_FACTOR)
    said = re.search(r"SIGXCPU", ended.err)
    if said:
        raise Failed("the machine", "that it comes to its end",
                     f"it did not end within {MACHINE_FACTOR * time_limit()} s of CPU time")
    if ended.status:
        raise Broken(short(ended.err or ended.out or "Bochs does not run"))
    return ended.out


class Lab:
    """A lab and its steps, in the order in which they are worked on."""

    def __init__(self, number, title):
        self.number, self.title = number, title
        self.graded = []
        self.steps = [(5, "the files compile", "the compiler says file and line", compiles)]

    def step(self, points, title, hint):
        def add(function):
            self.steps.append((points, title, hint, function))
            return function
        return add

    def test(self, name, points, title, hint, program="check"):
        """Adds a step that is one test of tests/check.c (or of another program of tests/)."""
        def one_test(t):
            t.check(name, program)

        one_test.__name__ = name
        self.steps.append((points, title, hint, one_test))

    def grade(self):
        """Returns what grade.json says."""
        built = True
        for number, (points, title, hint, function) in enumerate(self.steps, 1):
            entry = {"step": number, "name": function.__name__, "title": title, "points": points,
                     "of": points}
            checks = Checks(self.graded)
            try:
                if not built:
                    raise Failed("this step", "files that compile", "nothing to test", "step 1")
                function(checks)
            except Failed as e:
                entry |= {"points": 0, "what": e.what, "expected": e.expected, "came": e.came,
                          "hint": e.hint or hint, "again": checks.again}
                if function is compiles:
                    built = False
            self.graded.append(entry)
        return {"lab": self.number, "title": self.title,
                "points": sum(s["points"] for s in self.graded),
                "of": sum(s["of"] for s in self.graded), "steps": self.graded}

    def main(self):
        """Grades the directory in which it was started, and exits."""
        sys.stdout.reconfigure(line_buffering=True)
        try:
            if os.path.exists(os.path.join(os.path.dirname(__file__), "hidden.py")):
                importlib.import_module("hidden").add(self)
            result = self.grade()
        except Broken as e:
            print("\n".join(told_of(self.graded)))
            print(f"grade: {e}", file=sys.stderr)
            sys.exit(2)
        with open("grade.json", "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
            f.write("\n")
        print("\n".join(report(result)))
        sys.exit(result["points"] != result["of"])


def compiles(t):
    """The step that every lab begins with."""
    ended = make("all")
    errors = [line for line in ended.stderr.splitlines() if re.search(r"error|undefined", line)]
    if ended.returncode:
        raise Failed("make", "that it builds", short((errors or [ended.stderr])[0]))
    t.again = "make"


def told(word, text):
    """Yields the lines of one thing that is said of a step."""
    lines = textwrap.wrap(text, WIDTH, break_on_hyphens=False) or [""]
    yield f"        {word:<10} {lines[0]}"
    for line in lines[1:]:
        yield f"        {'':10} {line}"


def told_of(steps):
    """Yields what is said of steps that were graded."""
    for s in steps:
        yield f"  {s['step']:2}  {s['title']:<58} {s['points']:3} of {s['of']:3}"
        if s["points"] < s["of"]:
            yield from told("looked at", s["what"])
            yield from told("expected", s["expected"])
            yield from told("came", s["came"])
            yield from told("look at", s["hint"])
            if s["again"]:
                yield from told("again", s["again"])


def report(result):
    """Yields the lines that a person reads."""
    yield f"Lab {result['lab']}: {result['title']}"
    yield ""
    yield from told_of(result["steps"])
    yield ""
    yield f"      {'points':<58} {result['points']:3} of {result['of']:3}"
