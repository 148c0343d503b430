/* A decoder for MOV-class accesses to emulated MMIO: MOV to and from a register, a byte register, the
 * accumulator at an absolute address, MOV of an immediate, MOVZX, MOVSX, MOVSXD. Anything else, with LOCK or
 * REP too, is unknown, and the VM that used it is stopped. */
#ifndef HV_VDEV_DECODE_H
#define HV_VDEV_DECODE_H

#include <takt/types.h>

#define INSN_MAX 15 /* bytes; SDM 2B 2.3.11 */

struct mmio_insn {
    u8 len;
    u8 size; /* of the memory access */
    bool write;
    bool sign;   /* a read narrower than the register: extend by sign, else by zero */
    u8 reg_size; /* of the register that receives: 1 and 2 leave the rest of it alone, 4 clears the upper half
                  */
    u8 reg;      /* its number; with `high`, 0..3: AH, CH, DH, BH (bits 8..15 of RAX, RCX, RDX, RBX) */
    bool high;
    bool imm; /* the value stored is `value`, not a register's */
    u64 value;
};

/* `bytes` holds `len` bytes at the instruction; no more than 15 are looked at. mode: 16, 32 or 64, the
 * default operand size of CS. 0, or -EINVAL for an instruction that it does not know, one without a memory
 * operand, or one that is cut off. */
int mmio_decode(struct mmio_insn *out, const u8 *bytes, unsigned len, unsigned mode);

/* What a register holds after a read brought `value`; `old` is what it held. */
u64 mmio_loaded(const struct mmio_insn *in, u64 old, u64 value);
/* What a write of register contents `reg` stores. */
u64 mmio_stored(const struct mmio_insn *in, u64 reg);

#endif
