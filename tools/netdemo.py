#!/usr/bin/env python3
"""make net-demo: measures what a VM that serves TCP among others gains from a turbo core and from
early acknowledgements.

boot/net-demo.cfg is the machine: four VMs share a core, a driver domain has one of its own. The
traffic comes from inside the machine or, where this host has a tap device to give, from its own
ping and iperf (tools/netdemo_host.py). These set-ups are laid over it:

  faithful-4.1      Credit as in Xen 4.1, which is what vTurbo was measured against
  hardened          our own Credit, which is what the turbo core is added to
  hardened+core     the control: the turbo core is a second regular one, for all four VMs
  turbo             the server's interrupts and the bottom half of its network stack run on a turbo
                    core
  turbo+early_ack   also, the stack acknowledges data in order while the reader owns the socket
                    (Algorithm 1 of the vTurbo paper)

From inside there is a TCP stream first, then datagrams at the link's full rate, and echo requests
all the time. Writes build/results/net-demo-PLATFORM.json, which has every run, and their medians.
On Bochs time is virtual. On QEMU it is the host's, so figures are good only if the host was idle.

  tools/netdemo.py [--platform auto|qemu|kvm|bochs] [--runs N] [--setup NAME]...
                                                    from inside, each run has a seed of its own
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

import clients
import compare
import experiment
import hostnet
import machine
import sentence
import netdemo_host
import progress

BASE = os.path.join(machine.ROOT, "boot", "net-demo.cfg")
PCPUS = 5  # for the source, the driver domain, the shared core, the turbo core, the probe
CORE = "pool core"
BASELINE = {CORE: {"sched_preset": "faithful-4.1"}}
HARDENED = {CORE: {"sched_preset": "hardened"}}
EXTRA = {CORE: {"cpus": "2-3"}}
TURBO = {**HARDENED, "pool turbo": {"cpus": "3", "turbo_of": "core"}, "vm server": {"turbo": "yes"}}
SETUPS = {"faithful-4.1": (BASELINE, 0), "hardened": (HARDENED, 0),
          "hardened+core": (compare.both(HARDENED, EXTRA), 0), "turbo": (TURBO, 0),
          "turbo+early_ack": (TURBO, 1)}
SCRIPT = "+0ms wait probe 60s\n+0ms wait source 60s\n+0ms destroy server\n+100ms poweroff\n"
WALL = {"bochs": 1800, "qemu": 120, "kvm": 120}
LINK = 20_000_000  # bits a second, as in boot/net-demo.cfg
WARM_UP = 0.5      # s from when the network is there to the traffic, without the seed's offset

# The exceptions with which one run may fail while the others are still of use.
FAILURES = (clients.Failed, machine.Died, LookupError, OSError, subprocess.SubprocessError)

LINES = {
    "tcp": r"server: iperf: tcp (?P<tcp_bytes>\d+) bytes in (?P<tcp_ns>\d+) ns",
    "udp": r"server: iperf: udp (?P<udp_bytes>\d+) bytes in (?P<udp_ns>\d+) ns, .*, "
    r"(?P<udp_lost>\d+) of (?P<udp_sent>\d+) datagrams lost",
    "echo": r"probe: load: echo (?P<requests>\d+) requests, (?P<answers>\d+) answers, rtt ns p50 "
            r"(?P<p50>\d+) p99 (?P<p99>\d+) "
    r"max (?P<max>\d+) mean (?P<mean>\d+)",
    "acks": r"server: iperf: acks early=(?P<early>\d+).* backlog=(?P<segments>\d+) "
            r"backlog_most=(?P<backlog>\d+)",
    "bridge": r"iodom: iodom: server\.0: (?P<counters>.*)",
}


def line_rate(link, payload, headers):
    """Returns the bits of payload a second that fit through a link of `link` bits a second. The
    link carries frames without preamble and check sequence, so headers are 42 bytes for UDP and 54
    for TCP."""
    return link * payload // (payload + headers)


DATAGRAMS, SEGMENTS = line_rate(LINK, 1470, 42), line_rate(LINK, 1460, 54)  # in boot/net-demo.cfg


def start(seed, warm_up=WARM_UP):
    """Returns when the traffic begins, in ms after the network is there. With each seed it begins
    at another point of the VMs' slices, which are of 30 ms."""
    return round(1000 * warm_up) + (seed - 1) * 37 % 120


