#include <takt/errno.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/frame.h"
#include "virt/bits.h"
#include "virt/state.h"
#include "virt/virt.h"
#include "x86/insn.h"

#define CR0_MP         BIT(1)
#define CR0_EM         BIT(2)
#define CR0_TS         BIT(3)
#define CR4_OSFXSR     BIT(9)
#define CR4_OSXMMEXCPT BIT(10)

/* x87, SSE, AVX, AVX-512 (three), PKRU: SDM 1 13.1. MPX and AMX stay hidden. */
#define XCR0_KNOWN  (0x7ull | 0xe0 | BIT(9))

#define XSAVE_FCW   0 /* offsets in the legacy area, SDM 1 table 13-1 */
#define XSAVE_MXCSR 24

static bool has_rdtscp;

static void xsetbv(u64 v) {
    __asm__ volatile("xsetbv" : : "c"(0), "a"((u32)v), "d"((u32)(v >> 32)) : "memory");
}

int state_cpu_enable(void) {
    u64 mask;

    write_cr0((read_cr0() & ~(CR0_EM | CR0_TS)) | CR0_MP);
    write_cr4(read_cr4() | CR4_OSFXSR | CR4_OSXMMEXCPT);
    has_rdtscp = cpuid_or_zero(0x80000001, 0).edx & BIT(27);
    if (!(cpuid(1, 0).ecx & BIT(26))) return 0;
    write_cr4(read_cr4() | CR4_OSXSAVE);
    mask = cpuid(0xd, 0).eax & XCR0_KNOWN;
    xsetbv(mask);
    if (cpuid(0xd, 0).ebx > PAGE_SIZE) {
        log_err("XSAVE area of %u bytes is larger than a page", cpuid(0xd, 0).ebx);
        return -ENODEV;
    }
    if (virt_xcr0_mask && virt_xcr0_mask != mask) {
        log_err("XCR0 differs from the first CPU's: %#llx", (unsigned long long)mask);
        return -ENODEV;
    }
    virt_xcr0_mask = mask;
    return 0;
}

int state_init(struct guest_state *s) {
    hpa_t pa = frame_alloc_zeroed(0);

    if (pa == HPA_NONE) return -ENOMEM;
    s->xsave = hpa_to_va(pa);
    *(u16 *)((u8 *)s->xsave + XSAVE_FCW) = 0x37f;
    *(u32 *)((u8 *)s->xsave + XSAVE_MXCSR) = 0x1f80;
    state_reset(s);
    return 0;
}

void state_fini(struct guest_state *s) {
    if (s->xsave) frame_free(va_to_hpa(s->xsave), 0);
    s->xsave = NULL;
}

void state_reset(struct guest_state *s) {
    s->xcr0 = 1;
    s->tsc_aux = 0;
    memset(s->dr, 0, sizeof(s->dr));
}

void state_load(const struct guest_state *s) {
    u64 mask = virt_xcr0_mask;

    if (mask)
        __asm__ volatile("xrstor64 (%0)" : : "r"(s->xsave), "a"((u32)mask), "d"(0) : "memory");
    else
        __asm__ volatile("fxrstor64 (%0)" : : "r"(s->xsave) : "memory");
    if (mask && s->xcr0 != mask) xsetbv(s->xcr0);
    __asm__ volatile("mov %0, %%dr0\n\tmov %1, %%dr1\n\tmov %2, %%dr2\n\tmov %3, %%dr3"
                     :
                     : "r"(s->dr[0]), "r"(s->dr[1]), "r"(s->dr[2]), "r"(s->dr[3]));
    if (has_rdtscp) wrmsr(MSR_TSC_AUX, s->tsc_aux);
}

void state_save(struct guest_state *s) {
    u64 mask = virt_xcr0_mask;

    if (mask && s->xcr0 != mask) xsetbv(mask);
    if (mask)
        __asm__ volatile("xsave64 (%0)" : : "r"(s->xsave), "a"((u32)mask), "d"(0) : "memory");
    else
        __asm__ volatile("fxsave64 (%0)" : : "r"(s->xsave) : "memory");
    __asm__ volatile("mov %%dr0, %0\n\tmov %%dr1, %1\n\tmov %%dr2, %2\n\tmov %%dr3, %3"
                     : "=r"(s->dr[0]), "=r"(s->dr[1]), "=r"(s->dr[2]), "=r"(s->dr[3]));
}

void state_set_xcr0(struct guest_state *s, u64 v, bool loaded) {
    s->xcr0 = v;
    if (loaded && virt_xcr0_mask) xsetbv(v);
}

void state_set_tsc_aux(struct guest_state *s, u64 v, bool loaded) {
    s->tsc_aux = (u32)v;
    if (loaded && has_rdtscp) wrmsr(MSR_TSC_AUX, s->tsc_aux);
}
