#!/usr/bin/env python3
"""Counts what exits a guest's interrupts cost on Bochs, with `apicv = on` and with `off`.

Each operation of guests/exits.c is done N times and 3 N times, by VMs that are made one after the
other. Half of the difference of their exits, over N, is what one of them costs: the exits of the
guest's start and end are not in it. Bochs is in virtual time, so a run can be repeated to the bit.
"""
import os
import re
import subprocess

import demo
import machine
import sentence

N = 100
TIME = 80  # virtual ms that a VM gets
OPS = {"write": "self-IPI, not taken yet", "eoi": "EOI", "self": "self-IPI, handler and EOI",
       "timer": "timer: arming, handler and EOI", "ipi": "IPI to a vCPU that runs, handler and EOI"}
MODES = ("xapic", "x2apic")


def config(apicv):
    """Returns the configuration and the script of a boot."""
    vms, script = ["[hypervisor]", "top = no", "guest_console = log", "script = exits.script",
                   f"apicv = {apicv}", ""], []
    for name, op, mode, n in runs():
        vms += [f"[vm {name}]", "image = exits", f'cmdline = "op={op} n={n} {mode}"',
                "memory = 4M", "vcpus = 2", "start = no", ""]
        script += [f"+1ms create {name}", f"+{TIME}ms vcpu-list -j={name}", f"+0ms destroy {name}"]
    return "\n".join(vms), "\n".join(script + ["+10ms poweroff"]) + "\n"


def runs():
    return [(f"{op}-{mode}-{k}", op, mode, k * N) for op in OPS for mode in MODES for k in (1, 3)]


def counted(text):
    """Returns {(operation, mode): exits of one operation} from what a boot printed."""
    exits = {}
    for name, op, mode, n in runs():
        rows = [row for row in demo.answer(text, name) or [] if row["vm"] == name]
        if not re.search(rf"{name}: EXITS {op} done", text) or not rows:
            raise LookupError(f"{name} did not end")
        exits[op, mode, n] = sum(row["exits"] for row in rows)
    return {(op, mode): (exits[op, mode, 3 * N] - exits[op, mode, N]) / (2 * N)
            for op in OPS for mode in MODES}


def boot(apicv):
    directory = os.path.join(machine.BUILD, "run", f"apicv-exits-{apicv}")
    os.makedirs(directory, exist_ok=True)
    for name, text in zip(("exits.cfg", "exits.script"), config(apicv)):
        with open(os.path.join(directory, name), "w", encoding="ascii") as f:
            f.write(text)
    iso = os.path.join(directory, "exits.iso")
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso,
                    os.path.join(directory, "exits.cfg")], cwd=machine.ROOT, check=True)
    with machine.Machine("bochs", iso, cpus=2, directory=directory) as m:
        m.wait(timeout=900)
        return counted(m.serial())


def main():
    found = {apicv: boot(apicv) for apicv in ("off", "on")}
    print("| exits of one | xAPIC, off | xAPIC, on | x2APIC, off | x2APIC, on |\n"
          "|---|---|---|---|---|")
    for op, title in OPS.items():
        cells = [f"{found[apicv][op, mode]:.2f}" for mode in MODES for apicv in ("off", "on")]
        print(f"| {title} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sentence.run(main)
