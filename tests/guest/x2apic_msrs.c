/* MSRs 0x800 to 0xbff: registers of the x2APIC, read-only ones, write-only ones, and holes that
 * are #GP. */
#include <guest/lapic.h>
#include <guest/test.h>
#include <guest/vcpu.h>
#include <guest/x86.h>

enum { HOLE, RO, RW, WO };

static u8 kind(u32 r) {
    switch (r) {
    case 0x02: /* id */
    case 0x03: /* version */
    case 0x0a: /* PPR */
    case 0x0d: /* LDR */
    case 0x10 ... 0x27:
    case 0x39: /* current count */ return RO;
    case 0x08: /* TPR */
    case 0x0f: /* SVR */
    case 0x28: /* ESR: only 0 */
    case 0x30: /* ICR */
    case 0x32: /* LVTs */
    case 0x35 ... 0x37:
    case 0x38:
    case 0x3e: return RW;
    case 0x0b: /* EOI */
    case 0x3f: /* self-IPI */ return WO;
    default: return HOLE;
    }
}

int main(void) {
    u64 f, v;

    test_begin();
    if (!lapic_has_x2()) test_skip("no x2APIC");
    f = irq_save();
    if (!lapic_is_x2()) lapic_set_mode(true);
    for (u32 r = 0; r < 0x400; r++) {
        u8 k = kind(r), got;
        char what[48];

        /* CMCI, thermal and performance counter LVTs: a CPU may have them or not. */
        if (r == 0x2f || r == 0x33 || r == 0x34) continue;
        snprintf(what, sizeof(what), "RDMSR %x", 0x800 + r);
        check_exception(rdmsr_fault(0x800 + r, &v), k == HOLE || k == WO ? EXC_GP : EXC_NONE, what);
        CHECK(k == HOLE || k == WO || r == 0x30 || v >> 32 == 0, "%x reads %lx", 0x800 + r, v);
        if (r == 0x30 || r == 0x3f) continue; /* would send something */
        snprintf(what, sizeof(what), "WRMSR %x", 0x800 + r);
        got = wrmsr_fault(0x800 + r, k == RW ? v : 0);
        check_exception(got, k == HOLE || k == RO ? EXC_GP : EXC_NONE, what);
    }
    check_exception(wrmsr_fault(0x80b, 1), EXC_GP, "EOI of 1");
    check_exception(wrmsr_fault(0x828, 1), EXC_GP, "ESR of 1");
    check_exception(wrmsr_fault(0x808, 0x100), EXC_GP, "TPR beyond 8 bits");
    check_exception(wrmsr_fault(0x80f, 1ull << 40), EXC_GP, "SVR beyond 32 bits");
    CHECK(rdmsr(0x802) == this_vcpu()->id, "id %lx", rdmsr(0x802));
    CHECK(rdmsr(0x80d) == 1u << (this_vcpu()->id & 15), "LDR %lx", rdmsr(0x80d));
    irq_restore(f);
    return test_end("x2APIC registers and the holes between them");
}
