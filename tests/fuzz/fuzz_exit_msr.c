/* Writes of any value to any MSR, to control registers and by XSETBV. What a guest writes is loaded
 * into the processor at the next entry, so the state must stay one that the processor accepts:
 * otherwise the entry fails, and with it the VM. */
#include "exit_fuzz.h"

static bool canonical(u64 v) { return (u64)((i64)(v << 16) >> 16) == v; }

static void invariants(struct vcpu *v) {
    static const u8 addresses[] = { VREG_LSTAR,       VREG_CSTAR,   VREG_KERNEL_GS_BASE,
                                    VREG_FS_BASE,     VREG_GS_BASE, VREG_SYSENTER_ESP,
                                    VREG_SYSENTER_EIP };
    const u64 *r = fake_of(v)->reg;

    for (unsigned i = 0; i < ARRAY_SIZE(addresses); i++) check(canonical(r[addresses[i]]));
    check(r[VREG_CR0] >> 32 == 0 && (!(r[VREG_CR0] & BIT(31)) || r[VREG_CR0] & 1));
    check((r[VREG_CR4] & ~v->vm->virt.cr4_guest) == 0);
    check((r[VREG_EFER] & ~0xd01ull) == 0);
    check(r[VREG_XCR0] & 1 && (r[VREG_XCR0] & ~cpuid_xcr0_allowed() & ~1ull) == 0);
    check(r[VREG_TSC_AUX] >> 32 == 0 && r[VREG_FMASK] >> 32 == 0);
    for (unsigned i = 0; i < 8; i++) {
        u8 type = (u8)(r[VREG_PAT] >> (8 * i));

        check(type <= 7 && type != 2 && type != 3);
    }
    check(v->virt.cr8 < 16 && v->virt.tsc_offset == v->vm->tsc_offset);
}

/* The number of an MSR: mostly one that a handler knows, or one that is a little above it. */
static u32 take_msr(struct fuzz_input *in) {
    static const u32 known[] = { 0x10,       0x1b,       0x3a,       0x79,       0x8b,      0xfe,
                                 0x174,      0x175,      0x176,      0x179,      0x1a0,     0x1d9,
                                 0x200,      0x258,      0x277,      0x2ff,      0x6e0,     0x800,
                                 0x808,      0x830,      0x838,      0x832,      0x83e,     0x83f,
                                 0xc0000080, 0xc0000081, 0xc0000100, 0xc0010015, 0xc0000103 };
    u8 how = (u8)take(in, 1);

    if (how >= 200) return (u32)take(in, 4);
    if (how <= 150) return known[how % ARRAY_SIZE(known)];
    return known[how % ARRAY_SIZE(known)] + (u32)take(in, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = { data, size };
    struct vcpu *v = fuzz_vcpu();
    u64 *gpr = v->virt.regs.gpr;

    fake_current(v);
    while (in.size) {
        u8 how = (u8)take(&in, 1);
        u64 value;

        gpr[REG_RCX] = take_msr(&in);
        value = take_value(&in);
        gpr[REG_RAX] = (u32)value;
        gpr[REG_RDX] = value >> 32;
        v->virt.regs.rip = 0x100000;
        switch (how % 6) {
        case 0:
            fuzz_handle(v, (struct vm_exit){ .reason = EXIT_RDMSR, .insn_len = 2 });
            check((gpr[REG_RAX] | gpr[REG_RDX]) >> 32 == 0);
            break;
        case 1 ... 3:
            fuzz_handle(v, (struct vm_exit){ .reason = EXIT_WRMSR, .insn_len = 2 });
            break;
        case 4:
            fuzz_handle(
                v, (struct vm_exit){
                       .reason = EXIT_CR,
                       .insn_len = 3,
                       .cr = { .cr = how >> 4, .gpr = how & 15, .write = true, .value = value } });
            break;
        case 5:
            gpr[REG_RCX] = how >> 7;
            fuzz_handle(v, (struct vm_exit){ .reason = EXIT_XSETBV, .insn_len = 3 });
            break;
        }
        invariants(v);
        if (v->vm->state != VM_RUNNING) break;
    }
    return 0;
}
