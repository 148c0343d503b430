"""tools/collabdemo.py: its VM files, what it reads from the guests' output, and when it fails."""
import collabdemo
import pytest

SAID = "".join(
    f"[ {n}.5] {vm}: bursts: writing_us=40\n"
    f"[ {n}.5] {vm}: bursts: took_us={took} requests=0 wrong=0 cpu_us=9\n"
    f"[ {n}.5] {vm}: bursts: reads=0 read_kib=0 read_mean_us=0\n"
    f"[ {n}.5] {vm}: bursts: writes=800 write_kib=3200 write_mean_us={10 * n} "
    f"write_p999_us={100 * n}\n[ {n}.5] {vm}: bursts: congestions=0 released=0 flush_asked=3\n"
    f"[ {n}.6] {vm}: ends with code 0\n"
    for n, (vm, took) in enumerate((("one", 1000000), ("two", 2000000), ("three", 4000000)), 1)
) + "[ 1.7] video: video: reads=9 read_kib=9 read_mean_us=5 read_p99_us=6\n" \
    "[ 1.8] video: ends with code 0\n[ 1.9] video: video: released=4 flush_asked=1\n" \
    "[ 2.0] wide: spread: socket 0: kib=1000 requests=250 mean_us=9\n" \
    "[ 2.0] wide: spread: socket 1: kib=600 requests=150 mean_us=9\n" \
    "[ 2.0] wide: spread: rings=2 wrong=0 refused=0 moves=1\n" \
    "[ 2.0] near: spread: socket 0: kib=1200 requests=300 mean_us=9\n" \
    "[ 2.0] far: spread: socket 0: kib=400 requests=100 mean_us=9\n" \
    + "".join(f"[ 2.1] {vm}: ends with code 0\n" for vm in collabdemo.SHARES) \
    + '\x1e{"id": "cpu_ms", "command": "store", "error": 0, "result": {"value": "77"}}\n' \
    '\x1e{"id": "vcpus", "command": "vcpu-list", "error": 0, "result": [' \
    '{"vm": "iodom", "vcpu": 0, "time_s": 0.007}, {"vm": "iodom", "vcpu": 1, "time_s": 0.07}]}\n'


def test_read():
    found = collabdemo.read(SAID)
    assert {q: found[q] for q in collabdemo.QUANTITIES} == {
        "write_kib_per_s": 3200 + 1600 + 800, "mean_us": 20, "p999_us": 300, "read_mean_us": 5,
        "read_p99_us": 6, "spread_kib_per_s": 4000, "wide_kib_per_s": 2000, "off_share": 12.5,
        "completed": 7, "iodom_cpu_ms": 7, "spin_ms": 70}
    assert found["vms"]["wide"]["kib"] == 1600 and found["vms"]["wide"]["moves"] == 1
    assert found["vms"]["two"]["flush_asked"] == 3 and found["vms"]["video"]["released"] == 4
    assert collabdemo.read(SAID.replace("two: ends with code 0", "two: ends with code 1")
                           )["completed"] == 6
    for gone in ("two: bursts: writes", "cpu_ms", "video: reads", "vcpus", "far: spread: socket"):
        with pytest.raises(LookupError):
            collabdemo.read(SAID.replace(gone, "x"))


def test_the_distance_from_shares():
    assert collabdemo.off_share({"wide": 20, "near": 10, "far": 10}) == 0
    assert collabdemo.off_share({"wide": 25, "near": 25, "far": 50}) == 25


def one(setup, seed, rate, asked, wrong=0, completed=7, off=0.5, spread=100):
    moves = int(setup in ("cosched", "all"))
    return {"setup": setup, "seed": seed, "write_kib_per_s": rate, "completed": completed,
            "off_share": off, "spread_kib_per_s": spread,
            "vms": {"one": {"flush_asked": asked, "wrong": wrong, "moves": moves,
                            "released": int(setup == "all")}}}


GOOD = [one("plain", 1, 100, 0), one("flush", 1, 120, 4), one("plain", 2, 100, 0),
        one("flush", 2, 99, 4), one("sdc", 1, 100, 0, off=25), one("cosched", 1, 100, 0, spread=99),
        one("all", 1, 110, 3)]
NOT_BY_THE_HOSTS_CLOCK = ("below", "mean write", "from its share")


@pytest.mark.parametrize("change, what", [
    (one("plain", 1, 100, 1), "flush_asked is 1"), (one("flush", 1, 120, 0), "flush_asked is 0"),
    (one("flush", 1, 97, 4), "more than 2 % below"), (one("flush", 1, 100, 4), "mean write"),
    (one("flush", 1, 120, 4, wrong=3), "3 words"), (one("plain", 1, 100, 0, completed=2), "2 of 7"),
    (one("all", 1, 97, 3), "more than 2 % below"), (one("all", 1, 100, 3), "mean write"),
    (one("cosched", 1, 100, 0, off=5.1), "5.1 points from its share"),
    (one("sdc", 1, 100, 0, off=0.4), "with sdc it is 0.4"),
    (one("cosched", 1, 100, 0, spread=97), "2 % below 100"),
    (one("sdc", 1, 100, 0, off=25) | {"vms": {"wide": {"moves": 1}}}, "moves is 1"),
])
def test_what_does_not_hold_is_told(change, what):
    assert not collabdemo.judge(GOOD, "bochs")
    runs = [change if (r["setup"], r["seed"]) == (change["setup"], change["seed"]) else r
            for r in GOOD]
    wrong = collabdemo.judge(runs, "bochs")
    assert any(what in sentence for sentence in wrong)
    if any(part in sentence for sentence in wrong for part in NOT_BY_THE_HOSTS_CLOCK):
        assert not collabdemo.judge(runs, "qemu")


def test_vm_files():
    plain, flush = (collabdemo.vm_file(setup, 7) for setup in ("plain", "flush"))
    assert "collab collab_ms" not in plain and flush.count(" collab\n") == len(collabdemo.VMS)
    assert "collab collab_ms=20 slow_pct=0 flush=1 congestion=0\n" in flush
    assert "seed = 7\n" in flush
    assert "vary=20%,seed=7 " in plain


def test_a_run_in_the_simulation():
    """Each function does something where it is on, and nothing elsewhere: one seed of each set-up
    in the simulation of the whole machine, which takes a second for all."""
    runs = [collabdemo.run(setup, 1, "whole") for setup in ("plain", "dif", "flush", "congestion")]
    assert not collabdemo.judge(runs, "whole"), runs


def test_set_ups_with_io_cores():
    """These have I/O cores and sockets, and the others do not. Two of them differ in one word."""
    sdc, cosched, whole = (collabdemo.vm_file(setup, 7) for setup in ("sdc", "cosched", "all"))
    assert "cores=2" in sdc and "cores=" not in collabdemo.vm_file("flush", 7)
    assert "vcpus = 3\n" in sdc and "sockets=2 share=2\n" in sdc and "socket=1\n" in sdc
    assert sdc.replace("coschedule=0", "coschedule=1") == cosched
    assert cosched.replace("flush=0 congestion=0", "flush=1 congestion=1") == whole