def names(text):
    """Returns the pools and the VMs of a VM file."""
    return (["Pool-0", *re.findall(r"(?m)^\[pool\s+(\S+)\]", text)],
            re.findall(r"(?m)^\[vm\s+(\S+)\]", text))


def knob_script(pools, vms, when):
    """Returns commands that print all parameters of these pools and VMs, as they are in effect."""
    return "".join([*(f"{when} param -j=pool-{p} -p {p}\n" for p in pools),
                    *(f"{when} param -j=vm-{vm} -d {vm}\n" for vm in vms)])


def with_knobs(script, text):
    """Returns the script with commands that print all parameters of the VM file. The output is 25
    KB, for which a serial line takes two seconds, and the pCPU that feeds the line is the source's.
    So the parameters are printed when the traffic is over and no VM computes, before anything is
    destroyed. A VM that the script waits for has ended by then, so its parameters are printed
    before the traffic begins."""
    pools, vms = names(text)
    gone = [vm for vm in re.findall(r" wait (\S+)", script) if vm in vms]
    before, destroy, after = script.partition("+0ms destroy")
    return (knob_script([], gone, "@400ms") + before +
            "".join(f"+0ms pause {vm}\n" for vm in vms if vm.startswith("hog-")) +
            knob_script(pools, [vm for vm in vms if vm not in gone], "+0ms") + destroy + after)


def knobs(said):
    """Returns what those commands have printed."""
    found = {"pools": {}, "vms": {}}
    for m in re.finditer("\x1e(\\{.*?\\})\n", said):  # RS opens an envelope (RFC 7464)
        envelope = json.loads(m[1])
        kind, _, name = envelope["id"].partition("-")
        if kind + "s" in found:
            found[kind + "s"][name] = envelope.get("message") or {
                r["name"]: r["value"] for r in envelope["result"]
            }
    return found


def vm_file(setup, seed=1):
    settings, early_ack = SETUPS[setup]
    hypervisor = {"script": "net-demo.script", "top": "no", "seed": str(seed)}
    with open(BASE, encoding="ascii") as f:
        text = compare.lay_over(f.read(), compare.both(settings, {"hypervisor": hypervisor}))
    text = text.replace("start_ms=500", f"start_ms={start(seed)}").replace(
        "ping_rate=100 seed=1", f"ping_rate=100 seed={seed}"
    )
    return text.replace("early_ack=0", f"early_ack={early_ack}")


def last(name, text):
    """Returns the last line of that kind, because counters go on counting."""
    found = list(re.finditer(LINES[name], text))
    if not found:
        raise LookupError(name)
    return found[-1].groupdict()


def bridge(text):
    """Returns the counters of the server's port."""
    return {name: int(n) for name, n in re.findall(r"(\w+)=(\d+)",
                                                   last("bridge", text)["counters"])}


def ring_drops(text):
    return bridge(text).get("ring_full", 0)


def mbps(said, kind):
    return round(int(said[kind + "_bytes"]) * 8e3 / int(said[kind + "_ns"]), 2)


def plain(text):
    return re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", text)


def read(setup, text):
    """Returns one run as it is written to the results, from what the guests have printed."""
    tcp, udp, echo, acks = (last(name, text) for name in ("tcp", "udp", "echo", "acks"))
    return {"setup": setup, "tcp_mbps": mbps(tcp, "tcp"), "udp_mbps": mbps(udp, "udp"),
            "rtt_ms": {k: round(int(echo[k]) / 1e6, 2) for k in ("p50", "p99", "max", "mean")},
            "ring_drops": ring_drops(text), "early_acks": int(acks["early"]),
            "backlog_most": int(acks["backlog"]),
            "udp_lost": int(udp["udp_lost"]), "udp_sent": int(udp["udp_sent"]),
            "echo_requests": int(echo["requests"]), "echo_answers": int(echo["answers"])}


def image(name, config, script):
    """Makes the boot image of a run. Returns its directory and its path."""
    directory = os.path.join(machine.BUILD, "run", name)
    os.makedirs(directory, exist_ok=True)
    paths = [os.path.join(directory, "net-demo." + kind) for kind in ("cfg", "script", "iso")]
    for path, text in zip(paths, (config, script)):
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), paths[2], paths[0],
                    "--module", f"net-demo.script={paths[1]}"], cwd=machine.ROOT, check=True)
    return directory, paths[2]


