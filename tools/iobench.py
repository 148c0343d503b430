"""Measures what a frame or a disk request costs on its way, stage by stage, in instructions. This
is the part of make bench that does I/O.

Three VMs run on one pCPU under QEMU with -icount: the driver domain, and two guests of
guests/iobench.c. These are linked with code that takes time stamps at the borders of their layers
(guests/stamped/). All stamps come from one clock, and only one VM runs at a time, so every
instruction between the first stamp of a round and its last belongs to exactly one stage. Of all
rounds of a kind, the one with the median sum is shown.
"""
import re
import statistics

CONFIG = """\
[hypervisor]
guest_console = log
top = no
virtual_irqs = yes
script = bench.script

[vm iodom]
image = stamped-iodom
memory = 10M

[vm source]
image = iobench
cmdline = ip=10.0.0.2/24
memory = 8M
net = iodom

[vm sink]
image = iobench
cmdline = ip=10.0.0.3/24 to=10.0.0.2 rounds=16
memory = 8M
net = iodom
disk = iodom size=1M
start = no
"""
# iodom prints END when the sink has gone. virtual_irqs is on, because QEMU with -icount delivers an
# interrupt that VMRUN has injected a second time, which may cost the stack a segment.
SCRIPT = "@50ms create sink\n+0ms wait sink 20s\n+60s poweroff\n"
END = r"iodom: STAMPS end|sink has not ended"

# the kinds of rounds, by their letter in guests/iobench.c: (name, how many in a batch)
KINDS = {"a": ("frame", 1), "b": ("frame", 32), "c": ("write", 1), "d": ("write", 32),
         "e": ("read", 1), "f": ("read", 32)}
STAGES = ("to back end", "back end", "bridge copy", "notify", "inject", "driver", "driver copy",
          "IP", "TCP", "socket", "copy", "else")
LABELS = {"frame": "1,500-byte frame, back end's take to the reader",
          "write": "virtio-blk write of 4 KiB, submit to done",
          "read": "virtio-blk read of 4 KiB, submit to done"}


def stamps(text, vm):
    """Returns [(time, letter)] of what a VM has printed, in the hypervisor's time, and what a stamp
    costs."""
    found, count, base, cost, at = [], 0, 0, 0, 0
    for line in re.findall(rf"\] {vm}: STAMPS (.*)", text):
        head = re.match(r"(\d+) pair (\d+) base (-?\d+)", line)
        if head:
            count, cost, base = int(head[1]), int(head[2]) / 2, int(head[3])
            continue
        if line.startswith("end"):
            break
        for token in line.split():
            at += int(token[1:], 16)
            found.append((at + base, token[0]))
    if not found or len(found) != count:
        raise LookupError(f"{vm}: {len(found)} stamps")
    return found, cost


class Round:
    """The state of a round: what has happened since it began, and which stage the instructions
    belonged to."""

    def __init__(self, kind):
        self.disk = kind != "frame"
        self.stages = dict.fromkeys(STAGES, 0.0)
        self.frames = 0
        # A frame's way begins when the back end takes it.
        self.stage = "driver" if self.disk else None
        self.told = self.in_stack = False

    def back_end(self, letter, following):
        """Returns the stage that begins with this stamp of the driver domain."""
        if letter == "T":
            self.frames += 1
        if letter in "Tt>":
            return "back end" if self.stage or letter == "T" else None
        if letter == "<":
            return "bridge copy" if self.stage else None
        if letter == "Q":
            self.told = True
            return "notify"
        return "inject" if self.told else "to back end" if self.disk and not self.frames else "else"

    def front(self, letter, following):
        """Returns the stage that begins with this stamp of the sink."""
        if letter == "w":
            return "inject"
        if letter == "I":
            self.told = False
            return "driver" if following == "N" or self.disk else "socket"
        if letter == "N":
            self.in_stack = True
        if letter == "n":
            self.in_stack = False
        if letter == "<":
            return "driver copy" if self.in_stack else "copy"
        if letter in "Qqi" and self.disk and not self.frames:
            return "to back end"
        if letter in "Rp":
            return "IP"
        if letter in "PY":
            return "TCP"
        return "driver" if self.in_stack or self.disk else "socket"


def one_round(events, kind, cost):
    """Returns the stages of events [(time, whether it is of the back end, letter)], from a capital
    letter to its end."""
    r = Round(kind)
    for (at, back, letter), (until, _, following) in zip(events, events[1:]):
        stage = (r.back_end if back else r.front)(letter, following)
        if r.stage is None and not (back and letter == "T"):
            continue
        r.stage = stage
        if letter != "w":
            until -= cost
        r.stages[stage] += max(until - at, 0)
    return r


def rounds(text):
    """Returns {letter of the kind: [Round]}."""
    sink, cost = stamps(text, "sink")
    back, _ = stamps(text, "iodom")
    all_stamps = sorted(
        [(at, False, letter) for at, letter in sink] + [(at, True, letter) for at, letter in back],
        key=lambda e: e[0],
    )
    found = {letter: [] for letter in KINDS}
    begin = None
    for i, (_, of_back, letter) in enumerate(all_stamps):
        if of_back:
            continue
        if letter.lower() in KINDS and letter.isupper():
            begin = i
        elif letter in KINDS:
            found[letter].append(one_round(all_stamps[begin:i + 1], KINDS[letter][0], cost))
    return found


def stages_of(text, kinds=KINDS):
    """Returns {"frame": {"1": {stage: instructions, "total": n}, "32": ...}, "write": ..., "read":
    ...}, from what a boot has printed."""
    result = {}
    found = rounds(text)
    for letter in kinds:
        name, batch = KINDS[letter]
        good = [r for r in found[letter] if r.frames == batch]
        if not good:
            raise LookupError(f"no round of {batch} {name}s")
        # The median of each stage by itself. In a few rounds an interrupt comes at a place where
        # its instructions count to another stage, and one of these may be the median round.
        each = {stage: round(statistics.median(r.stages[stage] for r in good) / batch)
                for stage in STAGES}
        total = statistics.median(sum(r.stages.values()) for r in good)
        result.setdefault(name, {})[str(batch)] = {**each, "total": round(total / batch)}
    return result


def memory(text):
    """Returns {whose: bytes} that one network device takes, beyond the buffers that the guest asked
    for."""
    free = [int(n) for n in re.findall(r"iodom: BENCH back_free (\d+)", text)]
    return {"driver domain": free[0] - free[1],
            "guest": int(re.search(r"sink: BENCH net_bytes (\d+)", text)[1])}


def show(result):
    print(f"{'instructions each':52}"
          + "".join(f"{s.replace(' ', '-'):>12}" for s in (*STAGES, "total")))
    for name, batches in result.items():
        for batch, each in batches.items():
            label = f"{LABELS[name]}, of {batch}"
            print(f"{label:52}" + "".join(f"{each[s] or '-':>12}" for s in (*STAGES, "total")))
