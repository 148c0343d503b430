"""What Takt's probes say of real machines (tests/machines/) is what it should be."""
import os

import machines
import pytest

ALL = machines.descriptions([machines.MACHINES])


@pytest.fixture(scope="module", name="results")
def all_results():
    return {r["file"]: r for r in machines.check_all(ALL)}


@pytest.mark.parametrize("path", ALL, ids=[os.path.basename(p) for p in ALL])
def test_machine(results, path):
    assert not results[os.path.basename(path)]["wrong"]


def test_enough_of_each_kind():
    """A kind of machine that nobody describes any more would go unnoticed."""
    told = [machines.read(p) for p in ALL]
    assert sum("MSRs" in d["checked"] for d in told) >= 60
    assert sum(d.get("verdict") == "no" for d in told) >= 10
    assert sum("PCI" in d["checked"] for d in told) >= 5


def test_what_differs_is_told(tmp_path):
    """The comparison can fail: by a verdict, a sentence, an MSR that the machine does not have."""
    good = os.path.join(machines.MACHINES, "intel-506e3-skylake.txt")
    with open(good, encoding="utf-8") as f:
        text = f.read()
    for old, new, told in (("verdict: yes", "verdict: no", "verdict: 'no' was expected"),
                           ("says: Guests", "says: Cats", "says: 'Cats can run.' was expected"),
                           ("\nmsr 480: ", "\nmsr 480: faults\nmsr 9999: ", "Takt says 'fault'"),
                           ("\nmsr 480: ", "\nmsr 480: x", "a hexadecimal number was expected")):
        assert old in text
        path = tmp_path / "changed.txt"
        path.write_text(text.replace(old, new), encoding="utf-8")
        assert told in "\n".join(machines.check(str(path))["wrong"])
