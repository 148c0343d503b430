"""tools/labs.py and the grader of labs/frame, without building a lab (`make labs-check` does)."""
import csv
import glob
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse

import labs
import pytest
import sentence
from conftest import ROOT

FRAME = os.path.join(ROOT, "labs", "frame")

STEPS = """
from grader import Lab
lab = Lab(3, "a test")
@lab.step(10, "it says 7", hint="say 7")
def seven(t):
    out = t.program("the program", [{python!r}, "-c", {program!r}])
    t.equal("what it says", out.strip(), "7")
@lab.step(5, "nothing", hint="none")
def nothing(t):
    t.near("a number", 5, 5, 0)
@lab.step(0, "after seven", hint="none")
def after(t):
    t.needs("seven")
lab.main()
"""


def grade(tmp_path, program, makefile="all:\n", python=sys.executable, **environment):
    """Grades a lab whose only step runs a Python program. Returns exit status, text, result."""
    (tmp_path / "steps.py").write_text(STEPS.format(program=program, python=python))
    (tmp_path / "Makefile").write_text(makefile)
    done = subprocess.run([sys.executable, "-B", "steps.py"], cwd=tmp_path, capture_output=True,
                          env=os.environ | {"PYTHONPATH": FRAME} | environment, text=True,
                          check=False)
    path = tmp_path / "grade.json"
    result = json.loads(path.read_text()) if path.exists() else None
    return done.returncode, done.stdout + done.stderr, result


def test_all_points(tmp_path):
    status, text, result = grade(tmp_path, "print(7)")
    assert (status, result["points"], result["of"]) == (0, 20, 20)
    assert "came" not in result["steps"][3]
    assert re.search(r"points +20 of  20\n\Z", text)


def test_a_step_that_fails_says_what_came_and_where_to_look(tmp_path):
    status, text, result = grade(tmp_path, "print(8)")
    assert (status, result["points"]) == (1, 10)
    step = result["steps"][1]
    assert (step["points"], step["expected"], step["came"], step["hint"]) == (0, "7", "8", "say 7")
    assert "came       8" in text and "look at    say 7" in text
    assert "came" not in result["steps"][2] and result["steps"][3]["hint"] == "step 2"


@pytest.mark.parametrize("program, came", [
    # The timer ends it if nothing else does.
    ("import signal; signal.setitimer(signal.ITIMER_VIRTUAL, 30)\nwhile True: pass",
     "it did not end within 1 s of CPU time"),
    ("import os; os.abort()", "it was ended by the signal SIGABRT"),
    ("import sys; sys.exit('no luck')", "no luck"),
    # Python ignores this signal, but the programs of the labs do not.
    ("import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nwhile True: print('7' * 1000)",
     "it printed more than 4 MiB"),
    ("import signal; signal.alarm(120); signal.pause()", "it slept for 1 s, so it was ended"),
])
def test_a_program_that_goes_wrong_is_a_sentence(tmp_path, program, came):
    status, _, result = grade(tmp_path, program, GRADE_TIMEOUT="1")
    assert status == 1
    assert re.search(came, result["steps"][1]["came"])
    assert result["steps"][2]["points"] == 5


def test_what_is_stopped_sleeps_and_what_computes_does_not(monkeypatch):
    monkeypatch.syspath_prepend(FRAME)
    import grader
    for code, number, asleep in (("while True: pass", signal.SIGCONT, False),
                                 ("while True: pass", signal.SIGSTOP, True)):
        with subprocess.Popen([sys.executable, "-c", code]) as process:
            process.send_signal(number)
            deadline = time.monotonic() + 20
            while grader.sleeps(process) != asleep and time.monotonic() < deadline:
                time.sleep(0.01)
            told = grader.sleeps(process)
            process.kill()
        assert told == asleep


