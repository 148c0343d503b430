"""The store as guests, the operator and clients on the host see it."""
import os
import subprocess
import sys

import pytest

from conftest import ROOT
from system.takt import SCRIPTED, Boot, vm

WATCHERS = SCRIPTED + "[pool fast]\ncpus = 1\n[pool turbo]\ncpus = 2\nturbo_of = fast\n" + "".join([
    vm("one", "storewatch"),
    vm("two", "storewatch", cmdline="ask=700"),
    vm("three", "storewatch", pool="fast", turbo="yes"),
])
HOME = "/local/domain/1"


@pytest.fixture(scope="module")
def boot(platform):
    """This is one boot. Its script does what an operator does, and the tests look at the results.
    The pauses give guests the time to print what the tests look for. On QEMU they are longer,
    because a busy host makes guests slower but not the clock."""
    slow = 8 if platform == "qemu" else 1
    return Boot("store", WATCHERS, [
        f"@{300 * slow}ms store read -j=weight {HOME}/sched/weight",
        f"+0ms store write -j=key {HOME}/data/key hello",
        f"+{50 * slow}ms store write -j=deep /a/b/c 1",
        "+0ms store ls -j=a /a",
        f"+0ms store write -j=set {HOME}/sched/weight 700",
        "+0ms sched-credit -j=credit -d one",
        f"+0ms store write -j=bad {HOME}/sched/weight 70000",
        f"+0ms store write -j=word {HOME}/sched/weight heavy",
        f"+0ms store read -j=stays {HOME}/sched/weight",
        f"+0ms store rm -j=bound {HOME}/sched/weight",
        f"+0ms store write -j=readonly {HOME}/sched/class io",
        "+0ms sched-credit -d one -w 300",
        f"+0ms store read -j=shell {HOME}/sched/weight",
        "+0ms store write -j=slice /takt/host/pool/0/tslice_us 3000",
        "+0ms sched-credit -j=pool0 -s",
        f"+0ms store write -j=nopool {HOME}/sched/pool nowhere",
        f"+0ms store write -j=move {HOME}/sched/pool fast",
        "+0ms store write -j=stays_with_turbo /local/domain/3/sched/pool Pool-0",
        f"+{200 * slow}ms sched-credit -j=moved",
        f"+0ms store perms -j=perms {HOME}/sched/weight",
        f"+0ms store perms -j=own {HOME}/data",
        "+0ms store perms -j=setperms /a n1 r2",
        "+0ms store perms -j=newperms /a",
        "+0ms store rm -j=rm /a",
        "+0ms store read -j=gone /a/b/c",
        "+0ms store read -j=path a//b",
        "+0ms store write -j=ceiling /local/domain/2/ceiling/micro_us 1000",
        "+0ms destroy two",
        "+0ms create two",
        f"+{500 * slow}ms store ls -j=domains /local/domain",
        "+0ms store read -j=forgotten /local/domain/4/ceiling/micro_us",
        "+0ms poweroff"], platform, cpus=3)


def error(boot, tag):
    return next(a for a in boot.answers if a["id"] == tag)["error"]


def test_a_guest_hears_what_the_operator_writes(boot):
    assert boot.said("one: storewatch: data/key = hello")


def test_nodes_are_made_with_those_above(boot):
    assert [n["name"] for n in boot.results["a"]] == ["b"]
    assert error(boot, "rm") == 0 and error(boot, "gone") == -2


def test_a_parameter_is_a_node(boot):
    assert boot.results["weight"]["value"] == "256"
    assert boot.results["credit"][0]["weight"] == 700
    assert boot.results["shell"]["value"] == "300", "what the shell sets is what is read"
    assert boot.results["pool0"][0]["tslice_us"] == 3000


def test_what_the_table_refuses_changes_nothing(boot):
    assert error(boot, "bad") == error(boot, "word") == -22
    assert boot.results["stays"]["value"] == "700"
    assert error(boot, "bound") != 0 and error(boot, "readonly") != 0


def test_a_vm_moves_to_another_pool(boot):
    assert error(boot, "nopool") == error(boot, "stays_with_turbo") == -22
    assert {v["name"]: v["pool"] for v in boot.results["moved"]} == {"one": "fast", "two": "Pool-0",
                                                                     "three": "fast"}


