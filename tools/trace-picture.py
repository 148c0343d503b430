#!/usr/bin/env python3
"""Draws which vCPU ran on which pCPU during a part of a trace stream.

  tools/trace-picture.py STREAM docs/img/demo.png [--from SECONDS] [--length SECONDS]

Each pCPU has a row, and each vCPU has a colour. Below, each vCPU has a row that shows when it ran
and when it had to wait. Without --from the part is the last one of that length in the trace.
"""
import argparse
import importlib

import sentence
import trace2json
import tracestream as ts

WAITING = "#d9d9d9"
PIXELS = 1000  # the width of the time axis, roughly


def clip(start, end, low, high):
    """Returns the part of [start, end) in [low, high) as matplotlib wants it, in ms from low, or
    None if there is none."""
    start, end = max(start, low), min(end, high)
    return ((start - low) / 1e6, (end - start) / 1e6) if end > start else None


def rows(trace, low, high):
    """Returns {cpu: {who: [spans]}} of runs, and {who: {state: [spans]}}."""
    runs, states = trace2json.intervals(trace)
    by_cpu, by_who = {cpu: {} for cpu in range(trace.cpus)}, {}
    for cpu, who, start, end in runs:
        span = clip(start, end, low, high)
        if span and ts.is_vcpu(who):
            by_cpu[cpu].setdefault(who, []).append(span)
            by_who.setdefault(who, {}).setdefault(0, []).append(span)
    for who, state, start, end in states:
        span = clip(start, end, low, high)
        if span and state == 1:
            by_who.setdefault(who, {}).setdefault(1, []).append(span)
    return {cpu: r for cpu, r in by_cpu.items() if r}, by_who


def visible(spans, high_ms):
    """Returns the spans, each at least a pixel wide. Otherwise a run of microseconds would not be
    seen."""
    return [(start, max(length, high_ms / PIXELS)) for start, length in spans]


def draw(trace, low, high, path):
    matplotlib = sentence.need("matplotlib", "python3-matplotlib")
    matplotlib.use("Agg")  # No display is needed. Set this before pyplot is imported.
    plt, Patch = (
        importlib.import_module("matplotlib.pyplot"),
        importlib.import_module("matplotlib.patches").Patch,
    )
    by_cpu, by_who = rows(trace, low, high)
    ms = (high - low) / 1e6
    whos = sorted(by_who)
    colour = {
        who: matplotlib.colormaps["tab10" if len(whos) <= 10 else "tab20"](i)
        for i, who in enumerate(whos)
    }
    heights = [max(1, len(by_cpu)), max(1, len(whos))]
    fig, (top, below) = plt.subplots(2, 1, sharex=True, figsize=(11, 1.8 + 0.42 * sum(heights)),
                                     gridspec_kw={"height_ratios": heights},
                                     constrained_layout=True)
    for y, cpu in enumerate(sorted(by_cpu)):
        for who, spans in by_cpu[cpu].items():
            top.broken_barh(visible(spans, ms), (y - 0.4, 0.8), color=colour[who], linewidth=0)
    top.set_yticks(range(len(by_cpu)), ["pCPU %d" % cpu for cpu in sorted(by_cpu)])
    for y, who in enumerate(whos):
        below.broken_barh(by_who[who].get(1, []), (y - 0.25, 0.5), color=WAITING, linewidth=0)
        below.broken_barh(visible(by_who[who].get(0, []), ms), (y - 0.4, 0.8), color=colour[who],
                          linewidth=0)
    below.set_yticks(
        range(len(whos)),
        ["%s  %.1f %%" % (trace.name(who), 100 * ran(by_who[who], low, high)) for who in whos],
    )
    below.set_xlabel("ms")
    below.set_xlim(0, ms)
    below.legend(handles=[Patch(color=WAITING, label="ready, waiting for a pCPU")],
                 loc="lower right", fontsize="small")
    for axes in (top, below):
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
    fig.savefig(path, dpi=110)


def ran(states, low, high):
    return sum(length for _, length in states.get(0, [])) * 1e6 / (high - low)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stream")
    parser.add_argument("picture")
    parser.add_argument("--from", dest="start", type=float, help="seconds after the first record")
    parser.add_argument("--length", type=float, default=1.0, help="seconds")
    args = parser.parse_args()
    trace = ts.load(args.stream)
    if not trace.records:
        raise sentence.Problem(
            "%s is a trace without a record: was `trace start` given?" % args.stream
        )
    first, last = trace.records[0].ns, trace.records[-1].ns
    length = int(args.length * 1e9)
    low = max(first, last - length) if args.start is None else first + int(args.start * 1e9)
    draw(trace, low, low + length, args.picture)


if __name__ == "__main__":
    sentence.run(main)
