/* A decoder for MOV-class accesses to emulated MMIO: MOV, MOVZX, MOVSX, MOVSXD, STOS and MOVS without REP are
 * told apart; anything else is unknown and the VM that used it is stopped. Reads at most 15 bytes. */
#ifndef HV_VDEV_DECODE_H
#define HV_VDEV_DECODE_H

#include <takt/types.h>

struct mmio_insn {
    u8 len;
    u8 size; /* of the memory access */
    bool write;
    bool sign;   /* extend by sign */
    u8 reg_size; /* of the register that receives: 4 zero-extends to 8 */
    u8 reg;      /* number; 4..7 with high set: AH, CH, DH, BH */
    bool high;
    bool imm; /* the value stored is `value` */
    u64 value;
};

/* mode: 16, 32 or 64, the default operand size of CS. 0, or -EINVAL for an instruction that it does not know
 * or that is cut off. */
int mmio_decode(struct mmio_insn *out, const u8 *bytes, unsigned len, unsigned mode);

/* The length of the instruction at `bytes` if, after legal prefixes, it is `opcode` (1 to 3 bytes, given most
 * significant first, e.g. 0x0fa2); 0 if not. For vendors without next-RIP. */
unsigned insn_length(const u8 *bytes, unsigned len, unsigned mode, u32 opcode);

#endif
