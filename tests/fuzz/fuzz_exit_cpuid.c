/* CPUID with any leaf. It must say the same when it is asked again, write nothing above bit 31, and
 * never show a feature that the hypervisor hides, because a guest would then use it and crash. */
#include "exit_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = { data, size };
    struct vcpu *v = fuzz_vcpu();
    u64 *gpr = v->virt.regs.gpr;

    while (in.size) {
        u64 leaf = take_value(&in), sub = take_value(&in), first[4];

        fake_of(v)->reg[VREG_XCR0] = take(&in, 1) & cpuid_xcr0_allowed();
        for (int i = 0; i < 2; i++) {
            fuzz_mode(v, 0x74);
            gpr[REG_RAX] = leaf;
            gpr[REG_RCX] = sub;
            fuzz_handle(v, (struct vm_exit){ .reason = EXIT_CPUID, .insn_len = 2 });
            check((gpr[0] | gpr[1] | gpr[2] | gpr[3]) >> 32 == 0);
            if (i) check(memcmp(first, gpr, sizeof(first)) == 0);
            memcpy(first, gpr, sizeof(first));
        }
        /* MONITOR and VMX are hidden, the hypervisor bit is shown. */
        if ((u32)leaf == 1) check(!(gpr[REG_RCX] & 0x28) && gpr[REG_RCX] & BIT(31));
        if ((u32)leaf == 0x80000001) check(!(gpr[REG_RCX] & 4)); /* SVM */
        if ((u32)leaf > 0xd && (u32)leaf < 0x40000000) check(!(gpr[0] | gpr[1] | gpr[2] | gpr[3]));
    }
    return 0;
}
