"""gdb itself debugs a VM that this file makes up: registers, memory, breakpoints, steps, threads.
No guest code runs here; tests/system/test_debug.py does the same with real guests."""
import base64
import re
import shutil
import subprocess
import threading

import coredump
import gdbstub
import pytest
import vmlook

pytestmark = pytest.mark.skipif(not shutil.which("gdb"), reason="there is no gdb here")

SOURCE = """
volatile int seen;
__attribute__((noinline)) int inner(int n) { seen = n; return n + 1; }
__attribute__((noinline)) int outer(int n) { return inner(n) * 2; }
int _start(void) { return outer(20); }
"""
BASE, SIZE = 0x100000, 2 << 20
TOP = SIZE - 0x1000
NAMES = [name for _, name, _ in gdbstub.REGISTERS if name] + [
    "dr0", "dr1", "dr2", "dr3", "dr6", "dr7", "gdt_base", "gdt_limit", "idt_base", "idt_limit",
    "tr_base"]


class Refused(Exception):
    pass


class FakeVm:
    """A paused VM with two vCPUs whose shell is run(). It goes on until the next breakpoint byte
    in its memory."""

    def __init__(self, image, symbols):
        self.memory, self.image = bytearray(SIZE), image
        self.memory[BASE:BASE + len(image)] = image
        self.regs = [dict.fromkeys(NAMES, 0) | {"rip": symbols["_start"], "rsp": TOP - 8 * n}
                     for n in range(2)]
        self.state, self.stopped, self.dr6, self.on = "running", -1, 0, False
        self.log = []

    def run(self, verb, *words, timeout=None):
        words = list(words)
        vcpu = words.pop(1) if words[:1] == ["-v"] else None
        if vcpu is not None:
            words.pop(0)
        self.log.append(" ".join([verb, *words]))
        return getattr(self, verb.replace("-", "_"))(*words)

    def list(self, vm):
        return [{"name": vm, "state": self.state, "memory_mib": SIZE >> 20}]

    def vcpu_list(self, vm):
        return [{"vcpu": n} for n in range(2)]

    def pause(self, vm):
        self.state = "paused"

    def vcpu_regs(self, vm, vcpu, *changes):
        regs = self.regs[int(vcpu)]
        for change in changes:
            name, _, value = change.partition("=")
            regs[name] = int(value, 16)
        return [{"name": n, "value": hex(v)} for n, v in regs.items()]

    def mem_read(self, vm, address, length):
        address = int(address, 16)
        if address >= SIZE:
            raise Refused(f"{vm} has no RAM at {address:#x}")
        data = self.memory[address:address + int(length)]
        if len(data) > 8 and data == data[:8] * (len(data) // 8):
            return [{"address": address, "times": len(data) // 8,
                     "data": base64.b64encode(data[:8]).decode()}]
        return [{"address": address, "times": 1, "data": base64.b64encode(data).decode()}]

    def mem_write(self, vm, address, data):
        address, data = int(address, 16), bytes.fromhex(data)
        self.memory[address:address + len(data)] = data

    def debug(self, vm, word=None):
        if word:
            self.on, self.stopped, self.dr6 = word == "on", -1, 0
        return {"on": self.on, "state": self.state, "vcpu": self.stopped, "dr6": self.dr6}

    def step(self, vm, vcpu):
        self.regs[int(vcpu)]["rip"] += 1
        self.state, self.stopped, self.dr6 = "paused", int(vcpu), gdbstub.DR6_BS
        return self.debug(vm)

    def unpause(self, vm):
        """vCPU 1 comes to the first breakpoint behind its RIP."""
        code = self.memory[BASE:BASE + len(self.image)]
        hits = [n for n, (new, old) in enumerate(zip(code, self.image)) if new != old]
        if not hits:
            self.state = "running"
            return
        assert code[hits[0]] == gdbstub.ICEBP[0]
        self.regs[1]["rip"] = BASE + hits[0]
        self.state, self.stopped, self.dr6 = "paused", 1, 0


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Returns the path of a program, its bytes at BASE, and its symbols."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "p.c").write_text(SOURCE)
    elf = folder / "p"
    subprocess.run(["cc", "-g", "-O1", "-nostdlib", "-static", "-no-pie", "-ffreestanding",
                    "-fno-stack-protector", "-fcf-protection=none", "-Wl,--build-id=none",
                    f"-Wl,-Ttext={BASE:#x}", "-o", elf, folder / "p.c"], check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", elf, folder / "p.bin"], check=True)
    rows = subprocess.run(["nm", elf], check=True, capture_output=True, text=True).stdout
    symbols = {row.split()[-1]: int(row.split()[0], 16) for row in rows.splitlines()}
    return str(elf), (folder / "p.bin").read_bytes(), symbols


def gdb(elf, *commands, core=None):
    """Returns what gdb prints on these commands."""
    words = ["gdb", "-nx", "-batch", elf] + ([core] if core else [])
    for command in commands:
        words += ["-ex", command]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def debugged(vm, elf, *commands):
    """The same, while gdb is connected to the VM."""
    told = []
    ready = threading.Event()

    def tell(sentence):
        told.append(sentence.rsplit(":", 1)[1])
        ready.set()

    server = threading.Thread(target=gdbstub.serve, args=(vm.run, "vm", 0, Refused, tell))
    server.start()
    assert ready.wait(10)
    try:
        return gdb(elf, f"target remote 127.0.0.1:{told[0]}", *commands)
    finally:
        server.join(10)
        assert not server.is_alive()


@pytest.fixture
def vm(program):
    return FakeVm(program[1], program[2])


def test_breakpoint(vm, program):
    """The VM stops in the vCPU that has come to the breakpoint, gdb sees the guest's own code
    there, and nothing of it is left when gdb has gone."""
    said = debugged(vm, program[0], "break *inner", "continue", "x/1xb $pc", "info threads",
                    "info breakpoints", "detach")
    assert "Thread 2" in said and re.search(r"hit Breakpoint 1, .*inner", said)
    offset = program[2]["inner"] - BASE
    assert f"0x{program[1][offset]:02x}" in said
    assert bytes(vm.memory[BASE:BASE + len(program[1])]) == program[1]
    assert not vm.on and vm.state == "running"


def test_registers_and_memory(vm, program):
    said = debugged(vm, program[0], "set $rax = 0x1234", "print $rax", "set var *(int *)0x1000 = 7",
                    "print *(int *)0x1000", "print $cr3", "print $st0", "thread 2", "print $rsp",
                    "print *(int *)0x10000000", "detach")
    assert "$1 = 4660" in said and "$2 = 7" in said and "<unavailable>" in said
    assert vm.regs[0]["rax"] == 0x1234 and vm.memory[0x1000] == 7
    assert hex(TOP - 8) in said
    assert "Cannot access memory at address 0x10000000" in said


def test_step(vm, program):
    debugged(vm, program[0], "stepi", "stepi", "detach")
    assert "step vm 0" in vm.log
    assert vm.regs[0]["rip"] == program[2]["_start"] + 2
    assert vm.regs[1]["rip"] == program[2]["_start"]


def test_watchpoint(vm, program):
    """gdb's watchpoints are the debug registers of every vCPU."""
    debugged(vm, program[0], "watch *(long *)0x2000", "stepi", "detach")
    assert any("dr0=0x2000" in line and line.startswith("vcpu-regs vm 1") for line in vm.log)
    assert vm.regs[0]["dr7"] == gdbstub.DR7_FIXED


def test_monitor(vm, program):
    said = debugged(vm, program[0], "monitor list vm", "detach")
    assert "'memory_mib': 2" in said


def test_core(vm, program, tmp_path):
    """gdb reads the core file: names, and a thread for each vCPU."""
    vm.state = "paused"
    regs = vm.regs[1]
    regs["rip"], regs["rsp"] = program[2]["inner"], TOP - 16
    vm.memory[TOP - 16:TOP - 8] = (program[2]["outer"] + 5).to_bytes(8, "little")
    path = str(tmp_path / "core")
    coredump.dump(vm.run, "vm", path)
    said = gdb(program[0], "thread 2", "bt 2", "x/1xw 0x100000", core=path)
    assert "inner" in said and "#1" in said and "outer" in said
    assert f"0x{int.from_bytes(program[1][:4], 'little'):08x}" in said
    assert vm.state == "paused"


def tables(vm):
    """Maps the first 2 MiB at 0xffff800000000000, and its page 0x5000 at 0x400000."""
    def entry(at, value):
        vm.memory[at:at + 8] = value.to_bytes(8, "little")

    entry(0x10000 + 8 * 256, 0x11000 | 1)
    entry(0x11000, 0x12000 | 1)
    entry(0x12000, 0 | vmlook.LARGE | 1)
    entry(0x10000, 0x13000 | 1)
    entry(0x13000, 0x14000 | 1)
    entry(0x14000 + 8 * 2, 0x15000 | 1)
    entry(0x15000, 0x5000 | 1)
    for regs in vm.regs:
        regs.update(cr0=vmlook.CR0_PG, efer=vmlook.EFER_LMA, cr3=0x10000)


def test_core_has_the_guests_addresses(vm, program, tmp_path):
    """Memory is where the guest's page tables have it; with `physical`, where the machine has
    it."""
    tables(vm)
    vm.memory[0x5004] = 0x77
    path = str(tmp_path / "core")
    coredump.dump(vm.run, "vm", path)
    said = gdb(program[0], "x/1xb 0x400004", "x/1xb 0xffff800000005004", "x/1xb 0x5004", core=path)
    assert said.count("0x77") == 2 and "Cannot access memory at address 0x5004" in said
    assert vm.state == "running"
    coredump.dump(vm.run, "vm", path, physical=True)
    said = gdb(program[0], "x/1xb 0x5004", "x/1xb 0x400004", core=path)
    assert said.count("0x77") == 1


def test_pieces(vm):
    """A read that RAM ends is short, and one beside it fails."""
    assert len(vmlook.read(vm.run, "vm", SIZE - 16, 64)) == 16
    assert vmlook.at(vmlook.ram(vm.run, "vm"), SIZE - 8, 8) == bytes(8)


