"""Guests with the network stack, over the driver domain's bridge: `iperf` gets what `load` sends.
There is one boot for each platform, driven by a script."""
import re

import pytest

from system.takt import SCRIPTED, Boot, vm

pytestmark = pytest.mark.long_on("bochs")  # On Bochs, test_io sends through the same drivers.

BYTES = 1_000_003  # no multiple of a buffer size

CONFIG = SCRIPTED + "[pool io]\ncpus = 1\n" + "".join([
    vm("iodom", "iodom", "12M", pool="io"),
    vm("server", "iperf", "8M", cmdline="ip=10.0.0.2/24 check idle_ms=2000", net="iodom"),
    # The interrupts of its driver come to either vCPU, whatever the driver has asked for.
    vm("source", "load", "8M",
       cmdline=f"ip=10.0.0.3/24 to=10.0.0.2 tcp={BYTES} udp_ms=200 udp_rate=4000000 ping_ms=300",
       net="iodom",
       start="no", vcpus=2, route="spread"),
    vm("sleeper", "iperf", "8M", cmdline="ip=10.0.0.4/24 ring=16", net="iodom"),
    vm("patient", "load", "8M", cmdline="ip=10.0.0.5/24 to=10.0.0.4 udp_ms=1000 udp_rate=2000000",
       net="iodom", start="no"),
])
SCRIPT = """\
@2000ms create patient
@2600ms pause sleeper
@4800ms unpause sleeper
+0ms wait patient 20s
+0ms create source
+0ms wait source 20s
+0ms wait server 8s
+0ms poweroff
"""


@pytest.fixture(scope="module")
def boot(platform):
    return Boot("net", CONFIG, SCRIPT, platform)


