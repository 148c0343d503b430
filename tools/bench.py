#!/usr/bin/env python3
"""make bench: measures what operations cost a guest in instructions, and compares with KVM, Xen
and Takt's budgets. Also measures sizes, and the cost of scheduling decisions.

Boots under QEMU with -icount (one pCPU, xAPIC), where a tick of the TSC is an executed instruction,
once with tracing off and once with tracing on. The guest is guests/bench.c; figures are medians
over 10,000 iterations. Writes build/results/bench.json. Exits 1 if a budget is exceeded or a figure
is missing.
"""
import argparse
import json
import os
import re
import subprocess
import sys

import demo
import iobench
import machine
import msibench
import netbench
import pollbench
import progress
import sentence
import size

# operation: (as printed, KVM, KVM with next-RIP, Xen, Xen with next-RIP, the most that Takt may
# take). KVM is that of Linux 6.12 with mitigations off, Xen is 4.17 with a PVH guest. Both were
# measured on this very machine model. QEMU gives no next-RIP, so both decode the instruction in
# software. `trip_` and `collab_` are of IOrchestra (guests/collabbench.c): from a guest's key to
# the manager's answer, while both sleep, and decisions alone.
OPS = {
    "cpuid": ("CPUID", 2732, 1029, 5437, 805, 350),
    "hypercall_null": ("null hypercall", 3019, 1152, 5505, 729, 350),
    "rdmsr": ("RDMSR, intercepted", 2832, 1131, 5350, 721, 350),
    "pio_unclaimed": ("IN, unclaimed port", 3213, 3224, 1177, 1177, 350),
    "pio_device": ("IN, a device in the hypervisor", 1312, 1323, 1171, 1171, 400),
    "lapic_read": ("LAPIC register read, MMIO", 3606, 3609, 14723, 14723, 700),
    "x2apic_read": ("x2APIC id by RDMSR", 2936, 1235, 5374, 745, 350),
    "self_ipi": ("self-IPI by MMIO, to its EOI", 8757, 8763, 37269, 37269, 1800),
    "hlt_timer": ("HLT to LAPIC timer, late by", 13522, 13528, 41208, 41208, 3000),
    "first_touch": ("first touch of a page", 3062, 3065, None, None, 1200),
    "queue_notify": ("QueueNotify, nobody sleeps", None, None, None, None, 850),
    "back_irq": ("TAKT_HC_BACK_IRQ, nobody sleeps", None, None, None, None, 700),
    "store_read": ("store: reads 16 bytes", None, None, None, None, 4000),
    "store_watch": ("store: write to a sleeper's watch", None, None, None, None, 12000),
    "trip_congestion": ("manager: congested, until released", None, None, None, None, 22000),
    "trip_flush": ("manager: dirty pages, until asked", None, None, None, None, 22000),
    "collab_flush": ("  which of 16 disks flushes", None, None, None, None, 350),
    "collab_crowded": ("  is the device crowded", None, None, None, None, 50),
    "collab_ask": ("  one more of 16 disks is congested", None, None, None, None, 200),
    "collab_relieve": ("  whose queue goes on", None, None, None, None, 150),
    "collab_share": ("  shares of 16 vCPUs, 4 sockets", None, None, None, None, 450),
    "collab_balance": ("  weights of 4 sockets", None, None, None, None, 450),
    "collab_turn": ("  whose turn it is, of 16 disks", None, None, None, None, 250),
    "collab_monitor": ("  monitor: a request", None, None, None, None, 220),
    "collab_period": ("  monitor: a period of a disk", None, None, None, None, 1800),
    "collab_claims": ("  is a change of a key a flood", None, None, None, None, 40),
    "vcpu_switch": ("handover between vCPUs by yield", 6020, 4160, 9780, 5030, 1800),
}
# The same operations, and some more, in many layouts of the guest's code (guests/layouts.c): the
# most that one may take in the worst of them. QEMU gives no next-RIP, so an exit has to find the
# instruction in the guest's memory.
WORST = {"cpuid": 490, "hypercall_null": 520, "rdmsr": 510, "pio_unclaimed": 330,
         "lapic_read": 1050, "lapic_write": 1220, "self_ipi": 2150, "x2apic_read": 530,
         "x2apic_self_ipi": 1380}
