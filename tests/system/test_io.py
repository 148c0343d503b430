"""Virtio devices that the driver domain serves: guests that talk over its bridge, a disk in its
memory, and guests that misbehave or die. There is one boot for each platform, driven by a script.
What needs exact timing from outside is on QEMU only."""
import re

import pytest
from machine import NIC_MAC, NIC_USER

from system.takt import SCRIPTED, Boot, Takt, until, vm

pytestmark = pytest.mark.alone

CONFIG = SCRIPTED + "[pool io]\ncpus = 1\n" + "".join([
    vm("iodom", "iodom", "12M", pool="io"),
    vm("answer", "netping", net="iodom"),
    vm("far", "netping", net="iodom rate=20M delay=5ms queue=16"),
    vm("ping", "netping", cmdline="to=2 batches=40 batch=32", net="iodom", start="no"),
    vm("many", "netping", cmdline="to=2 batches=300 batch=32", net="iodom", start="no"),
    vm("slow", "netping", cmdline="to=2 batches=10 batch=8 size=1472",
       net="iodom rate=20M delay=5ms queue=16 mac=02:00:00:00:00:aa", start="no"),
    vm("burst", "netping", cmdline="to=3 batches=2 batch=64 size=1472 timeout_ms=200", net="iodom",
       start="no"),
    vm("disk", "blktest", cmdline="requests=100 depth=16",
       disk="iodom size=4M bw=100M lat=100us depth=8", start="no"),
    vm("hostile", "hostile", cmdline="mode=virtio", net="iodom", disk="iodom size=64K", vcpus=2,
       start="no"),
    vm("notify", "hostile", cmdline="mode=notify", net="iodom", start="no"),
    vm("flood", "hostile", cmdline="mode=flood", net="iodom", start="no"),
])

BEGIN = """\
@600ms list
+0ms top -j=idle -w 0.1 -d 0.5
+0ms create ping
+0ms wait ping 4s
+0ms devices -j=after-ping
"""

# This is asked while batches go to and fro, where time is exact.
MEASURE = """\
+0ms create many
+100ms devices -j=before
+0ms top -j=under-load -w 0.01 -d 0.3
+0ms devices -j=after
+0ms destroy many
"""

LINKS_AND_DISK = """\
+0ms create slow
+0ms wait slow 4s
+0ms create burst
+0ms wait burst 4s
+0ms destroy far
+0ms create disk
+0ms wait disk 4s
+0ms create disk
+0ms wait disk 4s
"""

# These ping beside the guests that misbehave, where time is exact.
BESIDE_HOSTILE = """\
+0ms create hostile
+0ms create ping
+0ms wait ping 8s
+0ms destroy hostile
+0ms create notify
+50ms create ping
+0ms wait ping 8s
+0ms devices -j=notified
+0ms destroy notify
+0ms create flood
+50ms create ping
+0ms wait ping 30s
+0ms destroy flood
"""

# By the host's clock, the misbehaving guests would cost whatever the host wants. So the guests that
# ping come when the others are gone.
HOSTILE = """\
+0ms create hostile
+0ms wait hostile 500ms
+0ms destroy hostile
+0ms create notify
+0ms wait notify 300ms
+0ms devices -j=notified
+0ms destroy notify
+0ms create flood
+0ms wait flood 300ms
+0ms destroy flood
"""

END = """\
+0ms create ping
+0ms wait ping 8s
+300ms list -j=end
+0ms top -j=idle-again -w 0.1 -d 0.5
+10ms poweroff
"""


@pytest.fixture(scope="module")
def boot(platform):
    exact = platform == "bochs"
    parts = (BEGIN, MEASURE if exact else "", LINKS_AND_DISK, BESIDE_HOSTILE if exact else HOSTILE,
             END)
    return Boot("io", CONFIG, "".join(parts), platform)


PINGS = (r"ping: netping: (\d+) sent, (\d+) lost, (\d+) wrong, first answer of a batch after "
         r"(\d+) ns, at most (\d+); (\d+) notif")


def test_ping(boot):
    """Every request of 40 batches of 32 is answered, and a batch costs one notification and one
    interrupt."""
    sent, lost, wrong, _, _, kicks = map(int, boot.said(PINGS)[0])
    assert (sent, lost, wrong) == (1280, 0, 0)
    assert kicks <= 40 + 6  # There are a few at the start, for receive buffers and ARP.
    answer = next(d for d in boot.results["after-ping"] if d["vm"] == "answer")
    assert answer["interrupts"] <= 40 + 6 and answer["notifies"] <= 40 + 6, answer
    assert int(boot.said(r"iodom: ping\.0:.* irqs=(\d+)")[0]) <= 40 + 6


