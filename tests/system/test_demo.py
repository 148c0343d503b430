"""make demo passes as it is, and fails with a fault in the scheduler."""
import json
import os
import subprocess
import sys

import pytest
from conftest import BUILD, ROOT

pytestmark = pytest.mark.alone


def demo(platform, *options):
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "demo.py"), "--platform",
                           platform, *options], cwd=ROOT,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout)
    return done.returncode, done.stdout


@pytest.mark.long_on("bochs")
def test_everybody_gets_his_share(platform):
    code, text = demo(platform)
    if code and "The host was busy" in text:
        pytest.skip(
            "the host is busy: on QEMU, whose clock is the host's, shares cannot be measured"
        )
    assert code == 0, text
    with open(os.path.join(BUILD, "results", f"demo-{platform}.json"), encoding="utf-8") as f:
        result = json.load(f)
    assert set(result) == {"platform", "vendor", "seconds", "vcpus"}
    assert result["platform"] == platform
    assert result["vendor"] == {"bochs": "vmx", "qemu": "svm"}.get(platform, result["vendor"])
    assert abs(result["seconds"] - 8) < 0.5
    assert [v["vm"] for v in result["vcpus"]] == ["hog-a", "hog-b", "part", "waker", "heavy",
                                                  "light"]
    for v in result["vcpus"]:
        assert set(v) == {"vm", "vcpu", "pcpu", "cpu_pct", "entitled_pct", "wake_us",
                          "switches_per_s", "exits_per_s"}
        assert set(v["wake_us"]) == {"p50", "p99", "max"}


@pytest.mark.bochs
def test_a_scheduler_that_ignores_weights_fails():
    code, text = demo("bochs", "--fault", "ignore_weight", "--seconds", "3", "--warm-up", "1")
    assert code == 1 and "did not get what they are entitled to" in text, text
