#!/usr/bin/env python3
"""Turns a trace stream into xentrace's record format, for xenalyze and xentrace_format.

  tools/trace2xen.py STREAM > out.xen
  xenalyze --cpu-hz 1G [--svm-mode] --summary out.xen

One unit of a time stamp is a nanosecond, hence 1G. A record of xentrace is a word (event, number of
extra words << 28, 1 << 31 if a time stamp follows), two words of time, and the extra words. Before
the records of each pCPU there is one that names the pCPU and their number of bytes (public/trace.h
of Xen 4.17).
"""
import argparse
import struct
import sys

import sentence
import tracestream as ts

# the second is xenalyze's own, with one vCPU for each pCPU
IDLE_DOMAIN, UNKNOWN_DOMAIN = 32767, 32768
CPU_CHANGE, LOST_RECORDS = 0x0001F003, 0x0001F001
RUNSTATE_CHANGE = 0x00021001
VERBOSE = {ts.WAKE: 0x00028004, ts.YIELD: 0x00028005, ts.BLOCK: 0x00028006}
SWITCH, INFPREV, INFNEXT = 0x0002800A, 0x0002800E, 0x0002800F
STOLEN, TICKLE, BOOST, UNBOOST = 0x00022004, 0x00022006, 0x00022007, 0x00022008
# Numbers for the credit policy's events (class 0x22000) that Xen does not use.
OURS = {ts.MICRO: 0x00022040, ts.SHARE: 0x00022041, ts.TURBO: 0x00022042, ts.LABEL: 0x00022043}
VMENTRY, VMEXIT64, INJ_EXC, INJ_VIRQ, VMMCALL = (
    0x00081001,
    0x00081102,
    0x00082003,
    0x00082004,
    0x00082012,
)
EVENT_IRQ = 1


def pack(event, words, ns=None):
    head = event | len(words) << 28
    if ns is None:
        return struct.pack("<%dI" % (1 + len(words)), head, *words)
    return struct.pack("<IQ%dI" % len(words), head | 1 << 31, ns, *words)


def who(r_who, cpu):
    """Returns (domain, vCPU). A pCPU's idle vCPU is one of domain 32767."""
    return (IDLE_DOMAIN, cpu) if r_who == ts.NOBODY else (ts.vm_of(r_who), r_who & 0xFFFF)


def convert(r):
    """Returns the record's bytes in xentrace's format. They are empty if that format has no event
    for it."""
    dom, vcpu = who(r.who, r.cpu)
    if r.event == ts.LOST:
        # The last two words say which vCPU runs by then.
        return pack(LOST_RECORDS, (r.arg[0], UNKNOWN_DOMAIN | r.cpu << 16, r.arg[2], r.arg[3]),
                    r.ns)
    if r.event == ts.RUNSTATE:
        return pack(RUNSTATE_CHANGE | r.arg[0] << 8 | r.arg[1] << 4, (vcpu | dom << 16,), r.ns)
    if r.event in OURS:
        return pack(OURS[r.event], who(r.about, r.cpu) + r.arg, r.ns)
    if r.event in VERBOSE:
        return pack(VERBOSE[r.event], (dom, vcpu), r.ns)
    if r.event == ts.SWITCH:
        prev = who(r.arg[0], r.cpu)
        return pack(INFPREV, prev + (r.arg[1],), r.ns) + pack(INFNEXT,
                                                              (dom, vcpu, 0,
                                                               min(r.wide(2), 0xFFFFFFFF)),
                                                               r.ns) + \
            pack(SWITCH, prev + (dom, vcpu), r.ns)
    if r.event == ts.BOOST:
        return pack(BOOST if r.arg[0] else UNBOOST, (dom, vcpu), r.ns)
    if r.event == ts.KICK:
        return pack(TICKLE, (r.arg[0],), r.ns)
    if r.event == ts.MIGRATE:
        return pack(STOLEN, (r.arg[0], dom, vcpu), r.ns)
    if r.event == ts.EXIT:
        return pack(VMEXIT64, (r.arg[3], r.arg[1], r.arg[2]), r.ns)
    if r.event == ts.ENTRY:
        return pack(VMENTRY, (), r.ns)
    if r.event == ts.INJECT:
        return pack(INJ_VIRQ if r.arg[1] == EVENT_IRQ else INJ_EXC, (r.arg[0], 0), r.ns)
    if r.event == ts.HYPERCALL:
        return pack(VMMCALL, (r.arg[0],), r.ns)
    return b""


def from_first_departure(records):
    """Leaves out the records before the first departure, because xenalyze wants to see which vCPU
    leaves a pCPU before it sees which one comes."""
    for i, r in enumerate(records):
        if r.event == ts.RUNSTATE and r.arg[0] == 0:
            return records[i:]
    return []


def with_losses(records):
    """Yields the records as xenalyze wants them: a lost record has to be later than the record
    before it, and its last two words have to say when that was."""
    last = 0
    for r in records:
        if r.event == ts.LOST:
            r = ts.Record(max(r.ns, last + 1), r.event, r.cpu, r.who, r.arg[0], 0,
                          last & 0xFFFFFFFF, last >> 32)
        last = max(last, r.ns)
        yield ts.Record(last, r.event, r.cpu, r.who, *r.arg)


def convert_all(trace):
    """Returns (the whole file, the records that have no equivalent in that format)."""
    out, without = b"", 0
    for cpu in range(trace.cpus):
        part = [
            convert(r)
            for r in with_losses(from_first_departure([r for r in trace.records if r.cpu == cpu]))
        ]
        without += sum(not p for p in part)
        body = b"".join(part)
        if body:
            out += pack(CPU_CHANGE, (cpu, len(body))) + body
    return out, without


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stream")
    args = parser.parse_args()
    data, without = convert_all(ts.load(args.stream))
    sys.stdout.buffer.write(data)
    if without:
        print(
            "left out, as xentrace's format has no event for them: "
            f"{sentence.count(without, 'record')}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sentence.run(main)