def numbers(boot, line):
    """Returns {"name": n} of the words name=n of the last line that begins like this."""
    found = boot.said(re.escape(line) + ".*")
    assert found, (line, boot.log[-3000:])
    return {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", found[-1])}


def test_tcp_stream_is_exact(boot):
    """Every byte arrives, once and in order; both ends end by themselves."""
    assert boot.said(r"source: load: tcp (\d+) bytes in \d+ ns, end 0") == [str(BYTES)]
    assert boot.said(
        r"server: iperf: tcp (\d+) bytes in \d+ ns, [\d.]+ Mb/s, (\d+) wrong, end 0"
    ) == [(str(BYTES), "0")]
    assert boot.said(r"(source|server): ends with code 0\b") == ["source", "server"]


def test_frames_are_taken_in_batches(boot):
    """Most segments share their interrupt with others, and no segment is lost for want of a
    buffer."""
    n = numbers(boot, "server: iperf: frames")
    assert (
        n["rx"] >= BYTES / 1460
        and n["rx_bad"] == n["rx_dropped"] == n["no_room"] == n["tx_dropped"] == 0
    ), n
    served = re.search(r"iodom: server\.0: .*out=(\d+) .*irqs=(\d+)", boot.log)
    assert (
        int(served[1]) >= n["rx"] and int(served[2]) < n["rx"] / 4 and n["turns"] < n["rx"] / 4
    ), (served[0], n)


def test_udp_and_echo(boot):
    """200 ms of 4 Mb/s are 69 datagrams of 1,470 bytes, and one more datagram ends them. The client
    gets the server's report on them. lwIP answers every echo request."""
    assert boot.said(
        r"server: iperf: udp (\d+) bytes in .* (\d+) of (\d+) datagrams lost, (\d+)"
    ) == [("102900", "0", "70", "0")]
    assert boot.said(
        r"source: load: the server says (\d+) bytes in .* (\d+) of (\d+) datagrams lost"
    ) == [("102900", "0", "70")]
    ((requests, answers, most),) = boot.said(
        r"load: echo (\d+) requests, (\d+) answers, .* max (\d+)"
    )
    assert int(requests) > 10 and answers == requests and int(most) > 0


def test_udp_to_who_sleeps(boot, platform):
    """The server is off its pCPU when the datagrams end, with a ring that holds 16. The last
    datagram is repeated until the server is back. Jitter is that of RFC 3550, 6.4.1: the first
    datagram that waited came 2.2 s late, and each of the other 15 came 5.88 ms less late."""
    if platform != "bochs":
        pytest.skip("a host may hold one of them up over the other's pause")
    said = boot.said(
        r"patient: load: the server says (\d+) bytes in .* (\d+) of (\d+) datagrams lost, jitter "
        r"(\d+)"
    )
    (got, lost, sent, jitter), = said
    assert int(got) == 1470 * (int(sent) - int(lost)) and int(lost) > 50
    decay = (15 / 16) ** 15
    assert int(jitter) == pytest.approx(2.2e9 / 16 * decay + 5.88e6 * (1 - decay), rel=0.02)
    assert int(sent) > 171 + 5  # the datagrams of 1 s of 2 Mb/s, and the repeated last ones
    assert boot.said(r"(patient): ends with code 0\b")


def test_vcpu_that_waits_for_its_pcpu(platform):
    """A vCPU that starts another vCPU waits for it as long as other VMs have its pCPU. This is
    three seconds here, because the pool has one pCPU for two. It sleeps meanwhile: its own pCPU may
    be a turbo core that others wait for."""
    config = SCRIPTED + "[pool full]\ncpus = 1-2\nsched = null\n" + "".join([
        vm("hog", "spin", pool="full"), vm("iodom", "iodom", "12M"),
        vm("server", "iperf", "8M", vcpus=2, cmdline="ip=10.0.0.2/24", net="iodom", pool="full")])
    script = "@2s top -j=waits -w 0.1 -d 0.5\n@3500ms destroy hog\n@5s list -j=end\n+0ms poweroff\n"
    boot = Boot("net-late-vcpu", config, script, platform, cpus=3)
    assert boot.said(r"server: net: 10\.0\.0\.2") and not boot.said(": crashed")
    assert {v["name"]: v["state"] for v in boot.results["end"]}["server"] == "running", boot.log[
        -2000:
    ]
    first = next(v for v in boot.results["waits"]["vcpus"] if (v["vm"], v["vcpu"]) == ("server", 0))
    assert first["cpu_pct"] < 10 and first["exits_per_s"] < 1000, first


@pytest.mark.bochs
@pytest.mark.long
def test_echo_of_two_who_wait_long():
    """A round trip of 4.6 s is reported as 4.6 s: times are not cut at 2^32 ns. A VM's seed follows
    from its name and decides when it sends. So two VMs send at different times, and not the same
    number of requests."""
    pings = "to=10.0.0.2 ping_ms=10500 ping_rate=20"
    config = (
        SCRIPTED
        + "[pool io]\ncpus = 1\n"
        + "".join(
            [
                vm("iodom", "iodom", "12M", pool="io"),
                vm("server", "iperf", "8M", cmdline="ip=10.0.0.2/24", net="iodom"),
                *(
                    vm(
                        name,
                        "load",
                        "8M",
                        cmdline=f"ip=10.0.0.{n}/24 {pings}",
                        net="iodom delay=2300ms",
                    )
                    for n, name in enumerate(("one", "two"), 3)
                ),
            ]
        )
    )
    boot = Boot(
        "net-far", config, "+0ms wait one 20s\n+0ms wait two 20s\n+0ms poweroff\n", "bochs", cpus=3
    )
    said = {
        name: boot.said(
            name
            + r": load: echo (\d+) requests, (\d+) answers, .* p50 (\d+) p99 (\d+) max (\d+) mean "
              r"(\d+)"
        )
        for name in ("one", "two")
    }
    requests = {name: int(line[0][0]) for name, line in said.items()}
    assert 150 < requests["one"] != requests["two"] > 150, said
    for ((_, answers, p50, _, most, mean),) in said.values():
        assert (
            int(answers) > 5 and 4.6e9 < int(p50) <= int(most) and 4.6e9 < int(mean) <= int(most)
        ), said


def test_checksums_stay_open(boot):
    """Between VMs no side computes checksums over data: every segment and datagram comes with its
    checksum left open, and every one that is sent is left open."""
    n = numbers(boot, "server: iperf: frames")
    # ARP frames are not counted, and by then there is no echo.
    assert n["rx_unsummed"] >= BYTES / 1460 + 69 and n["rx"] - n["rx_unsummed"] <= 5, n
    assert 0 < n["tx_unsummed"] <= n["tx"] <= n["tx_unsummed"] + 5, n
