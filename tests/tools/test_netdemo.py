"""tools/netdemo.py: the VM files of its set-ups, and what it reads from the guests' output."""
import json
import os
import subprocess
import sys

import clients
import machine
import netdemo
import netdemo_host
import pytest

from conftest import BUILD, ROOT

SAID = """\
[ 1.0] server: iperf: acks early=0 bottom_half=1 process=2 timer=0 suppressed=0 backlog=0 \
backlog_most=0
[ 2.0] probe: load: echo 400 requests, 399 answers, rtt ns p50 4500000 p99 90000000 max 120000000 \
mean 30000000
[ 3.0] server: iperf: tcp 1000000 bytes in 4000000000 ns, 2.00 Mb/s, 0 wrong, end 0
[ 3.0] server: iperf: acks early=7 bottom_half=1 process=2 timer=0 suppressed=0 backlog=9 \
backlog_most=5
[ 4.0] server: iperf: udp 500000 bytes in 1000000000 ns, 4.00 Mb/s, 10 of 350 datagrams lost, \
0 out of order, jitter 1 ns
[ 5.0] iodom: iodom: server.0: in=1 out=2 ring_full=33 irqs=4
"""


def test_read():
    assert netdemo.read("turbo", SAID) == {
        "setup": "turbo", "tcp_mbps": 2.0, "udp_mbps": 4.0,
        "rtt_ms": {"p50": 4.5, "p99": 90.0, "max": 120.0, "mean": 30.0},
        "ring_drops": 33, "early_acks": 7, "backlog_most": 5, "udp_lost": 10, "udp_sent": 350,
        "echo_requests": 400,
        "echo_answers": 399}
    assert netdemo.read("turbo", SAID.replace("ring_full=33 ", ""))["ring_drops"] == 0
    for name in ("tcp", "udp", "echo"):
        with pytest.raises(LookupError, match=name):
            netdemo.read("turbo",
                         "\n".join(line for line in SAID.splitlines() if f": {name} " not in line))


IPERF = """\
------------------------------------------------------------
Client connecting to 10.77.0.2, UDP port 5001
[  1] local 10.77.0.1 port 54188 connected with 10.77.0.2 port 5001
[ ID] Interval       Transfer     Bandwidth
[  1] 0.0000-2.0189 sec  269010 Bytes  1065958 bits/sec
[  1] Sent 183 datagrams
[  1] Server Report:
[ ID] Interval       Transfer     Bandwidth        Jitter   Lost/Total Datagrams
[  1] 0.0000-2.0011 sec  264600 Bytes  1057819 bits/sec   0.104 ms 2/182 (1.1%)
"""


def test_what_iperf_says(monkeypatch):
    sent, got = clients.intervals(IPERF)
    assert sent == {"seconds": 2.0189, "bytes": 269010, "mbps": 1.065958}
    assert got == {"seconds": 2.0011, "bytes": 264600, "mbps": 1.057819, "jitter_ms": 0.104,
                   "lost": 2, "sent": 182}
    monkeypatch.setattr(clients, "run", lambda command, timeout: IPERF)
    assert clients.iperf_udp("10.77.0.2") == got
    monkeypatch.setattr(clients, "run", lambda command,
                        timeout: IPERF[:IPERF.find("[  1] Server Report")])
    with pytest.raises(clients.Failed):  # What the client has sent is no answer.
        clients.iperf_udp("10.77.0.2")


def test_quantiles():
    assert [clients.quantile([1, 2, 3, 4], q) for q in (0.01, 0.5, 0.99, 1)] == [1, 2, 4, 4]
    assert clients.quantile([], 0.5) is None


@pytest.mark.parametrize("words, where, needs",
                         [([], "auto", "qemu clients"), (["PLATFORM=kvm"], "kvm", "qemu clients"),
                                                 (["PLATFORM=bochs"], "bochs", "bochs")])
def test_who_measures(words, where, needs):
    """The host's own programs measure, unless Bochs is asked for."""
    # These would come from a make above this test.
    env = {k: v for k, v in os.environ.items() if k not in ("PLATFORM", "MAKEFLAGS")}
    said = subprocess.run(["make", "-n", "net-demo", *words], cwd=ROOT, env=env,
                          capture_output=True, text=True, check=True).stdout
    assert (
        f"tools/netdemo.py --platform {where} " in said and f"deps.sh build net {needs}" in said
    ), said


def test_medians():
    runs = [{"setup": "a", "x": x, "rtt": {"p50": 2 * x}} for x in (5, 1, 3)]
    assert netdemo.median(runs) == {"setup": "a", "x": 3, "rtt": {"p50": 6}}


