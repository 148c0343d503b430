/* Decodes an instruction by which a guest accesses a device that the hypervisor emulates: which
 * register, how many bytes, read or write. The address is not needed, because the exit tells it.
 * Only instructions of the MOV family are known (decode.h): drivers use no others, and each one
 * more would be code that a guest can attack. Encodings: SDM 2A 2.1 (prefixes, ModRM, SIB), 2.2.1
 * (REX), and the pages of MOV, MOVZX, MOVSX in 2B. */
#include <takt/errno.h>
#include "vdev/decode.h"

/* Where the decoder is in the instruction, and which prefixes it has seen. */
struct cursor {
    const u8 *p;
    unsigned at, len; /* at > len: it ran off the end, and what it read there is 0 */
    unsigned mode;    /* 16, 32, 64 */
    bool opsize16;    /* prefix 66: the other operand size */
    bool addr_alt;    /* prefix 67: the other address size */
    u8 rex;           /* 0: there is none */
};

#define PREFIX_OPERAND_SIZE 0x66
#define PREFIX_ADDRESS_SIZE 0x67
#define PREFIX_REX          0x40
#define REX_MASK            0xf0
#define REX_W               8
#define REX_R               4

/* Returns whether the byte is a segment prefix: 26 2E 36 3E (ES CS SS DS), 64 65 (FS GS). */
static bool is_segment_prefix(u8 b) { return (b & 0xe7) == 0x26 || (b & 0xfe) == 0x64; }

/* Returns 2 or 4, the size in bytes of an operand or an address. Code of `mode` 16 has 2 by
 * default, other code 4; a prefix (`other`) means the other one. */
static u8 size_2_or_4(unsigned mode, bool other) {
    bool two = mode == 16;

    if (other) two = !two;
    return two ? 2 : 4;
}

/* Returns the next byte; 0 behind the end, which mmio_decode() finds out at its own end. */
static inline u8 next_byte(struct cursor *c) {
    unsigned at = c->at++;

    return at < c->len ? c->p[at] : 0;
}

/* Returns the next `bytes` bytes as a little-endian number, the highest byte first into `v`. */
static u64 next_number(struct cursor *c, unsigned bytes) {
    u64 v = 0;

    c->at += bytes;
    if (c->at > c->len) return 0;
    for (unsigned i = 1; i <= bytes; i++) v = v << 8 | c->p[c->at - i];
    return v;
}

/* Takes the prefixes off and returns the first byte of the opcode. Segment prefixes say nothing
 * that is needed, because the exit tells the address. LOCK and REP are not taken off, so the caller
 * sees an opcode that it does not know. */
static inline u8 skip_prefixes(struct cursor *c) {
    for (;;) {
        u8 b = next_byte(c);

        if (c->mode == 64 && (b & REX_MASK) == PREFIX_REX) {
            c->rex = b;
            continue;
        }
        if (b == PREFIX_OPERAND_SIZE)
            c->opsize16 = true;
        else if (b == PREFIX_ADDRESS_SIZE)
            c->addr_alt = true;
        else if (!is_segment_prefix(b))
            return b;
        c->rex = 0; /* REX counts only right before the opcode */
    }
}

/* Returns how many bytes the operand has that is not of one byte. REX.W counts more than prefix
 * 66. */
static u8 operand_size(const struct cursor *c) {
    if (c->rex & REX_W) return 8;
    return size_2_or_4(c->mode, c->opsize16);
}

/* Returns how many bytes an address has. */
static unsigned address_size(const struct cursor *c) {
    if (c->mode == 64) return c->addr_alt ? 4 : 8;
    return size_2_or_4(c->mode, c->addr_alt);
}

/* Moves over ModRM, SIB and displacement. Returns the reg field, or -EINVAL if the operand is a
 * register. SDM 2A tables 2-1 to 2-3. */
static inline int skip_modrm(struct cursor *c) {
    u8 modrm = next_byte(c), mod = modrm >> 6, base = modrm & 7;
    bool only_disp; /* no base register, but a displacement */
    u8 size = 4;    /* of a whole displacement */

    if (mod == 3) return -EINVAL;
    if (address_size(c) == 2) {
        only_disp = mod == 0 && base == 6;
        size = 2;
    } else {
        if (base == 4) base = next_byte(c) & 7; /* of SIB */
        only_disp = mod == 0 && base == 5;
    }
    if (mod == 1) c->at += 1;
    if (mod == 2 || only_disp) c->at += size;
    return modrm >> 3 & 7;
}

