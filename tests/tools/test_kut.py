"""tools/kut.py: the list of tests, what their output means, and the file of known results."""
import kut
import pytest
import sentence

LIST = """
[one]
file = one.flat
smp = 2
test_args = 'a b'
qemu_params = -cpu max -m 2048
groups = x y

[old]
file = old.flat
arch = i386

[two]
file = two.flat
"""


def log(name, *lines):
    return "".join(f"[   1.5] {name}: {line}\n" for line in lines)


def test_listed(tmp_path):
    (tmp_path / "x86").mkdir()
    (tmp_path / "x86" / "unittests.cfg").write_text(LIST)
    one, two = kut.listed(str(tmp_path))
    assert one == {"name": "one", "file": "one.flat", "smp": 2, "args": ["a b"], "memory": 2048,
                   "groups": ["x", "y"]}
    assert two["memory"] == kut.DEFAULT_MEMORY and two["args"] == [""] and two["smp"] == 1
    text = kut.vm_file([one, two], "qemu")
    assert 'cmdline = "one.flat a b"' in text and "vcpus = 2" in text and "[vm two]" in text
    assert "+0ms wait two 7s" in kut.script([one, two], 7)


@pytest.mark.parametrize("lines, verdict", [
    (["PASS: a", "ends with code 0"], "pass"),
    (["PASS: a", "SKIP: b", "ends with code 0"], "pass"),
    (["ends with code 38", "SKIP: b"], "skip"),
    (["PASS: a", "FAIL: b", "ends with code 0"], "fail"),
    (["PASS: a", "ends with code 63"], "fail"),
    (["PASS: a", "crashed: triple fault"], "crash"),
    (["PASS: a"], "hang"),
])
def test_verdict(lines, verdict):
    """Another test of the same boot has failed, which is nothing to this one."""
    assert kut.verdict("one", log("two", "FAIL: c") + log("one", *lines))[0] == verdict


def test_known(tmp_path, monkeypatch, capsys):
    path = tmp_path / "kut.txt"
    path.write_text("# a comment\n\none all fail: it needs a device\nsow all hang/pass: slow\n")
    monkeypatch.setattr(kut, "KNOWN", str(path))
    monkeypatch.setattr(kut.machine, "BUILD", str(tmp_path))
    assert kut.known()["one", "bochs"] == ("fail", "it needs a device")
    assert kut.report("qemu", {"one": ("fail", "1 of 2: a"), "two": ("pass", ""),
                               "sow": ("pass", "")}) == 0
    assert kut.report("qemu", {"sow": ("hang", "")}) == 0
    assert kut.report("qemu", {"sow": ("fail", "")}) == 1
    assert kut.report("qemu", {"one": ("pass", ""), "two": ("hang", "b")}) == 2
    assert "2 tests on qemu: 1 pass, 0 skip, 0 fail, 0 crash, 1 hang; 2 not as known" in \
        capsys.readouterr().out
    path.write_text("one qemu broken: why\n")
    with pytest.raises(sentence.Problem, match=r"kut.txt:1: expected a name, a platform"):
        kut.known()


def test_a_wrong_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("KUT", str(tmp_path))
    with pytest.raises(sentence.Problem, match="it is no clone of kvm-unit-tests"):
        kut.source()
