"""A key-value store on a disk, served over the network to VMs (docs/collab.md, Workloads)."""
import pytest

from system.takt import SCRIPTED, Boot, vm, workload

pytestmark = pytest.mark.long_on("qemu")

STORE = " keys=200 table=32 threads=3"
# Each client has a connection for each of its three threads, and asks 150 times.
CLIENTS = {"half": "count=150 rate=400 read_pct=50", "most": "count=150 rate=400 read_pct=95",
           "closed": "count=150 read_pct=50", "late": "count=150 rate=20000 read_pct=50"}
SERVER = f"ip=10.0.0.4/24 cache=64 sync_ms=50 connections={3 * len(CLIENTS)}" + STORE
CONFIG = SCRIPTED + "[pool io]\ncpus = 1\n" + "".join([
    vm("iodom", "iodom", "12M", pool="io", cmdline="ssd0=bw=8M,lat=100us,depth=8,queue=64"),
    vm("server", "kvserver", "12M", vcpus=2, net="iodom", disk="iodom on=ssd0 size=1M",
       cmdline=SERVER),
    *(vm(name, "kvclient", "8M", vcpus=2, net="iodom", start="no",
         cmdline="ip=10.0.0.5/24 to=10.0.0.4 " + words + STORE) for name, words in CLIENTS.items())
])
SCRIPT = "@300ms list\n" + "".join(f"+0ms create {name}\n+0ms wait {name} 20s\n"
                                   for name in CLIENTS) + "+0ms wait server 20s\n+100ms poweroff\n"


@pytest.fixture(scope="module")
def boot(platform):
    return Boot("kvnet", CONFIG, SCRIPT, platform)


def test_each_request_is_answered(boot):
    """Each answer has the value that belongs to its key, and is not older than what its client
    knew. The server has seen as many requests as were sent."""
    clients = {name: workload(boot, name) for name in CLIENTS}
    server = workload(boot, "server")
    for said in clients.values():
        assert said["wrong"] == 0 and said["reads"] + said["writes"] == 150, said
    assert server["wrong"] == server["bad"] == 0, server
    for kind in ("reads", "writes"):
        assert server[kind] == sum(said[kind] for said in clients.values()), server
    assert server["flushes"] > 0 and server["pages_written"] > 0, server
    assert 55 < clients["half"]["reads"] < 95 and 132 < clients["most"]["reads"] < 150, clients


def test_a_late_request_counts_from_when_it_was_due(boot, platform):
    """150 requests are due within 8 ms, over three connections. The last one waits for all others.
    A client that waits for each answer before it sends the next request sees nothing of that."""
    closed, late = workload(boot, "closed"), workload(boot, "late")
    slowest = max(late["read_max_us"], late["write_max_us"])
    assert slowest > late["took_us"] - 12_000, late
    if platform == "bochs":
        assert late["took_us"] > 20_000, late
        assert late["read_mean_us"] > 4 * closed["read_mean_us"], (closed, late)
