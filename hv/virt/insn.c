#include "lib/string.h"
#include "virt/vendor.h"

/* LOCK faults with all of enum insn but MOV CR, where AMD reads CR0 as CR8. */
static const u8 prefixes[] = { 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3 };

static bool is_prefix(u8 b) {
    for (unsigned i = 0; i < sizeof(prefixes); i++)
        if (b == prefixes[i]) return true;
    return false;
}

unsigned insn_length(const u8 *bytes, unsigned len, unsigned mode, enum insn insn, u8 *gpr) {
    unsigned n = 0;
    u8 rex = 0;

    for (; n < len; n++) {
        if (mode == 64 && (bytes[n] & 0xf0) == 0x40)
            rex = bytes[n];
        else if (is_prefix(bytes[n]))
            rex = 0; /* counts only right before the opcode */
        else
            break;
    }
    for (u32 op = insn; op; op >>= 8, n++)
        if (n >= len || bytes[n] != (u8)op) return 0;
    if (insn == INSN_MOV_FROM_CR || insn == INSN_MOV_TO_CR) {
        if (n >= len) return 0;
        *gpr = (u8)((bytes[n++] & 7) | (rex & 1) << 3);
    }
    return n <= 15 ? n : 0;
}
