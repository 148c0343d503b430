"""taktctl gdb: lets gdb debug a VM. It speaks gdb's remote protocol on a TCP port of this host, and
turns it into commands of Takt's shell (hv/shell/debug.c). Each vCPU is a thread: vCPU 0 is thread
1. The protocol is appendix E of gdb's manual.

A breakpoint is the byte f1 (ICEBP) in the guest's code. gdb never sees it: where it reads memory,
it gets what was there before.
"""
import contextlib
import select
import socket

import vmlook

ICEBP = b"\xf1"
CTRL_C = b"\x03"
MOST = 4096              # bytes of a packet, both ways
POLL = 0.1               # seconds between two looks at a VM that runs
SIGINT, SIGTRAP, SIGSEGV = 2, 5, 11
DR6_BS = 1 << 14
DR7_KIND, DR7_FIXED = 16, 0x400  # SDM 3B 18.2.4
HARDWARE = 4             # debug registers for addresses
WATCH = {"1": 0, "2": 1, "4": 3}  # packet Z: execute, write, access; as DR7.R/W wants them
WATCH_SIZE = {1: 0, 2: 1, 8: 2, 4: 3}  # as DR7.LEN wants them

GENERAL = "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip".split()
# (name for gdb, name in Takt or None, bits). The state of the FPU is not shown.
CORE = [(n, n, 64) for n in GENERAL] + [("eflags", "rflags", 32)] + \
    [(n, n, 32) for n in ("cs", "ss", "ds", "es", "fs", "gs")] + \
    [(f"st{n}", None, 80) for n in range(8)] + \
    [(n, None, 32) for n in "fctrl fstat ftag fiseg fioff foseg fooff fop".split()]
BASES = [("fs_base", "fs_base", 64), ("gs_base", "gs_base", 64)]
SYSTEM = [(n, n, 64) for n in "k_gs_base cr0 cr2 cr3 cr4 efer".split()]
REGISTERS = CORE + BASES + SYSTEM


def description():
    """The registers, as gdb's XML wants them (appendix G of its manual)."""
    kinds = {"rip": "code_ptr", "rsp": "data_ptr", "rbp": "data_ptr", "eflags": "int32"}

    def feature(name, registers):
        rows = "".join(
            f'<reg name="{n}" bitsize="{bits}" type="'
            f'{kinds.get(n, "i387_ext" if bits == 80 else f"int{bits}")}"/>'
            for n, _, bits in registers)
        return f'<feature name="{name}">{rows}</feature>'

    return ('<?xml version="1.0"?><!DOCTYPE target SYSTEM "gdb-target.dtd"><target>'
            "<architecture>i386:x86-64</architecture>"
            + feature("org.gnu.gdb.i386.core", CORE) + feature("org.gnu.gdb.i386.segments", BASES)
            + feature("takt.system", SYSTEM) + "</target>")


class Gone(Exception):
    """gdb has ended the connection, or wants no more of this VM."""


class Link:
    """Packets on a connection: $data#sum, each of which is answered with + until gdb switches that
    off."""

    def __init__(self, connection):
        self.connection, self.data, self.acknowledges = connection, b"", True

    def fileno(self):
        return self.connection.fileno()

    def more(self):
        data = self.connection.recv(65536)
        if not data:
            raise Gone
        self.data += data

    def interrupted(self, seconds):
        """Waits so long for Ctrl-C of gdb. Returns whether it came."""
        if not self.data and select.select([self], [], [], seconds)[0]:
            self.more()
        if CTRL_C not in self.data:
            return False
        self.data = self.data[self.data.index(CTRL_C) + 1:]
        return True

    def receive(self):
        """Returns gdb's next packet, without its frame, and acknowledges it."""
        while True:
            start = self.data.find(b"$")
            end = self.data.find(b"#", start)
            if start >= 0 and 0 <= end <= len(self.data) - 3:
                break
            self.more()
        packet, self.data = self.data[start + 1:end], self.data[end + 3:]
        if self.acknowledges:
            self.connection.sendall(b"+")
        return packet.decode("latin-1")

    def send(self, text):
        data = text.encode("latin-1")
        self.connection.sendall(b"$" + data + b"#%02x" % (sum(data) % 256))


