/* MOV-class decoder. Encodings: SDM 2A 2.1 (prefixes, ModRM, SIB), 2.2.1 (REX), and the MOV, MOVZX, MOVSX
 * pages of 2B. */
#include <takt/errno.h>
#include "vdev/decode.h"

struct cursor {
    const u8 *p;
    unsigned at, len; /* at > len: it ran off the end, and what it read there is 0 */
    unsigned mode;
    bool opsize16, addr_alt;
    u8 rex;
};

#define REX_W 8
#define REX_R 4

static inline u8 next(struct cursor *c) {
    unsigned at = c->at++;

    return at < c->len ? c->p[at] : 0;
}

static u64 next_le(struct cursor *c, unsigned bytes) {
    u64 v = 0;

    for (unsigned i = 0; i < bytes; i++) v |= (u64)next(c) << (8 * i);
    return v;
}

/* Takes the prefixes off and returns the first opcode byte. LOCK and REP are left for the caller, to whom
 * they are unknown opcodes. */
static inline u8 skip_prefixes(struct cursor *c) {
    for (;;) {
        u8 b = next(c);

        switch (b) {
        case 0x66: c->opsize16 = true; break;
        case 0x67: c->addr_alt = true; break;
        case 0x26: /* segments: ES CS SS DS FS GS */
        case 0x2e:
        case 0x36:
        case 0x3e:
        case 0x64:
        case 0x65: break;
        default:
            if (c->mode != 64 || (b & 0xf0) != 0x40) return b;
            c->rex = b;
            continue;
        }
        c->rex = 0; /* it counts only right before the opcode */
    }
}

static unsigned operand_size(const struct cursor *c) {
    if (c->rex & REX_W) return 8;
    return (c->mode == 16) != c->opsize16 ? 2 : 4;
}

static unsigned address_size(const struct cursor *c) {
    if (c->mode == 64) return c->addr_alt ? 4 : 8;
    return (c->mode == 16) != c->addr_alt ? 2 : 4;
}

/* Moves over ModRM, SIB and displacement. Returns the reg field, or -EINVAL if the operand is a register. */
static inline int skip_modrm(struct cursor *c) {
    u8 modrm = next(c), mod = modrm >> 6, rm = modrm & 7;
    unsigned disp = mod == 1 ? 1 : 0;

    if (mod == 3) return -EINVAL;
    if (address_size(c) == 2) {
        if (mod == 2 || (mod == 0 && rm == 6)) disp = 2;
    } else {
        u8 base = rm == 4 ? next(c) & 7 : rm;

        if (mod == 2 || (mod == 0 && base == 5)) disp = 4;
    }
    c->at += disp;
    return modrm >> 3 & 7;
}

/* A general register as operand: with a REX prefix 4..7 are SPL to DIL, without AH to BH. */
static inline void set_reg(struct mmio_insn *in, const struct cursor *c, int field, unsigned size) {
    in->reg_size = (u8)size;
    in->reg = (u8)(field | (c->rex & REX_R ? 8 : 0));
    if (size == 1 && !c->rex && field >= 4) {
        in->high = true;
        in->reg = (u8)(field - 4);
    }
}

/* 88 to 8B: bit 1 tells the direction, bit 0 whether it is wider than a byte. */
static int mov_reg(struct mmio_insn *in, struct cursor *c, u8 op) {
    int field = skip_modrm(c);

    if (field < 0) return -EINVAL;
    in->write = !(op & 2);
    in->size = op & 1 ? (u8)operand_size(c) : 1;
    set_reg(in, c, field, in->size);
    return 0;
}

/* A0 to A3: the accumulator and an absolute address. Here bit 1 means a store. */
static int mov_moffs(struct mmio_insn *in, struct cursor *c, u8 op) {
    in->write = op & 2;
    in->size = op & 1 ? (u8)operand_size(c) : 1;
    in->reg_size = in->size;
    c->at += address_size(c);
    return 0;
}

/* C6 /0 and C7 /0. An immediate is 4 bytes at most, extended by sign. */
static int mov_imm(struct mmio_insn *in, struct cursor *c, u8 op) {
    if (skip_modrm(c) != 0) return -EINVAL;
    in->write = in->imm = true;
    in->size = op & 1 ? (u8)operand_size(c) : 1;
    in->value = next_le(c, MIN(in->size, 4u));
    if (in->size == 8) in->value = (u64)(i64)(i32)in->value;
    return 0;
}

/* A read of `size` bytes that is extended to the operand size. */
static int mov_extend(struct mmio_insn *in, struct cursor *c, unsigned size, bool sign) {
    int field = skip_modrm(c);

    if (field < 0) return -EINVAL;
    in->size = (u8)size;
    in->sign = sign;
    in->reg_size = (u8)operand_size(c);
    in->reg = (u8)(field | (c->rex & REX_R ? 8 : 0));
    return 0;
}

static int decode_0f(struct mmio_insn *in, struct cursor *c) {
    u8 op = next(c);

    if ((op & 0xf6) != 0xb6) /* B6 B7 BE BF */
        return -EINVAL;
    return mov_extend(in, c, op & 1 ? 2 : 1, op & 8);
}

static int decode_op(struct mmio_insn *in, struct cursor *c, u8 op) {
    switch (op) {
    case 0x88 ... 0x8b: return mov_reg(in, c, op);
    case 0xa0 ... 0xa3: return mov_moffs(in, c, op);
    case 0xc6:
    case 0xc7: return mov_imm(in, c, op);
    case 0x63: /* MOVSXD; ARPL outside 64-bit mode. To 16 bits the vendors read different sizes. */
        if (c->mode != 64 || operand_size(c) == 2) return -EINVAL;
        return mov_extend(in, c, 4, true);
    case 0x0f: return decode_0f(in, c);
    default: return -EINVAL;
    }
}

int mmio_decode(struct mmio_insn *out, const u8 *bytes, unsigned len, unsigned mode) {
    struct cursor c = { .p = bytes, .len = MIN(len, INSN_MAX), .mode = mode };
    int err;

    *out = (struct mmio_insn){ 0 };
    err = decode_op(out, &c, skip_prefixes(&c));
    if (err || c.at > c.len) return -EINVAL;
    out->len = (u8)c.at;
    return 0;
}

static u64 low_bytes(u64 v, unsigned bytes) { return bytes >= 8 ? v : v & (BIT(8 * bytes) - 1); }

u64 mmio_loaded(const struct mmio_insn *in, u64 old, u64 value) {
    unsigned unused = 64 - 8 * in->size;

    value = in->sign ? (u64)((i64)(value << unused) >> unused) : value << unused >> unused;
    if (in->high) return (old & ~0xff00ull) | (value & 0xff) << 8;
    if (in->reg_size >= 4) return low_bytes(value, in->reg_size);
    return (old & ~(BIT(8 * in->reg_size) - 1)) | low_bytes(value, in->reg_size);
}

u64 mmio_stored(const struct mmio_insn *in, u64 reg) {
    if (in->imm) return low_bytes(in->value, in->size);
    return low_bytes(in->high ? reg >> 8 : reg, in->size);
}
