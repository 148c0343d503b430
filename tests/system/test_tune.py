"""Numbers of a running VM are changed through the store (docs/collab.md, "Tunables")."""
import re

import netexp
import pytest

from system.takt import SCRIPTED, Boot, vm, workload
from system.test_collab import BURSTS
from system.test_netexp import AT_THE_START

pytestmark = pytest.mark.bochs

# The second VM's dirty ratio is raised while it runs, so that its bursts fit into the cache.
CONFIG = SCRIPTED + "[pool io]\ncpus = 1\n" + "".join([
    vm("back", "iodom", "12M", pool="io", cmdline="ssd0=bw=4M,lat=100us,depth=8 tune"),
    vm("plain", "bursts", "8M", vcpus=2, cmdline=BURSTS, disk="back on=ssd0 size=1M", start="no"),
    vm("tuned", "bursts", "8M", vcpus=2, cmdline=BURSTS + " tune", disk="back on=ssd0 size=1M",
       start="no"),
    vm("talker", "iperf", "8M", cmdline="tune", net="back rate=10M queue=20", start="no"),
    vm("late", "iperf", "8M", cmdline="tune", net="back", start="no"),
])
TUNE = "/local/domain/{}/io/tune"
DISK, QUEUE = TUNE.format(3) + "/disk0", TUNE.format(1) + "/queue/4-0"
# A time of the script counts from when the command before was due. So a command that waits for a VM
# takes the time of those behind it away, and the driver domain, which never ends, is waited for.
PAUSE = "+0ms wait back 100ms"
SCRIPT = f"""\
@400ms create plain
+0ms wait plain 20s
+0ms create tuned
{PAUSE}
+0ms store write {DISK}/dirty 91
+0ms store write {DISK}/dirty much
+0ms store write {DISK}/queue 129
{PAUSE}
+0ms store -j=ls ls {DISK}
+0ms store write {DISK}/background 40
{PAUSE}
+0ms store -j=background read {DISK}/background
+0ms store write {DISK}/dirty 90
{PAUSE}
+0ms store -j=dirty read {DISK}/dirty
+0ms wait tuned 20s
+0ms create talker
{PAUSE}
+0ms store write {QUEUE} 0
+0ms store write {TUNE.format(4)}/net/rcvbuf 1000
{PAUSE}
+0ms store -j=queue read {QUEUE}
+0ms store -j=rcvbuf read {TUNE.format(4)}/net/rcvbuf
+0ms store write {QUEUE} 7
{PAUSE}
+0ms store -j=set read {QUEUE}
+0ms destroy talker
{PAUSE}
+0ms store -j=gone ls {TUNE.format(1)}/queue
+0ms store write {TUNE.format(5)}/net/sndbuf 100000
+0ms create late
{PAUSE}
+0ms destroy late
+0ms poweroff
"""


@pytest.fixture(scope="module")
def boot():
    return Boot("tune", CONFIG, SCRIPT, "bochs")


def test_values_out_of_range_change_nothing(boot):
    """Each is refused with a sentence, and the key gets the old value back."""
    assert {row["name"]: row["value"] for row in boot.results["ls"]} == {
        "dirty": "40", "background": "35", "ahead": "32", "queue": "32"}
    refused = boot.said(r"tuned: tune: the new value of io/tune/disk0/(\w+) is refused: (.*)\r?\n")
    assert {key: why.strip() for key, why in refused} == {
        "dirty": "a number from 1 to 90 is expected; it stays 40",
        "queue": "a number from 4 to 128 is expected; it stays 32",
        "background": "it has to be less than dirty; it stays 35"}, boot.log[-3000:]
    assert boot.results["background"]["value"] == "35"


def test_a_larger_dirty_ratio_holds_writers_back_less(boot):
    plain, tuned = workload(boot, "plain"), workload(boot, "tuned")
    assert boot.results["dirty"]["value"] == "90"
    assert plain["wrong"] == tuned["wrong"] == 0
    assert tuned["throttled"] < plain["throttled"] / 2, (plain, tuned)
    assert tuned["writing_us"] < plain["writing_us"] / 2, (plain, tuned)


def test_queue_of_the_bridge(boot):
    """The driver domain has a key for the queue of each link, while the VM at its end is there."""
    assert boot.results["queue"]["value"] == "20"
    assert boot.results["set"]["value"] == "7"
    assert boot.said(r"io/tune/queue/4-0 is refused: a number from 1 to 65536 is expected; it stays"
                     r" 20")
    assert boot.said(r"io/tune/net/rcvbuf is refused: a number from 65536 to 41943040")
    assert boot.results["rcvbuf"]["value"] == "41943040"
    assert boot.results["gone"] == []


def test_a_key_that_the_vm_may_not_read(boot):
    """It was there before the VM, so that it is the operator's alone."""
    assert boot.said(r"late: tune: io/tune/net/sndbuf cannot be read \(error 13\); it stays \d+")


# Four VMs share the core and have slices of 30 ms. From the end of one slice of the reader to the
# end of its next one, a round of 120 ms goes by. A buffer for what the link brings in a round is
# enough. One for 112 ms lost 14 of 1,655 datagrams: some waits are longer than three slices.
WAIT_S = 4 * 0.03
BUFFERS = {"small": 65536, "known wait": round(netexp.LINE["udp"] / 8 * WAIT_S), "large": 819200}


@pytest.mark.long
def test_a_buffer_from_the_known_wait_is_enough(monkeypatch):
    """The buffer for what the link brings while the reader waits reaches what a buffer of the
    paper's 40 MB, scaled, does. All are set through the store while the VM runs."""
    monkeypatch.setitem(netexp.MS, "udp", 1000)
    monkeypatch.setitem(netexp.SETUPS["udp"], "tuned", (netexp.TURBO, "rcvbuf=819200 tune"))
    script, found = netexp.SCRIPT, {}
    for name, size in BUFFERS.items():
        key = TUNE.format(2) + "/net/rcvbuf"
        monkeypatch.setattr(netexp, "SCRIPT", f"@300ms store write {key} {size}\n" + script)
        found[name] = netexp.run("udp", "tuned", 4)
    lost = {name: run["lost"] for name, run in found.items()}
    sent = found["small"]["sent"]
    assert lost["small"] > sent / 10, found
    assert lost["large"] < AT_THE_START, found
    # At one of twelve phases a wait was longer than a round, and cost 28 of 1,655 datagrams.
    assert lost["known wait"] < sent / 40, found
