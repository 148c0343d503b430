"""The MOV decoder is compared with binutils: both disassemble random byte strings."""
import os
import random
import re
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The bytes are followed by NOPs, so that a linear disassembly is in step again at the next slot.
SLOT = 15 + 16
COUNT = 6000
ARCH = {16: "i8086", 32: "i386", 64: "i386:x86-64"}
SIZES = {"BYTE": 1, "WORD": 2, "DWORD": 4, "QWORD": 8}
BARE_PREFIX = re.compile(
    r"^(rex\S*|data16|addr16|addr32|[c-g]s|es|ss|lock|repn?z?|bnd|xacquire|xrelease)$"
)

LOW = [["al", "cl", "dl", "bl", "spl", "bpl", "sil", "dil"],
       ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"]]
REGS = {"ah": (0, 1, "h"), "ch": (1, 1, "h"), "dh": (2, 1, "h"), "bh": (3, 1, "h")}
for i in range(8):
    REGS[LOW[0][i]] = (i, 1, "")
    REGS[LOW[1][i]] = (i, 2, "")
    REGS["e" + LOW[1][i]] = (i, 4, "")
    REGS["r" + LOW[1][i]] = (i, 8, "")
for i in range(8, 16):
    for suffix, size in (("b", 1), ("w", 2), ("d", 4), ("", 8)):
        REGS["r%d%s" % (i, suffix)] = (i, size, "")


def candidates(rng, mode):
    """Yields byte strings that begin with some prefixes and then, mostly, with an opcode that the
    decoder knows."""
    known = [0x88, 0x89, 0x8A, 0x8B, 0xA0, 0xA1, 0xA2, 0xA3, 0xC6, 0xC7, 0x63]
    for _ in range(COUNT):
        out = []
        for prefix in (0x66, 0x67, rng.choice([0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65])):
            if rng.random() < 0.25:
                out.append(prefix)
        if rng.random() < 0.03:
            out.append(rng.choice([0xF0, 0xF2, 0xF3]))
        rng.shuffle(out)
        if mode == 64 and rng.random() < 0.5:
            out.append(0x40 | rng.randrange(16))
        what = rng.random()
        if what < 0.65:
            out.append(rng.choice(known))
        elif what < 0.9:
            out += [0x0F, rng.choice([0xB6, 0xB7, 0xBE, 0xBF])]
        elif what < 0.95:
            out += [0x0F, rng.randrange(256)]
        if rng.random() < 0.3:  # The immediate forms need reg = 0 in ModRM.
            out.append(rng.randrange(256) & 0xC7)
        out += [rng.randrange(256) for _ in range(15)]
        yield bytes(out[:15])


def disassemble(tmp_path, mode, strings):
    """Returns what objdump says about each string: (length, text), or None where it shows a prefix
    by itself."""
    blob = tmp_path / ("code%d.bin" % mode)
    blob.write_bytes(b"".join(s + b"\x90" * 16 for s in strings))
    text = subprocess.run(["objdump", "-D", "-b", "binary", "-m", ARCH[mode], "-M", "intel",
                           "--insn-width=16", str(blob)],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    at = {}
    for line in text.splitlines():
        m = re.match(r"\s*([0-9a-f]+):\t((?:[0-9a-f]{2} )+)\s*\t?(.*)", line)
        if m:
            at[int(m.group(1), 16)] = (len(m.group(2).split()), m.group(3).split("#")[0].strip())
    return [at.get(i * SLOT) for i in range(len(strings))]


def expected(length, text):
    """Returns the line that decode_dump should print for objdump's text, or None if we cannot
    tell."""
    if length > 15 or "(bad)" in text:
        return "unknown"
    words = text.split(None)
    if BARE_PREFIX.match(text):
        return None
    if any(w in ("lock", "repz", "repnz", "rep", "xacquire", "xrelease", "bnd") for w in words):
        return "unknown"
    m = re.search(r"\b(mov|movabs|movzx|movsx|movsxd)\s+(.*)$", text)
    if not m:
        return "unknown"
    op, operands = m.group(1), m.group(2)
    memory = re.search(r"(BYTE|WORD|DWORD|QWORD) PTR", operands)
    bare = re.search(r"\b[c-gs]s:0x[0-9a-f]+|\bes:0x[0-9a-f]+", operands)
    if not memory and not bare:
        return "unknown"  # These forms have registers only.
    if re.search(r"(^|,)[c-gs]s(,|$)|(^|,)es(,|$)|[cdt]r\d|\?", operands):
        return "unknown"  # This is a segment register or a control register.
    left, right = operands.split(",", 1)
    store = "PTR" in left or (bare is not None and ":0x" in left and "PTR" not in right)
    register = right if store else left
    if op == "movsxd" and register in LOW[1] + ["r%dw" % i for i in range(8, 16)]:
        return "unknown"  # Intel reads 16 bits and AMD reads 32, so no program uses it.
    sign = "sx" if op.startswith("movsx") else "zx"
    size = SIZES[memory.group(1)] if memory else None
    if register in REGS:
        number, reg_size, high = REGS[register]
        size = size or reg_size
        what = "reg%d/%d%s" % (number, reg_size, high)
    else:
        what = "imm0/%d" % size
    return "%d %d %s %s %s" % (length, size, "store" if store else "load", sign, what)


@pytest.mark.parametrize("mode", [16, 32, 64])
def test_against_objdump(tmp_path, mode):
    subprocess.run(["make", "-s", "build/unit/decode_dump"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    strings = list(candidates(random.Random(mode), mode))
    lines = "".join("%d %s\n" % (mode, s.hex()) for s in strings)
    ours = subprocess.run([os.path.join(ROOT, "build/unit/decode_dump")], input=lines, text=True,
                          check=True,
                          stdout=subprocess.PIPE).stdout.splitlines()
    compared = known = 0
    for s, theirs, got in zip(strings, disassemble(tmp_path, mode, strings), ours):
        want = expected(*theirs) if theirs else None
        if want is None:
            continue
        compared += 1
        known += want != "unknown"
        assert got == want, "%d-bit %s: %s" % (mode, s.hex(), theirs[1])
    assert compared > COUNT * 0.8 and known > COUNT * 0.4
