"""Guests that play the papers' applications: ranks of a parallel program, connections to a web
server, voice and media over IP, nodes of a store. They run in build/sim-whole, so time is
virtual."""
import itertools
import os
import re

import pytest
from conftest import BUILD, ROOT
from tools.test_whole import vms, whole

HEAD = """[hypervisor]
guest_console = log
top = no

[pool io]
sched = null
cpus = 1

[vm iodom]
image = iodom
memory = 32M
pool = io
"""

pytestmark = pytest.mark.skipif(not os.path.exists(os.path.join(BUILD, "whole", "ranks.elf")),
                                reason="guests with a network stack are not built")


def vm(name, cmdline, cpu, link="", image=None):
    return (f"[vm {name}]\nimage = {image or name}\ncmdline = {cmdline}\nmemory = 64M\n"
            f"cpus = {cpu}\nnet = iodom {link}\n")


def run(tmp_path, *texts, seconds=3):
    return whole("-f", "1000", "-m", "512", "-p", "4", "-w", "100ms", "-t", f"{seconds}s",
                 vms(tmp_path, HEAD + "".join(texts))).stdout


@pytest.mark.parametrize("test", ["alltoall", "sendrecv"])
def test_ranks(tmp_path, test):
    """All messages are right, and no rank waits for an acknowledgement that is delayed: 20 turns
    would then take five seconds and more."""
    said = run(tmp_path, *(vm(f"rank-{r}", f"ip=10.0.0.1{r}/24 rank={r} test={test} size=8000 "
                              "count=20", r // 2 * 2, image="ranks") for r in range(4)))
    found = re.findall(rf"rank-(\d): ranks: {test}, 4 ranks, 20 turns of 8000 bytes in (\d+) ns, "
                       "0 wrong", said)
    assert sorted(rank for rank, _ in found) == ["0", "1", "2", "3"], said
    assert all(int(ns) < 200e6 for _, ns in found), found


def test_ranks_that_lose_frames(tmp_path):
    """A rank goes only when its peer has its last message, also if that was lost on the way. Each
    seed of the link loses other frames. Without `test=` the ranks exchange with all others."""
    for seed in range(1, 9):
        said = run(tmp_path, *(vm(f"rank-{r}", f"ip=10.0.0.1{r}/24 ranks=2 rank={r} count=2", r * 2,
                                  f"loss=3% seed={seed}", image="ranks") for r in range(2)),
                   seconds=60)
        assert len(re.findall("alltoall, 2 ranks, 2 turns .* 0 wrong", said)) == 2, said
        assert len(re.findall(r"rank-\d: ends with code 0\b", said)) == 2, said


def test_ranks_that_connect_at_once(tmp_path):
    """The VMs begin at moments that differ by 0 to some hundred us, before or after the driver
    domain. Each connects as its first act, and none waits for a packet that was lost at boot."""
    for gap, order in itertools.product((0, 7, 60, 500), (("iodom", "rank-1", "rank-0"),
                                                          ("rank-0", "rank-1", "iodom"))):
        script = tmp_path / "script"
        script.write_text("@20ms create {}\n+{gap}us create {}\n+{gap}us create {}\n"
                          "+0ms wait rank-0 9s\n+0ms wait rank-1 9s\n+0ms poweroff\n".format(
                              *order, gap=gap), encoding="ascii")
        text = HEAD + "start = no\n" + "".join(
            vm(f"rank-{r}", f"ip=10.0.0.1{r}/24 ranks=2 rank={r} count=2 busy=40", "0,2-3",
               image="ranks") + "vcpus = 2\nstart = no\n" for r in range(2))
        said = whole("-f", "1000", "-m", "512", "-p", "4", "-w", "1s", "-t", "30s",
                     "--script", script, vms(tmp_path, text)).stdout
        ends = re.findall(r"([\d.]+)\] rank-\d: ends with code 0\b", said)
        assert len(ends) == 2 and max(float(end) for end in ends) < 1, said


def test_connections_are_opened_when_they_are_due(tmp_path):
    """Each page comes, and the connections keep their rate while the server takes longer for each
    of them than there is between two."""
    said = run(tmp_path, vm("httpd", "ip=10.0.0.2/24 workers=16", 2, "delay=30ms"),
               vm("connect", "ip=10.0.0.3/24 to=10.0.0.2 start_ms=200 rate=50 run_ms=1000", 0))
    pages, ns = re.search(r"connect: (\d+) pages of 5120 bytes in (\d+) ns, 0 failed, 0 wrong",
                          said).groups()
    assert pages == "50" and 1.1e9 < int(ns) < 1.3e9
    connected, answer = re.search(r"until connected mean (\d+) .* until the answer mean (\d+)",
                                  said).groups()
    assert 60e6 < int(connected) < 65e6 and 120e6 < int(answer) < 130e6


def voice(tmp_path, link, words=""):
    said = run(tmp_path, vm("server", "ip=10.0.0.2/24 lines=3", 2, image="voice"),
               vm("client", f"ip=10.0.0.3/24 to=10.0.0.2 lines=3 start_ms=200 run_ms=1000 {words}",
                  0, link, image="voice"), seconds=4)
    return {who: [int(n) for n in numbers] for who, *numbers in re.findall(
        r"voice: the (\w+) heard (\d+) of (\d+) datagrams, (\d+) lost, (\d+) too late, jitter "
        r"(\d+) us", said)}


def test_voice_over_a_quiet_link_has_no_jitter(tmp_path):
    assert voice(tmp_path, "delay=20ms") == {
        who: [150, 150, 0, 0, pytest.approx(0, abs=1000)] for who in ("server", "client")}


def test_voice_over_a_link_with_jitter(tmp_path):
    """The time on the way is evenly spread over 20 ms, so two datagrams differ by a third of that
    on average, or by less, because the link keeps their order. A buffer of 1 ms is then too short
    for about half of the datagrams."""
    found = voice(tmp_path, "delay=20ms jitter=10ms", "buffer_ms=1")
    for who in ("server", "client"):
        heard, sent, lost, late, jitter = found[who]
        assert (heard, sent, lost) == (150, 150, 0)
        assert 2500 < jitter < 6700, found
    assert found["client"][3] > 30 and found["server"][3] == 0, found


def test_media(tmp_path):
    """A request takes a round trip of 40 ms, and so does the byte that answers a picture."""
    said = run(tmp_path, vm("server", "ip=10.0.0.2/24 run_ms=1000", 2, image="media"),
               vm("client", "ip=10.0.0.3/24 to=10.0.0.2 start_ms=200", 0, "delay=20ms",
                  image="media"))
    times = re.search(r"media: describe (\d+) us, setup (\d+) us, play (\d+) us", said).groups()
    assert all(40000 <= int(us) < 42000 for us in times), times
    assert re.search(r"media: 20 packets of each kind, jitter of sound (\d?\d?\d) us, of pictures "
                     r"\d?\d?\d us", said), said
    trip = re.search(r"sent 20 pictures, 20 were answered, trip time (\d+) us", said)[1]
    assert 40000 <= int(trip) < 42000


@pytest.mark.parametrize("words,vcpus,want", [
    ("busy=40", 1, [40]),
    ("busy=40", 2, [0, 40]),
    ("busy busy_vcpus=2", 3, [0, 100, 100]),
])
def test_a_load_beside_a_server(tmp_path, words, vcpus, want):
    """The load is on as many vCPUs as the command line says, from the last one on."""
    text = vm("server", f"ip=10.0.0.2/24 {words}", "0,2-3", image="iperf")
    said = run(tmp_path, text + f"vcpus = {vcpus}\n")
    shares = [float(share) for share in re.findall(r"^server +\d +\d \w+ +([\d.]+)", said, re.M)]
    assert shares == pytest.approx(want, abs=2), said


def nfs(tmp_path, words, kib, link=""):
    """Lets a client read and write `kib` KiB of a file of 2 MiB. Returns what was said."""
    return run(tmp_path, vm("nfs", "ip=10.0.0.2/24 cache=512", 2, link) +
               "disk = iodom size=2M bw=100M lat=100us\n",
               vm("client", f"ip=10.0.0.3/24 to=10.0.0.2 start_ms=100 kib={kib} {words}", 0,
                  image="nfs"))


def nfs_rates(said):
    return {name: float(rate) for name, rate in
            re.findall(r"client: nfs: (\w+) \d+ KiB .*: ([0-9.]+) MB/s", said)}


def test_a_file_over_the_network(tmp_path):
    """What was read is what was written. After a commit all 256 pages are on the disk. The first
    read fetches them from there, and some more that are read ahead; the second read finds them in
    the cache, which has 512."""
    said = nfs(tmp_path, "tests=wrR", 1024)
    assert sorted(nfs_rates(said)) == ["read", "reread", "write"]
    assert "client: nfs: 0 records were wrong" in said
    assert "client: ends with code 0" in said and "nfs: ends with code 0" in said
    read, written = re.search(r"nfs: cache .* pages_read=(\d+) pages_written=(\d+)", said).groups()
    assert written == "256" and 256 <= int(read) <= 300


def test_requests_under_way_hide_the_distance(tmp_path):
    """Eight requests at a time are more than twice as fast as one at a time if an answer takes
    20 ms, because the client does not wait for each of them."""
    one, eight = (nfs_rates(nfs(tmp_path, f"tests=wR window={window}", 512, "delay=10ms"))["reread"]
                  for window in (1, 8))
    assert eight > 2 * one


def test_a_range_that_the_file_does_not_have(tmp_path):
    """The server answers with an error, and goes on."""
    said = nfs(tmp_path, "tests=r", 4096)
    assert "was answered with 1 at 2097152, error -22" in said and "nfs: nfs: cache" not in said


def test_nodes_of_a_store(tmp_path):
    """Each node asks the others for the keys that are theirs, two of three, and none waits for an
    acknowledgement that is delayed. Nodes that have sent all their requests still answer: the last
    of them needs twice as long as the first."""
    nodes = range(1, 4)
    said = run(tmp_path, *(vm(f"node-{i}", f"ip=10.0.0.{i}/24 nodes=3 node={i} keys=300 table=64 "
                              f"cache=64 threads=2 start_ms=500 count=300 rate={150 * i}",
                              (0, 2, 3)[i - 1], image="kvnode")
                           + "disk = iodom size=2M bw=100M lat=100us\n" for i in nodes))
    found = [{word: int(n) for line in re.findall(rf"node-{i}: kvnode: (.*)", said)
              for word, n in re.findall(r"(\w+)=(\d+)", line)} for i in nodes]
    assert all(f"node-{i}: ends with code 0" in said for i in nodes), said
    for one in found:
        assert one["wrong"] == one["bad"] == 0 and one["all"] == 300, one
        assert 170 < one["remote"] < 230 and one["all_mean_us"] < 5000, one
    assert found[0]["took_us"] > 1.6 * found[2]["took_us"], found
    assert sum(one["answered"] for one in found) == sum(one["remote"] for one in found), found


def operations():
    """Returns the table of guests/webapp.h: for each kind of operation its columns."""
    with open(os.path.join(ROOT, "guests", "webapp.h"), encoding="utf-8") as f:
        rows = re.findall(r'\{ "(\w+)", +([0-9, ]+) \}', f.read())
    columns = ("share", "cpu_us", "queries", "commits", "images", "upload_kib", "page_kib")
    return {name: dict(zip(columns, map(int, row.split(",")))) for name, row in rows}


def webapp(tmp_path, words, times=1, latency="100us"):
    """Lets users ask a web application on three VMs for 1.5 s. Returns what was said, and how many
    operations of each kind there were."""
    disk = f"disk = iodom size=2M bw=100M lat={latency}\n"
    said = run(tmp_path, vm("web", f"ip=10.0.0.2/24 times={times}", 2, image="webapp"),
               vm("db", f"ip=10.0.0.4/24 times={times}", 3, image="webdb") + disk,
               vm("files", "ip=10.0.0.5/24 cache=128", 3, image="nfs") + disk,
               vm("users", f"ip=10.0.0.3/24 to=10.0.0.2 start_ms=100 run_ms=1500 {words}", 0,
                  image="webusers"))
    for name in ("web", "db", "files", "users"):
        assert f"{name}: ends with code 0" in said, said
    kinds = re.findall(r"webusers: (\w+) counted=\d+ of=(\d+)", said)
    return said, {name: int(n) for name, n in kinds if name != "all"}


def number(name, said):
    return int(re.search(rf" {name}=(\d+)", said)[1])


@pytest.mark.parametrize("times", [1, 2])
def test_web_application(tmp_path, times):
    """Each tier was asked for what the table says of the operations that the users made, and the
    web server had the CPU time for them. Users begin an operation each 50 ms, or each 100 ms if all
    costs twice as much."""
    said, count = webapp(tmp_path, f"cycle_ms={50 * times}", times)
    table = operations()
    assert "0 wrong" in said and sorted(count) == sorted(table), said
    assert 180 < sum(count.values()) * times < 300, count

    def cost(column):
        return sum(n * table[name][column] for name, n in count.items())

    for name, n in count.items():
        assert number(name, said[said.index("webapp: HomePage"):]) == n
        assert n == pytest.approx(sum(count.values()) * table[name]["share"] / 15528, abs=20)
    assert number("queries", said) == number("reads", said) == cost("queries")
    assert number("commits", said) == number("writes", said) == number("logged", said)
    assert number("commits", said) == cost("commits") > 0
    assert number("images", said) == cost("images")
    assert number("records", said) * 32 == cost("upload_kib") > 0
    assert number("pages_written", said[said.index("nfs: cache"):]) >= cost("upload_kib") // 8
    cpu = int(re.search(r"webapp: cpu_us of vCPU 0=(\d+)", said)[1])
    assert 1 < cpu / times / (cost("cpu_us") + 200 * cost("images")) < 1.15


def test_a_transaction_is_safe_when_it_is_answered(tmp_path):
    """A transaction may have to read its row and the end of the log from the disk, which takes
    20 ms for each. Then it has to write, and to wait until the disk has emptied its own cache."""
    said, _ = webapp(tmp_path, "cycle_ms=50", latency="20ms")
    assert number("write_mean_us", said) > 50000, said


def test_users_wait_for_a_connection(tmp_path):
    """All users wait for an answer, or for a connection to ask for it. So the sum of the latencies
    is their number times the time, although only eight are served at a time."""
    said, count = webapp(tmp_path, "users=24 cycle_ms=1")
    users = number("mean_us", said[said.index("webusers: all"):]) * sum(count.values()) / 1.5e6
    assert users == pytest.approx(24, rel=0.15), said
