"""tools/floors.py on small trees: dependencies by includes and by symbols, and circles of files."""
import subprocess

import floors
import pytest

TABLE = """# Architecture
| floor | room | what it is |
|---|---|---|
| 3 | `hv/main.c` | the boot |
| 2 | `hv/sched/`, `hv/other/` | on one floor, so they do not know each other |
| 1 | `hv/lib/` | the lowest |
"""
ALWAYS = {"docs/architecture.md": TABLE, "hv/sched/core.c": "int core(void) { return 1; }\n"}


@pytest.fixture
def tree(tmp_path, monkeypatch, capsys):
    """tree({path: text}) writes the sources and compiles them; returns the lines of floors.py."""
    objects = tmp_path / "build/image"

    def run(sources, *options):
        for path, text in {**ALWAYS, **sources}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
            if path.endswith(".c"):
                target = (objects / path).with_suffix(".o")
                target.parent.mkdir(parents=True, exist_ok=True)
                command = ["gcc", "-I", tmp_path / "hv", "-c", tmp_path / path, "-o", target]
                subprocess.run(command, check=True)
        monkeypatch.setattr(floors, "ROOT", str(tmp_path))
        monkeypatch.setattr(floors.sys, "argv", ["floors.py", *options, str(objects)])
        status = floors.main()
        lines = capsys.readouterr().out.splitlines()
        assert status == bool([line for line in lines if " a circle" not in line])
        return lines

    monkeypatch.setattr(floors, "EXCEPTIONS", {})
    monkeypatch.setattr(floors, "STRICT", True)
    run.path = tmp_path
    return run


LIST_H = "#pragma once\nint list(void);\n"
LIST_C = '#include "lib/list.h"\nint list(void) { return 2; }\n'


def test_down_is_allowed(tree):
    pool = '#include "lib/list.h"\nint pool(void) { return list(); }\n'
    assert tree({"hv/lib/list.h": LIST_H, "hv/lib/list.c": LIST_C, "hv/sched/pool.c": pool}) == []


def test_an_include_that_goes_up(tree):
    said = tree({"hv/sched/core.h": "", "hv/lib/list.c": '#include "sched/core.h"\n'})
    assert said == ["hv/lib/list.c:1: floor 1 includes sched/core.h of floor 2"]


def test_an_include_on_the_same_floor(tree):
    said = tree({"hv/sched/core.h": "", "hv/other/x.c": '\n#include "sched/core.h"\n'})
    assert said == ["hv/other/x.c:2: floor 2 includes sched/core.h of floor 2"]


def test_a_call_upwards_that_no_include_shows(tree):
    said = tree({"hv/lib/list.c": "int core(void);\nint list(void) { return core(); }\n"})
    assert said == ["hv/lib/list.c: floor 1 needs core, which is in hv/sched/core.c of floor 2"]


def test_a_call_upwards_that_a_header_of_the_lower_room_declares(tree):
    sources = {"hv/lib/list.h": "static inline int all(void) { int core(void); return core(); }\n",
               "hv/lib/list.c": '#include "lib/list.h"\nint list(void) { return all(); }\n'}
    assert ["needs core" in line for line in tree(sources)] == [True]


def test_symbols_do_not_fail_the_check_until_it_is_strict(tree, monkeypatch):
    sources = {"hv/lib/list.c": "int core(void);\nint list(void) { return core(); }\n"}
    monkeypatch.setattr(floors, "STRICT", False)
    with pytest.raises(AssertionError):
        tree(sources)  # It prints something, and its exit status is that of success.
    assert tree({**sources, "hv/sched/core.h": "", "hv/lib/x.c": '#include "sched/core.h"\n'})


def test_an_exception_is_allowed_and_is_told_once_it_is_not_needed(tree, monkeypatch):
    monkeypatch.setattr(floors, "EXCEPTIONS", {"core": "the reason"})
    assert tree({"hv/lib/list.c": "int core(void);\nint list(void) { return core(); }\n"}) == []
    said = tree({"hv/lib/list.c": "int list(void) { return 2; }\n"})
    assert said == ["tools/floors.py: the exception core is not needed any more: delete it"]


def test_a_file_that_is_on_no_floor(tree):
    said = tree({"hv/new/x.c": "int x;\n"})
    assert said == ["hv/new/x.c: is on no floor of docs/architecture.md"]


def test_objects_of_files_that_are_gone_do_not_count(tree):
    sources = {"hv/lib/list.c": "int core(void);\nint list(void) { return core(); }\n"}
    assert tree(sources)
    (tree.path / "hv/lib/list.c").unlink()
    assert tree({}) == []


def test_circles_across_rooms_are_told_and_within_one_only_on_request(tree):
    within = {"hv/sched/a.c": "int b(void);\nint a(void) { return b(); }\n",
              "hv/sched/b.c": "int a(void);\nint b(void) { return a(); }\n"}
    assert tree(within) == []
    assert tree(within, "--circles") == ["hv/sched/: a circle of 2 files: hv/sched/a hv/sched/b"]
    said = tree({"hv/lib/list.c": "int core(void);\nint list(void) { return core(); }\n",
                 "hv/sched/core.c": "int list(void);\nint core(void) { return list(); }\n"})
    assert "a circle of 2 files in 2 rooms: hv/lib/list hv/sched/core" in said


def test_circles_are_found_however_long_they_are():
    arrows = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"), ("d", "e"), ("e", "f"), ("x", "a")]
    assert floors.circles(arrows) == [{"b", "c", "d"}]
    assert floors.circles([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]) == []


def test_without_objects_it_says_what_to_do(tree):
    with pytest.raises(floors.sentence.Problem, match="no objects of hv/ are there; make all"):
        floors.nm(str(tree.path / "nowhere"))