def test_the_time_of_a_program_is_that_of_its_cpu(tmp_path):
    program = "import resource; print(resource.getrlimit(resource.RLIMIT_CPU)[0])"
    status, text, _ = grade(tmp_path, program, GRADE_TIMEOUT="7")
    assert status == 0, text


def test_what_does_not_compile_gets_nothing(tmp_path):
    makefile = "all:\n\t@echo 'x.c:3: error: no' >&2; false\n"
    status, _, result = grade(tmp_path, "print(7)", makefile)
    assert (status, result["points"]) == (1, 0)
    assert result["steps"][0]["came"] == "x.c:3: error: no"


def grade_c(tmp_path, code):
    """Grades a C program, which is built as those of the labs. Returns what came in its step."""
    makefile = "all: mine\nmine: mine.c\n\tgcc -g -fsanitize=address,undefined -o $@ $<\n"
    (tmp_path / "mine.c").write_text(f"#include <stdlib.h>\n#include <string.h>\n{code}")
    status, _, result = grade(tmp_path, "import os; os.execv('mine', ['mine'])", makefile)
    assert status == 1
    return result["steps"][1]["came"]


@pytest.mark.parametrize("code, came", [
    # Without a bound the computer of a student would hang.
    pytest.param("int main(void) { for (int n = 2000; n--;) memset(malloc(1 << 20), 1, 1 << 20); }",
                 "it used more than 1024 MiB of memory: .*", marks=pytest.mark.long),
    ("void *p;\nvoid f(void) {\n p = malloc(7); }\nint main(void) { f(); p = NULL; }",
     r"it lost memory: 7 bytes were allocated, in f\(\) at mine.c:5, and were not freed .*"),
    ("int main(void) {\n char a[4];\n memset(a, 0, atoi(\"5\")); }",
     r"it crashed by a wrong access to memory \(stack-buffer-overflow\), in main\(\) at mine.c:5"),
    ("int f(int n) { return n + f(n + 1); }\nint main(void) { return f(1); }",
     r"it crashed by a stack that is full \(endless recursion\).*"),
    ("int main(void) {\n return 1 << atoi(\"40\"); }",
     r"it did something that C does not define: mine.c:4:.*shift.*"),
])
def test_faults_of_c_are_sentences_with_the_line(tmp_path, code, came):
    """They have no address and no number of a process, which would differ from run to run."""
    assert re.fullmatch(came, grade_c(tmp_path, code))


CHECK = """
#include "check.h"
static void good(void) { expect("a number", 7, 7); }
static void bad(void) { expect_result("what f returns", -12, 0); }
int main(int argc, char **argv) {
    static const struct test tests[] = { { "good", good }, { "bad", bad }, { NULL, NULL } };
    return run_tests(tests, argc, argv);
}
"""


