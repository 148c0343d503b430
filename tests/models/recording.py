"""Runs a VM file in build/sim, reads its recording (-r), and makes of it what a model needs.

The models are about the scheduler, and not about what guests do. So a model's guests follow a
script, which is taken from the simulation: when each vCPU woke up, and for how long it then
computed. The model has to find out by itself when each one ran, on which pCPU, for how long at a
stretch, and with how much credit. Otherwise it would only repeat what it is compared with.
"""
import collections
import json
import os
import subprocess

import tracestream

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

SIM = os.path.join(ROOT, "build", "sim")
INPUT, DECISION = 0x0401, 0x0402
WAKE, BLOCK, YIELD, RUN = 16, 17, 18, 19    # of enum sched_input in hv/sched/core.h
PICK = 1                                    # of enum sched_decision

Pick = collections.namedtuple("Pick", "ns cpu who slice")


class Recording:
    """What build/sim did with a VM file: records in order, and extracts of them."""

    def __init__(self, raw, switch_ns):
        self.records = [tracestream.Record(*f) for f in tracestream.Record.FORMAT.iter_unpack(raw)]
        self.printed = None                         # what build/sim -j said
        self.picks = []                             # Pick; who is None for idle
        self.first_wake = {}                        # who -> ns
        # who -> the pCPU that it was given for its first wake
        self.first_cpu = {}
        self.steps = collections.defaultdict(list)  # who -> steps of machine.Script
        self._read(switch_ns)

    def _read(self, switch_ns):
        """Reads all records in order, and collects `picks`, `first_wake`, `first_cpu` and `steps`.
        A step ends when its vCPU blocks or yields. Its computing is the time from each pick of the
        vCPU, without the switch, to the next time that the pCPU decides or the step ends."""
        current, since = {}, {}     # of each pCPU; since when that computes
        done = collections.Counter()  # ns computed since it woke, of each vCPU
        stretches = collections.Counter()
        asleep = {}                 # who -> index of the step that waits for a wake
        for r in self.records:
            kind = r.arg[0] & 0xFF
            if r.event == DECISION and kind == PICK:
                who = None if r.who == tracestream.NOBODY else r.who
                if who is not None and current.get(r.cpu) == who:
                    since[r.cpu] = r.ns
                else:
                    since[r.cpu] = r.ns + switch_ns
                current[r.cpu] = who
                stretches[who] += 1
                self.picks.append(Pick(r.ns, r.cpu, who, r.wide(2)))
            elif r.event == tracestream.WAKE:
                self.first_cpu.setdefault(r.who, r.arg[0])
            elif r.event != INPUT:
                continue
            elif kind == RUN and current.get(r.cpu) is not None:
                done[current[r.cpu]] += max(r.ns - since[r.cpu], 0)
            elif kind == WAKE:
                if r.who in asleep:
                    step = asleep.pop(r.who)
                    self.steps[r.who][step] = self.steps[r.who][step][:3] + (r.ns,)
                elif r.who not in self.first_wake:
                    self.first_wake[r.who] = r.ns
            elif kind in (BLOCK, YIELD):
                computed = done.pop(r.who, 0) + max(r.ns - since[r.cpu], 0)
                since[r.cpu] = r.ns
                if kind == BLOCK:
                    asleep[r.who] = len(self.steps[r.who])
                what = "sleep" if kind == BLOCK else "yield"
                self.steps[r.who].append((computed, stretches.pop(r.who, 0), what, None))

    def of(self, event):
        """Returns the records of this event."""
        return [r for r in self.records if r.event == event]


def options(cpus, end_ns, switch_ns, kick_ns):
    """Returns these options as words on the command line of build/sim, without a warm-up."""
    return ["-p", str(cpus), "-w", "0ns", "-t", f"{end_ns}ns", "-s", f"{switch_ns}ns", "-k",
            f"{kick_ns}ns"]


def run(path, *args):
    """Returns the Recording of the VM file `path` from its very begin, with options(*args)."""
    out = path + ".rec"
    done = subprocess.run([SIM, *options(*args), "-j", "-r", out, path], capture_output=True,
                          text=True, check=False)
    if done.returncode:
        raise AssertionError(f"build/sim does not take {path}: {done.stderr}")
    with open(out, "rb") as f:
        recording = Recording(f.read(), args[2])
    os.unlink(out)
    recording.printed = json.loads(done.stdout)
    return recording
