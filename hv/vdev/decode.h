/* Decodes the instructions by which a guest may access an emulated device: MOV between memory and a
 * register, MOV between the accumulator and an absolute address, MOV of an immediate, MOVZX, MOVSX
 * and MOVSXD. Any other instruction, and one of these with LOCK or REP, is unknown: a VM that uses
 * it there is stopped. */
#ifndef HV_VDEV_DECODE_H
#define HV_VDEV_DECODE_H

#include <takt/types.h>

#define INSN_MAX 15 /* bytes; SDM 2B 2.3.11 */

struct mmio_insn {
    u8 len;
    u8 size; /* of the memory access */
    bool write;
    bool sign;   /* a read that is narrower than the register extends by sign; otherwise by zero */
    u8 reg_size; /* bytes of the register that a read loads: 1 and 2 leave the rest of it alone, 4
                  * clears the upper half */
    u8 reg;      /* the number of the register */
    bool high;   /* the register is AH, CH, DH or BH: bits 8 to 15 of `reg`, which is 0 to 3 */
    bool imm;    /* the instruction stores `value`, not a register */
    u64 value;
};

/* Decodes the instruction in the `len` bytes at `bytes`, and reads at most INSN_MAX of them. `mode`
 * is the default operand size of CS: 16, 32 or 64. Returns 0, or
 *   -EINVAL  the instruction is unknown, has no operand in memory, or needs more than `len`
 * bytes */
int mmio_decode(struct mmio_insn *out, const u8 *bytes, unsigned len, unsigned mode);

/* Returns the new contents of the register after a read whose result is `value`. `old` are its
 * contents before. */
u64 mmio_loaded(const struct mmio_insn *in, u64 old, u64 value);
/* Returns the value that a write stores, if the register holds `reg`. */
u64 mmio_stored(const struct mmio_insn *in, u64 reg);

#endif
