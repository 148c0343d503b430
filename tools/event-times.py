#!/usr/bin/env python3
"""How long events took from their notification to their handling, for each VM and port that received some.

  tools/event-times.py [--bytes-per-event N] [-j] STREAM

STREAM is a recording of the trace stream with class `event` (docs/trace.md). Two VMs that talk to
each other are two lines, one a direction. An event is taken when its vector reaches the vCPU, or
when a poll for it ends. What a guest takes without either, because it was awake and looked by
itself, is not in a trace. With --bytes-per-event also the time that a megabyte costs in waiting, as
"Coexisting scheduling policies" reports it.
"""
import argparse
import json

import sentence
import tracestream as ts

MB = 1 << 20


def percentile(values, permille):
    return values[min(len(values) - 1, len(values) * permille // 1000)]


def measure(trace, bytes_per_event=0):
    """One dictionary for each receiving (vCPU, port), in order; times in us."""
    taken = {}
    for r in trace.records:
        if r.event == ts.EVTCHN_TAKE:
            taken.setdefault((r.who, r.arg[0]), []).append(r.arg[1] / 1000)
    rows = []
    for (who, port), times in sorted(taken.items()):
        times.sort()
        row = {"to": trace.name(who), "port": port, "events": len(times), "mean_us": round(sum(times) / len(times), 3),
               "p50_us": percentile(times, 500), "p99_us": percentile(times, 990), "max_us": times[-1]}
        if bytes_per_event:
            row["us_per_mb"] = round(sum(times) * MB / (len(times) * bytes_per_event), 3)
        rows.append(row)
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("stream")
    p.add_argument("--bytes-per-event", type=int, default=0, metavar="N", help="payload that each event announces")
    p.add_argument("-j", action="store_true", help="JSON")
    args = p.parse_args()
    rows = measure(ts.load(args.stream), args.bytes_per_event)
    if args.j:
        print(json.dumps(rows, indent=1))
        return
    if not rows:
        raise sentence.Problem("no event was handled in it; was it recorded with `trace start event`?")
    print("%-16s %5s %8s %10s %10s %10s %10s%s" % ("to", "port", "events", "mean us", "p50", "p99", "max",
                                                   "  us per MB" if args.bytes_per_event else ""))
    for r in rows:
        print("%-16s %5u %8u %10.1f %10.1f %10.1f %10.1f%s" %
              (r["to"], r["port"], r["events"], r["mean_us"], r["p50_us"], r["p99_us"], r["max_us"],
               " %10.1f" % r["us_per_mb"] if args.bytes_per_event else ""))


if __name__ == "__main__":
    sentence.run(main)