# How the layouts differ, in the words of that guest.
LAYOUTS = ("shift", "end", "pair", "code32")
# The most instructions of each frame or request; tools/iobench.py counts them.
IO = {("frame", "1"): 10500, ("frame", "32"): 5200, ("write", "1"): 12000, ("write", "32"): 2000,
      ("read", "1"): 12000,
      ("read", "32"): 2000}
# The most bytes that an idle VM costs beyond its RAM, with its page tables.
MEMORY_BUDGET = 80 * 1024
# The most bytes that a network device costs in the hypervisor, the driver domain and the guest. The
# buffers for frames that the guest asked for do not count. All of lwIP's heap counts, also the 64
# bytes in it for each of the 1,536 buffers that this guest has (98,304 bytes in all).
NET_BUDGET = 1 << 20

CONFIG = """\
[hypervisor]
guest_console = log
top = no
script = bench.script

[vm bench]
image = bench
cmdline = n={n}
memory = 4M
vcpus = 2
cpus = 0
start = no

[vm notify]
image = bench
cmdline = notify n={n}
memory = 4M
cpus = 0
net = serve
start = no

[vm serve]
image = bench
cmdline = serve n={n}
memory = 4M
cpus = 0
start = no

[vm store]
image = storebench
cmdline = n=500
memory = 4M
start = no

[vm watcher]
image = storebench
cmdline = watch writer=3 n=200
memory = 4M
start = no

[vm writer]
image = storebench
cmdline = watcher=2 n=210
memory = 4M
start = no

[vm iodom]
image = iodom
memory = 8M
start = no

[vm back]
image = iodom
memory = 8M
cmdline = collab ssd0=bw=100M,lat=100us
start = no

[vm trips]
image = collabbench
cmdline = trips n=40
memory = 4M
disk = back on=ssd0
start = no

[vm decisions]
image = collabbench
memory = 4M
start = no

[vm net1]
image = netping
memory = 4M
net = iodom
start = no

[vm net2]
image = netping
memory = 4M
net = iodom
start = no

[vm idle4]
image = waker
cmdline = period_us=1000000
memory = 4M
start = no

[vm idle]
image = waker
cmdline = period_us=1000000
memory = 2M
start = no

[vm layouts]
image = layouts
memory = 4M
cpus = 0
start = no

[vm first]
image = spin
memory = 2M
start = {first}
"""


def within(label, got, most, unit="bytes"):
    """Prints a figure with its limit. Returns whether the figure is within the limit."""
    print(f"{label}: {got} {unit} (at most {most}){'' if got <= most else '   OVER BUDGET'}")
    return got <= most


def boot(name, script, until, n=10000, first="no", config=CONFIG):
    """Boots a machine that runs the script. Returns all of its serial output."""
    directory = os.path.join(machine.BUILD, "run", f"bench-{name}")
    os.makedirs(directory, exist_ok=True)
    files = {"bench.cfg": config.format(n=n, first=first), "bench.script": script}
    for file, text in files.items():
        with open(os.path.join(directory, file), "w", encoding="ascii") as f:
            f.write(text)
    iso = os.path.join(directory, "bench.iso")
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso,
                    os.path.join(directory, "bench.cfg")],
                   cwd=machine.ROOT, check=True)
    with machine.Machine("icount", iso, cpus=1, directory=directory) as m:
        how, _ = m.wait(until, 300)
        text = m.serial()
    if how != "matched":
        print(text[-1500:])
        sys.exit(f"bench: {name}: {how}; see {directory}")
    return re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", text)


def figures(text):
    return {m[1]: int(m[2]) for m in re.finditer(r"BENCH (\w+) (\d+)", text)}


def layouts(text):
    """Returns {operation: {kind of layout: instructions in the worst layout}}, as the guest printed
    them."""
    found = {}
    for op, kind, worst in re.findall(r"LAYOUT (\w+) (\w+) (\d+) \d+", text):
        found.setdefault(op, {})[kind] = int(worst)
    return found


