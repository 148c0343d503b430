"""The operator's commands go to a running image, over the serial line. This is on QEMU, because no
input can be typed on Bochs."""
import time

import metrics
import pytest
from prometheus_client.parser import text_string_to_metric_families

from system.takt import Boot, CommandError, Takt, until

pytestmark = pytest.mark.alone

CONFIG = """\
[hypervisor]
top = no

[pool one]
cpus = 1

[vm a]
image = spin
memory = 4M
pool = one
weight = 256

[vm b]
image = spin
memory = 4M
pool = one
weight = 256

[vm late]
image = hello
memory = 4M
start = no
"""


@pytest.fixture(scope="module")
def takt():
    with Takt("shell", CONFIG) as t:
        yield t


def names(takt):
    return {vm["name"]: vm for vm in takt("list")}


def total(shares, *vcpus):
    return sum(shares[v] for v in vcpus)


def test_list_tells_the_vms(takt):
    vms = names(takt)
    assert set(vms) >= {"a", "b"} and "late" not in vms
    assert vms["a"]["vcpus"] == 1 and vms["a"]["memory_mib"] == 4


def test_vcpu_list(takt):
    vcpus = {v["vm"]: v for v in takt("vcpu-list")}
    assert vcpus["a"]["cpu"] == 1 and vcpus["b"]["cpu"] == 1
    until(lambda: takt("vcpu-list a")[0]["interrupted"])  # when it has had its first tick
    ran = takt("vcpu-list a")[0]
    assert 0 < ran["interrupted"] < ran["exits"]


def test_table_adds_up(takt):
    shares = takt.shares(2)
    assert 85 <= total(shares, "a/0", "b/0") <= 100.5
    top = takt("top -d 1")
    for cpu in top["pcpus"]:
        assert abs(cpu["guest_pct"] + cpu["hv_pct"] + cpu["idle_pct"] - 100) < 0.1


def test_weight_moves_shares(takt):
    takt("sched-credit -d a -w 768")
    try:
        shares = takt.shares(3)
        assert shares["a/0"] > 1.8 * shares["b/0"]
    finally:
        takt("sched-credit -d a -w 256")


def test_pause_and_unpause(takt):
    takt("pause a")
    try:
        shares = takt.shares(1)
        assert shares["a/0"] == 0 and shares["b/0"] > 85
    finally:
        takt("unpause a")
    assert takt.shares(1)["a/0"] > 20


def test_destroy_gives_everything_back_and_create_takes_the_same(takt):
    takt("destroy a")
    assert "a" not in names(takt)
    free = takt("info")["free_frames"]
    for _ in range(3):
        takt("create a")
        assert names(takt)["a"]["state"] == "running"
        takt("destroy a")
        assert takt("info")["free_frames"] == free
    takt("create a")


def test_pin_and_migrate(takt):
    takt("cpupool-migrate a Pool-0")
    try:
        assert {v["vm"]: v["cpu"] for v in takt("vcpu-list")} == {"a": 0, "b": 1}
        with pytest.raises(CommandError):
            takt("vcpu-pin a 0 1")  # Its pool has no such CPU.
        takt("vcpu-pin a 0 0")
        shares = takt.shares(1)
        assert shares["a/0"] > 70 and shares["b/0"] > 70
    finally:
        takt("vcpu-pin a 0 all")
        takt("cpupool-migrate a one")
    assert {v["vm"]: v["cpu"] for v in takt("vcpu-list")} == {"a": 1, "b": 1}


def test_pools(takt):
    with pytest.raises(CommandError):
        takt("cpupool-destroy one")  # The pool has VMs.
    takt("cpupool-migrate a Pool-0")
    takt("cpupool-migrate b Pool-0")
    try:
        takt("cpupool-destroy one")
        assert [p["name"] for p in takt("cpupool-list")] == ["Pool-0"]
        with pytest.raises(CommandError):
            takt("cpupool-migrate a one")
        takt("cpupool-cpu-add Pool-0 1")
        shares = takt.shares(1)
        assert shares["a/0"] > 60 and shares["b/0"] > 60  # Each VM has a pCPU.
        takt("cpupool-cpu-remove Pool-0 1")
        shares = takt.shares(1)
        assert 30 < shares["a/0"] < 70 and 30 < shares["b/0"] < 70
    finally:
        takt("cpupool-create name=one sched=credit cpus=1")
        takt("cpupool-migrate a one")
        takt("cpupool-migrate b one")


