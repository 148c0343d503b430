"""Measures what Takt adds to an interrupt of a VM's device, stage by stage, from the message to the
first instruction of the guest's handler. This is a part of make bench.

guests/bench.c has QEMU's device for exercises, which interrupts when a register is written. It runs
on one pCPU under -icount, so the difference of RDTSC before and after is the number of
instructions. Then a command to its monitor makes QEMU log the address of each instruction for a
moment, and the names of functions divide the log into stages. The way through the hypervisor is the
same for MSI, for MSI-X and for virtual functions: on_message() in hv/passthrough/interrupt.c.
"""
import bisect
import os
import re
import socket
import subprocess
import time
from collections import Counter

import machine

CONFIG = """\
[hypervisor]
guest_console = log
top = no

[vm msi]
image = bench
cmdline = msi n={n}
memory = 4M
cpus = 0
pci = 00:04.0
unsafe_dma = yes
irq_rate = 1000000000
"""
MOST = 900
# Seconds to log at a time: this gives some 40 deliveries, and none at all on a host that has no
# time for QEMU.
LOGGED = 0.3
PATIENCE = 20  # times that it is logged before it is given up
# Each stage begins where its function is first entered after the beginning of the stage before. The
# first stage begins with the exit.
STAGES = (("exit", None), ("host's handler", "trap_stubs"), ("device", "on_message"),
          ("event", "evtchn_raise"),
          ("wake", "events_raise"), ("return", "on_message"), ("inject", "vcpu_prepare"),
          ("entry", "svm_run"))
HV = 1 << 63  # The hypervisor's addresses are from here on.


def functions(elf):
    """Returns [address], [name], sorted by address."""
    lines = subprocess.run(
        ["nm", "-n", elf], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()
    found = [(int(words[0], 16), words[2]) for words in map(str.split, lines) if len(words) == 3
             and words[1] in "tT"]
    return [a for a, _ in found], [name for _, name in found]


def stays(pcs):
    """Returns a list for each time that the hypervisor ran: the addresses of its instructions. The
    first and the last may be cut off."""
    found, now = [], []
    for pc in pcs:
        if pc >= HV:
            now.append(pc)
        elif now:
            found.append(now)
            now = []
    return found[1:]


def stages_of(names):
    """Returns {stage: instructions}. `names` are the functions that the instructions are in, in
    order."""
    found, at = dict.fromkeys((stage for stage, _ in STAGES), 0), 0
    for name, before in zip(names, [None, *names]):
        if at + 1 < len(STAGES) and name == STAGES[at + 1][1] and name != before:
            at += 1
        found[STAGES[at][0]] += 1
    if at + 1 < len(STAGES):
        raise LookupError(f"no delivery by way of {STAGES[at + 1][1]}()")
    return found


def split(text, elf):
    """Returns the stages of the most frequent delivery in a log of QEMU."""
    addresses, names = functions(elf)
    found = stays(int(pc, 16) for pc in re.findall(r"^Trace .*\[[0-9a-f]+/([0-9a-f]+)/", text,
                                                   re.M))
    if not found:
        raise LookupError("nothing was logged")
    length = Counter(map(len, found)).most_common(1)[0][0]
    stay = next(s for s in found if len(s) == length)
    return stages_of([names[bisect.bisect(addresses, pc) - 1] for pc in stay])


def logged(directory):
    """Returns what QEMU logs in LOGGED seconds."""
    path = os.path.join(directory, "exec.log")
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.connect(os.path.join(directory, "monitor"))
        for command in ("one-insn-per-tb on", f"logfile {path}", "log exec,nochain"):
            monitor.sendall(command.encode() + b"\n")
        time.sleep(LOGGED)
        monitor.sendall(b"log none\n")
        time.sleep(LOGGED)
    with open(path, encoding="ascii", errors="replace") as f:
        return f.read()


def logged_stages(log, elf):
    """Returns the stages of a delivery in what log() returns. Calls log() again while there is no
    delivery in it."""
    for left in reversed(range(PATIENCE)):
        try:
            return split(log(), elf)
        except LookupError:
            if not left:
                raise


def measure(n):
    """Returns {stage: instructions}, and "total" by the guest's own clock."""
    directory = os.path.join(machine.BUILD, "run", "bench-msi")
    os.makedirs(directory, exist_ok=True)
    config, iso, log = (os.path.join(directory, name) for name in ("bench.cfg", "bench.iso",
                                                                   "exec.log"))
    with open(config, "w", encoding="ascii") as f:
        f.write(CONFIG.format(n=n))
    if os.path.exists(log):
        os.unlink(log)
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso, config], cwd=machine.ROOT,
                   check=True)
    extra = ["-device", "edu,addr=4.0", "-monitor", f"unix:{directory}/monitor,server=on,wait=off"]
    with machine.Machine("icount", iso, cpus=1, directory=directory, extra=extra) as m:
        how, total = m.wait(r"BENCH msi (\d+)", 300)
        if how != "matched":
            raise LookupError(f"{how}; see {directory}")
        stages = logged_stages(lambda: logged(directory), os.path.join(machine.BUILD, "takt.elf"))
    return {**stages, "guest": int(total[1]) - sum(stages.values()), "total": int(total[1])}


def show(found):
    print("a device's interrupt, from its message to the guest's handler, instructions: " +
          ", ".join(f"{stage} {n}" for stage, n in found.items()) + f" (at most {MOST})")