def test_exits_of_a_batch(boot, platform):
    """For 32 frames, there and back, there is at most one interrupt, and there are these exits. The
    VM that answers notifies, and sleeps. The VM that pings also sets its timer now and then. The
    driver domain raises an interrupt and sleeps, for each of the two directions. Further exits come
    from the pCPU itself: its ticks, the console. If each frame cost an exit, there would be 32."""
    if platform != "bochs":
        pytest.skip("where time is exact")
    count = [
        next(d["interrupts"] for d in boot.results[when] if d["vm"] == "answer")
        for when in ("before", "after")
    ]
    batches_per_s = (count[1] - count[0]) / 0.31
    a_batch = {v["vm"]: v["exits_per_s"] / batches_per_s
               for v in boot.results["under-load"]["vcpus"]}
    print(f"of {batches_per_s:.0f} batches/s, exits of each: {a_batch}")
    assert batches_per_s > 100
    assert a_batch["answer"] < 3 and a_batch["many"] < 3.5 and a_batch["iodom"] < 4.5, a_batch


# and the size of what they send, which differs so that they do not go in step
PINGERS = {"one": 0, "two": 200, "three": 500}
LOADED = SCRIPTED + "".join(
    [f"[pool {name}]\ncpus = {n}\nsched = null\n"
     for n, name in enumerate(("io", "answer", *PINGERS), 1)] +
    [vm("iodom", "iodom", "12M", pool="io"), vm("answer", "netping", net="iodom", pool="answer")] +
    [vm(name, "netping", cmdline=f"to=2 batches=100000000 batch=32 size={size}", net="iodom",
        pool=name)
     for name, size in PINGERS.items()])
LOAD = """\
@500ms devices -j=before
+0ms top -j=load -w 0.01 -d 0.3
+0ms devices -j=after
+10ms poweroff
"""


@pytest.mark.bochs
@pytest.mark.long
def test_exits_of_a_batch_under_load():
    """Three VMs send batches of 32 to one VM that answers, so that VM always has something to do.
    For 32 frames that it receives there is at most one interrupt and one exit, ticks and sleep
    included. For 32 frames that it sends there is at most one notification, which is one exit. The
    driver domain makes less than two exits for each 32 frames: it raises the interrupt, and
    sleeps."""
    boot = Boot("io-load", LOADED, LOAD, "bochs", cpus=6)
    before, after = ({d["vm"]: d for d in boot.results[when]} for when in ("before", "after"))

    def per_s(vm, what):
        return (after[vm][what] - before[vm][what]) / 0.31
    # Each VM gets one interrupt for the answers to its 32 requests.
    batches = sum(per_s(vm, "interrupts") for vm in PINGERS)
    exits = {v["vm"]: v["exits_per_s"] / batches for v in boot.results["load"]["vcpus"]}
    interrupts, notifies = (per_s("answer", what) / batches for what in ("interrupts", "notifies"))
    said = (f"of {batches:.0f} batches/s: interrupts {interrupts:.2f}, notifications "
            f"{notifies:.2f}, exits {exits}")
    print(said)
    assert batches > 500, said
    assert interrupts < 0.8 and notifies < 0.8 and exits["answer"] - notifies < 0.9, said
    assert exits["iodom"] / 2 < 2, said


def test_who_has_nothing_to_do_costs_no_exits(boot):
    for when in ("idle", "idle-again"):
        rates = {v["vm"]: v["exits_per_s"] for v in boot.results[when]["vcpus"]}
        assert rates["iodom"] == 0 and rates["answer"] == 0, (when, rates)


def test_emulated_link(boot, platform):
    """1,514 bytes at 20 Mb/s take 606 us, up and down, and there are 5 ms of delay each way. This
    makes 11.2 ms there and back, and the time to compute. Eight frames at once wait for the link in
    the sender's ring."""
    said = boot.said("slow: " + PINGS[6:])
    sent, lost, wrong, mean, most, _ = map(int, said[0])
    assert (sent, lost, wrong) == (80, 0, 0)
    assert mean >= 11_211_000
    if platform == "bochs":
        assert most < 14_000_000, most
    assert boot.said(r"iodom: slow\.0:.* pushed_back=\d+")