/* Decodes a MOV-class instruction that accesses memory. Bit 0 of most of these opcodes tells
 * whether the operand is one byte or as large as operand_size() says, and bit 1 in which direction
 * the MOV goes. Comments name the cases by their opcodes. Reading off the end is checked once, at
 * the end. */
int mmio_decode(struct mmio_insn *out, const u8 *bytes, unsigned len, unsigned mode) {
    struct cursor c = { .p = bytes, .len = MIN(len, INSN_MAX), .mode = mode };
    u8 op = skip_prefixes(&c), operand = operand_size(&c), size = 1;
    int field = 0;

    if (op & 1) size = operand;
    *out = (struct mmio_insn){ .size = size, .reg_size = size };
    switch (op) {
    case 0x88 ... 0x8b:
        field = skip_modrm(&c);
        out->write = !(op & 2);
        out->high = size == 1 && !c.rex && field >= 4; /* with REX they are SPL to DIL */
        break;
    case 0xa0 ... 0xa3: /* the accumulator and an absolute address */
        out->write = op & 2;
        c.at += address_size(&c);
        c.rex = 0;
        break;
    case 0xc6 ... 0xc7: /* an immediate: 4 bytes at most, extended by sign */
        if (skip_modrm(&c) != 0) return -EINVAL;
        out->write = true;
        out->imm = true;
        out->value = next_number(&c, MIN(size, 4u));
        if (size == 8) out->value = (u64)(i64)(i32)out->value;
        break;
    case 0x63: /* MOVSXD; ARPL outside 64-bit mode. To 16 bits the vendors read different sizes. */
        if (mode != 64 || operand == 2) return -EINVAL;
        *out = (struct mmio_insn){ .size = 4, .reg_size = operand, .sign = true };
        field = skip_modrm(&c);
        break;
    case 0x0f: /* MOVZX, MOVSX of a byte or a word: B6 B7 BE BF */
        op = next_byte(&c);
        if ((op & 0xf6) != 0xb6) return -EINVAL;
        *out = (struct mmio_insn){ .size = 1, .reg_size = operand, .sign = op & 8 };
        if (op & 1) out->size = 2;
        field = skip_modrm(&c);
        break;
    default: return -EINVAL;
    }
    if (field < 0 || c.at > c.len) return -EINVAL;
    out->reg = (u8)field | (c.rex & REX_R) << 1;
    if (out->high) out->reg = (u8)field - 4; /* AH is a part of register 0 */
    out->len = (u8)c.at;
    return 0;
}

/* Returns `v` with all but its lowest `bytes` bytes cleared. */
static u64 low_bytes(u64 v, unsigned bytes) {
    if (bytes >= 8) return v;
    return v & (BIT(8 * bytes) - 1);
}

/* Returns the value of the instruction's register after it has read `value` from a device. `value`
 * is what the device returned. It is extended to the size of the register, and put in that part of
 * the register which the instruction names; the CPU keeps or clears the other parts as
 * mmio_insn.reg_size says. */
u64 mmio_loaded(const struct mmio_insn *in, u64 old, u64 value) {
    unsigned unused = 64 - 8 * in->size;

    if (in->sign)
        value = (u64)((i64)(value << unused) >> unused);
    else
        value = low_bytes(value, in->size);
    if (in->high) return (old & ~0xff00ull) | (value & 0xff) << 8;
    if (in->reg_size >= 4) return low_bytes(value, in->reg_size);
    return (old & ~(BIT(8 * in->reg_size) - 1)) | low_bytes(value, in->reg_size);
}

/* Returns the value that the instruction writes to the device; `reg` is the value of its
 * register. */
u64 mmio_stored(const struct mmio_insn *in, u64 reg) {
    if (in->imm) return low_bytes(in->value, in->size);
    if (in->high) reg >>= 8;
    return low_bytes(reg, in->size);
}