def until_it_ends(platform):
    return lambda m: m.wait(timeout=WALL[platform])[0]


def boot(name, config, script, platform, cpus, reader, com2=None, wait=None):
    """Boots a machine with that VM file and that script. Returns what `reader` makes of what the
    machine has printed when it ends; "knobs" are the parameters that were in effect. `com2` is a
    path for what COM2 prints. `wait` waits for something else than the end, and returns what
    came."""
    directory, iso = image(name, config, with_knobs(script, config))
    with machine.Machine(platform, iso, cpus=cpus, directory=directory, com2=com2) as m:
        how = (wait or until_it_ends(platform))(m)
        serial = m.serial()
    os.unlink(iso)  # It has 10 MB, and the results have the hashes of its parts.
    try:
        found = reader(plain(serial))
    except LookupError as what:
        raise clients.Failed(f"no result of {what} ({how}); see {directory}") from None
    return found | {"vm_file": experiment.digest(os.path.join(directory, "net-demo.cfg")),
                    "knobs": knobs(serial)}


def run(setup, platform, number, name=""):
    return boot(f"net-demo-{platform}/{setup}-{number}{name}", vm_file(setup, number), SCRIPT,
                platform, PCPUS,
                lambda text: read(setup, text))


def measured(setup, platform, number, net, name=""):
    """Makes one run that is measured by the host."""
    address = net.guest(2)
    config = netdemo_host.vm_file(vm_file(setup), address)
    directory, iso = image(f"net-demo-{platform}-host/{setup}-{number}{name}", config,
                           knob_script(*names(config), "@400ms") + "@600s poweroff\n")
    with machine.Machine(
        platform, iso, cpus=netdemo_host.PCPUS, directory=directory, nic=net.nic
    ) as m:
        said = netdemo_host.measure(address)
        # The counters are printed after that, once a second.
        for what, seconds in (("udp", 10), ("acks", 10), ("bridge", 3)):
            m.wait(LINES[what], seconds)
        serial = m.serial()
    os.unlink(iso)
    text = plain(serial)
    acks = last("acks", text)
    return {"setup": setup, **said, "ring_drops": ring_drops(text),
            "early_acks": int(acks["early"]),
            "backlog_most": int(acks["backlog"]), "knobs": knobs(serial)}


def by_the_hosts_clock(measure, *turn):
    """Calls measure(), and once more if it fails, because the host may have had other things to do.
    A message says so. Each try has a directory of its own."""
    try:
        return measure(*turn)
    except (clients.Failed, LookupError) as what:
        print(f"net-demo: {turn[0]}, run {turn[2]}: once more: {what}", file=sys.stderr)
    return measure(*turn, name="-again")


def attempt(one_run, *turn):
    """Returns a run, or the exception that says why there is none. The other runs are of use
    without it."""
    try:
        return one_run(*turn)
    except FAILURES as what:
        return what


def attempt_all(name, one_run, turns, workers, told):
    """Calls attempt(one_run, *turn) for each turn, `workers` at a time. Returns the results in
    order. told(turn) is the text that reports a finished one. If a person interrupts it, it returns
    what is finished."""
    done = {}

    def keep(turn):
        done[turn] = attempt(one_run, *turn)

    try:
        progress.run_all(name, keep, turns, workers, told)
    except KeyboardInterrupt:
        print(f"\n{name}: interrupted", file=sys.stderr)
    return [done.get(turn, clients.Failed("interrupted before it was done")) for turn in turns]


def split(turns, results, columns):
    """Returns the runs that were made, and for each run that is missing what it was and why."""
    runs, missing = [], []
    for turn, result in zip(turns, results):
        what = dict(zip(columns, turn))
        if isinstance(result, BaseException):
            failed = isinstance(result, subprocess.CalledProcessError)
            why = (
                sentence.of_failed_command(result)
                if failed
                else str(result) or type(result).__name__
            )
            missing.append(what | {"why": why.strip().splitlines()[-1]})
        else:
            runs.append(what | result)
    return runs, missing


