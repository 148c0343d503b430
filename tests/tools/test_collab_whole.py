"""Disk I/O that guests and driver domain tune together (docs/collab.md), with all functions on, in
the simulation of the whole machine."""
import json
import os
import re
import subprocess

import pytest
from conftest import BUILD, ROOT

DISK = "iodom on=ssd0 size=1M"
BURSTS = "kib=400 bursts=5 pause_ms=200 cache=256 background=35 dirty=40 collab"


def head(driver, sleepless, cpus):
    return f"""
[hypervisor]
guest_console = log
[pool io]
sched = null
sleepless = {sleepless}
cpus = 1-{cpus}
[vm iodom]
image = iodom
memory = 16M
vcpus = {cpus}
pool = io
cmdline = ssd0=bw=4M,lat=100us,depth=8 collab collab_ms=20 {driver}
"""


CORES = head("cores=2 remote=20us coschedule=1", "on", 3)
NO_CORES = head("", "off", 1)


def vm(name, image, words, more=""):
    return (f"[vm {name}]\nimage = {image}\nstart = no\nmemory = 8M\nvcpus = 2\n"
            f"disk = {DISK} {more}\ncmdline = {words}\n")


def run(tmp_path, config, script):
    """Returns what was printed."""
    for name, text in (("vms.cfg", config), ("vms.script", script)):
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [os.path.join(BUILD, "sim-whole"), "-g", os.path.join(BUILD, "whole"), "-p", "6", "-t",
         "60s", "--script", tmp_path / "vms.script", tmp_path / "vms.cfg"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


def figures(said, name):
    """Returns {word: number} of all that the VM has printed; of a word, the last number."""
    return {word: int(n) for line in re.findall(rf"\] {name}: (.*)", said)
            for word, n in re.findall(r"(\w+)=(\d+)", line)}


@pytest.mark.parametrize("first", [CORES, NO_CORES], ids=["cores", "no-cores"])
def test_a_liar_beside_costs_others_nothing(tmp_path, first):
    """It changes `congested` more than a thousand times a second, claims 2^63 dirty pages, never
    clears flush_now and removes its keys, for as long as the other VM runs."""
    honest, p99 = vm("honest", "bursts", BURSTS), []
    for liar in ("", "+0ms create liar\n"):
        said = run(tmp_path, first + honest + vm("liar", "liar", "mute rm run_ms=1400"),
                   f"@400ms list\n{liar}+0ms create honest\n+0ms wait honest 20s\n+0ms poweroff\n")
        found = figures(said, "honest")
        assert found["wrong"] == 0 and found["flush_asked"] >= 3, said[-3000:]
        p99.append((found["write_p99_us"], found["write_p999_us"], found["took_us"]))
    assert "more than 200 changes of its keys in a second" in said
    assert all(beside <= alone * 1.05 for alone, beside in zip(*p99)), p99


@pytest.mark.parametrize("ms", range(130, 1030, 180))
def test_nothing_written_is_lost_when_the_driver_domain_dies(tmp_path, ms):
    """The driver domain, the manager in it, and the I/O cores are destroyed at some moment while
    two VMs write, one of them on two sockets, and are made again. Each VM reads back what it wrote,
    and the new manager asks both to flush."""
    words = "kib=400 bursts=9 pause_ms=100 cache=256 background=35 dirty=40 collab"
    said = run(tmp_path, CORES + vm("one", "bursts", words, "sockets=2")
               + vm("two", "bursts", words, "socket=1"),
               f"@400ms create one\n+0ms create two\n+{ms}ms destroy iodom\n+20ms create iodom\n"
               "+0ms wait one 20s\n+0ms wait two 20s\n+0ms poweroff\n")
    for name in ("one", "two"):
        assert f"{name}: disk: the device is gone" in said
        assert f"{name}: ends with code 0" in said, said[-3000:]
        assert figures(said, name)["wrong"] == 0
        assert figures(said, name)["flush_asked"] >= 2


def test_idle_costs_nothing(tmp_path):
    """All functions are on, and all has been written: no VM has an exit, and so no message."""
    said = run(tmp_path, NO_CORES + vm("quiet", "bursts", "kib=40 bursts=2 pause_ms=3000 collab"),
               "@400ms create quiet\n@2500ms top -j=idle -w 0.1 -d 0.5\n+0ms poweroff\n")
    answer = json.loads(re.search(r"\x1e(\{\"id\": \"idle\".*)", said)[1])
    rates = {v["vm"]: v["exits_per_s"] for v in answer["result"]["vcpus"]}
    assert set(rates) == {"iodom", "quiet"} and not any(rates.values()), rates


def test_a_guest_that_only_says_that_it_has_flushed(tmp_path):
    """It claims dirty pages and writes none. After three flushes it is not asked for ten seconds,
    and the log names it."""
    said = run(tmp_path, NO_CORES + vm("calm", "liar", "run_ms=800 calm"),
               "@400ms create calm\n+0ms wait calm 20s\n+0ms poweroff\n")
    assert figures(said, "calm")["asked"] == 3, said[-3000:]
    assert "disk 0: claims dirty pages and does not write them" in said


@pytest.mark.parametrize("flush, dif", [(1, 1), (0, 1), (1, 0), (0, 0)])
def test_flush_goes_before_dif(tmp_path, flush, dif):
    """Both would have a guest write while the device is idle. While flush is on, no guest hears
    that the device is idle. Each does nothing while it is off."""
    first = head(f"flush={flush} dif={dif}", "off", 1)
    said = run(tmp_path, first + vm("writer", "bursts", BURSTS),
               "@400ms create writer\n+0ms wait writer 20s\n+0ms poweroff\n")
    found = figures(said, "writer")
    assert (found["flush_asked"] > 0) == bool(flush), found
    assert (found["by_itself"] > 0) == bool(dif and not flush), found
    assert found["wrong"] == 0


# These always have requests of 4 KiB while they run. The one with the smaller share comes first,
# and has more requests at a time. Each has more disk than it fills, because it waits at its end.
SHARE, DEPTH = {"little": 1, "much": 3}, {"little": 16, "much": 8}
KIB, QUEUE = 4, 4


@pytest.mark.parametrize("sched", ["", ",sched=drr"], ids=["first-come", "turns"])
def test_bytes_are_by_share_within_a_quantum(tmp_path, sched):
    """By turns, what each moves in a period of the monitor is its share, within a quantum and a
    request of both, and what the device has under way. Without turns the VM with the smaller share
    gets most, because its requests are in the queue already."""
    first = head("flush=0 congestion=0 monitor_ms=100", "off", 1).replace(
        "depth=8", f"depth=8,queue={QUEUE}{sched}")
    config = first + "".join(
        f"[vm {name}]\nimage = spread\nstart = no\nmemory = 6M\n"
        f"cmdline = run_ms=300 depth={DEPTH[name]}\n"
        f"disk = iodom on=ssd0 share={SHARE[name]} size=2M\n" for name in SHARE)
    said = run(tmp_path, config, "@400ms create little\n+0ms create much\n+0ms wait much 230ms\n"
               "+0ms store -j=device ls /local/domain/1/io/device/ssd0\n+0ms poweroff\n")
    told = {row["name"]: row["value"] for row in json.loads(
        re.search(r"\x1e(\{\"id\": \"device\".*)", said)[1])["result"]}
    kib = {name: int(re.search(r"writes=(\d+)", told[f"{vm_id}-0"])[1]) * KIB
           for name, vm_id in (("little", 2), ("much", 3))}
    assert sum(kib.values()) > 300, told
    off_by = abs(kib["much"] / SHARE["much"] - kib["little"])
    slack = sum((share * KIB + KIB) / share for share in SHARE.values()) + QUEUE * KIB
    if sched:
        assert off_by <= slack, kib
    else:
        assert off_by > 5 * slack, kib
