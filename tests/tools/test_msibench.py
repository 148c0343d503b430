"""The stages of make bench's interrupt: a delivery is cut where functions begin."""
import msibench
import pytest

WAY = ["svm_enter", "svm_run", "trap_stubs", "trap_handle", "on_message", "on_message",
       "evtchn_raise", "port_lock", "evtchn_raise",
       "events_raise", "vlapic_raise", "events_raise", "evtchn_raise", "on_message", "trap_handle",
       "vcpu_prepare", "hist_add",
       "vcpu_prepare", "svm_run", "prepare", "svm_enter"]


def test_each_instruction_is_of_one_stage():
    assert msibench.stages_of(WAY) == {"exit": 2, "host's handler": 2, "device": 2, "event": 3,
                                       "wake": 4, "return": 2, "inject": 3,
                                       "entry": 3}


def test_another_way_is_no_delivery():
    with pytest.raises(LookupError, match="evtchn_raise"):
        msibench.stages_of([name for name in WAY if name != "evtchn_raise"])


def test_stays_are_whole():
    hv = msibench.HV
    assert msibench.stays([hv, 1, hv + 1, hv + 2, 2, 3, hv + 3, 4, hv + 4]) == [
        [hv + 1, hv + 2],
        [hv + 3],
    ]


def test_a_busy_host_is_given_time(monkeypatch):
    logs = iter(["", "", "a delivery"])

    def split(text, elf):
        if not text:
            raise LookupError("nothing was logged")
        return {"exit": 1}

    monkeypatch.setattr(msibench, "split", split)
    assert msibench.logged_stages(lambda: next(logs), "elf") == {"exit": 1}
    with pytest.raises(LookupError, match="nothing was logged"):
        msibench.logged_stages(lambda: "", "elf")
