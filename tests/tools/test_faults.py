"""tools/faults.py: how a fault is written, and how it is put into a file."""
import faults
import pytest
import sentence

RECORD = """# a comment
name: test_x
One sentence
over two lines.
Makefile
 first
-    if (a
-        && b)
+    if (a)
@@
-last
+end
"""


def test_a_fault_is_read():
    [fault] = faults.parse("list", RECORD)
    assert (fault.name, fault.tests, fault.path) == ("name", ["test_x"], "Makefile")
    assert fault.why == "One sentence over two lines."
    assert len(fault.places) == 2


def test_a_fault_may_have_several_tests():
    [fault] = faults.parse("list", RECORD.replace("test_x", "test_x tests/y.py::test_y"))
    assert fault.tests == ["test_x", "tests/y.py::test_y"]


def test_blanks_and_line_ends_do_not_count():
    [fault] = faults.parse("list", RECORD)
    text = "first\n        if (a && b) x();\nlast\n"
    assert fault.apply(text) == "first\n    if (a) x();\nend\n"


@pytest.mark.parametrize("text, why", [
    ("first if (a && c) last", "the file does not hold `first`"),
    ("first if (a && b) first if (a && b) last", "the file holds `first`... more than once"),
])
def test_a_place_that_is_not_clear(text, why):
    [fault] = faults.parse("list", RECORD)
    with pytest.raises(ValueError, match=why):
        fault.apply(text)


@pytest.mark.parametrize("record, why", [
    ("name\nWhy.\nMakefile\n-a", "list:1: expected `name: test`, not `name`"),
    ("name: test\nMakefile\n-a", "list:1: expected a sentence and the name of a file"),
    ("name: test\nWhy\nMakefile\n-a", "list:1: expected a sentence and the name of a file"),
    ("name: test\nTODO.\nMakefile\n-a", "list:1: expected a sentence .*, not `TODO.`"),
    ("name: test\nWhy.\nMakefile", "list:1: expected lines to replace"),
    ("name: test\nWhy.\nMakefile\n-a\nb", r"list:5: expected a line that begins with -, \+ or"),
])
def test_a_fault_that_nobody_can_read(record, why):
    with pytest.raises(sentence.Problem, match="^" + why):
        list(faults.parse("list", record))


def test_no_name_is_there_twice(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(RECORD)
    (tmp_path / "b.txt").write_text(RECORD)
    monkeypatch.setattr(faults, "FOLDER", str(tmp_path))
    with pytest.raises(sentence.Problem, match="b.txt:2: name is also at .*a.txt:2$"):
        faults.all_faults()


def test_no_patch_has_two_names(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(RECORD)
    (tmp_path / "b.txt").write_text(RECORD.replace("name:", "other:").replace("    if", " if"))
    monkeypatch.setattr(faults, "FOLDER", str(tmp_path))
    with pytest.raises(sentence.Problem, match="b.txt:2: other is the same patch as name"):
        faults.all_faults()
