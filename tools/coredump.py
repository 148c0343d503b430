"""taktctl dump-core: writes a VM as an ELF core file, which gdb reads, and `crash` for Linux.

The file holds all RAM once. Its notes have the registers of each vCPU, as a thread. Its program
headers say at which addresses the memory is: as the guest's programs see it (by the page tables of
its vCPUs), or with `physical` as the machine sees it, which is what `crash` expects.
"""
import struct

import vmlook

ELF_HEADER, PROGRAM_HEADER, NOTE_HEADER = "<16sHHIQQQIHHHHHH", "<IIQQQQQQ", "<III"
ET_CORE, EM_X86_64 = 4, 62
PT_LOAD, PT_NOTE = 1, 4
NT_PRSTATUS = 1
RWX = 7
MOST_HEADERS = 65_000  # e_phnum has 16 bits, and PN_XNUM (65,535) means something else
# struct elf_prstatus of Linux for x86-64: before the registers are the signal and the thread's id,
# and after them a word about the FPU.
PRSTATUS = "<iiihhQQiiii64x27QQ"
USER_REGS = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs rflags rsp "
             "ss fs_base gs_base ds es fs gs").split()
# QEMU's note, which `crash` needs to find where a kernel with KASLR is: struct QEMUCPUState of
# QEMU's target/i386/arch_dump.c.
QEMU_REGS = ("rax rbx rcx rdx rsi rdi rsp rbp r8 r9 r10 r11 r12 r13 r14 r15 rip rflags").split()
QEMU_SEGMENT = "<IIIIQ"
CHUNK = 1 << 20


def note(name, kind, data):
    name = name.encode() + b"\0"
    pad = (lambda b: b + bytes(-len(b) % 4))
    return struct.pack(NOTE_HEADER, len(name), len(data), kind) + pad(name) + pad(data)


def prstatus(vcpu, regs):
    """The note that gdb takes for a thread. Thread ids begin with 1."""
    values = [regs.get(name, 0) for name in USER_REGS]
    return note("CORE", NT_PRSTATUS,
                struct.pack(PRSTATUS, 0, 0, 0, 0, 0, 0, 0, vcpu + 1, 0, 0, 0, *values, 0))


def qemu_state(regs):
    def segment(selector, base=0, limit=0):
        return struct.pack(QEMU_SEGMENT, selector, limit, 0, 0, base)

    body = struct.pack("<18Q", *(regs[name] for name in QEMU_REGS))
    body += b"".join(segment(regs[name], regs.get(name + "_base", 0))
                     for name in ("cs", "ds", "es", "fs", "gs", "ss"))
    body += segment(0) + segment(0, regs["tr_base"])
    body += segment(0, regs["gdt_base"], regs["gdt_limit"])
    body += segment(0, regs["idt_base"], regs["idt_limit"])
    body += struct.pack("<6Q", regs["cr0"], 0, regs["cr2"], regs["cr3"], regs["cr4"],
                        regs["k_gs_base"])
    return note("QEMU", 0, struct.pack("<II", 1, 8 + len(body)) + body)


def merged(pages):
    """Joins pages that follow each other both in virtual and in physical memory."""
    found = []
    for virtual, physical, size in pages:
        if found and found[-1][0] + found[-1][2] == virtual and \
                found[-1][1] + found[-1][2] == physical:
            found[-1][2] += size
        else:
            found.append([virtual, physical, size])
    return found


def loads(parts, threads, physical):
    """Returns [(virtual, physical, place in RAM, bytes)]: what the file says of the memory. A page
    that two vCPUs see at one address is there once."""
    pages = [(start, start, len(data)) for start, data in parts]
    if not physical:
        pages = sorted({page for regs in threads for page in vmlook.mappings(parts, regs)})
    found = []
    for virtual, start, size in merged(pages):
        offset = 0
        for base, data in parts:
            first, last = max(start, base), min(start + size, base + len(data))
            if first < last:
                found.append((virtual + first - start, first, offset + first - base, last - first))
            offset += len(data)
    return found[:MOST_HEADERS]


def write(file, parts, threads, physical=False):
    """Writes the core file. `parts` is what vmlook.ram() returns, `threads` the registers of each
    vCPU. Pages of zeros become holes of the file. Returns how many program headers it has."""
    memory = loads(parts, threads, physical)
    notes = b"".join(prstatus(n, regs) + qemu_state(regs) for n, regs in enumerate(threads))
    head = struct.calcsize(ELF_HEADER)
    each = struct.calcsize(PROGRAM_HEADER)
    notes_at = head + each * (len(memory) + 1)
    ram_at = -(-(notes_at + len(notes)) // vmlook.PAGE) * vmlook.PAGE
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little endian, version 1
    file.write(struct.pack(ELF_HEADER, ident, ET_CORE, EM_X86_64, 1, 0, head, 0, 0, head, each,
                           len(memory) + 1, 0, 0, 0))
    file.write(struct.pack(PROGRAM_HEADER, PT_NOTE, 0, notes_at, 0, 0, len(notes), 0, 4))
    for virtual, start, place, size in memory:
        file.write(struct.pack(PROGRAM_HEADER, PT_LOAD, RWX, ram_at + place, virtual, start, size,
                               size, vmlook.PAGE))
    file.write(notes)
    place = ram_at
    for _, data in parts:
        for i in range(0, len(data), CHUNK):
            piece = data[i:i + CHUNK]
            if piece.count(0) != len(piece):
                file.seek(place + i)
                file.write(piece)
        place += len(data)
    file.truncate(place)
    return len(memory) + 1


def dump(run, vm, path, physical=False, told=lambda done, size: None):
    """Takes a core file of the VM. A VM that runs is paused meanwhile."""
    ran = vmlook.state_of(run, vm) not in ("paused", "crashed")
    if ran:
        run("pause", vm)
    try:
        threads = [vmlook.registers(run, vm, n) for n in vmlook.vcpus_of(run, vm)]
        parts = vmlook.ram(run, vm, told)
    finally:
        if ran:
            run("unpause", vm)
    with open(path, "wb") as file:
        write(file, parts, threads, physical)