def test_every_run_is_written_and_medians_are_called_so(monkeypatch, tmp_path):
    def run(setup, platform, number):
        if (setup, number) == ("turbo", 1):
            raise clients.Failed("no result of tcp (timeout); see there")
        return netdemo.read(setup, SAID.replace("2.00 Mb/s", f"{number} Mb/s")) | {
            "knobs": {"pools": {}},
            "vm_file": "ab",
        }

    monkeypatch.setattr(netdemo, "run", run)
    monkeypatch.setattr(machine, "BUILD", str(tmp_path))
    monkeypatch.setattr(netdemo, "provenance", lambda *args, **facts: facts)
    monkeypatch.setattr(sys, "argv", ["netdemo.py", "--platform", "bochs", "--runs", "3"])
    assert netdemo.main() == 1
    with open(tmp_path / "results" / "net-demo-bochs.json", encoding="utf-8") as f:
        found = json.load(f)
    assert len(found["runs"]) == 3 * len(netdemo.SETUPS) - 1
    assert [r["seed"] for r in found["runs"] if r["setup"] == "turbo"] == [2, 3]
    assert [(r["setup"], r["runs"]) for r in found["medians"]] == \
        [(s, 2 if s == "turbo" else 3) for s in netdemo.SETUPS]
    assert found["missing"] == [{"setup": "turbo", "seed": 1,
                                 "why": "no result of tcp (timeout); see there"}]


def test_a_second_try_has_its_own_logs():
    """The logs of the first try say why there was a second one."""
    names = []

    def measure(setup, platform, number, name=""):
        names.append(f"{setup}-{number}{name}")
        if len(names) == 1:
            raise clients.Failed("the host was busy")
        return {"x": 1}

    assert netdemo.by_the_hosts_clock(measure, "turbo", "qemu", 2) == {"x": 1}
    assert names == ["turbo-2", "turbo-2-again"]


def test_datagrams_are_offered_at_the_full_rate_of_the_link():
    """The rate is computed with frames of 1,512 bytes, as the link counts them."""
    with open(netdemo.BASE, encoding="ascii") as f:
        text = f.read()
    assert f"udp_rate={netdemo.DATAGRAMS}" in text and f"rate={netdemo.LINK // 10**6}M" in text
    assert (
        netdemo.DATAGRAMS * 1512 // 1470
        <= netdemo.LINK
        < (netdemo.DATAGRAMS + 1) * 1512 // 1470 + 2
    )


def test_knobs_in_effect_are_asked_for_and_read():
    text = netdemo.vm_file("turbo")
    script = netdemo.knob_script(*netdemo.names(text), "@400ms")
    for line in (
        "param -j=pool-core -p core",
        "param -j=pool-turbo -p turbo",
        "param -j=vm-server -d server",
    ):
        assert f"ms {line}\n" in script
    said = (
        '\x1e{"id": "pool-core", "error": 0, "result": [{"name": "tslice_us", "value": 30000}]}\n'
        '\x1e{"id": "vm-server", "error": 0, "result": [{"name": "weight", "value": 256}]}\n'
    )
    assert netdemo.knobs(said) == {"pools": {"core": {"tslice_us": 30000}},
                                   "vms": {"server": {"weight": 256}}}


def vms_of(text, path):
    path.write_text(text)
    done = subprocess.run([os.path.join(BUILD, "cfgdump"), path], capture_output=True, text=True,
                          check=True)
    return {vm["name"]: vm for vm in json.loads(done.stdout)["vms"]}


@pytest.mark.parametrize("setup", netdemo.SETUPS)
def test_vm_files(setup, tmp_path):
    """Four VMs are on the core. The set-ups differ only in the turbo core and in the switch for
    early ACKs. If the host measures, there is no traffic from inside, and the driver domain has a
    card."""
    vms = vms_of(netdemo.vm_file(setup), tmp_path / "inside.cfg")
    assert sum(vm["pool"] == "core" for vm in vms.values()) == 4
    assert vms["server"]["turbo"] == setup.startswith("turbo")
    assert f"early_ack={int(setup == 'turbo+early_ack')}" in vms["server"]["cmdline"]
    # The traffic begins at another time, and the machine is the same.
    other = vms_of(netdemo.vm_file(setup, 2), tmp_path / "seed.cfg")
    assert {name for name in vms if other[name] != vms[name]} == {"source", "probe"}
    host = vms_of(netdemo_host.vm_file(netdemo.vm_file(setup), "10.77.3.2"), tmp_path / "host.cfg")
    assert set(vms) - set(host) == {"source", "probe"} and set(host) < set(vms)
    assert (
        "ip=10.77.3.2/24" in host["server"]["cmdline"]
        and host["server"]["turbo"] == vms["server"]["turbo"]
    )
    assert f"early_ack={int(setup == 'turbo+early_ack')}" in host["server"]["cmdline"]
    assert all(host[name] == vms[name] for name in host if name not in ("server", "iodom"))
