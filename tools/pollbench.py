"""Compares a disk request that an I/O core takes from a ring which it polls with one of which the
driver domain is notified, stage by stage (docs/collab.md, "I/O cores"). This is a part of make
bench.

It runs on Bochs, because guest, driver domain and I/O core need pCPUs of their own: with one pCPU
for all of them polling makes no sense. Bochs counts time in instructions, of which each pCPU
executes one in a tick, and the TSCs of all pCPUs show the same. The guest (guests/iobench.c) and
both driver domains are linked with code that takes time stamps at the borders of their layers
(guests/stamped/). The requests are of 4 KiB, one at a time, to a device that takes no time. Each
tick from submit to done belongs to exactly one stage.
"""
import os
import statistics
import subprocess

import iobench
import machine

CONFIG = """\
[hypervisor]
guest_console = log
top = no
script = bench.script

[pool io]
sched = null
sleepless = on
cpus = 1-2

[pool other]
sched = null
sleepless = on
cpus = 3

[vm poller]
image = stamped-iodom
cmdline = fast=lat=1ns cores=1
memory = 12M
vcpus = 2
pool = io

[vm listener]
image = stamped-iodom
cmdline = fast=lat=1ns
memory = 12M
pool = other

[vm polled]
image = iobench
cmdline = disk rounds=16
memory = 8M
disk = poller on=fast size=1M
start = no

[vm notified]
image = iobench
cmdline = disk rounds=16
memory = 8M
disk = listener on=fast size=1M
start = no
"""
SCRIPT = "@300ms create polled\n+0ms wait polled 20s\n+0ms create notified\n" \
         "+0ms wait notified 20s\n+20s poweroff\n"
END = r"(?s)poller: STAMPS end.*listener: STAMPS end"
CPUS = 4
# {guest: the driver domain that serves its disk}
WAYS = {"polled": "poller", "notified": "listener"}
KINDS = {"c": "write", "e": "read"}
# Each stage begins with a stamp: (stage, whether the back end has left it, its letter). The first
# one begins where the round does. Only what is notified has the two in BY_NOTIFICATION.
STAGES = (("guest submits", None, None), ("notify and exit", False, "Q"), ("wakes", True, "z"),
          ("back end takes", True, "T"), ("device copies", True, "<"), ("completes", True, ">"),
          ("raises interrupt", True, "Q"), ("interrupt arrives", False, "w"),
          ("guest hears", False, "I"))
BY_NOTIFICATION = ("notify and exit", "wakes")
# The most that a request of 4 KiB may take by polling, and the part of a notified one that it may
# take at most.
MOST, PART = 7000, 0.8


def split(events, kind, cost):
    """Returns {stage: ticks} of one round. `events` are [(time, whether it is of the back end,
    letter)], in order, from the round's first stamp to its last one."""
    begin, end = events[0][0], next(at for at, back, letter in events
                                    if not back and letter == kind)
    taken = [at for at, back, letter in events if back and letter == "T"]
    if len(taken) != 1:
        raise LookupError(f"a round has taken {len(taken)} requests")
    borders = [("guest submits", begin)]
    for stage, of_back, wanted in STAGES[1:]:
        found = [at for at, back, letter in events
                 if back == of_back and letter == wanted and borders[-1][1] <= at <= end]
        # The driver domain may have fallen asleep more than once, and the last wake before it takes
        # the request counts; so does the guest's last interrupt.
        if stage == "wakes":
            found = [at for at in found if at <= taken[0]][-1:]
        if wanted in ("I", "w"):
            found = found[-1:]
        if found:
            borders.append((stage, found[0]))
        elif stage not in BY_NOTIFICATION:
            raise LookupError(f"a round without \"{stage}\"")
    ends = [at for _, at in borders[1:]] + [end]
    stages = dict.fromkeys((stage for stage, _, _ in STAGES), 0.0)
    for (stage, at), until in zip(borders, ends):
        stages[stage] = max(until - at - cost, 0)
    return stages


def rounds(text, guest, driver):
    """Returns {"write": [{stage: ticks}], "read": ...} of what two VMs have printed."""
    front, cost = iobench.stamps(text, guest)
    back, _ = iobench.stamps(text, driver)
    events = sorted([(at, False, letter) for at, letter in front]
                    + [(at, True, letter) for at, letter in back], key=lambda e: e[0])
    found = {name: [] for name in KINDS.values()}
    for i, (_, of_back, letter) in enumerate(events):
        if of_back or letter.lower() not in KINDS or not letter.isupper():
            continue
        kind = letter.lower()
        last = next(k for k in range(i, len(events)) if events[k][1:] == (False, kind))
        found[KINDS[kind]].append(split(events[i:last + 1], kind, cost))
    return found


def stages_of(text):
    """Returns {"polled": {"write": {stage: ticks, "total": n}, "read": ...}, "notified": ...}: of
    each stage the median of all rounds."""
    result = {}
    for guest, driver in WAYS.items():
        for kind, each in rounds(text, guest, driver).items():
            if not each:
                raise LookupError(f"no {kind} of {guest}")
            stages = {s: round(statistics.median(r[s] for r in each)) for s, _, _ in STAGES}
            total = round(statistics.median(sum(r.values()) for r in each))
            result.setdefault(guest, {})[kind] = {**stages, "total": total}
    return result


def measure():
    directory = os.path.join(machine.BUILD, "run", "bench-poll")
    os.makedirs(directory, exist_ok=True)
    for name, text in (("bench.cfg", CONFIG), ("bench.script", SCRIPT)):
        with open(os.path.join(directory, name), "w", encoding="ascii") as f:
            f.write(text)
    iso = os.path.join(directory, "bench.iso")
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso,
                    os.path.join(directory, "bench.cfg")], cwd=machine.ROOT, check=True)
    with machine.Machine("bochs", iso, cpus=CPUS, directory=directory) as m:
        how, _ = m.wait(END, 600)
        text = m.serial()
    if how != "matched":
        raise LookupError(f"{how}; see {directory}")
    return stages_of(text)


def over(found):
    """Returns a sentence about each limit that is exceeded."""
    wrong = []
    for kind, polled in found["polled"].items():
        notified = found["notified"][kind]["total"]
        if polled["total"] > MOST:
            wrong.append(f"a polled {kind} takes {polled['total']} (at most {MOST})")
        if polled["total"] > PART * notified:
            wrong.append(f"a polled {kind} takes {polled['total']}, and a notified one {notified}")
    return wrong


def show(found):
    print(f"{'ticks on Bochs, one request of 4 KiB':38}"
          + "".join(f"{s.replace(' ', '-'):>19}" for s in (*(s for s, _, _ in STAGES), "total")))
    for way, kinds in found.items():
        for kind, each in kinds.items():
            print(f"{f'virtio-blk {kind}, {way}':38}"
                  + "".join(f"{each[s] or '-':>19}" for s in each))
