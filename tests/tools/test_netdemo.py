"""tools/netdemo.py: what it makes of the guests' words, and the VM files of its set-ups."""
import json
import os
import subprocess

import netdemo
import pytest

from conftest import BUILD

SAID = """\
[ 1.0] server: iperf: acks early=0 bottom_half=1 process=2 timer=0 suppressed=0 backlog=0 backlog_most=0
[ 2.0] probe: load: echo 400 requests, 399 answers, rtt ns p50 4500000 p99 90000000 max 120000000 mean 30000000
[ 3.0] server: iperf: tcp 1000000 bytes in 4000000000 ns, 2.00 Mb/s, 0 wrong, end 0
[ 3.0] server: iperf: acks early=7 bottom_half=1 process=2 timer=0 suppressed=0 backlog=9 backlog_most=5
[ 4.0] server: iperf: udp 500000 bytes in 1000000000 ns, 4.00 Mb/s, 10 of 350 datagrams lost, 0 out of order, jitter 1 ns
[ 5.0] iodom: iodom: server.0: in=1 out=2 ring_full=33 irqs=4
"""


def test_read():
    assert netdemo.read("turbo", SAID) == {
        "setup": "turbo", "tcp_mbps": 2.0, "udp_mbps": 4.0, "rtt_ms": {"p50": 4.5, "p99": 90.0, "max": 120.0, "mean": 30.0},
        "ring_drops": 33, "early_acks": 7, "backlog_most": 5, "udp_lost": 10, "udp_sent": 350, "echo_requests": 400,
        "echo_answers": 399}
    assert netdemo.read("turbo", SAID.replace("ring_full=33 ", ""))["ring_drops"] == 0
    for name in ("tcp", "udp", "echo"):
        with pytest.raises(LookupError, match=name):
            netdemo.read("turbo", "\n".join(line for line in SAID.splitlines() if f": {name} " not in line))


def test_medians():
    runs = [{"setup": "a", "x": x, "rtt": {"p50": 2 * x}} for x in (5, 1, 3)]
    assert netdemo.median(runs) == {"setup": "a", "x": 3, "rtt": {"p50": 6}}


@pytest.mark.parametrize("setup", netdemo.SETUPS)
def test_vm_files(setup, tmp_path):
    """Four VMs on the core; the set-ups differ in the turbo core and the switch, in nothing else."""
    path = tmp_path / "net-demo.cfg"
    path.write_text(netdemo.vm_file(setup))
    done = subprocess.run([os.path.join(BUILD, "cfgdump"), path], capture_output=True, text=True, check=True)
    vms = {vm["name"]: vm for vm in json.loads(done.stdout)["vms"]}
    assert sum(vm["pool"] == "core" for vm in vms.values()) == 4
    assert vms["server"]["turbo"] == (setup != "credit")
    assert f"early_ack={int(setup == 'turbo+early_ack')}" in vms["server"]["cmdline"]
