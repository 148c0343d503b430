/* What vmx.c and svm.c share with each other and with nobody else. */
#ifndef HV_VIRT_VENDOR_H
#define HV_VIRT_VENDOR_H

#include "virt/bits.h"
#include "virt/virt.h"

#define DR6_RESET 0xffff0ff0ull
#define DR7_RESET 0x400ull
#define PAT_RESET 0x0007040600070406ull
#define ADDR_52   0x000ffffffffff000ull

/* An event as both vendors write it down: VMCB EVENTINJ and EXITINTINFO (APM2 15.20), VMX interruption
 * information (SDM 3C 25.8.3, 25.9.2) without the latter's software types beyond 4. */
#define EVENT_HAS_CODE BIT(11)
#define EVENT_VALID    BIT(31)
enum {
    EVENT_TYPE_INTR,
    EVENT_TYPE_NMI = 2,
    EVENT_TYPE_EXC,
    EVENT_TYPE_SOFT,
    EVENT_TYPE_ICEBP,
    EVENT_TYPE_INT3
};

/* Real mode delivers no error codes. */
static inline u32 event_encode(const struct virt_event *e, bool protected_mode) {
    static const u8 type[] = {
        [EVENT_IRQ] = EVENT_TYPE_INTR, [EVENT_NMI] = EVENT_TYPE_NMI, [EVENT_EXCEPTION] = EVENT_TYPE_EXC
    };

    return e->vector | (u32)type[e->type] << 8 | (u32)EVENT_VALID |
           (e->has_code && protected_mode ? (u32)EVENT_HAS_CODE : 0);
}

/* What an exit cut short, back into v->pending. INT n, INT3 and INTO are dropped: RIP still points at them,
 * and they are executed again. */
void event_requeue(struct virt_vcpu *v, u32 info, u32 code);

/* gwalk.c: at least 15 bytes at `rip` in 64-bit mode with 4 levels of tables, as the CPU has just fetched
 * them: no rights are checked. NULL if they are not there any more, or go on in the next page. Remembered
 * in v->insn. */
const u8 *insn_find(struct virt_vcpu *v, u64 cr3, u64 rip);
void insn_forget(struct virt_vcpu *v);

/* The same if it was found before; else NULL. Guest RAM never moves, so as long as the entries that led to
 * a page hold what they held then, walking again would end at the same page. */
static inline const u8 *insn_cached(const struct virt_vcpu *v, u64 cr3, u64 rip) {
    const struct insn_at *c = &v->insn[rip & (INSN_CACHE - 1)];
    u64 diff = 0;

    if (c->rip != rip || c->cr3 != cr3) return NULL;
#pragma GCC unroll 4
    for (unsigned i = 0; i < INSN_LEVELS; i++)
        diff |= __atomic_load_n(c->entry[i], __ATOMIC_RELAXED) ^ c->value[i];
    return diff ? NULL : c->bytes;
}

static inline const u8 *insn_bytes(struct virt_vcpu *v, u64 cr3, u64 rip) {
    const u8 *p = insn_cached(v, cr3, rip);

    return __builtin_expect(p != NULL, 1) ? p : insn_find(v, cr3, rip);
}

/* The hidden state after INIT: SDM 3A table 10-1. */
struct reset_seg {
    enum seg_name name;
    struct guest_seg seg;
};
extern const struct reset_seg reset_segs[SEG_NR];

#endif
