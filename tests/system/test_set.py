"""Several modelled devices as one shared device, in stripes (docs/io.md, "A set of devices")."""
import re

import pytest

from system.takt import SCRIPTED, Boot, vm

pytestmark = pytest.mark.long_on("qemu")

DEVICES = ("ssd0=bw=4M,lat=100us,depth=8 ssd1=bw=4M,lat=100us,depth=8 "
           "raid0=of=ssd0+ssd1,stripe=16K,queue=8,sched=drr one=bw=4M,lat=100us,depth=8,queue=8 "
           "other=of=one+ssd0 mixed=of=ssd2+lost ssd2=bw=4M odd=of=ssd2,stripe=1000")


def spread(name, options, run_ms=100):
    return vm(name, "spread", "6M", cmdline=f"run_ms={run_ms} depth=8",
              disk=f"{options} size=512K", start="no")


CONFIG = SCRIPTED + """
[pool io]
cpus = 1
[pool polling]
sched = null
sleepless = on
cpus = 2-3
""" + "".join([
    vm("io", "iodom", "16M", pool="io", cmdline=f"{DEVICES} collab collab_ms=20 monitor_ms=40"),
    vm("polling", "iodom", "16M", vcpus=2, pool="polling",
       cmdline=f"{DEVICES} cores=1 collab collab_ms=20 monitor_ms=40"),
    spread("single", "io on=one"), spread("striped", "io on=raid0"),
    spread("large", "io on=raid0 share=3", 160), spread("small", "io on=raid0 share=1"),
    spread("polled", "polling on=raid0"),
    *[spread(name, f"io on={name}") for name in ("ssd0", "other", "mixed", "odd")],
])
# A wait that is cut short is a pause.
SCRIPT = """\
@300ms list
+0ms create single
+0ms wait single 20s
+0ms create striped
+0ms wait striped 80ms
+0ms store -j=raid0 read /local/domain/1/io/device/raid0/all
+0ms store -j=ssd0 read /local/domain/1/io/device/ssd0/all
+0ms store -j=ssd1 read /local/domain/1/io/device/ssd1/all
+0ms wait striped 20s
+0ms create large
+0ms create small
+0ms wait small 20s
+0ms create polled
+0ms wait polled 80ms
+0ms store -j=polled read /local/domain/2/io/device/ssd1/all
+0ms wait polled 20s
+0ms store -j=idle read /local/domain/1/io/device/ssd1/all
+0ms create ssd0
+0ms create other
+0ms create mixed
+0ms create odd
+50ms poweroff
"""


@pytest.fixture(scope="module")
def boot(platform):
    return Boot("set", CONFIG, SCRIPT, platform, cpus=4)


def kib(boot, name):
    assert boot.said(rf"{name}: ends with code 0\b"), boot.log[-3000:]
    (line,) = boot.said(rf"{name}: spread: socket 0: .*")
    return int(re.search(r"kib=(\d+)", line)[1])


def monitored(boot, tag):
    return {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", boot.results[tag]["value"])}


def test_members_work_at_the_same_time(boot, platform):
    """With 8 requests at a time, two devices do twice what one does. What is written is read back.
    An I/O core serves a set as well as the loop."""
    rates = {name: kib(boot, name) for name in ("single", "striped", "polled")}
    if platform == "bochs":
        assert 360 < rates["single"] < 430, rates
        assert rates["striped"] > 1.7 * rates["single"], rates
        assert rates["polled"] > 1.7 * rates["single"], rates


def test_turns_hold_for_the_whole(boot, platform):
    """Two VMs always have requests for the set. With shares of 3 and 1 the second one gets a
    quarter, although its requests find one of the members idle now and then."""
    got = kib(boot, "small")
    if platform == "bochs":
        assert 0.2 * kib(boot, "striped") < got < 0.36 * kib(boot, "striped"), got


def test_monitor(boot, platform):
    """The store has what the set did, and what each member did: the members' bytes are the set's.
    After the last request of all there is one more line, of zeros."""
    if platform == "bochs":
        whole, *members = (monitored(boot, tag) for tag in ("raid0", "ssd0", "ssd1"))
        for kind in ("read", "write"):
            total = sum(m[f"{kind}_bytes_per_s"] for m in members)
            assert abs(total - whole[f"{kind}_bytes_per_s"]) < 500000, (whole, members)
        for m in members + [monitored(boot, "polled")]:
            assert m["reads"] + m["writes"] > 10
            assert 500 < m["busy_permille"] <= 1000
            assert 100 <= m["mean_us"] <= m["p99_us"] <= m["p999_us"]
            assert 1000 < m["depth_milli"] <= 8000
        assert whole["depth_milli"] <= 8100
        idle = monitored(boot, "idle")
        assert idle["reads"] == idle["writes"] == idle["busy_permille"] == 0


def test_refused(boot):
    """A disk on a member, and sets that make no sense, are refused with a sentence each."""
    assert boot.said(r"iodom: on=ssd0: it is a part of raid0\n")
    assert boot.said(r"iodom: device other: one is used already\n")
    assert boot.said(r"iodom: on=lost: the command line has no device lost=bw=\.\.\.\n")
    assert boot.said(r"iodom: device odd: its stripe has to be a multiple of 512 bytes")
