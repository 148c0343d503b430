"""tools/labs.py and the grader of labs/frame, without building a lab (`make labs-check` does)."""
import glob
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse

import labs
import pytest
import sentence
from conftest import ROOT

FRAME = os.path.join(ROOT, "labs", "frame")

STEPS = """
import sys
from grader import Lab
lab = Lab(3, "a test")
@lab.step(10, "it says 7", hint="say 7")
def seven(t):
    out = t.program("the program", [sys.executable, "-c", {program!r}])
    t.equal("what it says", out.strip(), "7")
@lab.step(5, "nothing", hint="none")
def nothing(t):
    t.near("a number", 5, 5, 0)
@lab.step(0, "after seven", hint="none")
def after(t):
    t.needs("seven")
lab.main()
"""


def grade(tmp_path, program, makefile="all:\n", **environment):
    """Grades a lab whose only step runs a Python program. Returns exit status, text, result."""
    (tmp_path / "steps.py").write_text(STEPS.format(program=program))
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
    ("while True: pass", "it did not end within 1 s of CPU time"),
    ("import os; os.abort()", "it was ended by the signal SIGABRT"),
    ("import sys; sys.exit('no luck')", "no luck"),
    ("while True: print('7' * 1000)", "it printed more than 4 MiB|File too large"),
])
def test_a_program_that_goes_wrong_is_a_sentence(tmp_path, program, came):
    status, _, result = grade(tmp_path, program, GRADE_TIMEOUT="1")
    assert status == 1
    assert re.search(came, result["steps"][1]["came"])
    assert result["steps"][2]["points"] == 5


def test_the_time_of_a_program_is_that_of_its_cpu(tmp_path):
    program = "import resource; print(resource.getrlimit(resource.RLIMIT_CPU)[0])"
    status, text, _ = grade(tmp_path, program, GRADE_TIMEOUT="7")
    assert status == 0, text


def test_what_does_not_compile_gets_nothing(tmp_path):
    makefile = "all:\n\t@echo 'x.c:3: error: no' >&2; false\n"
    status, _, result = grade(tmp_path, "print(7)", makefile)
    assert (status, result["points"]) == (1, 0)
    assert result["steps"][0]["came"] == "x.c:3: error: no"


def test_a_timeout_that_is_none_is_refused(tmp_path):
    """The steps before the one that could not be graded are shown."""
    status, text, result = grade(tmp_path, "print(7)", GRADE_TIMEOUT="soon")
    assert (status, result) == (2, None)
    first, last = text.splitlines()
    assert re.fullmatch(r" +1  the files compile +5 of +5", first)
    assert last == "grade: GRADE_TIMEOUT=soon: expected a whole number of seconds (such as 60)"


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
