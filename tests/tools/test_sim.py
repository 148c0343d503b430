"""build/sim: VM files in the simulation, which can also be built for machines that are too large
for the image."""
import json
import os
import re
import shutil
import struct
import subprocess

import pytest
from conftest import BUILD, ROOT

SIM = os.path.join(BUILD, "sim")
DEMO = os.path.join(ROOT, "boot", "demo.cfg")
POOLS = os.path.join(ROOT, "boot", "pools.cfg")
MIXED = os.path.join(ROOT, "boot", "mixed.cfg")


def sim(*args):
    return subprocess.run([SIM, *args], capture_output=True, text=True, check=False)


def result(*args):
    done = sim("-j", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def shares(r):
    return {v["vm"]: v["cpu_pct"] for v in r["vcpus"]}


def one(tmp_path, text):
    path = tmp_path / "one.cfg"
    path.write_text(text)
    return str(path)


def test_the_demonstration():
    got, want = shares(result(DEMO)), {"hog-a": 29.8, "hog-b": 29.8, "part": 40, "waker": 0.5,
                                       "heavy": 60, "light": 40}
    assert got == {vm: pytest.approx(share, abs=0.5) for vm, share in want.items()}


def test_three_pools(tmp_path):
    """VMs that compute get 5/8 of a pCPU, whatever the others do. VMs that do I/O wait no longer
    than they do in one common pool."""
    times = ("-p", "8", "-w", "10s", "-t", "60s")  # A slice of 30 ms is 0.05 % of that time.
    apart = result(*times, POOLS)
    with open(POOLS, encoding="utf-8") as f:
        text = f.read()
    for line in ("sched = null\n", "sched_preset = pool-io\n", "pool = io\n", "pool = cpu\n"):
        text = text.replace(line, "")
    together = result(*times,
                      one(tmp_path,
                          re.sub(r"\[pool (io|cpu)\]\nsched = credit\ncpus = .*\n", "", text)))
    for vm, share in shares(apart).items():
        if vm.startswith("cpu-"):
            assert share == pytest.approx(62.5, abs=0.3)
    assert shares(apart)["dom0"] == pytest.approx(30, abs=0.2)
    # No CPU time is kept for I/O there.
    assert sum(shares(together)[f"cpu-{c}"] for c in "abcdefgh") > 5.5 * 100
    worst = {
        how: max(v["wake_us"]["max"] for v in r["vcpus"] if v["vm"].startswith("io-"))
        for how, r in (("apart", apart), ("together", together))
    }
    # Four VMs are on two pCPUs, so a VM waits for a slice of each of two others.
    assert worst["apart"] <= 2 * 3000
    assert worst["apart"] < worst["together"]


def test_the_same_seed_is_the_same_trace():
    traces = [result("-p", "3", "-t", "1s", MIXED)["trace"] for _ in range(2)]
    assert traces[0] == traces[1]


def four_busy(tmp_path, cmdline, seed):
    """Returns the shares of four VMs that want 40 % each of one pCPU, by the rules of Xen 4.2."""
    vms = "".join(f"[vm {name}]\nimage = busy\ncmdline = {cmdline}\n" for name in "abcd")
    settings = f"sched_preset=faithful-4.2 seed={seed}"
    return sorted(shares(result("-p", "1", "-c", settings, one(tmp_path, vms))).values())


def test_who_misses_something_makes_up_for_it(tmp_path):
    """This is the closed loop. In the open one a VM that waits asks for less, so the phase
    decides."""
    for seed in range(5):
        assert four_busy(tmp_path, "percent=40", seed) == [pytest.approx(25, abs=0.5)] * 4
    exact = four_busy(tmp_path, "percent=40 loop=open jitter_pct=0 phase_us=0", 0)
    assert exact == [pytest.approx(share, abs=0.5) for share in (10, 10, 40, 40)]
    done = sim(one(tmp_path, "[vm a]\nimage = busy\ncmdline = loop=round\n"))
    assert done.returncode == 2
    assert "loop must be closed or open in the command line of VM a" in done.stderr


def test_events_are_served_beside_computing(tmp_path):
    """The VM gets 40 %, and for the events 300 times 100 us a second more."""
    server = "[vm s]\nimage = mixed\ncpus = 0\ncmdline = client=2 percent=40 work_us=100\n"
    path = one(tmp_path, server + "[vm c]\nimage = client\ncpus = 1\n")
    v = result(path)["vcpus"][0]
    assert v["cpu_pct"] == pytest.approx(40 + v["events"] / 10 * 0.01, abs=0.3)


def traces(tmp_path, cmdline, vms):
    """Returns the traces of five seeds."""
    path = one(tmp_path, "".join(
        f"[vm {name}]\nimage = {image}\ncpus = {cpus}\ncmdline = {cmdline}\n"
        for name, image, cpus in vms))
    runs = (result("-w", "0s", "-t", "1s", "-c", f"seed={seed}", path) for seed in range(5))
    return {run["trace"] for run in runs}


@pytest.mark.parametrize("image", ["spin", "busy", "waker", "evader"])
def test_each_seed_is_another_run(tmp_path, image):
    """The runs differ by when VMs begin. phase_us= takes that difference away where it is not
    wanted."""
    vms = [(name, image, 0) for name in "abc"]
    assert len(traces(tmp_path, "", vms)) == 5
    exact = "phase_us={} jitter_pct=0"
    assert len(traces(tmp_path, exact.format(0), vms)) == 1
    later = traces(tmp_path, exact.format(700), vms)
    assert traces(tmp_path, exact.format(0), vms).isdisjoint(later)


def test_the_seed_says_when_events_come(tmp_path):
    vms = [("s", "mixed", 0), ("c", "client", 1)]
    common = "client=2 server=1 start_ms=0 phase_us=0 jitter_pct=0"
    assert len(traces(tmp_path, common, vms)) == 5
    assert len(traces(tmp_path, common + " seed=3", vms)) == 1
    text = "[vm s]\nimage = mixed\ncpus = 0\n[vm c]\nimage = client\ncpus = 1\n"
    r = result("-t", "4s", "-c", "seed=77", one(tmp_path, text))
    # Both VMs find the same times, so no event is late.
    assert 1100 < r["vcpus"][0]["events"] < 1300
    assert r["vcpus"][0]["event_us"]["mean"] < 100


def test_permuting_the_vms_of_a_file_is_no_other_experiment(tmp_path):
    """The random numbers of a VM follow from its name."""
    with open(os.path.join(ROOT, "labs", "wakers.cfg"), encoding="utf-8") as f:
        vms = re.split(r"(?m)^(?=\[vm )", f.read())[1:]
    def p99(order, seed):
        path = one(tmp_path, "".join(order))
        r = result("-p", "1", "-w", "1s", "-t", "3s", "-c", f"seed={seed}", path)
        return next(v["wake_us"]["p99"] for v in r["vcpus"] if v["vm"] == "waker")
    seeds = [p99(vms, seed) for seed in range(8)]
    for order in (vms[::-1], vms[1:] + vms[:1], vms[2:] + vms[:2]):
        assert min(seeds) <= p99(order, 0) <= max(seeds)
    alone = "".join(f"[vm {{}}]\nimage = busy\ncpus = {i}\ncmdline = percent=50\n"
                    for i in range(3))
    times = []
    for order in (("a", "b", "c"), ("c", "a", "b")):
        r = result("-p", "3", "-w", "0s", "-t", "7ms", one(tmp_path, alone.format(*order)))
        times.append({v["vm"]: v["cpu_pct"] for v in r["vcpus"]})
    assert times[0] == times[1] and len(set(times[0].values())) == 3


def test_command_line_overrides():
    assert result("-p", "3", "-t", "1s", "-c", "seed=9", MIXED)["seed"] == 9
    assert sim("-c", "sched_tslice_us=1", DEMO).returncode == 2
    assert "nosuch" in sim("-c", "nosuch=1", DEMO).stderr


def test_what_is_no_file_of_vms(tmp_path):
    for path, said in ((str(tmp_path), f"cannot read {tmp_path}: Is a directory"),
                       (str(tmp_path / "nosuch"),
                        f"cannot read {tmp_path}/nosuch: No such file or directory"),
                       (one(tmp_path, ""), f"there is no [vm NAME] in {tmp_path}/one.cfg")):
        done = sim(path)
        assert (done.returncode, done.stdout) == (2, "") and said in done.stderr


def test_all_that_is_wrong_is_told_at_once(tmp_path):
    done = sim(
        one(
            tmp_path,
            "[vm a]\nimage = nosuch\nweight = 0\n[vm b]\npool = nosuch\n[vm c]\nimage = spin\n"
            "cpus = 7\n"
            "[pool p]\nsched = nosuch\ncpus = 1\nturbo_of = nosuch\n",
        )
    )
    assert done.returncode == 2 and not done.stdout
    places = {line.split(":")[1] for line in done.stderr.splitlines() if "one.cfg:" in line}
    assert places == {"2", "3", "4", "5", "8", "10", "12"}, done.stderr
    warned = sim(one(tmp_path, "[vm a]\nimage = spin\nwieght = 3\n"))
    assert warned.returncode == 2 and not warned.stdout
    assert (
        "is it weight? (warning)\n" in warned.stderr
        and "takes this warning for an error" in warned.stderr
    )


def test_events_wake_who_sleeps_and_interrupt_who_computes(tmp_path):
    text = ("[vm s]\nimage = mixed\ncpus = 0\ncmdline = client=2 work_us=100 percent={p}\n\n"
            "[vm c]\nimage = client\ncpus = 1\ncmdline = server=1\n")
    for percent in (0, 30, 100):
        r = result("-t", "4s", one(tmp_path, text.format(p=percent)))
        v = r["vcpus"][0]
        assert 1100 < v["events"] < 1300
        # Alone on its pCPU the VM serves an event at once: this takes the client's work and its
        # own. It takes more only if events come closely together.
        late = v["event_us"]
        assert 120 <= late["mean"] < 160
        assert late["p50"] < late["p99"] < late["p999"] <= late["max"]
        assert v["cpu_pct"] == pytest.approx(min(100, percent + 3 + 0.1), abs=0.5)


def test_events_that_wait_for_seconds_are_told_as_they_are(tmp_path):
    r = result(
        "-t",
        "20s",
        one(
            tmp_path,
            "[vm s]\nimage = mixed\ncpus = 0\ncmdline = client=2 rate=1 work_us=5000000\n"
            "[vm c]\nimage = client\ncpus = 1\ncmdline = server=1 rate=1\n",
        ),
    )
    assert r["vcpus"][0]["event_us"]["max"] > 5e6


def test_clients_of_one_seed_raise_events_at_the_same_times(tmp_path):
    vms = "".join(
        f"[vm s{i}]\nimage = mixed\ncmdline = client={i + 1} seed={seed}\n\n[vm c{i}]\n"
        "image = client\n"
        f"cmdline = server={i} seed={seed}\n"
        for i, seed in ((1, 5), (3, 5), (5, 6))
    )
    r = result("-p", "6", "-t", "4s", one(tmp_path, vms))
    events = [v["events"] for v in r["vcpus"] if "events" in v]
    assert events[0] == events[1] != events[2]


def test_json_has_all_parameters_that_hold(tmp_path):
    """This includes parameters that nobody has set, so that a reader need not know the defaults of
    this build."""
    r = result("-w", "1s", "-t", "2s", "-s", "3us", "-c", "sched_preset=faithful-4.2",
               one(tmp_path,
                   "[pool other]\nsched = null\ncpus = 1\n[vm a]\nimage = spin\ncap = 30\n"
                             "[vm b]\nimage = spin\ncmdline = \"say=\\\"hi\\\"\"\npool = other\n"))
    assert (r["warm_up_s"], r["seconds"], r["pcpus"], r["switch_us"], r["kick_us"]) == (
        1,
        2,
        2,
        3,
        2,
    )
    assert r["command_line"] == "sched_preset=faithful-4.2"
    first, other = r["pools"]
    assert (first["pool"], first["policy"], first["cpus"]) == ("Pool-0", "credit", [0])
    assert first["params"]["ratelimit_exact"] == 0 and first["params"]["demote"] == "account"
    assert first["params"]["io_threshold"] == 500
    assert (other["policy"], other["cpus"], other["params"]["sleepless"]) == ("null", [1], "off")
    assert [vm["params"].get("weight") for vm in r["vms"]] == [256, None]  # `null` has no weights.
    assert r["vms"][0]["params"]["cap"] == 30
    assert (r["vms"][1]["pool"], r["vms"][1]["cmdline"]) == ("other", 'say="hi"')


@pytest.mark.parametrize("hogs, events_per_s", [(0, 300), (3, 100)])
def test_events_that_come_while_one_is_pending_count_once(tmp_path, hogs, events_per_s):
    """This holds for the monitor, as in the image: a server that has a quarter of a core is told of
    events that come while it runs, and of one event for each time that it waits."""
    vms = "[vm s]\nimage = mixed\ncpus = 0\ncmdline = client=2\n[vm c]\nimage = client\ncpus = 1\n"
    vms += "".join(f"[vm h{i}]\nimage = spin\ncpus = 0\n" for i in range(hogs))
    r = result("-w", "2s", "-t", "8s", one(tmp_path, vms))
    assert r["vcpus"][0]["events"] == pytest.approx(8 * 300, rel=0.05)
    assert r["vms"][0]["events_per_s"] == pytest.approx(events_per_s, rel=0.25)


def test_the_halves_of_a_measurement(tmp_path):
    """It shows a run that is not settled: shared credit begins to help when the monitor gives its
    label, after a second."""
    vms = (
        "[hypervisor]\nsched_preset = sc\nio_threshold = 50\n[vm s]\nimage = mixed\ncpus = 0\n"
        "cmdline = client=2 "
        "start_ms=0 percent=40\n[vm c]\nimage = client\ncpus = 1\ncmdline = server=1 start_ms=0\n"
    )
    hogs = "".join(f"[vm h{i}]\nimage = spin\ncpus = 0\nshare_pct = 50\n" for i in range(3))
    r = result("-w", "0s", "-t", "2s", one(tmp_path, vms + hogs))
    server = r["vms"][0]
    assert (server["io_intensive"], server["label_changes"]) == (True, 1)
    assert server["label_changed_s"] == pytest.approx(1, abs=0.001)
    # of 300: the server waits less, so fewer events come while one is pending
    assert server["events_per_s"] > 150
    assert all(vm["label_changed_s"] is None for vm in r["vms"][1:])
    for v in r["vcpus"]:
        first, second = v["halves"]
        for part in (v, first, second):
            assert sum(
                part[f"{s}_pct"] for s in ("cpu", "runnable", "blocked", "offline")
            ) == pytest.approx(100, abs=0.01)
        assert (first["cpu_pct"] + second["cpu_pct"]) / 2 == pytest.approx(v["cpu_pct"], abs=0.001)
        assert max(h["wait_max_ms"] for h in v["halves"]) == v["wait_max_ms"]
        assert max(h["wake_us"]["max"] for h in v["halves"]) == v["wake_us"]["max"]
        for sum_of in ("wakes", "switches", "migrations", "preemptions", "boosts", "grants"):
            assert first[sum_of] + second[sum_of] == v[sum_of]
    v = r["vcpus"][0]
    first, second = v["halves"]
    assert first["events"] + second["events"] == v["events"] and v["events_waiting"] < 30
    assert first["event_us"]["mean"] > 2 * second["event_us"]["mean"]
    assert second["cpu_pct"] > first["cpu_pct"] + 5


def test_the_mean_credit_of_a_measurement(tmp_path):
    """A VM that sleeps keeps a period's credit, and a VM that computes all the time has none to
    spare. `null` has no credit."""
    r = result("-w", "1s", "-t", "2s",
               one(tmp_path, "[pool other]\nsched = null\ncpus = 1\n[vm light]\nimage = waker\n"
                             "[vm hog]\nimage = spin\n[vm alone]\nimage = spin\npool = other\n"))
    light, hog, alone = r["vcpus"]
    assert 25 < light["credit_ms"] <= 30 and -20 < hog["credit_ms"] < 20
    for v in (light, hog):
        assert v["credit_ms"] == pytest.approx(sum(h["credit_ms"] for h in v["halves"]) / 2,
                                               abs=0.2)
    assert "credit_ms" not in alone


@pytest.mark.parametrize("text, why", [
    ("[vm a]\nimage = linux\n",
     ':2:9: image: the simulation has no model of the guest "linux", only of spin, busy, '),
    ("[vm a]\nimage = spin\nspeed = 1\n", 'unknown key "speed"'),
    ("[vm a]\nimage = spin\nweight = 0\n",
     ':3:10: weight must be a whole number from 1 to 65535, not "0"'),
    ("[pool b]\ncpus = 1\nturbo_of = x\n", "x"),
    ("[hypervisor]\nsched = nosuch\n",
     ':2:9: sched must be credit, null, stride or lottery, not "nosuch"'),
    ("[vm a]\nimage = spin\ncpus = 7\n", ":3:8: VM a can run on no CPU: the machine's are 0 to 1\n"
     "sim: the machine has 2 CPUs; -p N (make sim CPUS=N)"),
])
def test_refused(tmp_path, text, why):
    done = sim("-n", one(tmp_path, text))
    assert done.returncode == 2 and why in done.stderr


@pytest.mark.skipif(not shutil.which("valgrind"), reason="needs valgrind")
def test_instructions_can_be_counted_after_the_warm_up():
    """callgrind counts the same time as the `decisions` by which its count is divided."""
    def cost(warm_up):
        valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                    "--collect-atstart=no", "--toggle-collect=sched_run",
                    "--zero-before=sim_measurement_begins"]
        run = [SIM, "-j", "-q", "-p", "3", "-w", warm_up, "-t", "2s", MIXED]
        done = subprocess.run([*valgrind, *run], capture_output=True, text=True, check=True)
        counted = int(re.search(r"Collected\s*:\s*(\d+)", done.stderr)[1])
        return counted / json.loads(done.stdout)["decisions"]
    assert cost("2s") == pytest.approx(cost("8s"), rel=0.1)