def tell_missing(name, missing):
    for m in missing:
        print(f"{name}: missing: " + ", ".join(f"{k} {v}" for k, v in m.items()), file=sys.stderr)


def write_results(name, result):
    """Writes build/results/NAME.json and says so."""
    path = os.path.join(machine.BUILD, "results", name + ".json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    print(path)


def provenance(platform, **facts):
    return experiment.provenance(platform, os.path.join(machine.BUILD, "takt.elf"),
                                 experiment.files_of(BASE), **facts)


def all_runs(turns, platform):
    """Makes all runs. Returns them in order, and where they come from. In virtual time they run
    side by side; by the host's clock they run one at a time."""
    def each(one_run, workers=1):
        """Calls one_run(setup, platform, number) for each turn."""
        return attempt_all("net-demo", lambda setup, number: one_run(setup, platform, number),
                           turns, workers,
                           lambda turn: f"{turn[0]}, run {turn[1]}")

    if platform == "bochs":
        return each(run, os.cpu_count()), "20 Mb/s, 2 ms each way"
    try:
        with hostnet.HostNet() as net:
            return each(lambda *turn: by_the_hosts_clock(
                lambda *t, **name: measured(*t, net, **name), *turn)), netdemo_host.HOW
    except hostnet.Missing as why:
        print(f"net-demo: {why}: the traffic comes from inside the machine", file=sys.stderr)
    return each(lambda *turn: by_the_hosts_clock(run, *turn)), "20 Mb/s, 2 ms each way, from inside"


def median(runs):
    """Returns the median of every number of the runs. What says how a run was made is no result,
    and is left out."""
    if isinstance(runs[0], dict):
        return {
            k: median([r[k] for r in runs])
            for k in runs[0]
            if k not in ("seed", "vm_file", "knobs")
        }
    return runs[0] if isinstance(runs[0], str) else statistics.median(runs)


def table(rows):
    head = ["set-up", "TCP Mb/s", "UDP Mb/s", "UDP lost", "RTT p50", "p99", "max", "mean ms",
            "unanswered", "ring drops",
            "early ACKs"]
    lines = [[r["setup"], f"{r['tcp_mbps']:.2f}", f"{r['udp_mbps']:.2f}",
              f"{100 * r['udp_lost'] / r['udp_sent']:.1f} %",
              *(f"{r['rtt_ms'][k]:.2f}" for k in ("p50", "p99", "max", "mean")),
              f"{r['echo_requests'] - r['echo_answers']:.0f}",
              f"{r['ring_drops']:.0f}", f"{r['early_acks']:.0f}"] for r in rows]
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    return [
        "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths)))
        for line in [head, *lines]
    ]


def main():
    parser = argparse.ArgumentParser(description="a server's network among VMs that compute")
    parser.add_argument("--platform", default="auto", choices=["auto", *WALL])
    parser.add_argument("--runs", type=int,
                        help="of each set-up, in turns; medians are told (bochs: 1, else 3)")
    parser.add_argument("--setup", action="append", choices=list(SETUPS))
    args = parser.parse_args()
    platform = machine.choose(args.platform)
    virtual = platform == "bochs"  # By the host's clock, runs go one at a time.
    count = args.runs or (1 if virtual else 3)
    turns = [(setup, n) for n in range(1, count + 1) for setup in args.setup or SETUPS]
    results, how = all_runs(turns, platform)
    runs, missing = split(turns, results, ("setup", "seed"))
    done = {setup: [r for r in runs if r["setup"] == setup] for setup in SETUPS}
    rows = [median(mine) | {"runs": len(mine)} for mine in done.values() if mine]
    print(f"Takt, {platform}: {how}; medians of {count} run(s)")
    if rows:
        print("\n".join(table(rows)))
    tell_missing("net-demo", missing)
    if not virtual:
        print(
            "The clock is the host's here: these figures are worth as much as the host was idle. "
            "PLATFORM=bochs is exact."
        )
    facts = provenance(platform, seeds=list(range(1, count + 1)), warm_up_s=WARM_UP, link=how)
    write_results(f"net-demo-{platform}",
                  facts | {"runs": runs, "medians": rows, "missing": missing})
    return 1 if missing else 0


if __name__ == "__main__":
    sentence.run(main)
