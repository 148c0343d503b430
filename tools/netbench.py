#!/usr/bin/env python3
"""Measures what a TCP segment costs on its way from a program in one VM to a program in another, in
instructions of each VM that takes part and of the hypervisor. Small messages are measured, too.
This is a part of make bench.

  tools/netbench.py                    prints the table
  tools/netbench.py --soak 20          instead, sends 24 MB that often, each in a machine of its own

All VMs run on one pCPU under QEMU with -icount, where a nanosecond is an executed instruction. Each
row is measured with a short run and a long one in the same machine. The difference divided by the
difference in length is what one segment costs; so what a VM does when it starts does not count.
virtual_irqs is on, because without it QEMU delivers interrupts of guests twice (docs/virt.md).
"""
import argparse
import os
import re
import subprocess
import typing

import demo
import machine
import progress
import sentence

SEGMENT = 1460
CONFIG = """\
[hypervisor]
guest_console = log
top = no
virtual_irqs = yes
script = bench.script

[vm iodom]
image = iodom
memory = 24M

[vm sink]
image = {image}
cmdline = {server}
memory = 16M
net = iodom{options}
"""
SOURCE = """
[vm source{n}]
image = {image}
cmdline = {client}
memory = 16M
net = iodom{options}
start = no
"""
# Afterwards it is known how long each VM was on the pCPU, the time in which Takt dealt with its
# exits included. The source is gone by then, so its part is what is left of the pCPU's time.
STEP = ("+0ms create source{n}\n+0ms wait source{n} 100s\n+0ms vcpu-list -j=list{n}\n"
        "+0ms pcpu-list -j=pcpus{n}\n")
SCRIPT = ("@300ms vcpu-list -j=list0\n+0ms pcpu-list -j=pcpus0\n"
          + STEP.format(n=1) + STEP.format(n=2) + "+0ms poweroff\n")


class Row(typing.NamedTuple):
    what: str  # is counted
    image: str
    client: str  # words of the command line of the source; {n} is how much it does
    short: int  # how much it does in the short run and in the long one
    long: int
    counts: float  # how many of `what` that is, for each
    most: int  # instructions that one of `what` may take
    options: str = ""  # of the network devices


ROWS = {
    "stream": Row("segment of 1,460 bytes of a TCP stream", "iperf",
                  "to=10.0.0.2 tcp={n} len=65520", 4 << 20, 24 << 20, 1 / SEGMENT, 8300),
    "offload": Row("the same with offload=yes", "iperf",
                   "to=10.0.0.2 tcp={n} len=65520", 4 << 20, 24 << 20, 1 / SEGMENT, 2500,
                   " offload=yes"),
    "small": Row("request of 64 bytes, answered by 64, one at a time", "rr",
                 "to=10.0.0.2 size=64 answer=64 count={n}", 500, 2500, 1, 31500),
    "frames": Row("echo request of 98 bytes, of a batch of 32, answered", "netping",
                  "to=2 batch=32 interval_ms=0 batches={n}", 20, 220, 32, 6900),
}
PARTS = ("source", "driver domain", "sink")
COLUMNS = (*PARTS, "total", "Takt")


def config_of(row):
    address = "ip={}" if row.image == "netping" else "ip=10.0.0.{}/24"
    text = CONFIG.format(image=row.image, server=address.format(2), options=row.options)
    for n, length in enumerate((row.short, row.long), 1):
        text += SOURCE.format(n=n, image=row.image, options=row.options,
                              client=f"{address.format(3)} {row.client.format(n=length)}")
    return text


def boot(name, config, script):
    """Boots a machine that runs the script to its end. Returns its serial output."""
    directory = os.path.join(machine.BUILD, "run", f"netbench-{name}")
    os.makedirs(directory, exist_ok=True)
    for file, text in (("bench.cfg", config), ("bench.script", script)):
        with open(os.path.join(directory, file), "w", encoding="ascii") as f:
            f.write(text)
    iso = os.path.join(directory, "bench.iso")
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso,
                    os.path.join(directory, "bench.cfg")],
                   cwd=machine.ROOT, check=True)
    with machine.Machine("icount", iso, cpus=1, directory=directory) as m:
        how, _ = m.wait("power off|crashed|guest panic", 300)
        text = m.serial()
    if how not in ("matched", "ended"):
        raise LookupError(f"{how}; see {directory}")
    return re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", text)


def used(text, n):
    """Returns {part: ns} that each part has used when the script took its n-th look, "total", and
    "Takt": how much of that was spent in Takt."""
    vms = {v["vm"]: v["running_ns"] for v in demo.answer(text, f"list{n}")}
    pcpu = demo.answer(text, f"pcpus{n}")[0]
    total = pcpu["guest_ns"] + pcpu["hv_ns"]
    parts = (total - vms["iodom"] - vms["sink"], vms["iodom"], vms["sink"])
    return {**dict(zip(PARTS, parts)), "total": total, "Takt": pcpu["hv_ns"]}


def each_of(row, text):
    """Returns what used() tells, for one of what the row counts."""
    before, middle, end = (used(text, n) for n in range(3))
    return {key: round((end[key] - 2 * middle[key] + before[key])
                       / (row.long - row.short) / row.counts) for key in before}


def measure_row(name):
    return each_of(ROWS[name], boot(name, config_of(ROWS[name]), SCRIPT))


def show(found):
    print(f"{'instructions of each VM':54}" + "".join(f"{p.replace(' ', '-'):>14}"
                                                      for p in COLUMNS)
          + f"{'at most':>10}")
    for name, each in found.items():
        cells = "".join(f"{each[p]:>14}" for p in COLUMNS)
        print(f"{ROWS[name].what:54}{cells}{ROWS[name].most:>10}")


def over(found):
    """Returns the names of the rows that take more than they may."""
    return [f"net {name}" for name, each in found.items() if each["total"] > ROWS[name].most]


def measure():
    rows = list(ROWS)
    return dict(zip(rows, progress.run_all("netbench", measure_row, rows, os.cpu_count())))


def stream_ends_well(n):
    """Sends 24 MB once, at a time that depends on `n`. Returns a sentence on what went wrong, or
    None."""
    config = config_of(ROWS["stream"]).replace("source2", "source")
    config = config.replace("cmdline = ip=10.0.0.2/24", "cmdline = ip=10.0.0.2/24 check")
    name = f"soak-{n}"
    text = boot(name, config, f"@{300 + n}ms create source\n+0ms wait source 100s\n+0ms poweroff\n")
    good = re.search(r"sink: iperf: tcp 25165824 bytes .* 0 wrong, end 0", text)
    if good and re.search("source: ends with code 0", text):
        return None
    return f"the stream has not arrived: see {machine.BUILD}/run/netbench-{name}/serial.txt"


def soak(times):
    """Sends 24 MB in so many machines. Returns whether a stream was damaged or did not end."""
    names = list(range(times))
    found = progress.run_all("netbench", stream_ends_well, names, os.cpu_count())
    for n, why in zip(names, found):
        if why:
            print(f"{n}: {why}")
    print(f"{found.count(None)} of {times} streams of 24 MB arrived as they were sent")
    return found.count(None) != times


def main():
    parser = argparse.ArgumentParser(description="what a segment costs from VM to VM")
    parser.add_argument("--soak", type=int, metavar="N", help="sends 24 MB N times")
    parser.add_argument("rows", nargs="*", help="of " + ", ".join(ROWS))
    args = parser.parse_args()
    if args.soak:
        return soak(args.soak)
    found = {row: measure_row(row) for row in args.rows} or measure()
    show(found)
    return bool(over(found))


if __name__ == "__main__":
    sentence.run(main)
