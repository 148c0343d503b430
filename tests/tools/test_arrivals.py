"""tools/arrivals.py: VMs that arrive at random, and what may not happen to them."""
import re

import arrivals
import pytest


def test_vms_arrive_as_a_poisson_process():
    """The number in a minute has the rate as its mean and as its variance."""
    counts = [len(arrivals.arrivals(20, 60, seed)) for seed in range(400)]
    mean = sum(counts) / len(counts)
    assert mean == pytest.approx(20, abs=0.8)
    assert sum((n - mean) ** 2 for n in counts) / len(counts) == pytest.approx(20, rel=0.25)


def test_a_seed_gives_the_same_vms():
    of = arrivals.arrivals(12, 600, 1)
    assert of == arrivals.arrivals(12, 600, 1) != arrivals.arrivals(12, 600, 2)
    assert [ms for ms, *_ in of] == sorted(ms for ms, *_ in of) and of[-1][0] < 600000
    assert {job for _, job, _, _ in of} == set(arrivals.JOBS)
    assert {vcpus for _, _, vcpus, _ in of} == {gb for *_, gb in of} == set(arrivals.SIZES)


def test_files():
    vms, script, arrived = arrivals.files(20, 60, 1, "cores=2 collab", "collab")
    assert vms.count("\nstart = no\n") == script.count("create -w") == arrived > 5
    assert "vcpus = 3\n" in vms and "sleepless = on" in vms
    big = [text for text in vms.split("[vm ") if "vcpus = 10\n" in text and "disk =" in text]
    assert big and all("socket=0 sockets=2" in text and " collab\n" in text for text in big)
    assert "socket" not in arrivals.files(20, 60, 1, "", "")[0]


def pcpus_for_io(*words):
    """Returns how many vCPUs the driver domain has, and which pCPUs the VMs do not get."""
    text = arrivals.files(20, 60, 1, *words)[0]
    vcpus = re.search(r"image = iodom\n(?:.*\n)*?vcpus = (\d)", text)[1]
    return vcpus, re.search(r"sleepless = \w+\ncpus = (.*)", text)[1]


def test_vms_may_have_as_many_pcpus_as_beside_io_cores():
    """Otherwise a set-up without I/O cores would have two pCPUs more for VMs that compute."""
    assert pcpus_for_io("", "") == ("1", "1-1")
    assert pcpus_for_io("", "", 3) == ("1", "1-3")
    assert pcpus_for_io("cores=2", "") == pcpus_for_io("cores=2", "", 3) == ("3", "1-3")


SAID = "".join(f"[ {n}.5] vm-{n}: id {n + 2}, 2 vCPUs, 16 MiB, runs\n"
               f"[ {n + 9}.5] vm-{n}: fileserver: took_us=1000000 requests=9 wrong=0 cpu_us=500\n"
               f"[ {n + 9}.5] vm-{n}: fileserver: writes={n + 1} write_kib={100 * (n + 1)} "
               f"write_mean_us=10 write_p999_us={n}\n"
               f"[ {n + 9}.6] vm-{n}: ends with code 0\n" for n in (0, 1)) \
    + "[ 2.5] vm-2: id 4, 2 vCPUs, 16 MiB, runs\n"


def test_what_a_run_says():
    found = arrivals.read(SAID, 4)
    assert (found["arrived"], found["completed"]) == (4, 2)
    assert found["write_ms_per_mib"] == 2000 * 1024 / 300
    assert (found["mean_us"], found["p999_us"]) == (10, 1)
    assert found["cpu_s"] == 0.001
    assert not arrivals.judge("x", found)


def test_what_is_compared_is_of_the_same_vms():
    """A set-up is not quicker because its slowest VM has not come to its end."""
    slow = SAID.replace("1: fileserver: took_us=1", "1: fileserver: took_us=9")
    quick = SAID.replace("vm-1: ends with code 0", "vm-1: goes on")
    slow, quick = (arrivals.read(said, 4) | {"rate": 4, "seed": 1} for said in (slow, quick))
    before = slow["write_ms_per_mib"]
    assert before > 3 * quick["write_ms_per_mib"] > 0
    other_seed = slow | {"seed": 2}
    arrivals.compare_the_same([slow, quick, other_seed])
    assert slow["write_ms_per_mib"] == quick["write_ms_per_mib"] == 1000 * 1024 / 100
    assert (slow["completed"], quick["completed"]) == (2, 1)
    assert other_seed["write_ms_per_mib"] == before


def test_how_busy_the_pcpus_of_the_vms_are():
    """I/O cores spin, so their time would say nothing."""
    spins, works, idles = ({"busy_s": n, "idle_s": 4 - n} for n in (4, 1, 0))
    assert arrivals.busy_pct([works, spins, spins, idles, works, idles]) == pytest.approx(100 / 6)


@pytest.mark.parametrize("old, new, what", [
    ("[ 0.5] vm-0: id", "[ 1.6] vm-0: id", "order in which they arrived"),
    ("wrong=0", "wrong=3", "vm-0 has read 3 words"),
    ("[ 2.5] vm-2: id 4", "[ 2.6] vm-2: crashed: x\n[ 2.5] vm-2: id 4", "vm-2 has crashed"),
    ("ends with code 0", "ends with code 1", "no VM has completed"),
    ("[ 0.5] vm-0: id", "[ 0.5] vm-0: no id", "order in which they arrived")])
def test_what_must_not_be_is_told(old, new, what):
    wrong = arrivals.judge("x", arrivals.read(SAID.replace(old, new), 4))
    assert any(what in sentence for sentence in wrong), wrong


def test_a_run():
    """Twenty seconds: some VMs come, and some are through."""
    found = arrivals.run("flush", 20, 20, 1)
    assert found["completed"] and not arrivals.judge("x", found)
    assert 5 < found["busy_pct"] < 100
