"""Pages and requests between VMs, over the driver domain's bridge: `fetch` gets pages from `httpd`,
beside clients that break the rules, and `rr` asks `rr`. There is one boot for each platform, driven
by a script."""
import re

import pytest

from system.takt import SCRIPTED, Boot, vm

CONFIG = SCRIPTED + "[pool io]\ncpus = 1\n" + "".join([
    vm("iodom", "iodom", "12M", pool="io"),
    vm("web", "httpd", "8M", cmdline="ip=10.0.0.2/24 workers=5 timeout_ms=2000 idle_ms=5000",
       net="iodom"),
    vm("client", "fetch", "8M",
       cmdline="ip=10.0.0.3/24 to=10.0.0.2 clients=3 count=8 size=20000 rude", net="iodom"),
    vm("echo", "rr", "8M", cmdline="ip=10.0.0.4/24", net="iodom"),
    vm("ask", "rr", "8M", cmdline="ip=10.0.0.5/24 to=10.0.0.4 count=100 size=64 answer=3000",
       net="iodom", start="no"),
    vm("ask-paced", "rr", "8M", cmdline="ip=10.0.0.5/24 to=10.0.0.4 count=100 rate=100",
       net="iodom", start="no"),
])
SCRIPT = """\
@0ms wait client 30s
+0ms wait web 20s
+0ms create ask
+0ms wait ask 10s
+0ms create ask-paced
+0ms wait ask-paced 10s
+0ms poweroff
"""

pytestmark = pytest.mark.long_on("bochs")


@pytest.fixture(scope="module")
def log(platform):
    return Boot("web", CONFIG, SCRIPT, platform, cpus=2).log


def test_pages_are_exact(log, platform):
    """Three clients at a time get all their pages, byte for byte, whatever other clients do to the
    server meanwhile. Those get 400, 404 and 501. Connections that are opened at the same time lose
    no segment: a retransmission takes a second."""
    pages, size, ns, wrong = re.search(
        r"client: fetch: (.*) pages of (\d+) bytes in (\d+) ns, (\d+) wrong", log
    ).groups()
    assert (pages, size, wrong) == ("24", "20000", "0") and (
        platform != "bochs" or int(ns) < 0.8e9
    ), log[-3000:]
    assert "client: ends with code 0" in log


def test_the_server_outlives_its_clients(log):
    """The server gives up a client that asks for a page and reads nothing after the timeout, and
    does not give up the others. The server ends by itself, and has seen each connection."""
    (n,) = re.findall(r"web: httpd: (connections=.*)", log)
    n = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", n)}
    # These are 3 clients, 6 that are refused, one that reads nothing, one that goes in the middle,
    # and two with empty lines.
    assert n["connections"] == 13 and n["bad"] == 7 and n["timeouts"] == 2, n
    # These are 24 pages and 3 heads, 6 refusals and the flood's, and the page that its client does
    # not read.
    assert n["requests"] == 35 and n["bytes"] >= 24 * 20000, n
    assert "web: ends with code 0" in log


def test_empty_lines_end(log):
    """A client that sends nothing but empty lines is refused once there are more of them than a
    request may have. If there are not, it is given up after the timeout, as any client whose
    request does not come. Half a second is for what is under way."""
    found = [
        re.search(rf"client: fetch: a {who} gets (\d+) and its end after (\d+) ns", log)
        for who in ("flood", "trickle")
    ]
    (flood, flood_ns), (trickle, trickle_ns) = [map(int, one.groups()) for one in found]
    assert flood == 400 and flood_ns < 10e9
    assert trickle == 0 and 2e9 <= trickle_ns < 10e9


def histogram(log, name):
    (line,) = re.findall(rf"{name}: rr: (\d+ answers .*)", log)
    n = {k: int(v) for k, v in re.findall(r"(\S+) (\d+)", line)}
    return (
        int(line.split()[0]),
        n,
        [(int(e), int(k)) for e, k in re.findall(rf"{name}: rr: under (\d+) ns (\d+)", log)],
    )


def test_latency(log):
    """Every answer is right and timed. The histogram holds all of them, and the percentiles lie in
    it and in order."""
    for name in "ask", "ask-paced":
        answers, n, octaves = histogram(log, name)
        assert (
            answers == 100 == sum(k for _, k in octaves)
            and ", 0 wrong;" in log
            and f"{name}: ends with code 0" in log
        )
        assert (
            0 < n["p50"] <= n["p90"] <= n["p99"] <= n["p99.9"] == n["max"] and n["mean"] <= n["max"]
        ), n
        assert octaves[-1][0] / 2 <= n["max"] < octaves[-1][0], (octaves, n)
        below = sum(k for edge, k in octaves if edge <= n["p50"])
        assert below < 50 <= sum(k for edge, k in octaves if edge / 2 <= n["p50"]), (octaves, n)


def test_pace(log):
    """Requests come when they are due, not when the last one is answered: 100 of them at 100 a
    second take about a second; the seed makes the difference."""
    (ns,) = re.findall(r"ask-paced: rr: 100 answers in (\d+) ns", log)
    assert int(ns) > 0.7e9
