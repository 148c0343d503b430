/* MSRs 0x800 to 0xbff, the registers of the x2APIC (SDM 3A 11.12.1.2). Some can only be read, some
 * only be written, and an access to a hole between them is #GP. A guest that finds a register where
 * the processor has none would do something else than on real hardware. */
#include <guest/lapic.h>
#include <guest/test.h>
#include <guest/vcpu.h>
#include <guest/x86.h>

enum { HOLE, RO, RW, WO }; /* nothing is there, read-only, both, write-only */

/* The exception that an access has to raise. */
static u8 expected(bool works) {
    if (works) return EXC_NONE;
    return EXC_GP;
}

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
        bool reads = k == RO || k == RW, writes = k == RW || k == WO;
        char what[48];

        /* The LVT entries for CMCI, temperature and performance counters: some CPUs have them. */
        if (r == 0x2f || r == 0x33 || r == 0x34) continue;
        snprintf(what, sizeof(what), "RDMSR %x", 0x800 + r);
        check_exception(rdmsr_fault(0x800 + r, &v), expected(reads), what);
        CHECK(!reads || r == 0x30 || v >> 32 == 0, "%x reads %lx", 0x800 + r, v);
        if (r == 0x30 || r == 0x3f) continue; /* these would send an interrupt */
        snprintf(what, sizeof(what), "WRMSR %x", 0x800 + r);
        if (k != RW) v = 0;
        got = wrmsr_fault(0x800 + r, v);
        check_exception(got, expected(writes), what);
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
