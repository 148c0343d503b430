/* Hypercalls: any number, any arguments, any mode. */
#include "exit_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = { data, size };

    while (in.size) {
        struct vcpu *v = fuzz_vcpu();
        u64 *gpr = v->virt.regs.gpr, before[16];
        u8 nr = (u8)take(&in, 1), mode = (u8)take(&in, 1);

        fuzz_mode(v, mode);
        v->virt.regs.rip = 0x100000;
        for (unsigned i = 0; i < 16; i++) gpr[i] = i * 0x1111111111111111ull;
        gpr[REG_RAX] = nr < 200 ? nr % 32 : take_value(&in);
        gpr[REG_RBX] = take_value(&in);
        gpr[REG_RCX] = take_value(&in);
        gpr[REG_RDX] = take_value(&in);
        gpr[REG_RSI] = take_value(&in);
        memcpy(before, gpr, sizeof(before));
        fuzz_handle(v, (struct vm_exit){ .reason = EXIT_HYPERCALL,
                                         .insn_len = 3,
                                         .hc = { mode & 32   ? 64
                                                 : mode & 64 ? 32
                                                             : 16,
                                                 mode & 3, mode & 8 } });
        check(memcmp(before + 1, gpr + 1, sizeof(before) - sizeof(u64)) == 0); /* all but RAX are preserved */
    }
    return 0;
}
