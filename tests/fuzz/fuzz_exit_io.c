/* Ports, string I/O with any bytes as the instruction, and MMIO with any address. */
#include "exit_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = { data, size };
    struct vcpu *v;

    while (in.size) {
        u8 how = (u8)take(&in, 1), mode = (u8)take(&in, 1);
        struct vm_exit e = { .reason = EXIT_IO, .insn_len = 2 };
        u8 code[15] = { 0 };

        v = fuzz_vcpu();
        fuzz_mode(v, mode & ~4 & 0x7f); /* without paging, so that there is code to find */
        for (int s = SEG_ES; s <= SEG_GS; s++)
            fake_of(v)->seg[s].limit = how & 64 ? 0xffff : 0xffffffff;
        for (unsigned i = 0; i < 16; i++)
            if (how & 1) v->virt.regs.gpr[i] = take_value(&in);
        for (unsigned i = 0; i < sizeof(code); i++) code[i] = (u8)take(&in, 1);
        guestmem_write(&v->vm->mem, v->virt.regs.rip, code, sizeof(code));
        if (how & 2) {
            e.reason = EXIT_NPF;
            e.npf.gpa = how & 4 ? 0xfee00000 + take(&in, 2) % 4097 : take_value(&in);
            e.npf.write = how & 8;
            e.npf.exec = (how & 0x30) == 0x30;
        } else {
            e.io.port = (u16)(how & 4   ? 0x3f0 + take(&in, 1) % 20
                              : how & 8 ? 0xe5 + take(&in, 1) % 20
                                        : take(&in, 2));
            e.io.size = 1u << mode % 3;
            e.io.in = how & 16;
            e.io.string = how & 32;
            e.io.rep = how & 128;
        }
        fuzz_handle(v, e);
    }
    return 0;
}