def test_queue_of_a_link_drops(boot, platform):
    """64 frames at once go to a link whose queue takes 16, twice."""
    sent, lost, wrong, *_ = map(int, boot.said("burst: " + PINGS[6:])[0])
    assert (sent, wrong) == (128, 0)
    # By the host's clock, ARP may be asked again.
    assert 96 <= lost <= (96 if platform == "bochs" else 100)
    assert boot.said(r"iodom: far\.0: in=\d+ .*queue_full=(\d+) queue_most=(\d+)") == [
        (str(lost), "16")
    ]


def test_disk(boot):
    """What was written is read back, by the same VM and by the one that comes after it. There are
    never more requests at a time than the disk takes. One interrupt tells the end of several
    requests. How many depends on when the host runs which vCPU."""
    said = boot.said(
        r"disk: blktest: 4096 KiB, .* in (\d+) ns, .*; (\d+) ended, 0 errors, 0 bad; (\d+) "
        r"notifications"
    )
    assert len(said) == 2 and int(said[0][0]) > 0 and said[1][0] == "0", said
    assert len(boot.said("disk: blktest: verifies")) == 1
    done = re.findall(
        r"iodom: disk\.0: reads=(\d+) (?:writes=(\d+) flushes=1 )?bytes=\d+ depth_most=8 "
        r"irqs=(\d+)",
        boot.log,
    )
    assert [d[:2] for d in done] == [("101", "101"), ("101", "")]
    requests = (202, 101)
    assert all(int(d[2]) < 0.6 * n for d, n in zip(done, requests)), done


def test_hostile_front_end(boot, platform):
    """The hostile front end does not cost the others a single frame."""
    if platform != "bochs":
        pytest.skip("where time is exact")
    sent, lost, wrong, *_ = map(int, boot.said(PINGS)[1])
    assert len(boot.said(PINGS)) == 5 and (sent, lost, wrong) == (1280, 0, 0)
    assert int(boot.said(r"iodom: hostile\.0:.* resets=(\d+)")[0]) > 10


def test_hostile_front_ends_that_went(boot):
    """What they did goes with them: the driver domain lives, and pings are as before."""
    assert boot.said(r"iodom: hostile\.0:.* resets=\d") and boot.said(r"iodom: flood\.0: in=\d")
    sent, lost, wrong, *_ = map(int, boot.said(PINGS)[-1])
    assert (sent, lost, wrong) == (1280, 0, 0)
    assert {vm["name"] for vm in boot.results["end"]} == {"iodom", "answer"}
    assert not boot.said(": crashed")


def test_notify_storm(boot, platform):
    """A guest that notifies all the time without having anything to say, on the pCPU of those that
    ping, does not cost them a frame."""
    if platform != "bochs":
        pytest.skip("where time is exact")
    sent, lost, wrong, *_ = map(int, boot.said(PINGS)[2])
    assert (sent, lost, wrong) == (1280, 0, 0)
    storm = next(d for d in boot.results["notified"] if d["vm"] == "notify")
    assert (
        storm["notifies"] > 1000 and storm["interrupts"] < 100 and storm["state"] == "runs"
    ), storm


def test_flood(boot, platform):
    """A guest broadcasts from new addresses as fast as it can. These frames are dropped where a
    ring is full, and counted; most of what others send arrives."""
    if platform != "bochs":
        pytest.skip("where time is exact")
    sent, lost, wrong, *_ = map(int, boot.said(PINGS)[3])
    assert sent == 1280 and wrong == 0, (sent, wrong)
    assert lost < sent / 2, (sent, lost)
    flood = re.search(r"iodom: flood\.0: in=(\d+)", boot.log)
    assert flood and int(flood[1]) > 1000


IDLE = SCRIPTED + "[pool io]\ncpus = 1\n[pool turbo]\ncpus = 2\nturbo_of = Pool-0\n" + "".join([
    vm("iodom", "iodom", "12M", pool="io"),
    vm("answer", "netping", net="iodom rate=100M delay=1ms", turbo="yes"),
    vm("disk", "blktest", cmdline="requests=50 stay", disk="iodom size=1M lat=100us", turbo="yes"),
    vm("plain", "blktest", cmdline="requests=50 stay", disk="iodom size=1M"),
    vm("ping", "netping", cmdline="to=2 batches=5 batch=32", net="iodom"),
])


