#!/usr/bin/env python3
"""make trace: boots the VMs of a file, records the scheduler for a second, and draws which vCPU ran
where.

  tools/taketrace.py [--vms FILE] [--platform P] [--seconds S] [--out build/results/trace]

Writes OUT.png (the picture), OUT.json (for ui.perfetto.dev or chrome://tracing) and OUT.bin (the
stream itself, docs/trace.md). A script in the image starts and stops the recording. The script then
pauses all VMs, because the serial line is slow, and sends through COM2 what was recorded.
The machine ends as soon as everything has come.
"""
import argparse
import json
import os
import subprocess
import sys
import time

import entitlement
import machine
import progress
import sentence
import trace2json
import tracestream

WARM_UP = 2.0  # virtual seconds before the recording begins
WALL = {"bochs": 600, "qemu": 120, "kvm": 60, "icount": 600}
# A header comes each virtual second. When this many have come without a record between them, the
# whole recording has been sent.
QUIET_HEADERS = 2


def build(args, directory, vms):
    """Makes the image. Returns its path."""
    lines = [f"@{WARM_UP * 1000:.0f}ms trace start sched",
             f"+{args.seconds * 1000:.0f}ms trace stop"]
    lines += [f"+0ms pause {vm['name']}" for vm in vms if vm["start"]] + ["+10ms trace stream com2"]
    script = os.path.join(directory, "trace.script")
    with open(script, "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")
    iso = os.path.join(directory, "trace.iso")
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso, args.vms,
                    "--cmdline", "script=trace.script top=no", "--module", f"trace.script={script}",
                    "--cpus", str(args.cpus), "--memory", str(args.memory)],
                   cwd=machine.ROOT, check=True)
    return iso


def arrived(data):
    """Returns (records that have come, headers since the last of them)."""
    records = headers = 0
    for kind, _, payload, _ in tracestream.frames(data):
        if kind == "R":
            records += len(payload) // tracestream.Record.FORMAT.size
            headers = 0
        headers += kind == "H"
    return records, headers


def record(args, platform, iso, directory):
    """Boots, and waits until the whole stream has come. Returns the path of the stream."""
    path = os.path.join(directory, "trace.bin")
    with open(path, "wb"):
        pass  # What an earlier run left is not of this run.
    records, end = 0, time.monotonic() + WALL[platform]
    with progress.Line(lambda: f"the machine runs, {records} records have come"), \
            machine.Machine(platform, iso, cpus=args.cpus, memory=args.memory, directory=directory,
                            com2=path) as m:
        while True:
            how, _ = m.wait(timeout=1)
            with open(path, "rb") as f:
                records, headers = arrived(f.read())
            if records and headers >= QUIET_HEADERS:
                break
            if how == "ended" or time.monotonic() > end:
                what = "the machine ended" if how == "ended" else f"{WALL[platform]} s were over"
                raise sentence.Problem(f"{what} before the trace had come; see {m.dir}\n"
                                       f"{m.serial()[-1500:]}")
    return path


def main():
    parser = argparse.ArgumentParser(description="records the scheduler and draws who ran where")
    parser.add_argument("--platform", default="auto")
    parser.add_argument("--vms", default="boot/demo.cfg")
    parser.add_argument("--seconds", type=float, default=1.0,
                        help="virtual time that is recorded (1)")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--memory", type=int, default=256)
    parser.add_argument("--out", default=os.path.join(machine.BUILD, "results", "trace"),
                        metavar="PATH", help="of the three files, without .png, .json and .bin")
    args = parser.parse_args()
    platform = machine.choose(args.platform)
    sentence.need("matplotlib", "python3-matplotlib")  # The check comes before anything boots.
    directory = os.path.join(machine.BUILD, "run", f"trace-{platform}")
    os.makedirs(directory, exist_ok=True)
    os.makedirs(os.path.dirname(os.path.abspath(args.out)), exist_ok=True)
    iso = build(args, directory, entitlement.load_config(args.vms)["vms"])
    print(f"Recording {args.seconds:g} s of {args.vms} on {platform} ...", flush=True)
    os.replace(record(args, platform, iso, directory), args.out + ".bin")
    trace = tracestream.load(args.out + ".bin")
    with open(args.out + ".json", "w", encoding="utf-8") as f:
        json.dump(trace2json.convert(trace), f, separators=(",", ":"))
    recorded = (trace.records[-1].ns - trace.records[0].ns) / 1e9 if trace.records else args.seconds
    subprocess.run([sys.executable, os.path.join(machine.ROOT, "tools", "trace-picture.py"),
                    args.out + ".bin", args.out + ".png", "--length",
                    str(min(args.seconds, recorded))], check=True)
    lost = f", {trace.lost} lost (a shorter --seconds loses fewer)" if trace.lost else ""
    print(f"{sentence.count(len(trace.records), 'record')}{lost}\n{args.out}.png   who ran where\n"
          f"{args.out}.json  for ui.perfetto.dev or chrome://tracing\n"
          f"{args.out}.bin   the stream: docs/trace.md")


if __name__ == "__main__":
    sentence.run(main)
