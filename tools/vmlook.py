"""What a program needs to look into a VM through Takt's shell: its registers, its memory, and the
page tables in it. `run` is Takt.run() of taktctl."""
import base64
import struct

PAGE = 4096
PIECE = 1 << 20         # bytes of memory that one command is asked for
HIGH_RAM = 0x100000000  # where a VM's RAM goes on if it is more than fits below 4 GiB
SLOW = 900              # seconds that a piece may take: a line of 115,200 baud needs 120

# SDM 3A 4.5: entries of page tables
PRESENT, LARGE = 1, 1 << 7
ADDRESS = 0x000FFFFFFFFFF000
ENTRIES = 512
# SDM 3A 2.2.1, 2.5
CR0_PG, EFER_LMA = 1 << 31, 1 << 10


def registers(run, vm, vcpu):
    """Returns {name: value} of a vCPU. The VM is paused or has crashed."""
    return {r["name"]: int(r["value"], 16) for r in run("vcpu-regs", vm, str(vcpu))}


def vcpus_of(run, vm):
    return [row["vcpu"] for row in run("vcpu-list", vm)]


def state_of(run, vm):
    return run("list", vm)[0]["state"]


def read(run, vm, address, length, vcpu=None):
    """Returns memory of a VM that is paused or has crashed, as bytes: fewer than `length` if RAM
    ends there. The address is guest-physical, or one of this vCPU's program."""
    virtual = [] if vcpu is None else ["-v", str(vcpu)]
    rows = run("mem-read", *virtual, vm, hex(address), str(length), timeout=SLOW)
    found = bytearray()
    for row in rows:
        if row["address"] != address + len(found):
            raise ValueError(f"memory at {row['address']:#x} came out of order")
        found += base64.b64decode(row["data"]) * row["times"]
    return bytes(found)


def write(run, vm, address, data, vcpu=None):
    """Changes memory. The same holds as for read(), but nothing may be missing."""
    virtual = [] if vcpu is None else ["-v", str(vcpu)]
    for i in range(0, len(data), 64):
        run("mem-write", *virtual, vm, hex(address + i), data[i:i + 64].hex())


def ram(run, vm, told=lambda done, size: None):
    """Returns all RAM of the VM as [(guest-physical address, bytes)]. `told` is called after each
    piece with the number of bytes that have come, and with that of all."""
    size = run("list", vm)[0]["memory_mib"] << 20
    parts, done = [], 0
    while done < size:
        # RAM begins at 0, and what does not fit below 4 GiB goes on there.
        start = 0 if not parts else HIGH_RAM
        part = bytearray()
        while done < size:
            piece = read(run, vm, start + len(part), min(PIECE, size - done))
            part += piece
            done += len(piece)
            told(done, size)
            if len(piece) < PIECE:
                break
        if not part:
            raise ValueError(f"there is less RAM than {size} bytes: {done}")
        parts.append((start, bytes(part)))
    return parts


def at(parts, address, length):
    """Returns bytes of the RAM that ram() has returned, or None if they are not there."""
    for start, data in parts:
        if start <= address and address + length <= start + len(data):
            return data[address - start:address - start + length]
    return None


def mappings(parts, regs):
    """Yields (virtual address, guest-physical address, bytes) for each page that a vCPU with these
    registers sees, in the order of addresses, by its page tables of four levels. Without such
    tables each address is its own."""
    if not (regs["cr0"] & CR0_PG and regs["efer"] & EFER_LMA):
        for start, data in parts:
            yield start, start, len(data)
        return

    def walk(table, level, base):
        page = at(parts, table, PAGE)
        if page is None:
            return
        for n, entry in enumerate(struct.unpack(f"<{ENTRIES}Q", page)):
            if not entry & PRESENT:
                continue
            span = PAGE * ENTRIES ** level
            virtual = base + n * span
            if level == 3 and n >= ENTRIES // 2:
                virtual -= 1 << 48  # canonical
            if level and not entry & LARGE:
                yield from walk(entry & ADDRESS, level - 1, virtual)
            else:
                yield virtual % (1 << 64), entry & ADDRESS & ~(span - 1), span

    yield from walk(regs["cr3"] & ADDRESS, 3, 0)
