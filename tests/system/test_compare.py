"""The same file in the simulation and on Bochs: the same shares within a point, and the same latency in kind."""
import argparse

import compare
import pytest

pytestmark = [pytest.mark.bochs, pytest.mark.long]


@pytest.mark.parametrize("policy", ["credit", "vslicer", "uniform-1ms", "vturbo"])
def test_same_file_same_shares(policy):
    sim, bochs = (compare.run(policy, 1, argparse.Namespace(platform=platform, warm_up=2, percent=40, seconds=4, commit="-"))
                  for platform in ("sim", "bochs"))
    for a, b in zip(sim["vms"], bochs["vms"]):
        assert a["vm"] == b["vm"] and abs(a["cpu_pct"] - b["cpu_pct"]) < 1, (policy, sim["vms"], bochs["vms"])
    assert abs(sim["events"] - bochs["events"]) <= 10  # those that wait when the measurement ends
    assert sim["latency_us"]["mean"] == pytest.approx(bochs["latency_us"]["mean"], rel=0.5)