def print_worst(found):
    """Prints what operations cost in the worst of many layouts. Returns {operation: its worst}, and
    the names of operations that are over budget or have no figure."""
    print(f"{'worst layout of the guest':32}" + "".join(f" {kind:>7}" for kind in LAYOUTS) +
          f" {'at most':>8} {'worst':>7}")
    worst, bad = {}, []
    for op, most in WORST.items():
        kinds = found.get(op, {})
        worst[op] = max(kinds.values(), default=None)
        mark = ""
        if worst[op] is None or worst[op] > most:
            bad.append(f"{op} in the worst layout")
            mark = "   NO FIGURE" if worst[op] is None else "   OVER BUDGET"
        cells = "".join(f" {kinds.get(kind, '-'):>7}" for kind in LAYOUTS)
        print(f"{op:32}{cells} {most:8} {worst[op] if kinds else '-':>7}{mark}")
    return worst, bad


def print_ops(off, on):
    """Prints the table of operations. Returns the names of operations that are over budget or have
    no figure."""
    print(
        f"{'instructions a round trip':32} {'KVM':>7} {'nRIP':>7} {'Xen':>7} {'nRIP':>7} "
        f"{'at most':>8} {'Takt':>7} {'traced':>7}"
    )
    bad = []
    for key, (label, *others, budget) in OPS.items():
        got = off.get(key)
        if got is None or got > budget:
            bad.append(key)
        cells = "".join(f" {x if x is not None else 'none':>7}" for x in others)
        mark = "" if key not in bad else "   NO FIGURE" if got is None else "   OVER BUDGET"
        print(
            f"{label:32}{cells} {budget:8} {got if got is not None else '-':>7} "
            f"{on.get(key, '-'):>7}{mark}"
        )
    return bad


def memory_between(text, before, after, ram):
    """Returns how many bytes a VM costs beyond its RAM, if it was created between these two
    answers."""
    return (
        demo.answer(text, before)["free_frames"] - demo.answer(text, after)["free_frames"]
    ) * 4096 - (ram << 20)


def measure_io(over):
    """Measures what I/O costs by stage, and the memory of a network device. Appends to `over` what
    has no figure or is over its budget."""
    try:
        text = boot("io", iobench.SCRIPT, iobench.END, config=iobench.CONFIG)
        stages, memory = iobench.stages_of(text), iobench.memory(text)
    except (LookupError, TypeError) as e:
        over.append(f"io ({e})")
        return None, {}
    iobench.show(stages)
    print("at most: " + ", ".join(f"{what} of {batch} {n}" for (what, batch), n in IO.items()) +
          "; no copy but the bridge's and the reader's")
    over += [f"{what} of {batch}"
             for (what, batch), most in IO.items() if stages[what][batch]["total"] > most]
    over += [f"a copy of each {what}" for what, each in stages.items() if each["32"]["driver copy"]]
    print()
    text = boot(
        "net-memory",
        "@20ms create idle4\n+0ms create iodom\n+50ms create net1\n+50ms info -j=before\n"
        "+0ms create net2\n"
        "+50ms info -j=after\n+0ms destroy idle4\n+50ms info -j=less\n+0ms poweroff\n",
        r"\"id\": *\"less\".*\n",
    )
    memory["hypervisor"] = memory_between(text, "before", "after", 4) + memory_between(
        text, "after", "less", -4
    )
    parts = ", ".join(f"{room} {n}" for room, n in memory.items())
    label = f"memory of a network device beyond its buffers ({parts})"
    if not within(label, sum(memory.values()), NET_BUDGET):
        over.append("memory of a network device")
    return stages, memory


def measure_msi(n, over):
    """Measures what a device's interrupt costs by stage."""
    try:
        found = msibench.measure(n)
    except (LookupError, OSError) as e:
        over.append(f"msi ({e})")
        return None
    msibench.show(found)
    if found["total"] > msibench.MOST:
        over.append("msi")
    return found


def measure_by(tool, name, over):
    """Measures with a tool of its own: pollbench has a request that an I/O core polls and one of
    which the driver domain is notified, netbench what a segment costs from VM to VM."""
    try:
        found = tool.measure()
    except (LookupError, OSError, TypeError) as e:
        over.append(f"{name} ({e})")
        return None
    tool.show(found)
    over += tool.over(found)
    return found


def decision_costs():
    """Returns what tools/sched-cost.py counts on the host build, or None if it fails. Its table is
    printed on stderr."""
    command = [sys.executable, os.path.join(machine.ROOT, "tools", "sched-cost.py"), "-j"]
    done = subprocess.run(command, cwd=machine.ROOT, stdout=subprocess.PIPE, check=False)
    return json.loads(done.stdout) if done.stdout else None


