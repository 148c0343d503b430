"""Reads the trace stream of hv/trace/stream.h (docs/trace.md): used by trace2json, trace2xen and
trace-picture."""
import struct

import sentence

MARKS = b"\xa5\x54"
VERSION = 1
NOBODY = 0xFFFFFFFF
MAX_PAYLOAD = 1024

LOST = 0x0001
RUNSTATE, SWITCH, WAKE, BLOCK, YIELD, BOOST, KICK, MIGRATE, PARK, ACCOUNT = range(0x0101, 0x010B)
MICRO, SHARE, TURBO, LABEL = range(0x010B, 0x010F)
EXIT, ENTRY, INJECT, HYPERCALL = range(0x0201, 0x0205)
EVTCHN_SEND, EVTCHN_TAKE = 0x0301, 0x0302
SCHED_INPUT, SCHED_DECISION = 0x0401, 0x0402

# The names are those of trace_event_name() in hv/trace/trace.c; tests/tools/test_trace.py compares
# them.
NAMES = {LOST: "lost", RUNSTATE: "runstate", SWITCH: "switch", WAKE: "wake", BLOCK: "block",
         YIELD: "yield",
         BOOST: "boost", KICK: "kick", MIGRATE: "migrate", PARK: "park", ACCOUNT: "account",
         MICRO: "micro",
         SHARE: "share", TURBO: "turbo", LABEL: "label", EXIT: "exit", ENTRY: "entry",
         INJECT: "inject", HYPERCALL: "hypercall", EVTCHN_SEND: "event send",
         EVTCHN_TAKE: "event take", SCHED_INPUT: "sched input", SCHED_DECISION: "sched decision"}
STATES = ("running", "runnable", "blocked", "offline")
# This is enum exit_reason of hv/virt/virt.h.
EXITS = ("unknown", "interrupt", "timer", "NMI", "irq window", "NMI window", "CPUID", "hypercall",
         "RDMSR", "WRMSR", "I/O", "HLT",
         "PAUSE", "NPF", "CR", "XSETBV", "exception", "WBINVD", "hidden", "task switch", "RDPMC",
         "shutdown", "INIT", "NPT misconfiguration", "entry failed")


TURBO_PART = 0x8000  # in the id of that part of a VM that is in a turbo pool: its vCPU 0


def vm_of(who):
    """Returns the VM, whichever of its parts is meant."""
    return who >> 16 & ~TURBO_PART


def is_vcpu(who):
    """Returns whether this is a VM's vCPU. NOBODY and the idle vCPU of a pCPU (sched_who() in
    hv/sched/policy.h) are not."""
    return who >> 16 != NOBODY >> 16


class Record:
    """One struct trace_record."""
    __slots__ = ("ns", "event", "cpu", "who", "arg")
    FORMAT = struct.Struct("<QHHI4I")

    def __init__(self, ns, event, cpu, who, *arg):
        self.ns, self.event, self.cpu, self.who, self.arg = ns, event, cpu, who, arg

    def pack(self):
        return self.FORMAT.pack(self.ns, self.event, self.cpu, self.who, *self.arg)

    def wide(self, i):
        """Returns two arguments as the 64-bit number that they are together."""
        return self.arg[i] | self.arg[i + 1] << 32

    def signed(self, i):
        """Returns the same number, with a sign."""
        n = self.wide(i)
        return n - (1 << 64) if n >> 63 else n

    @property
    def vm(self):
        return vm_of(self.who)

    @property
    def vcpu(self):
        return self.who & 0xFFFF

    @property
    def about(self):
        """Returns which vCPU or VM the record is about. Turbo shares and labels belong to a VM,
        which is in the first argument."""
        return self.arg[0] << 16 if self.event in (TURBO, LABEL) else self.who


class Trace:
    """A whole stream: the records in order of time, and what the frames said about the machine."""

    def __init__(self):
        self.records = []
        self.vms = {}       # id -> (name, number of vCPUs)
        self.cpus = 0
        self.lost = 0       # records that the rings lost
        self.gaps = 0       # frames that the line lost
        self.skipped = 0    # bytes that were not part of a frame

    def name(self, who):
        if not is_vcpu(who):
            return "idle"
        vm, vcpu = vm_of(who), who & 0xFFFF
        name, vcpus = self.vms.get(vm, ("vm%d" % vm, 2))
        return name if vcpus == 1 else "%s.%d" % (name, vcpu)


def fletcher16(data):
    a = b = 0
    for byte in data:
        a = (a + byte) % 255
        b = (b + a) % 255
    return b << 8 | a


def frame(kind, seq, payload):
    """Returns the bytes of a frame; for tests."""
    body = struct.pack("<BBH", ord(kind), seq & 0xFF, len(payload)) + payload
    return MARKS + body + struct.pack("<H", fletcher16(body))


def frames(data):
    """Yields (kind, seq, payload, skipped) for each sound frame; `skipped` bytes lay before it."""
    at = done = 0
    while True:
        at = data.find(MARKS, at)
        if at < 0 or at + 8 > len(data):
            return
        kind, seq, size = struct.unpack_from("<BBH", data, at + 2)
        end = at + 8 + size
        if size <= MAX_PAYLOAD and end <= len(data) and \
                struct.unpack_from("<H", data, end - 2)[0] == fletcher16(data[at + 2:end - 2]):
            yield chr(kind), seq, data[at + 6:end - 2], at - done
            at = done = end
        else:
            at += 1


def parse(data):
    """Returns the Trace in these bytes. Raises ValueError if there is none, or if it has another
    version."""
    trace = Trace()
    expected = None
    for kind, seq, payload, skipped in frames(data):
        trace.skipped += skipped
        if expected is not None:
            trace.gaps += (seq - expected) & 0xFF
        expected = (seq + 1) & 0xFF
        if kind == "H":
            magic, version, cpus = struct.unpack_from("<8sII", payload)
            if magic != b"TAKTRACE" or version != VERSION:
                raise ValueError(
                    "version %d of the trace stream; this program reads %d" % (version, VERSION)
                )
            trace.cpus = max(trace.cpus, cpus)
        elif kind == "V":
            vm, vcpus, name = struct.unpack_from("<II32s", payload)
            trace.vms[vm] = (name.rstrip(b"\0").decode("utf-8", "replace"), vcpus)
        elif kind == "R":
            for i in range(0, len(payload) - 31, 32):
                trace.records.append(Record(*Record.FORMAT.unpack_from(payload, i)))
    if expected is None:
        raise ValueError("no frame of a trace stream in it")
    trace.records.sort(key=lambda r: r.ns)
    trace.lost = sum(r.arg[0] for r in trace.records if r.event == LOST)
    trace.cpus = max([trace.cpus] + [r.cpu + 1 for r in trace.records])
    return trace


def load(path):
    """Returns the Trace in a file. Raises sentence.Problem if the file is not one."""
    with open(path, "rb") as f:
        data = f.read()
    try:
        return parse(data)
    except (ValueError, struct.error) as e:
        raise sentence.Problem(f"{path} is not a trace: {e}") from e