class Stub:
    def __init__(self, run, vm, refused):
        """`refused` is the exception by which `run` says that the shell refused a command."""
        self.run, self.vm, self.refused = run, vm, refused
        self.vcpu = 0            # the one that gdb asks about
        self.cache = {}          # {vCPU: its registers}, while the VM rests
        self.breakpoints = {}    # {address: the byte that was there}
        self.hardware = {}       # {number of the debug register: (address, type, size)}
        self.link = None

    # ---- the VM ----

    def begin(self):
        if vmlook.state_of(self.run, self.vm) == "running":
            self.run("pause", self.vm)
        self.run("debug", self.vm, "on")

    def end(self):
        """Leaves the VM as if nobody had debugged it, and lets it run."""
        for address in list(self.breakpoints):
            with contextlib.suppress(self.refused):
                self.remove(address)
        with contextlib.suppress(self.refused):
            if self.hardware:
                self.hardware = {}
                self.set_hardware()
            self.run("debug", self.vm, "off")
            if vmlook.state_of(self.run, self.vm) == "paused":
                self.run("unpause", self.vm)

    def regs(self, vcpu):
        if vcpu not in self.cache:
            self.cache[vcpu] = vmlook.registers(self.run, self.vm, vcpu)
        return self.cache[vcpu]

    def set_reg(self, vcpu, name, value):
        self.run("vcpu-regs", self.vm, str(vcpu), f"{name}={value:#x}")
        self.cache.pop(vcpu, None)

    def read(self, address, length):
        data = bytearray(vmlook.read(self.run, self.vm, address, length, self.vcpu))
        for at, byte in self.breakpoints.items():
            if 0 <= at - address < len(data):
                data[at - address] = byte
        return bytes(data)

    def write(self, address, data):
        """Where a breakpoint is, the new byte waits until that is removed."""
        data = bytearray(data)
        for at in self.breakpoints:
            if 0 <= at - address < len(data):
                self.breakpoints[at] = data[at - address]
                data[at - address] = ICEBP[0]
        vmlook.write(self.run, self.vm, address, bytes(data), self.vcpu)

    def insert(self, address):
        if address not in self.breakpoints:
            old = vmlook.read(self.run, self.vm, address, 1, self.vcpu)
            vmlook.write(self.run, self.vm, address, ICEBP, self.vcpu)
            self.breakpoints[address] = old[0]

    def remove(self, address):
        if address in self.breakpoints:
            vmlook.write(self.run, self.vm, address, bytes([self.breakpoints[address]]), self.vcpu)
            del self.breakpoints[address]

    def set_hardware(self):
        """Writes the debug registers of all vCPUs."""
        dr7 = DR7_FIXED
        words = []
        for n, (address, kind, size) in self.hardware.items():
            dr7 |= 1 << 2 * n | (WATCH_SIZE[size] << 2 | kind) << DR7_KIND + 4 * n
            words.append(f"dr{n}={address:#x}")
        for vcpu in vmlook.vcpus_of(self.run, self.vm):
            self.run("vcpu-regs", self.vm, str(vcpu), *words, f"dr7={dr7:#x}")
        self.cache = {}

    # ---- running ----

    def resume(self, step):
        """Lets the VM run, or only one vCPU for one instruction, until it stops. Returns what gdb
        wants to hear of that."""
        self.cache = {}
        if step is not None:
            self.run("step", self.vm, str(step), timeout=60)
        else:
            # A vCPU that is at a hardware breakpoint would stop there again: RF lets it pass.
            for vcpu in vmlook.vcpus_of(self.run, self.vm) if self.hardware else []:
                self.set_reg(vcpu, "rflags", self.regs(vcpu)["rflags"] | 1 << 16)
            self.cache = {}
            self.run("debug", self.vm, "on")
            self.run("unpause", self.vm)
        asked = False
        while True:
            try:
                said = self.run("debug", self.vm)
            except self.refused:
                return "W00"  # The VM has ended.
            if said["state"] == "crashed":
                return f"T{SIGSEGV:02x}thread:{self.vcpu + 1:x};"
            if said["state"] == "paused":
                return self.stopped(said, asked)
            if self.link.interrupted(POLL):
                self.run("pause", self.vm)
                asked = True

    def stopped(self, said, asked):
        """Returns the reply that tells gdb why the VM stands still, and at which vCPU it looks."""
        if said["vcpu"] < 0:
            return f"T{SIGINT if asked else SIGTRAP:02x}thread:{self.vcpu + 1:x};"
        self.vcpu = said["vcpu"]
        why = ""
        hit = [n for n in self.hardware if said["dr6"] >> n & 1]
        if hit:
            address, kind, _ = self.hardware[hit[0]]
            why = {0: "hwbreak:;", 1: f"watch:{address:x};", 3: f"awatch:{address:x};"}[kind]
        elif not said["dr6"] & DR6_BS:
            why = "swbreak:;"
        return f"T{SIGTRAP:02x}{why}thread:{self.vcpu + 1:x};"

    # ---- packets ----

    def registers_text(self, regs):
        """Returns all registers in the order of the description, as hexadecimal text."""
        text = ""
        for _, name, bits in REGISTERS:
            if name is None:
                text += "x" * (bits // 4)  # gdb shows it as unavailable
            else:
                text += (regs[name] % (1 << bits)).to_bytes(bits // 8, "little").hex()
        return text

    def one_register(self, number):
        _, name, bits = REGISTERS[number]
        if name is None:
            return "x" * (bits // 4)
        return (self.regs(self.vcpu)[name] % (1 << bits)).to_bytes(bits // 8, "little").hex()

    def query(self, packet):
        """Answers gdb's questions about this stub and about the vCPUs; an unknown one gets ""."""
        if packet.startswith("qSupported"):
            return (f"PacketSize={MOST:x};qXfer:features:read+;swbreak+;hwbreak+;"
                    "QStartNoAckMode+;vContSupported+")
        if packet == "QStartNoAckMode":
            return "OK"
        if packet.startswith("qXfer:features:read:target.xml:"):
            offset, length = (int(n, 16) for n in packet.rsplit(":", 1)[1].split(","))
            text = description()
            return ("l" if offset + length >= len(text) else "m") + text[offset:offset + length]
        if packet == "qfThreadInfo":
            ids = ",".join(f"{n + 1:x}" for n in vmlook.vcpus_of(self.run, self.vm))
            return "m" + ids
        if packet.startswith("qThreadExtraInfo,"):
            return f"vCPU {int(packet.split(',')[1], 16) - 1} of {self.vm}".encode().hex()
        if packet.startswith("qRcmd,"):  # gdb's command `monitor`
            return self.monitor(bytes.fromhex(packet.partition(",")[2]).decode())
        return {"qsThreadInfo": "l", "qAttached": "1", "qC": f"QC{self.vcpu + 1:x}",
                "vMustReplyEmpty": "", "vCont?": "vCont;c;C;s;S"}.get(packet, "")

    def monitor(self, command):
        """Runs a command of the shell for gdb's `monitor`, and returns its output."""
        verb, *words = command.split()
        try:
            said = f"{self.run(verb, *words) if words else self.run(verb)}\n"
        except self.refused as why:
            said = f"{verb}: {why}\n"
        self.cache = {}
        return said.encode().hex()

    def memory(self, packet):
        """Reads (m) or writes (M) the VM's memory, and returns what was read, or OK."""
        verb, rest = packet[0], packet[1:]
        where, _, data = rest.partition(":")
        address, length = (int(n, 16) for n in where.split(","))
        if verb == "m":
            return self.read(address, min(length, MOST // 2 - 8)).hex()
        self.write(address, bytes.fromhex(data)[:length])
        return "OK"

    def breakpoint(self, packet):
        """Inserts (Z) or removes (z) a breakpoint or a watchpoint. Returns OK, or E22 if no
        debug register can do it."""
        kind, address, size = packet[1:].split(",")[:3]
        address, size = int(address, 16), int(size.partition(";")[0], 16)
        if kind == "0":
            (self.insert if packet[0] == "Z" else self.remove)(address)
            return "OK"
        if kind not in WATCH:
            return ""
        wanted = (address, WATCH[kind], 1 if kind == "1" else size)
        numbers = [n for n, what in self.hardware.items() if what == wanted]
        if packet[0] == "z":
            for n in numbers:
                del self.hardware[n]
        elif not numbers:
            free = [n for n in range(HARDWARE) if n not in self.hardware]
            if not free or wanted[2] not in WATCH_SIZE or address % wanted[2]:
                return "E22"
            self.hardware[free[0]] = wanted
        self.set_hardware()
        return "OK"

    def actions(self, packet):
        """vCont: the first action that fits counts. A step of one vCPU holds all others."""
        for action in packet.split(";")[1:]:
            verb, _, thread = action.partition(":")
            if verb[0] in "sS":
                return self.resume(int(thread, 16) - 1 if thread else self.vcpu)
        return self.resume(None)

    def answer(self, packet):
        verb = packet[:1]
        if verb in ("q", "Q") or packet in ("vMustReplyEmpty", "vCont?"):
            return self.query(packet)
        if packet.startswith("vCont;"):
            return self.actions(packet)
        if verb == "?":
            return f"T{SIGTRAP:02x}thread:{self.vcpu + 1:x};"
        if verb == "H":
            if packet[1] == "g" and int(packet[2:], 16) > 0:
                self.vcpu = int(packet[2:], 16) - 1
            return "OK"
        if verb == "T":
            there = int(packet[1:], 16) - 1 in vmlook.vcpus_of(self.run, self.vm)
            return "OK" if there else "E01"
        if verb == "g":
            return self.registers_text(self.regs(self.vcpu))
        if verb == "p":
            return self.one_register(int(packet[1:], 16))
        if verb == "P":
            number, _, value = packet[1:].partition("=")
            name = REGISTERS[int(number, 16)][1]
            self.set_reg(self.vcpu, name, int.from_bytes(bytes.fromhex(value), "little"))
            return "OK"
        if verb in "mM":
            return self.memory(packet)
        if verb in "zZ":
            return self.breakpoint(packet)
        if verb == "c":
            return self.resume(None)
        if verb == "s":
            return self.resume(self.vcpu)
        return ""

    def serve(self, connection):
        """Answers gdb until it detaches or goes."""
        self.link = Link(connection)
        self.begin()
        try:
            while True:
                packet = self.link.receive()
                if packet.startswith("D") or packet == "k":
                    if packet != "k":
                        self.link.send("OK")
                    return
                try:
                    said = self.answer(packet)
                except (self.refused, IndexError, TypeError, ValueError):
                    said = "E01"
                self.link.send(said)
                if packet == "QStartNoAckMode":
                    self.link.acknowledges = False
                if said == "W00":
                    return
        except (Gone, ConnectionError):
            pass
        finally:
            self.end()


def serve(run, vm, port, refused, told=print):
    """Waits for one gdb on this port of 127.0.0.1 (0: any that is free), and serves it."""
    vmlook.state_of(run, vm)  # fails at once if there is no such VM
    with socket.create_server(("127.0.0.1", port)) as server:
        port = server.getsockname()[1]
        told(f"gdb {vm}: in gdb say: target remote 127.0.0.1:{port}")
        connection = server.accept()[0]
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            Stub(run, vm, refused).serve(connection)
