/* Accesses to any port and any address of a device, and string I/O, for which the handler reads the
 * instruction out of the guest's memory: here that is any bytes. */
#include "exit_fuzz.h"

/* A port: often one of the hypervisor's (COM1, debug console, debug exit) or next to one. */
static u16 take_port(struct fuzz_input *in, u8 how) {
    if (how & 4) return (u16)(0x3f0 + take(in, 1) % 20);
    if (how & 8) return (u16)(0xe5 + take(in, 1) % 20);
    return (u16)take(in, 2);
}

/* An address: often one of the LAPIC or next to it. */
static u64 take_address(struct fuzz_input *in, u8 how) {
    if (how & 4) return 0xfee00000 + take(in, 2) % 4097;
    return take_value(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = { data, size };
    struct vcpu *v;

    while (in.size) {
        u8 how = (u8)take(&in, 1), mode = (u8)take(&in, 1);
        struct vm_exit e = { .reason = EXIT_IO, .insn_len = 2 };
        u8 code[15] = { 0 };

        v = fuzz_vcpu();
        fuzz_mode(v, mode & ~4 & 0x7f); /* without paging, so that RIP is where the code is */
        for (int s = SEG_ES; s <= SEG_GS; s++) {
            fake_of(v)->seg[s].limit = 0xffffffff;
            if (how & 64) fake_of(v)->seg[s].limit = 0xffff;
        }
        for (unsigned i = 0; i < 16; i++)
            if (how & 1) v->virt.regs.gpr[i] = take_value(&in);
        for (unsigned i = 0; i < sizeof(code); i++) code[i] = (u8)take(&in, 1);
        guestmem_write(&v->vm->mem, v->virt.regs.rip, code, sizeof(code));
        if (how & 2) {
            e.reason = EXIT_NPF;
            e.npf.gpa = take_address(&in, how);
            e.npf.write = how & 8;
            e.npf.exec = (how & 0x30) == 0x30;
        } else {
            e.io.port = take_port(&in, how);
            e.io.size = 1u << mode % 3;
            e.io.in = how & 16;
            e.io.string = how & 32;
            e.io.rep = how & 128;
        }
        fuzz_handle(v, e);
    }
    return 0;
}
