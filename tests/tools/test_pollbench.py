"""tools/pollbench.py: to which stage each tick of a request belongs, and when it fails."""
import pollbench
import pytest
from tools.test_iobench import printed

FRONT = [("C", 0), ("Q", 30), ("q", 200), ("w", 500), ("I", 540), ("c", 600),
         ("E", 1000), ("Q", 1030), ("q", 1200), ("w", 1500), ("I", 1540), ("e", 1600)]
# The driver domain falls asleep once more in vain before it takes the first request.
BACK = [("z", 100), ("Z", 110), ("z", 130), ("T", 150), ("<", 200), (">", 300), ("Q", 350),
        ("q", 700), ("T", 1150), ("<", 1200), (">", 1300), ("Q", 1350)]


def test_each_tick_is_of_one_stage():
    text = printed("guest", 0, FRONT) + printed("driver", 0, BACK)
    found = pollbench.rounds(text, "guest", "driver")
    assert found["write"] == [{
        "guest submits": 30, "notify and exit": 100, "wakes": 20, "back end takes": 50,
        "device copies": 100, "completes": 50, "raises interrupt": 150, "interrupt arrives": 40,
        "guest hears": 60}]
    # Nobody was notified of the second one: its kick ends in the driver of the guest.
    assert found["read"][0]["wakes"] == 0 and sum(found["read"][0].values()) == 600


@pytest.mark.parametrize("gone", ["T", "<", "Q"])
def test_a_round_without_a_stage_is_no_result(gone):
    back = [event for event in BACK if event[0] != gone]
    with pytest.raises(LookupError):
        pollbench.rounds(printed("guest", 0, FRONT) + printed("driver", 0, back), "guest", "driver")


def found(polled, notified):
    return {"polled": {"write": {"total": polled}}, "notified": {"write": {"total": notified}}}


def test_limits():
    assert not pollbench.over(found(6000, 8000))
    assert "7001" in pollbench.over(found(7001, 20000))[0]
    assert "notified one 7000" in pollbench.over(found(6000, 7000))[0]