def test_null_policy(takt):
    takt("cpupool-migrate a Pool-0")
    takt("cpupool-migrate b Pool-0")
    try:
        takt("cpupool-destroy one")
        takt("cpupool-create name=one sched=null cpus=1")
        takt("cpupool-migrate a one")
        assert takt.shares(1)["a/0"] > 70
        takt("cpupool-migrate a Pool-0")
    finally:
        takt("cpupool-destroy one")
        takt("cpupool-create name=one sched=credit cpus=1")
        takt("cpupool-migrate a one")
        takt("cpupool-migrate b one")


@pytest.mark.parametrize("command, sentence", [
    ("nonsense", "no such command"),
    ("destroy nobody", "no VM nobody"),
    ("create a", ""),
    ("create nobody", "no VM nobody"),
    ("sched-credit -d a -w 0", ""),
    ("sched-credit -d a -w 65536", ""),
    ("sched-credit -d a -c 100000", ""),
    ("vcpu-pin a 7 0", "no vCPU 7"),
    ("vcpu-pin a 0 63", ""),
    ("vcpu-pin a 0 x", "list of CPUs"),
    ("cpupool-create name=p sched=lottery", ""),
    ("cpupool-cpu-remove Pool-0 0", ""),
    ("cpupool-destroy Pool-0", ""),
    ("cpupool-migrate a nowhere", "no pool nowhere"),
    ("top -d 0", "cannot be 0"),
    ("param -p Pool-0 nothing 1", "no parameter nothing"),
])
def test_errors_are_sentences_and_change_nothing(takt, command, sentence):
    before = takt("info")["free_frames"], names(takt).keys()
    with pytest.raises(CommandError, match=sentence):
        takt(command)
    assert (takt("info")["free_frames"], names(takt).keys()) == before


def test_a_vm_that_ends_by_itself(takt):
    def live_and_die():
        takt("create late")
        deadline = time.monotonic() + 10
        while "late" in names(takt):
            assert time.monotonic() < deadline, names(takt)["late"]
        return takt("info")["free_frames"]

    free = live_and_die()  # What is made at first use exists now.
    assert live_and_die() == free
    assert any("late" in x["line"] and "code 0" in x["line"] for x in takt("dmesg"))


def test_log(takt):
    assert any("Takt" in x["line"] for x in takt("dmesg"))


def test_a_vm_that_is_still_being_made_is_left_alone():
    """Commands that come while the boot still makes the VMs are refused, or wait. None of them is
    fatal."""
    config = "[hypervisor]\ntop = no\nscript = script\n" + "".join(
        f"[vm v{i}]\nimage = spin\nmemory = 8M\n" for i in range(8))
    commands = ["sched-credit -d v7 -w 512", "param -d v7 weight", "param -d v7 weight 512",
                "cpupool-migrate v7 Pool-0",
                "sched-credit", "vcpu-pin v7 0 0", "pause v7", "unpause v7", "top -d 0.1",
                "vcpu-list", "list", "console v7"]
    script = "".join(f"@0ms {c}\n" for c in commands) + "+500ms list -j=end\n+0ms poweroff\n"
    boot = Boot("early", config, script, "qemu")
    assert not boot.said("PANIC") and boot.answers[-1]["id"] == "end", boot.log[-2500:]


def test_metrics(takt):
    """Counters only grow, and the time of each pCPU is accounted for completely."""
    def scrape():
        families = text_string_to_metric_families(metrics.collect(takt.link.run))
        return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families
                for s in f.samples}

    begun = scrape()
    time.sleep(0.5)
    ended = scrape()
    grown = {key: ended[key] - begun[key] for key in begun
             if key[0].endswith("_total") and key in ended}
    assert min(grown.values()) >= 0
    up = ended["takt_uptime_seconds", ()] - begun["takt_uptime_seconds", ()]
    for cpu in ("0", "1"):
        spent = sum(v for (name, labels), v in grown.items() if name == "takt_pcpu_seconds_total"
                    and ("cpu", cpu) in labels)
        assert up * 0.5 < spent < up * 1.5  # The two values are asked for one after the other.
    assert ended["takt_vm_weight", (("vm", "a"),)] == takt("sched-credit -d a")[0]["weight"]
    ran = grown["takt_vcpu_seconds_total", (("state", "running"), ("vcpu", "0"), ("vm", "a"))]
    assert 0.2 * up < ran < 1.5 * up