def test_a_test_in_c_tells_a_person_and_the_grader(tmp_path):
    """`make run` shows the same line that the grader takes apart."""
    (tmp_path / "check.c").write_text(CHECK)
    (tmp_path / "Makefile").write_text(
        "all: build/check\nbuild/check: check.c\n\t@mkdir -p build\n\t@gcc "
        f"-I{FRAME} -I{ROOT}/include -o $@ $<\n")
    (tmp_path / "steps.py").write_text(
        "from grader import Lab\nlab = Lab(3, 'a test')\nlab.test('good', 10, 'good', 'none')\n"
        "lab.test('bad', 10, 'bad', 'look here')\nlab.main()\n")
    done = subprocess.run([sys.executable, "-B", "steps.py"], cwd=tmp_path, capture_output=True,
                          env=os.environ | {"PYTHONPATH": FRAME}, text=True, check=False)
    result = json.loads((tmp_path / "grade.json").read_text())
    assert (done.returncode, result["points"]) == (1, 15)
    step = result["steps"][2]
    assert (step["what"], step["expected"], step["came"]) == ("what f returns", "0", "-12")
    told = subprocess.run(["build/check"], cwd=tmp_path, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    assert told.returncode == 1 and "test bad fails:\n" in told.stdout
    assert "what f returns\texpected 0\tcame -12\n" in told.stdout


def test_of_several_complaints_the_first_is_shown(tmp_path):
    program = "import sys; sys.exit('the cause\\nwhat follows')"
    assert grade(tmp_path, program)[2]["steps"][1]["came"] == "the cause"


def test_a_timeout_that_is_none_is_refused(tmp_path):
    status, text, result = grade(tmp_path, "print(7)", GRADE_TIMEOUT="soon")
    assert (status, result) == (2, None)
    assert text.splitlines()[-1] == \
        "grade: GRADE_TIMEOUT=soon: expected a whole number of seconds (such as 60)"


def test_steps_before_one_that_cannot_be_graded_are_shown(tmp_path):
    status, text, result = grade(tmp_path, "print(7)", python="no-such-python")
    assert (status, result) == (2, None)
    first, last = text.splitlines()
    assert re.fullmatch(r" +1  the files compile +5 of +5", first)
    assert last == "grade: no-such-python: there is no such program"


CODE = """\
/* About f. */
static int f(int a,
             int b) {
    if (a) {
        return b;
    }
    return f(b, a);
}
struct s {
    int x;
};
static int g(void) { return 1; }
; begin table
        mov eax, 1
; end table
"""


@pytest.mark.parametrize("name, body", [
    ("f", "\n    if (a) {\n        return b;\n    }\n    return f(b, a);\n"),
    ("struct s", "\n    int x;\n"),
    ("g", " return 1; "),
    ("table", "        mov eax, 1\n"),
])
def test_what_is_between_the_braces(name, body):
    begin, end = labs.item(CODE, name)
    assert CODE[begin:end] == body


def test_a_hole_of_nothing_is_refused():
    with pytest.raises(sentence.Problem, match="no function or structure `h`"):
        labs.item(CODE, "h")


def test_a_lab_that_does_not_fit_the_sources_is_named(monkeypatch):
    real = labs.read
    labs.fit()
    monkeypatch.setattr(labs, "read", lambda *path: CODE if path == ("hv/mm/npt.c",)
                        else real(*path))
    with pytest.raises(sentence.Problem, match="which lab 3 makes a hole"):
        labs.fit()


def test_lines_of_the_solution_in_a_tree_are_found(tmp_path):
    lab = labs.Lab(5)
    (tmp_path / "stride.c").write_text(lab.starter("stride.c"))
    assert labs.copied(tmp_path, lab) is None
    begin, end = labs.item(lab.solution("stride.c"), "pick")
    (tmp_path / "takt.c").write_text(lab.solution("stride.c")[begin:end])
    assert re.match("takt.c has lines of the solution", labs.copied(tmp_path, lab))


def test_a_tree_is_not_written_over_another(tmp_path):
    (tmp_path / "mine").write_text("")
    with pytest.raises(sentence.Problem, match="is not an empty directory"):
        labs.tree(5, str(tmp_path))


@pytest.mark.parametrize("number", labs.numbers())
def test_each_lab_is_complete(number):
    """Its page has the table of steps, the points are 100, and docs/labs.md lists it."""
    lab = labs.Lab(number)
    page = lab.page()
    assert sum(int(n) for n in re.findall(r"^\| \d+ \| .* \| (\d+) \|$", page, re.M)) == 100
    for word in ("**Time:**", "What to read first", "Hand in"):
        assert word in page
    assert len(lab.wrong()) >= 5
    with open(os.path.join(ROOT, "docs", "labs.md"), encoding="utf-8") as f:
        assert f"| {number} | {lab.title} | {lab.hours} |" in f.read()


@pytest.mark.parametrize("number", [n for n in labs.numbers() if labs.Lab(n).kind == "host"])
def test_a_solution_still_fits_the_sources(tmp_path, number):
    """These labs take a few of the tree's files alone, so a new call in one of them breaks a lab.
    `make labs-check` tries all of a lab, which takes minutes."""
    lab = labs.tree(number, str(tmp_path / "lab"))
    for name in lab.files:
        (tmp_path / "lab" / name).write_text(lab.solution(name))
    result, _ = labs.grade(str(tmp_path / "lab"))
    assert not labs.failed(result)


@pytest.mark.parametrize("page", ["labs.md", "policies.md"])
def test_links_to_the_playground_are_scenarios(page):
    """Their words are those of playground/scenario.js, and what they name is there."""
    with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as f:
        links = re.findall(r"playground/index\.html#([^)\s]+)\)", f.read())
    script = labs.read("playground", "scenario.js")
    members = re.search(r"EMPTY_SCENARIO = \{(.*?)\};", script, re.S)[1]
    known = {"example", *re.findall(r"(\w+):", members)}
    sources = [path for folder in ("hv/sched", "labs") for path in
               glob.glob(os.path.join(ROOT, folder, "*.c"))]
    policies = "".join(labs.read(path) for path in sources)
    assert len(links) >= 4
    for link in links:
        words = dict(urllib.parse.parse_qsl(link))
        assert set(words) <= known, link
        assert os.path.exists(os.path.join(ROOT, words["example"])), link
        for word in words.get("other", "").split():
            assert f'"{word.removeprefix("sched=")}"' in policies, link


def test_assignments_link_the_playground_if_it_is_there(tmp_path):
    """Each link carries a VM file of the lab, and nothing is left of the section without a page."""
    page = tmp_path / "index.html"
    page.write_text("the page")
    with_scenes = [lab for lab in map(labs.Lab, labs.numbers()) if lab.scenes]
    assert [lab.number for lab in with_scenes] == [5, 6, 7, 8]
    for lab in with_scenes:
        out = tmp_path / str(lab.number)
        labs.tree(lab.number, str(out), str(page))
        written = (out / "README.md").read_text()
        links = re.findall(r"^\[scene-\d\]: playground\.html#(\S+)$", written, re.M)
        assert (out / "playground.html").read_text() == "the page"
        assert len(links) == len(lab.scenes)
        for link, scene in zip(links, lab.scenes):
            words = dict(urllib.parse.parse_qsl(link))
            assert words["file"] == (out / scene["file"]).read_text()
            assert words["pcpus"] == str(lab.cpus) and words.get("other") == scene.get("other")
        assert "playground" not in lab.page()


# ---- a class ----

def load(name):
    """Returns a tool whose name is no name of a module."""
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"),
                                                  os.path.join(ROOT, "tools", name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hand_in(folder, text):
    folder.mkdir()
    (folder / "Makefile").write_text("# Lab 5: a title\n")
    (folder / "stride.c").write_text(text)
    return str(folder)


def test_only_a_student_s_own_files_are_taken(tmp_path):
    tool = load("grade-all")
    folder = hand_in(tmp_path / "ann", "int mine;\n")
    (tmp_path / "ann" / "tests").mkdir()
    (tmp_path / "ann" / "tests" / "grader.py").write_text("mine = 1\n")
    s = tool.Student(folder, tool.number_of(folder), str(tmp_path / "out"))
    s.take()
    tree = tmp_path / "out" / "ann"
    assert (tree / "stride.c").read_text() == "int mine;\n"
    assert "mine = 1" not in (tree / "tests" / "grader.py").read_text()
    assert (tree / "tests" / "hidden.py").exists()
    assert s.note == ""


def test_a_link_is_no_file_that_was_handed_in(tmp_path):
    tool = load("grade-all")
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / "stride.c").symlink_to("/etc/passwd")
    s = tool.Student(str(tmp_path / "bob"), 5, str(tmp_path / "out"))
    s.take()
    assert s.note == "no file stride.c (of at most 1 MiB)"
    assert "root:" not in (tmp_path / "out" / "bob" / "stride.c").read_text()


def test_a_directory_that_names_no_lab_is_refused(tmp_path):
    with pytest.raises(sentence.Problem, match="--lab N says it"):
        load("grade-all").number_of(str(tmp_path))


# A constructor runs before all else. This one ends the program with a sentence if it can reach more
# than the program of a student may.
SPY = """
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
static void __attribute__((constructor)) spy(void) {
    struct if_nameindex *i = if_nameindex();
    const char *what = i[0].if_index && i[1].if_index ? "a network" : NULL;
    if_freenameindex(i);
    if (open("/lab/tests/steps.py", O_WRONLY) >= 0) what = "the grader, to write";
    if (open("PATH", O_RDONLY) >= 0) what = "a file of the teacher";
    if (getenv("SECRET")) what = "the environment";
    if (what) { fprintf(stderr, "it reaches %s\\n", what); exit(3); }
}
"""


@pytest.mark.long
@pytest.mark.skipif(subprocess.run(["sh", "-c", "bwrap --unshare-all --ro-bind / / true"],
                                   capture_output=True, check=False).returncode != 0,
                    reason="bubblewrap is not installed, or must not make sandboxes here")
def test_a_class_is_graded(tmp_path, monkeypatch):
    """A good solution that looks around, one that does not compile, and one that hangs, in the
    sandbox, two at once."""
    lab = labs.Lab(10)
    good = lab.solution("backlog.c")
    begin, _ = labs.item(good, "backlog_add")
    secret = tmp_path / "secret"
    secret.write_text("answers")
    for name, text in (("ann", good + SPY.replace("PATH", str(secret))),
                       ("eve", "int f(void) { return 1 }\n"),
                       ("zoe", good[:begin] + "for (;;) {}" + good[begin:])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "backlog.c").write_text(text)
    monkeypatch.setenv("SECRET", "answers")
    done = subprocess.run([os.path.join(ROOT, "tools", "grade-all.py"), "--lab", "10", "-j", "2",
                           "-o", "out", "--timeout", "1", "ann", "eve", "zoe"],
                          cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with open(tmp_path / "out" / "grades.csv", encoding="utf-8", newline="") as f:
        rows = {row["student"]: row for row in csv.DictReader(f)}
    told = {name: (tmp_path / "out" / name / "grade.txt").read_text() for name in rows}
    assert (rows["ann"]["points"], rows["ann"]["failed"]) == ("110", ""), told["ann"]
    assert rows["eve"]["points"] == "0" and "compiles" in rows["eve"]["failed"].split()
    assert int(rows["zoe"]["points"]) < 25 and "nothing_is_promised" in rows["zoe"]["failed"]
    assert "did not end within 1 s" in re.sub(r"\s+", " ", told["zoe"])
    assert [row["note"] for row in rows.values()] == [""] * 3
    with open(tmp_path / "out" / "ann" / "grade.json", encoding="utf-8") as f:
        assert json.load(f)["points"] == 110
    if shutil.which("sim_c"):
        similar = (tmp_path / "out" / "similar.txt").read_text()
        assert "ann" in similar and "zoe" in similar and "eve" not in similar


@pytest.mark.skipif(not shutil.which("sim_c"), reason="similarity-tester is not installed")
def test_those_who_wrote_the_same_are_named(tmp_path):
    tool = load("grade-all")
    code = labs.Lab(5).solution("stride.c")
    other = "\n".join(f"static u64 f{i}(u64 a) {{ return a * {i} + f{i + 1}(a >> {i}); }}"
                      for i in range(40))
    students = []
    for name, text in (("ann", code), ("bob", code.replace("next", "best")), ("eve", other)):
        s = tool.Student(hand_in(tmp_path / name, text), 5, str(tmp_path / "out"))
        s.take()
        students.append(s)
    lines = tool.similar(students, str(tmp_path / "out"))
    assert lines and all("ann" in line and "bob" in line for line in lines)
