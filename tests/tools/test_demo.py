"""tools/demo.py: which platform it measures on when the host is busy. tests/system/test_demo.py
measures."""
import os

import pytest

import demo
import machine
import sentence


@pytest.fixture
def host(monkeypatch):
    """host(part of the time that other programs take, whether Bochs can be had) sets up a host
    without KVM."""
    def setup(busy, bochs=True):
        monkeypatch.setattr(machine, "kvm_nested", lambda: False)
        monkeypatch.setattr(machine, "host_busy", lambda cpus: busy)
        monkeypatch.setattr(demo, "install_bochs", lambda: bochs)
    return setup


def test_an_idle_host_has_qemu(host, capsys):
    host(machine.BUSY / 2)
    assert demo.choose("auto", 2) == "qemu" and not capsys.readouterr().out


def test_a_busy_host_has_bochs(host, capsys):
    host(0.83)
    assert demo.choose("auto", 2) == "bochs"
    said = capsys.readouterr().out
    assert "would wait 83% of its time" in said and "on Bochs, whose time is virtual" in said


@pytest.mark.parametrize("wanted, bochs", [("auto", False), ("qemu", True)])
def test_a_busy_host_is_told_at_once_where_it_stays_with_qemu(host, capsys, wanted, bochs):
    host(0.5, bochs)
    assert demo.choose(wanted, 2) == "qemu"
    assert "the shares may be wrong" in capsys.readouterr().out


def test_a_person_who_wants_bochs_is_not_asked_for_an_idle_host(host, capsys):
    host(1.0)
    assert demo.choose("bochs", 2) == "bochs" and not capsys.readouterr().out


@pytest.mark.parametrize("where, busy, told", [
    ("qemu", 0.5, True), ("kvm", 0.5, True), ("qemu", machine.BUSY / 2, False),
    ("bochs", 1.0, False), ("icount", 1.0, False),
])
def test_make_run_tells_that_the_host_is_busy(host, capsys, monkeypatch, tmp_path, where, busy,
                                              told):
    host(busy)
    (tmp_path / "takt.iso").write_text("")
    monkeypatch.setattr(machine, "choose", lambda wanted: where)
    monkeypatch.setattr(machine, "run", lambda m: 0)
    monkeypatch.setattr("sys.argv", ["machine.py", "run", str(tmp_path / "takt.iso")])
    assert machine.main() == 0
    said = capsys.readouterr().out
    assert ("would wait 50% of its time" in said
            and "PLATFORM=bochs runs in virtual time" in said) == told
    assert told or not said


@pytest.mark.parametrize("tolerance, said",
                         [(2.0, "may be off by 2 points."), (1.0, "may be off by 1 point.")])
def test_the_table_tells_its_limit(capsys, tolerance, said):
    demo.print_table({"platform": "qemu", "vendor": "svm", "seconds": 8, "vcpus": []}, tolerance)
    assert said in capsys.readouterr().out


def test_a_host_is_busy_when_more_compute_than_it_has_cpus():
    assert machine.host_busy(4 * os.cpu_count(), 0.2) > 0.5


def test_an_unknown_fault_is_told_by_its_own_name():
    with pytest.raises(sentence.Problem,
                       match=r'^FAULT=nosuch: fault must be none or ignore_weight, not "nosuch"$'):
        demo.check_fault(os.path.join(machine.ROOT, "boot", "demo.cfg"), "nosuch")
    demo.check_fault(os.path.join(machine.ROOT, "boot", "demo.cfg"), "ignore_weight")
