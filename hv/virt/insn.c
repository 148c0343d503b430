#include "virt/insn.h"

static bool is_prefix(u8 b) {
    switch (b) {
    case 0x26:
    case 0x2e:
    case 0x36:
    case 0x3e:
    case 0x64:
    case 0x65:
    case 0x66:
    case 0x67:
    case 0xf0: /* LOCK faults with all of these but MOV CR, where AMD reads CR0 as CR8 */
    case 0xf2:
    case 0xf3: return true;
    default: return false;
    }
}

unsigned insn_length(const u8 *bytes, unsigned len, unsigned mode, enum insn insn, u8 *modrm, u8 *rex) {
    unsigned n = 0, op_len = insn > 0xffff ? 3 : insn > 0xff ? 2 : 1;
    bool repeated = false;
    u8 rex_byte = 0;

    for (; n < len; n++) {
        if (mode == 64 && (bytes[n] & 0xf0) == 0x40) {
            rex_byte = bytes[n];
            continue;
        }
        if (!is_prefix(bytes[n])) break;
        rex_byte = 0; /* counts only right before the opcode */
        repeated |= bytes[n] == 0xf3;
    }
    for (unsigned i = 0; i < op_len; i++, n++)
        if (n >= len || bytes[n] != (u8)(insn >> 8 * i)) return 0;
    if (insn == INSN_PAUSE && !repeated) return 0;
    if (insn == INSN_MOV_FROM_CR || insn == INSN_MOV_TO_CR) {
        if (n >= len) return 0;
        *modrm = bytes[n++];
        *rex = rex_byte;
    }
    return n <= 15 ? n : 0;
}
