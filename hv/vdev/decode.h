/* A decoder of the instructions that may access emulated MMIO: MOV to and from a register, a
 * byte register, the accumulator at an absolute address, MOV of an immediate, MOVZX, MOVSX,
 * MOVSXD. All others are unknown, and so are these with LOCK or REP: the VM that used one is
 * stopped. */
#ifndef HV_VDEV_DECODE_H
#define HV_VDEV_DECODE_H

#include <takt/types.h>

#define INSN_MAX 15 /* bytes; SDM 2B 2.3.11 */

struct mmio_insn {
    u8 len;
    u8 size; /* of the memory access */
    bool write;
    bool sign;   /* a read that is narrower than the register extends by sign; otherwise by zero */
    u8 reg_size; /* of the register that receives: 1 and 2 leave the rest of it alone, 4 clears the
                  * upper half */
    u8 reg;      /* its number */
    bool high;   /* the register is AH, CH, DH or BH: bits 8 to 15 of `reg`, which is 0 to 3 */
    bool imm;    /* what is stored is `value`, and no register */
    u64 value;
};

/* Decodes the instruction at `bytes`, of which no more than INSN_MAX are looked at. `mode` is
 * 16, 32 or 64: the default operand size of CS. Returns 0, or -EINVAL if the instruction is
 * unknown, has no operand in memory, or is cut off. */
int mmio_decode(struct mmio_insn *out, const u8 *bytes, unsigned len, unsigned mode);

/* What a register holds after a read brought `value`; `old` is what it held. */
u64 mmio_loaded(const struct mmio_insn *in, u64 old, u64 value);
/* What a write of register contents `reg` stores. */
u64 mmio_stored(const struct mmio_insn *in, u64 reg);

#endif