def test_rights(boot):
    assert boot.results["perms"] == [{"vm": 0, "rights": "n"}, {"vm": 1, "rights": "r"}]
    assert boot.results["own"] == [{"vm": 1, "rights": "n"}]
    assert boot.results["newperms"] == [{"vm": 1, "rights": "n"}, {"vm": 2, "rights": "r"}]
    assert error(boot, "path") == -22


def test_a_request_beyond_the_ceiling_is_refused(boot):
    assert boot.said("two: storewatch: request/micro_us: refused")


def test_a_home_goes_with_its_vm(boot):
    """A VM that is created again under that name inherits nothing."""
    assert {n["name"] for n in boot.results["domains"]} == {"1", "3", "4"}
    assert boot.results["forgotten"]["value"] == "0"


@pytest.fixture(scope="module")
def changes():
    """VMs each watch a node, while parameters, pools and quotas change in other ways."""
    vms = [vm("weight", "storewatch", cmdline="key=sched/weight", weight=300),
           vm("class", "storewatch", cmdline="key=sched/class io=20"),
           vm("pool", "storewatch", cmdline="key=sched/pool", pool="fast"),
           vm("quota", "storewatch", cmdline="key=quota/nodes")]
    return Boot("store-changes", SCRIPTED + "[pool fast]\ncpus = 1\n" + "".join(vms), [
        "@20ms sched-credit -s --io-window-ms 50",
        "@400ms cpupool-migrate weight fast",
        "+50ms store write /local/domain/1/sched/weight 400",
        "+50ms store write /local/domain/1/sched/pool Pool-0",
        "+50ms cpupool-rename fast quick",
        "+0ms store read -j=name /takt/host/pool/1/name",
        "+0ms store write -j=set /local/domain/4/quota/nodes 1200",
        "+0ms store write -j=none /local/domain/4/quota/nodes 0",
        "+0ms store write -j=beyond /local/domain/4/quota/perms 9",
        "+0ms store ls -j=quotas /local/domain/4/quota",
        "+0ms store write -j=host /takt/host/quota/watches 5",
        "+0ms create another image=storewatch memory=4M",
        "+700ms store read -j=new /local/domain/5/quota/watches",
        "+0ms poweroff"], "bochs", cpus=2)


def heard(boot, name):
    return boot.said(rf"{name}: storewatch: \S+ = (\S+)")


@pytest.mark.bochs
def test_a_move_keeps_parameters(changes):
    """A VM is moved by the shell and by the store. The watchers of a parameter are told to look
    again, because the other pool might not have kept it."""
    assert heard(changes, "weight") == ["300", "300", "400", "400"]


@pytest.mark.bochs
def test_watches_hear_of_the_class(changes):
    assert heard(changes, "class")[-2:] == ["io", "cpu"]


@pytest.mark.bochs
def test_watches_hear_of_a_pools_new_name(changes):
    assert heard(changes, "pool") == ["fast", "quick"]
    assert changes.results["name"]["value"] == "quick"


@pytest.mark.bochs
def test_quotas_are_set(changes):
    assert heard(changes, "quota") == ["1000", "1200"]
    assert error(changes, "set") == 0 and error(changes, "none") == error(changes, "beyond") == -22
    assert {n["name"]: n["value"] for n in changes.results["quotas"]} == {
        "nodes": "1200", "watches": "128", "value": "2048", "transactions": "10", "perms": "5",
        "requests": "20", "events": "64",
        "memory": "2097152"}
    assert changes.results["new"]["value"] == "5", "what new VMs begin with"


@pytest.mark.bochs
def test_a_watch_reaches_another_cpu():
    """This measures from the write to the callback of a watcher that sleeps on an idle pCPU: at
    most 15,000 ticks of 10 ns."""
    config = SCRIPTED + vm("watcher", "storebench", cmdline="watch writer=2 n=50", cpus=1) + vm(
        "writer", "storebench", cmdline="watcher=1 n=60", cpus=0)
    boot = Boot("store-watch", config, ["@0ms wait watcher 5s", "+0ms poweroff"], "bochs", cpus=2)
    ns, = boot.said(r"watcher: BENCH store_watch (\d+)")
    assert 0 < int(ns) <= 150_000


def test_clients_of_xenstore():
    """Debian's xenstore-* and pyxs, unmodified, use the store over a serial line."""
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "storedemo.py")],
                          stdout=subprocess.PIPE, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stdout
