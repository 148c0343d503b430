"""The same file runs in the simulation and on Bochs. Shares must agree within a point, and
latencies roughly."""
import argparse
import os

import compare
import pytest

from conftest import BUILD

pytestmark = [pytest.mark.bochs, pytest.mark.long]


@pytest.mark.parametrize("policy", ["hardened", "vslicer", "uniform-1ms", "vturbo"])
def test_same_file_same_shares(policy):
    (sim, knobs), (bochs, in_image) = (
        compare.run(policy, 1,
                    argparse.Namespace(platform=platform, percent=40, loop="closed", seconds=4,
                                                  hv=os.path.join(BUILD, "takt.elf")), 2)
        for platform in ("sim", "bochs"))
    for a, b in zip(sim["vms"], bochs["vms"]):
        assert a["vm"] == b["vm"] and abs(a["cpu_pct"] - b["cpu_pct"]) < 1, (
            policy,
            sim["vms"],
            bochs["vms"],
        )
    # Events that wait when the measurement ends may be missing.
    assert abs(sim["events"] - bochs["events"]) <= 10
    assert sim["latency_us"]["mean"] == pytest.approx(bochs["latency_us"]["mean"], rel=0.5)
    assert sum(half["events"] for half in bochs["halves"]) == bochs["events"]
    for half in bochs["halves"]:
        assert half["latency_us"]["mean"] == pytest.approx(bochs["latency_us"]["mean"], rel=0.5)
    # The image had the same settings as the simulation.
    for kind, name in (("pools", "core"), ("vms", "mixed")):
        said = {key: str(value) for key, value in knobs[kind][name].items() if key != "policy"}
        assert {key: str(value) for key, value in in_image[kind][name].items()} == said