def test_idle_after_traffic(platform):
    """There are drivers that have had traffic and whose interrupts go to a turbo vCPU, and a link
    and a disk with timers. When the traffic is over, no VM makes an exit."""
    boot = Boot("io-idle", IDLE,
                "@0ms wait ping 5s\n+1s top -j=idle -w 0.1 -d 0.5\n+10ms poweroff\n", platform,
                cpus=3)
    sent, lost, wrong, *_ = map(int, boot.said(PINGS)[0])
    assert (sent, lost, wrong) == (160, 0, 0)
    assert len(boot.said(r"(?:disk|plain): blktest: 1024 KiB, .*; \d+ ended, 0 errors, 0 bad")) == 2
    rates = {(v["vm"], v["vcpu"]): v["exits_per_s"] for v in boot.results["idle"]["vcpus"]}
    assert len(rates) == 6 and not any(rates.values()), rates


ENDLESS = (
    CONFIG.replace("script = script\n", "")
    .replace("batches=40 batch=32", "batches=100000000 batch=32 timeout_ms=100")
    .replace("requests=100 depth=16", "requests=100000 depth=16")
)


def test_ends_that_die():
    """Front ends are destroyed in the middle of their work. Then the driver domain is destroyed,
    and comes back."""
    with Takt("io-dying", ENDLESS) as takt:
        free = set()
        for _ in range(4):
            takt("create ping")
            takt("create disk")
            until(lambda: device(takt, "ping") and device(takt, "ping")["interrupts"] > 3)
            takt("destroy ping")
            takt("destroy disk")
            until(lambda: {vm["name"] for vm in takt("list")} == {"iodom", "answer", "far"})
            free.add(takt("info")["free_frames"])
        assert len(free) == 1, free
        takt("create ping")
        until(lambda: device(takt, "ping")["interrupts"] > 5)
        takt("destroy iodom")
        until(lambda: "ping: netping: the device is gone" in takt.serial())
        takt("create iodom")
        until(lambda: device(takt, "ping")["state"] == "runs"
              and device(takt, "ping")["interrupts"] > 5)
        assert ": crashed" not in takt.serial()


@pytest.mark.long_on("bochs")
def test_who_comes_and_goes_leaves_no_memory_behind(platform):
    """Twenty times, a VM comes with a disk and a network device that take 40 pages of iodom, which
    has 2 MiB. So iodom must get the pages back again and again."""
    config = SCRIPTED + vm("iodom", "iodom", "2M") + vm("disk", "blktest", cmdline="requests=1",
                                                        net="iodom delay=1ms",
                                                       disk="iodom size=64K depth=128", start="no")
    once = "+20ms create disk\n+0ms wait disk 5s\n"
    boot = Boot("io-memory", config, "@300ms list\n" + once * 20 + "+0ms poweroff\n", platform)
    read = len(boot.said(r"disk: blktest: 64 KiB, .* ended, 0 errors, 0 bad"))
    # By the host's clock the VM may not have been gone yet.
    late = len(boot.said("create: VM disk is there already"))
    assert read + late == 20 and read > 15, (read, late, boot.log[-2000:])
    assert not boot.said("cannot be served|no window")


def device(takt, vm):
    return next((d for d in takt("devices") if d["vm"] == vm), None)


def test_the_way_out(platform):
    """A VM pings the gateway of the emulator's own network, through the bridge and a network card
    that was given to the driver domain. The VM has the card's address, because Bochs's network
    answers no other address."""
    ip, gateway = (
        ("0x0a00020f", "0x0a000202") if platform == "qemu" else ("0xc0a80a0f", "0xc0a80a01")
    )
    config = SCRIPTED + vm("iodom", "iodom", "12M", pci="00:03.0", unsafe_dma="yes")
    config += vm("ping", "netping",
                 cmdline=f"ip={ip} to={gateway} batches=5 batch=4 timeout_ms=3000",
                 net=f"iodom mac={NIC_MAC}")
    boot = Boot("io-out", config, "@600ms list\n+0ms wait ping 9s\n+10ms poweroff\n", platform,
                nic=NIC_USER)
    assert [said[:3] for said in boot.said(PINGS)] == [("20", "0", "0")], boot.log[-3000:]
