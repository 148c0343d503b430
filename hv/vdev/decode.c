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

    c->at += bytes;
    if (c->at > c->len) return 0;
    for (unsigned i = 1; i <= bytes; i++) v = v << 8 | c->p[c->at - i];
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
        default:
            if ((b & 0xe7) == 0x26 || (b & 0xfe) == 0x64) break; /* segments: ES CS SS DS, FS GS */
            if (c->mode != 64 || (b & 0xf0) != 0x40) return b;
            c->rex = b;
            continue;
        }
        c->rex = 0; /* it counts only right before the opcode */
    }
}

static u8 operand_size(const struct cursor *c) {
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

int mmio_decode(struct mmio_insn *out, const u8 *bytes, unsigned len, unsigned mode) {
    struct cursor c = { .p = bytes, .len = MIN(len, INSN_MAX), .mode = mode };
    u8 op = skip_prefixes(&c), operand = operand_size(&c), size = op & 1 ? operand : 1;
    int field = 0;

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
        out->write = out->imm = true;
        out->value = next_le(&c, MIN(size, 4u));
        if (size == 8) out->value = (u64)(i64)(i32)out->value;
        break;
    case 0x63: /* MOVSXD; ARPL outside 64-bit mode. To 16 bits the vendors read different sizes. */
        if (mode != 64 || operand == 2) return -EINVAL;
        *out = (struct mmio_insn){ .size = 4, .reg_size = operand, .sign = true };
        field = skip_modrm(&c);
        break;
    case 0x0f: /* MOVZX, MOVSX of a byte or a word: B6 B7 BE BF */
        op = next(&c);
        if ((op & 0xf6) != 0xb6) return -EINVAL;
        *out = (struct mmio_insn){ .size = op & 1 ? 2 : 1, .reg_size = operand, .sign = op & 8 };
        field = skip_modrm(&c);
        break;
    default: return -EINVAL;
    }
    if (field < 0 || c.at > c.len) return -EINVAL;
    out->reg = out->high ? (u8)field - 4 : (u8)field | (c.rex & REX_R) << 1;
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