def test_512_cores():
    subprocess.run(["make", "-s", "build/release/scale-wide"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    done = subprocess.run([os.path.join(BUILD, "release", "scale-wide"), "1"], capture_output=True,
                          text=True, check=True)
    assert re.search(
        r"512 cores, 4096 vCPUs, credit +[\d.]+ million events/s +[\d.]+ virtual s/s +[\d.]+ MiB",
        done.stdout,
    )


TIMELINE = struct.Struct("<QHHBBBxqQ")  # struct timeline_record in tests/sim/sim.h
RUNNING = 0


@pytest.mark.parametrize("path, cpus", [(DEMO, 2), (MIXED, 3), (POOLS, 8)])
def test_a_timeline_has_all_that_ran(tmp_path, path, cpus):
    """The times for which vCPUs run in the file are those of the result, no pCPU runs two vCPUs at
    once, and the file changes nothing in the run."""
    to = tmp_path / "timeline"
    r = result("-p", str(cpus), "-g", str(to), path)
    assert r["trace"] == result("-p", str(cpus), path)["trace"]
    begin = r["warm_up_s"] * 1e9
    end = begin + r["seconds"] * 1e9
    records = list(TIMELINE.iter_unpack(to.read_bytes()))
    assert [x[0] for x in records] == sorted(x[0] for x in records)
    ran, last, load = [0] * len(r["vcpus"]), {}, [0] * cpus
    for ns, vcpu, cpu, state, *_ in records + [(end, v, 0, 255) for v in range(len(r["vcpus"]))]:
        since, on, before = last.get(vcpu, (0, 0, None))
        if before == RUNNING and ns > begin:
            ran[vcpu] += ns - max(since, begin)
            load[on] += ns - max(since, begin)
        last[vcpu] = ns, cpu, state
    assert [100 * x / (end - begin) for x in ran] == [
        pytest.approx(v["cpu_pct"], abs=0.0001) for v in r["vcpus"]]
    assert max(load) <= end - begin


def test_what_a_file_may_ask_for_is_listed(tmp_path):
    """Each preset and each word of a VM's parameter that is listed is accepted."""
    listed = json.loads(sim("-l").stdout)
    policies = {p["policy"]: p for p in listed["policies"]}
    assert {"credit", "null", "stride"} <= set(policies)
    assert {"spin", "mixed"} <= set(listed["images"])

    def accepts(text):
        done = sim("-n", one(tmp_path, text))
        return done.returncode == 0 or done.stderr

    for name, policy in policies.items():
        head = f"[hypervisor]\nsched = {name}\n"
        for preset in policy["presets"]:
            if preset != "turbo":  # that one needs a turbo pool
                assert accepts(f"{head}sched_preset = {preset}\n[vm a]\nimage = spin\n") is True
        for e in policy["params"]:
            assert e["help"] and e["min"] <= e["max"], e
            for word in e.get("words", []) if e["scope"] == "vm" else []:
                assert accepts(f"{head}[vm a]\nimage = spin\n{e['name']} = {word}\n") is True
