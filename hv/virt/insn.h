/* The length of an instruction that the CPU has just exited on, checked against its bytes. For CPUs that do
 * not give the next RIP. Pure. */
#ifndef HV_VIRT_INSN_H
#define HV_VIRT_INSN_H

#include <takt/types.h>

/* Opcodes as they stand in memory after the prefixes, first byte in the lowest. */
enum insn {
    INSN_CPUID = 0xa20f,
    INSN_RDMSR = 0x320f,
    INSN_WRMSR = 0x300f,
    INSN_RDPMC = 0x330f,
    INSN_INVD = 0x080f,
    INSN_WBINVD = 0x090f,
    INSN_HLT = 0xf4,
    INSN_PAUSE = 0x90, /* with F3 */
    INSN_VMMCALL = 0xd9010f,
    INSN_XSETBV = 0xd1010f,
    INSN_MOV_FROM_CR = 0x200f, /* with ModRM */
    INSN_MOV_TO_CR = 0x220f,
};

/* 0 if the bytes are not `insn` after at most 14 legal prefixes. `mode` is the default operand size of CS:
 * 16, 32 or 64. For MOV CR, *modrm and *rex (0 if none) tell the registers; else they may be NULL. */
unsigned insn_length(const u8 *bytes, unsigned len, unsigned mode, enum insn insn, u8 *modrm, u8 *rex);

#endif