def main():
    parser = argparse.ArgumentParser(description="instruction counts against budgets")
    parser.add_argument("-n", type=int, default=10000, help="iterations")
    args = parser.parse_args()

    end = r"BENCH end \d+"
    store = (
        "create store\n+0ms wait store 10s\n+0ms create watcher\n+10ms create writer\n",
        r"BENCH store_watch \d+",
    )
    pair, both = (
        "create serve\n+0ms create notify\n",
        r"(?s)BENCH (queue_notify|back_irq).*BENCH (queue_notify|back_irq) \d+\n",
    )
    collab = (
        "create decisions\n+0ms wait decisions 10s\n+0ms create back\n+0ms create trips\n",
        r"BENCH trip_flush \d+",
    )
    boots = {"layouts": ("@20ms create layouts\n", "LAYOUT end"),
             "off": ("@20ms create bench\n", end, args.n),
             "pair-off": (f"@20ms {pair}", both, args.n),
             "store-off": (f"@20ms {store[0]}", store[1]),
             "collab-off": (f"@20ms {collab[0]}", collab[1]),
             "on": ("@20ms trace start all\n+0ms create bench\n", end, args.n),
             "pair-on": (f"@20ms trace start all\n+0ms {pair}", both, args.n),
             "store-on": (f"@20ms trace start all\n+0ms {store[0]}", store[1]),
             "collab-on": (f"@20ms trace start all\n+0ms {collab[0]}", collab[1])}
    # The boots run side by side, because their time is a count of instructions.
    texts = progress.run_all("bench", lambda name: boot(name, *boots[name]), boots, os.cpu_count())
    texts = dict(zip(boots, texts))
    off, on = (
        {key: value for part in ("", "pair-", "store-", "collab-")
         for key, value in figures(texts[part + state]).items()}
        for state in ("off", "on")
    )
    over = print_ops(off, on)
    print()
    worst, bad = print_worst(layouts(texts["layouts"]))
    over += bad
    print()

    text = boot("first", "@10ms poweroff\n", r"first: id .* runs", first="yes")
    # The log's clock begins when the hypervisor is entered. A nanosecond is an instruction here,
    # and the log shows microseconds.
    start = round(float(re.search(r"\[ *([\d.]+)\] first: id .* runs", text)[1]) * 1e9)
    print(
        f"from the hypervisor's entry to the first guest instruction: {start:,} instructions (to "
        "the nearest thousand)"
    )

    text = boot("idle",
                "@20ms info -j=before\n+0ms create idle\n+50ms info -j=after\n+0ms poweroff\n",
                r"\"id\": *\"after\".*\n")
    memory = memory_between(text, "before", "after", 2)
    if not within("memory of an idle VM beyond its RAM", memory, MEMORY_BUDGET):
        over.append("memory")
    sizes = size.section_bytes(os.path.join(machine.BUILD, "takt.elf"))
    if not within("text of the image", sizes["text"], size.TEXT_LIMIT):
        over.append("text")
    print(
        f"data of the image: {sizes['data']} bytes, and {sizes['bss']} that are zeroed at the start"
    )

    print()
    msi = measure_msi(args.n, over)
    stages, net_memory = measure_io(over)
    print()
    net = measure_by(netbench, "net", over)
    print()
    polled = measure_by(pollbench, "poll", over)

    decisions = decision_costs()
    if not decisions or not decisions.get("ok"):
        over.append("decisions")

    result = {"platform": "icount", "ops": {k: off.get(k) for k in OPS},
              "ops_traced": {k: on.get(k) for k in OPS}, "worst": worst,
              "image": sizes, "idle_vm_bytes": memory, "to_first_guest_instruction": start,
              "decisions": decisions,
              "io": stages, "net": net, "poll": polled, "msi": msi, "net_device_bytes": net_memory}
    os.makedirs(os.path.join(machine.BUILD, "results"), exist_ok=True)
    path = os.path.join(machine.BUILD, "results", "bench.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    print(f"{path}: "
          + ("over budget or missing: " + ", ".join(over) if over else "all within budget"))
    return bool(over)


if __name__ == "__main__":
    sentence.run(main)
