#!/usr/bin/env python3
"""make sim-costs: measures the costs that tests/whole/model.c charges for instructions and exits.

The simulation of the whole machine counts the instructions of code that the compiler has prepared
for counting. The code of the image has fewer of them, because it need not save registers for the
counting. Both are compiled and compared here: how many instructions the image has for one that is
counted.

An exit costs instructions that the simulation does not execute. So a VM causes many exits of one
kind, on Bochs and in the simulation, and the instructions for each of them are compared.

  tools/simcosts.py [--check]

--check ends with 1 if a cost of model.c is further from what was measured than the bounds below.
"""
import argparse
import glob
import os
import re
import subprocess

import fidelity
import machine
import netdemo
import sentence

PLAIN = os.path.join(machine.BUILD, "uncounted")
BOUND = 0.02       # of an instruction
EXIT_BOUND = 0.10  # relative: kinds of exits differ that much
# {operation of guests/exits.c: how often it is done}
OPERATIONS = {"write": 100000, "eoi": 100000, "self": 60000}
MIPS = 100
VM = """
[vm {op}]
image = exits
cmdline = op={op} n={n}
memory = 4M
cpus = {cpu}
"""
COST = re.compile(r'\{ "(\w+)", (\d+), false \}')


def instructions(path):
    """Returns how many instructions a file of assembly has, without the calls for the counting."""
    with open(path, encoding="ascii") as f:
        return sum(bool(re.match(r"\t[a-z](?!all\t__sanitizer_cov)", line)) for line in f)


def ratio(part):
    """Returns how many instructions the image has for one that is counted."""
    counted = plain = 0
    root = os.path.join(machine.BUILD, "whole", part)
    for path in glob.glob(os.path.join(root, "**", "*.s"), recursive=True):
        name = os.path.relpath(path, root)
        if name.endswith(".counted.s") or name.startswith("tests/"):
            continue
        counted += instructions(path)
        plain += instructions(os.path.join(PLAIN, "whole", part, name))
    return plain / counted


def per_operation(said):
    """Returns {operation: how many instructions each took} from what a machine printed."""
    said, found = netdemo.plain(said), {}
    for op, n in OPERATIONS.items():
        times = [re.search(rf"\[ *([\d.]+)\] {op}: {what}", said) for what in ("id", "EXITS")]
        if None in times:
            raise sentence.Problem(f"simcosts: the VM {op} did not print that it had ended")
        found[op] = (float(times[1][1]) - float(times[0][1])) * 1e6 * MIPS / n
    return found


def exits():
    """Returns {operation: instructions} on Bochs, and in the simulation."""
    directory = os.path.join(machine.BUILD, "run", "simcosts")
    os.makedirs(directory, exist_ok=True)
    vms = "".join(VM.format(op=op, n=n, cpu=cpu + 1)
                  for cpu, (op, n) in enumerate(OPERATIONS.items()))
    cpus = len(OPERATIONS) + 1
    for kind, text in (("cfg", "[hypervisor]\ntop = no\nguest_console = log\n" + vms),
                       ("script", "@2s poweroff\n")):
        with open(os.path.join(directory, "fidelity." + kind), "w", encoding="ascii") as f:
            f.write(text)
    on_bochs = per_operation(fidelity.on_bochs(directory, cpus))
    done = subprocess.run([fidelity.SIM, "-g", fidelity.GUESTS, "-p", str(cpus), "-w", "1ms", "-t",
                           "5s", "--script", os.path.join(directory, "fidelity.script"),
                           os.path.join(directory, "fidelity.cfg")],
                          capture_output=True, text=True, check=True)
    return on_bochs, per_operation(done.stdout)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    with open(os.path.join(machine.ROOT, "tests", "whole", "model.c"), encoding="ascii") as f:
        costs = {name: int(milli) / 1000 for name, milli in COST.findall(f.read())}
    subprocess.run(["make", "-s", f"B={PLAIN}", f"LWIP={machine.BUILD}/lwip", "WHOLE_COUNT=",
                    "sim-whole-build"], cwd=machine.ROOT, check=True)
    wrong = []
    for part in ("guest", "hv"):
        found = ratio(part)
        print(f"{part:6} {found:.3f} instructions for one that is counted; charged "
              f"{costs[part]:.3f}")
        if abs(found - costs[part]) > BOUND:
            wrong.append(part)
    on_bochs, simulated = exits()
    for op in OPERATIONS:
        print(f"{op:6} {on_bochs[op]:6.1f} instructions on Bochs, {simulated[op]:6.1f} in the "
              "simulation")
        if abs(simulated[op] / on_bochs[op] - 1) > EXIT_BOUND:
            wrong.append(op)
    if wrong and a.check:
        raise sentence.Problem(f"simcosts: out of bounds: {', '.join(wrong)}")


if __name__ == "__main__":
    sentence.run(main)
