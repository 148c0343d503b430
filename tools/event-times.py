#!/usr/bin/env python3
"""Prints how long events waited from notification to handling, for each VM and port.

  tools/event-times.py [--log FILE [--driver-domain VM]] [--bytes-per-event N] [-j] STREAM

STREAM is a recording of the trace stream with class `event` (docs/trace.md). Two VMs that send
events to each other have two lines, one for each direction. An event is taken when its vector
reaches the vCPU, or when a poll for it ends. If a guest was awake and took an event without either,
the event did not have to wait, and it is not in a trace.

With --log FILE, the console log of the same machine, it also prints how long the events that carry
a megabyte wait in each direction, as figure 2 of "Coexisting scheduling policies" does. The driver
domain has to report what its devices did (`report_s`, or the end of the device). The last report of
each device counts, so the trace has to begin before the traffic and to end after it. Events before
--since do not count, so that what VMs wait for while they start is no part of it.

  to the driver domain    the time from a VM's notification to its handling. The driver domain has
                          one port for all its devices, so the events that it took are divided by
                          the bytes that all VMs have sent
  from the driver domain  the time from its interrupt to the handling by the VM: the events that the
                          VM took at any port, divided by the bytes that it has sent and received. A
                          VM that sends a stream receives acknowledgements, and waits for these too

With --bytes-per-event N, for traffic without a driver domain, each N bytes count as one event.
"""
import argparse
import json
import re

import sentence
import tracestream as ts

MB = 1 << 20
CREATED = re.compile(r"^.*\] (?P<vm>[\w.-]+): id (?P<id>\d+), \d+ vCPU", re.M)
REPORT = re.compile(r"^.*?(?P<by>[\w.-]+): iodom: (?P<vm>[\w.-]+)\.\d+:(?P<counters>( \w+=\d+)+)",
                    re.M)


def percentile(values, permille):
    return values[min(len(values) - 1, len(values) * permille // 1000)]


def taken(trace, since_ms=0):
    """Returns {(vCPU, port): [us from notification to handling]} of the events that were taken
    `since_ms` after the boot or later."""
    found = {}
    for r in trace.records:
        if r.event == ts.EVTCHN_TAKE and r.ns >= since_ms * 1_000_000:
            found.setdefault((r.who, r.arg[0]), []).append(r.arg[1] / 1000)
    return found


def measure(trace, bytes_per_event=0, since_ms=0):
    """Returns one dictionary for each receiving (vCPU, port), in order. Times are in us."""
    rows = []
    for (who, port), times in sorted(taken(trace, since_ms).items()):
        times.sort()
        row = {"to": trace.name(who), "port": port, "events": len(times),
               "mean_us": round(sum(times) / len(times), 3),
               "p50_us": percentile(times, 500), "p99_us": percentile(times, 990),
               "max_us": times[-1]}
        if bytes_per_event:
            row["us_per_mb"] = round(sum(times) * MB / (len(times) * bytes_per_event), 3)
        rows.append(row)
    return rows


def moved(log, driver_domain):
    """Returns {VM: (bytes sent, bytes received)}, by the last report of each network device."""
    found = {}
    for m in REPORT.finditer(log):
        if m["by"] == driver_domain:
            counters = dict(re.findall(r"(\w+)=(\d+)", m["counters"]))
            found[m["vm"]] = tuple(int(counters.get(key, 0)) for key in ("in_bytes", "out_bytes"))
    return found


def directions(trace, log, driver_domain="iodom", since_ms=0):
    """Returns one dictionary for the events to the driver domain, and one for the events from it to
    each VM. Events before `since_ms` do not count."""
    def row(direction, to, times, size):
        return {"direction": direction, "to": to, "events": len(times),
                "waited_us": round(sum(times), 3),
                "mb": round(size / MB, 3),
                "us_per_mb": round(sum(times) * MB / size, 3) if size else None}

    # A VM that had gone before the trace was sent has no name in the trace.
    names = {int(m["id"]): m["vm"] for m in CREATED.finditer(log)}
    names.update((number, name) for number, (name, _) in trace.vms.items())
    times = {}
    for (who, _), waits in taken(trace, since_ms).items():
        times.setdefault(names.get(ts.vm_of(who)), []).extend(waits)
    sizes = moved(log, driver_domain)
    if not sizes:
        raise sentence.Problem(f"the log has no report of what devices of {driver_domain} did: "
                               "it needs report_s=1 on its command line")
    rows = [row("to", driver_domain, times.get(driver_domain, []),
                sum(sent for sent, _ in sizes.values()))]
    return rows + [
        row("from", vm, times.get(vm, []), sum(both))
        for vm, both in sorted(sizes.items())
        if sum(both)
    ]


def show(rows, by_size):
    print("%-16s %5s %8s %10s %10s %10s %10s%s" % ("to", "port", "events", "mean us", "p50", "p99",
                                                   "max",
                                                   "  us per MB" if by_size else ""))
    for r in rows:
        print("%-16s %5u %8u %10.1f %10.1f %10.1f %10.1f%s" %
              (r["to"], r["port"], r["events"], r["mean_us"], r["p50_us"], r["p99_us"], r["max_us"],
               " %10.1f" % r["us_per_mb"] if by_size else ""))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("stream")
    p.add_argument("--log", metavar="FILE",
                   help="the machine's console: event time per MB in both directions")
    p.add_argument("--driver-domain", default="iodom", metavar="VM",
                   help="the VM whose reports are in it (iodom)")
    p.add_argument("--since", type=int, default=0, metavar="MS",
                   help="leave out events that were taken earlier than this after the boot")
    p.add_argument("--bytes-per-event", type=int, default=0, metavar="N",
                   help="payload that each event announces")
    p.add_argument("-j", action="store_true", help="JSON")
    args = p.parse_args()
    trace = ts.load(args.stream)
    rows = measure(trace, args.bytes_per_event, args.since)
    both = None
    if args.log:
        with open(args.log, encoding="utf-8", errors="replace") as f:
            both = directions(trace, f.read(), args.driver_domain, args.since)
    if args.j:
        print(json.dumps({"ports": rows, "directions": both} if args.log else rows, indent=1))
        return
    if not rows:
        raise sentence.Problem(
            "no event was handled in it; was it recorded with `trace start event`?"
        )
    show(rows, args.bytes_per_event)
    if both:
        print("\n%-18s %-10s %8s %12s %10s %12s" % ("direction", "taken by", "events", "waited ms",
                                                    "MB", "ms per MB"))
    for r in both or ():
        print("%-18s %-10s %8u %12.1f %10.2f %12s" %
              (r["direction"] + " driver domain", r["to"], r["events"], r["waited_us"] / 1000,
               r["mb"],
               "-" if r["us_per_mb"] is None else f"{r['us_per_mb'] / 1000:.2f}"))


if __name__ == "__main__":
    sentence.run(main)
