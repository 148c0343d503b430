#!/usr/bin/env python3
"""Turns a trace stream into Chrome's trace JSON, for chrome://tracing or ui.perfetto.dev.

  tools/trace2json.py STREAM > out.json

Each pCPU has a track that shows which vCPU ran, and each vCPU has a track with its run states.
Exits, wakes and the like are instants on the vCPU's track.
"""
import argparse
import json
import sys

import sentence
import tracestream as ts

CPUS, VMS = 1, 1000  # process numbers: the pCPUs' tracks have CPUS, and VM n's track has VMS + n


def us(ns):
    return ns / 1000


def intervals(trace):
    """Returns (runs, states): [(cpu, who, start, end)] and [(who, state, start, end)], from what
    the records say began and ended."""
    runs, states, current = [], [], {}
    for r in trace.records:
        if r.event == ts.LOST:
            current.pop(r.cpu, None)  # Which switches were lost is not known.
        elif r.event == ts.SWITCH:
            before = current.get(r.cpu)
            start = before[1] if before else r.ns - r.arg[1]
            runs.append((r.cpu, r.arg[0], start, r.ns))
            current[r.cpu] = (r.who, r.ns)
        elif r.event == ts.RUNSTATE and ts.is_vcpu(r.who):
            states.append((r.who, r.arg[0], max(0, r.ns - r.wide(2)), r.ns))
    if trace.records:
        end = trace.records[-1].ns
        runs += [(cpu, who, start, end) for cpu, (who, start) in current.items() if end > start]
    return runs, states


def describe(r):
    """Returns what a click on an instant shows."""
    if r.event == ts.EXIT:
        return {"reason": ts.EXITS[r.arg[0]] if r.arg[0] < len(ts.EXITS) else r.arg[0],
                "rip": hex(r.wide(1)), "raw": hex(r.arg[3])}
    if r.event == ts.MICRO:
        return {"latency-sensitive here": r.arg[0], "others": r.arg[1], "T_n us": us(r.wide(2))}
    if r.event == ts.SHARE:
        return {"credit moved us": us(r.signed(2))}
    if r.event == ts.TURBO:
        return {"turbo us": r.arg[1], "FS^R us": us(r.wide(2))}
    if r.event == ts.LABEL:
        return {"label": "io" if r.arg[1] else "cpu", "events a second": r.wide(2)}
    return {"args": list(r.arg)}


def convert(trace):
    events = [{"ph": "M", "pid": CPUS, "name": "process_name", "args": {"name": "pCPUs"}}]
    for cpu in range(trace.cpus):
        events.append({"ph": "M", "pid": CPUS, "tid": cpu, "name": "thread_name",
                       "args": {"name": "pCPU %d" % cpu}})
    whos = sorted({r.about for r in trace.records if ts.is_vcpu(r.about)})
    for vm in sorted({ts.vm_of(w) for w in whos}):
        events.append({"ph": "M", "pid": VMS + vm, "name": "process_name",
                       "args": {"name": trace.vms.get(vm, ("vm%d" % vm, 1))[0]}})
    for who in whos:
        events.append({"ph": "M", "pid": VMS + ts.vm_of(who), "tid": who & 0xFFFF,
                       "name": "thread_name",
                       "args": {"name": "vCPU %d" % (who & 0xFFFF)}})
    runs, states = intervals(trace)
    for cpu, who, start, end in runs:
        if ts.is_vcpu(who):
            events.append({"ph": "X", "pid": CPUS, "tid": cpu, "name": trace.name(who),
                           "ts": us(start), "dur": us(end - start)})
    for who, state, start, end in states:
        events.append({"ph": "X", "pid": VMS + ts.vm_of(who), "tid": who & 0xFFFF, "ts": us(start),
                       "dur": us(end - start),
                       "name": ts.STATES[state] if state < len(ts.STATES) else "state %d" % state})
    for r in trace.records:
        if r.event in (ts.SWITCH, ts.RUNSTATE, ts.ENTRY):
            continue
        where = {"pid": CPUS, "tid": r.cpu}
        if ts.is_vcpu(r.about):
            where = {"pid": VMS + ts.vm_of(r.about), "tid": r.about & 0xFFFF}
        events.append({"ph": "i", "s": "t", "ts": us(r.ns),
                       "name": ts.NAMES.get(r.event, hex(r.event)), "args": describe(r), **where})
    return {"traceEvents": events, "displayTimeUnit": "ns",
            "otherData": {"lost records": trace.lost, "lost frames": trace.gaps,
                          "bytes skipped": trace.skipped}}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stream")
    args = parser.parse_args()
    json.dump(convert(ts.load(args.stream)), sys.stdout, separators=(",", ":"))


if __name__ == "__main__":
    sentence.run(main)
