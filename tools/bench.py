#!/usr/bin/env python3
"""make bench: what operations cost a guest, in instructions, against KVM, Xen and Takt's budgets; sizes; cost of decisions.

Boots under QEMU with -icount, where a tick of the TSC is an executed instruction (one pCPU, xAPIC), once with tracing off and
once with it on. The guest is guests/bench.c: medians over 10,000 iterations. Writes build/results/bench.json. Exits 1 if a
budget is exceeded or a figure is missing.
"""
import argparse
import json
import os
import re
import subprocess
import sys

import demo
import machine
import size

# operation: (as printed, KVM, KVM with next-RIP, Xen, Xen with next-RIP, Takt at most). KVM is Linux 6.12 with mitigations off, Xen is
# 4.17 with a PVH guest, both measured on this very machine model. QEMU gives no next-RIP, for which both decode in software.
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
    "vcpu_switch": ("handover between vCPUs by yield", 6020, 4160, 9780, 5030, 1800),
}
MEMORY_BUDGET = 96 * 1024  # of an idle VM, beyond its RAM and its page tables

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

[vm idle]
image = waker
cmdline = period_us=1000000
memory = 2M
start = no

[vm first]
image = spin
memory = 2M
start = {first}
"""


def boot(name, script, until, n=10000, first="no"):
    """Runs a script; returns all of the serial output."""
    directory = os.path.join(machine.BUILD, "run", f"bench-{name}")
    os.makedirs(directory, exist_ok=True)
    files = {"bench.cfg": CONFIG.format(n=n, first=first), "bench.script": script}
    for file, text in files.items():
        with open(os.path.join(directory, file), "w", encoding="ascii") as f:
            f.write(text)
    iso = os.path.join(directory, "bench.iso")
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso, os.path.join(directory, "bench.cfg")],
                   cwd=machine.ROOT, check=True)
    with machine.Machine("icount", iso, cpus=1, directory=directory) as m:
        how, _ = m.wait(until, 300)
        text = m.serial()
    if how != "matched":
        print(text[-1500:])
        sys.exit(f"bench: {name}: {how}; see {directory}")
    return text


def figures(text):
    return {m[1]: int(m[2]) for m in re.finditer(r"BENCH (\w+) (\d+)", text)}


def print_ops(off, on):
    """Returns the names of operations over budget or without a figure."""
    print(f"{'instructions a round trip':32} {'KVM':>7} {'nRIP':>7} {'Xen':>7} {'nRIP':>7} {'at most':>8} {'Takt':>7} {'traced':>7}")
    bad = []
    for key, (label, *others, budget) in OPS.items():
        got = off.get(key)
        if got is None or got > budget:
            bad.append(key)
        cells = "".join(f" {x if x is not None else 'none':>7}" for x in others)
        mark = "" if key not in bad else "   NO FIGURE" if got is None else "   OVER BUDGET"
        print(f"{label:32}{cells} {budget:8} {got if got is not None else '-':>7} {on.get(key, '-'):>7}{mark}")
    return bad


def idle_memory(text):
    """Bytes that an idle VM costs beyond its RAM."""
    before, after = demo.answer(text, "before"), demo.answer(text, "after")
    return (before["free_frames"] - after["free_frames"]) * 4096 - 2 * 1024 * 1024


def decision_costs():
    """What tools/sched-cost.py counts on the host build; it prints its table here."""
    command = [sys.executable, os.path.join(machine.ROOT, "tools", "sched-cost.py")]
    subprocess.run(command, cwd=machine.ROOT, check=False)
    done = subprocess.run(command + ["-j"], cwd=machine.ROOT, stdout=subprocess.PIPE, check=False)
    return json.loads(done.stdout) if done.stdout else None


def main():
    parser = argparse.ArgumentParser(description="instruction counts against budgets")
    parser.add_argument("-n", type=int, default=10000, help="iterations")
    args = parser.parse_args()

    end = r"BENCH end \d+"
    off = figures(boot("off", "@20ms create bench\n", end, n=args.n))
    on = figures(boot("on", "@20ms trace start all\n+0ms create bench\n", end, n=args.n))
    over = print_ops(off, on)
    print()

    text = boot("first", "@10ms poweroff\n", r"first: id .* runs", first="yes")
    # the log's clock begins at the hypervisor's entry; a nanosecond is an instruction here, and the log shows microseconds
    start = round(float(re.search(r"\[ *([\d.]+)\] first: id .* runs", text)[1]) * 1e9)
    print(f"from the hypervisor's entry to the first guest instruction: {start:,} instructions (to the nearest thousand)")

    text = boot("idle", "@20ms info -j=before\n+0ms create idle\n+50ms info -j=after\n+0ms poweroff\n", r"\"id\": *\"after\".*\n")
    memory = idle_memory(text)
    print(f"memory of an idle VM beyond its RAM: {memory} bytes (at most {MEMORY_BUDGET} and page tables)")
    if memory > MEMORY_BUDGET + 16 * 4096:
        over.append("memory")
    sizes = size.section_bytes(os.path.join(machine.BUILD, "takt.elf"))
    print(f"image: {sizes['text']} bytes of text (at most {size.BUDGET_TEXT}), {sizes['data']} of data, {sizes['bss']} zeroed")
    if sizes["text"] > size.BUDGET_TEXT:
        over.append("text")

    decisions = decision_costs()
    if not decisions or not decisions.get("ok"):
        over.append("decisions")

    result = {"platform": "icount", "ops": {k: off.get(k) for k in OPS}, "ops_traced": {k: on.get(k) for k in OPS},
              "image": sizes, "idle_vm_bytes": memory, "to_first_guest_instruction": start, "decisions": decisions}
    os.makedirs(os.path.join(machine.BUILD, "results"), exist_ok=True)
    path = os.path.join(machine.BUILD, "results", "bench.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    print(f"{path}: " + ("over budget or missing: " + ", ".join(over) if over else "all within budget"))
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
