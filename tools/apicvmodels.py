#!/usr/bin/env python3
"""Prints which parts of APIC virtualisation each CPU model of this host's Bochs offers.

  tools/apicvmodels.py [MODEL...]         without a model: all that `bochs --help cpu` lists

Each model runs a firmware of its own (apicvmodels.asm), which reads the MSRs that tell what VT-x
can do. Models without VT-x are named below the table. The exit status is 1 if no model offers
anything.
"""
import os
import re
import subprocess
import sys

import machine
import sentence

ASM = os.path.join(machine.ROOT, "tools", "apicvmodels.asm")
PIN, PRIMARY, SECONDARY = 0x481, 0x482, 0x48B
# The title of a column, the MSR that tells, and the bit of its upper half: SDM 3D A.3, 3C 25.6.
PARTS = [
    ("TPR shadow", PRIMARY, 21),
    ("APIC accesses", SECONDARY, 0),
    ("APIC registers", SECONDARY, 8),
    ("interrupt delivery", SECONDARY, 9),
    ("x2APIC mode", SECONDARY, 4),
    ("posted interrupts", PIN, 7),
]
TIMEOUT = 600  # seconds; it takes less than one on a host that is not busy


def models(text):
    """Returns the names in what `bochs --help cpu` prints."""
    return re.findall(r"^(\w+)$", text, re.MULTILINE)


def offered(text):
    """Returns [whether a part may be used] from what the firmware has printed, or None if the CPU
    has no VT-x."""
    msrs = {int(n, 16): int(v, 16)
            for n, v in re.findall(r"\b(0000048\w) (\w{8})$", text, re.MULTILINE)}
    if not msrs:
        return None
    return [bool(msrs.get(msr, 0) >> bit & 1) for _, msr, bit in PARTS]


def run(args):
    done = subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
                          timeout=TIMEOUT)
    return done.stdout


def ask(model, rom, directory):
    """Returns what offered() returns for a CPU model."""
    rc, script = os.path.join(directory, "bochsrc"), os.path.join(directory, "dbg")
    text = machine.BOCHSRC.format(memory=32, model=model, cpus=1, hz=machine.BOCHS_HZ,
                                  dir=directory, com1="mode=null", com2="mode=null", iso=rom,
                                  slots="", time=machine.BOCHS_TIME)
    with open(rc, "w", encoding="ascii") as f:
        f.write(re.sub(r"^romimage: .*$", f"romimage: file={rom}", text, flags=re.MULTILINE))
    with open(script, "w", encoding="ascii") as f:
        f.write("c\n")
    return offered(run(["bochs", "-q", "-f", rc, "-rc", script]))


def table(found):
    """Returns the lines of a table in Markdown; `found` is {model: what offered() returned}."""
    lines = ["| model | " + " | ".join(title for title, _, _ in PARTS) + " |",
             "|---" * (len(PARTS) + 1) + "|"]
    for model, parts in found.items():
        if parts is not None:
            lines.append(f"| `{model}` | " + " | ".join("yes" if p else "-" for p in parts) + " |")
    return lines


def main():
    directory = os.path.join(machine.BUILD, "run", "apicv-models")
    os.makedirs(directory, exist_ok=True)
    rom = os.path.join(directory, "rom.bin")
    subprocess.run(["nasm", "-f", "bin", "-o", rom, ASM], check=True)
    asked = sys.argv[1:] or models(run(["bochs", "--help", "cpu"]))
    found = {model: ask(model, rom, directory) for model in asked}
    print(f"Bochs {'.'.join(map(str, machine.bochs_version()))}:\n" + "\n".join(table(found)))
    without = [model for model, parts in found.items() if parts is None]
    if without:
        print("Without VT-x: " + ", ".join(without))
    return 0 if any(any(parts) for parts in found.values() if parts) else 1


if __name__ == "__main__":
    sentence.run(main)
