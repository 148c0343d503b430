/* What vmx.c and svm.c share with each other and with nobody else. */
#ifndef HV_VIRT_VENDOR_H
#define HV_VIRT_VENDOR_H

#include "virt/virt.h"

#define CR0_PE     BIT(0)
#define CR0_ET     BIT(4)
#define CR0_NE     BIT(5)
#define CR0_WP     BIT(16)
#define CR0_NW     BIT(29)
#define CR0_CD     BIT(30)
#define CR0_PG     BIT(31)
#define CR4_PSE    BIT(4)
#define CR4_PAE    BIT(5)
#define CR4_LA57   BIT(12)
#define CR4_VMXE   BIT(13)
#define CR4_SMEP   BIT(20)
#define CR4_SMAP   BIT(21)
#define EFER_LME   BIT(8)
#define EFER_LMA   BIT(10)
#define EFER_NXE   BIT(11)
#define EFER_SVME  BIT(12)
#define RFLAGS_ONE BIT(1)
#define RFLAGS_TF  BIT(8)
#define RFLAGS_IF  BIT(9)
#define RFLAGS_VM  BIT(17)
#define RFLAGS_AC  BIT(18)
#define DR6_RESET  0xffff0ff0ull
#define DR7_RESET  0x400ull
#define PAT_RESET  0x0007040600070406ull
#define ATTR_LONG  BIT(9)  /* of struct guest_seg: CS.L */
#define ATTR_BIG   BIT(10) /* D or B */
#define ATTR_P     BIT(7)
#define ADDR_52    0x000ffffffffff000ull

/* An event as both vendors write it down: VMCB EVENTINJ and EXITINTINFO (APM2 15.20), VMX interruption information
 * (SDM 3C 25.8.3, 25.9.2) without the latter's software types beyond 4. */
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
static inline u32 event_encode(const struct virt_event *e, bool protected_mode)
{
    static const u8 type[] = {
        [EVENT_IRQ] = EVENT_TYPE_INTR, [EVENT_NMI] = EVENT_TYPE_NMI, [EVENT_EXCEPTION] = EVENT_TYPE_EXC
    };

    return e->vector | (u32)type[e->type] << 8 | (u32)EVENT_VALID |
           (e->has_code && protected_mode ? (u32)EVENT_HAS_CODE : 0);
}

/* What an exit cut short, back into v->pending. INT n, INT3 and INTO are dropped: RIP still points at them, and
 * they are executed again. */
void event_requeue(struct virt_vcpu *v, u32 info, u32 code);

/* gwalk.c: the page of code at `va` in long mode, as the CPU has just fetched it: no rights are checked. NULL if it
 * is not there any more. Remembers it in v->code. */
const u8 *code_walk(struct virt_vcpu *v, u64 cr3, unsigned levels, u64 va);

/* The same, at the byte; *room: bytes to the end of the page. Guest RAM never moves, so as long as the entries that
 * led to a page hold what they held then, walking again would end at the same page. */
static inline const u8 *code_at(struct virt_vcpu *v, u64 cr3, unsigned levels, u64 va, u64 *room)
{
    const struct code_page *c = &v->code[va >> PAGE_SHIFT & (CODE_PAGES - 1)];
    u64 off = va & (PAGE_SIZE - 1), diff = (c->page ^ (va - off + levels)) | (c->cr3 ^ cr3);
    const u8 *page = c->host;

    if (diff == 0) {
#pragma GCC unroll 4
        for (unsigned i = 0; i < CODE_LEVELS; i++)
            diff |= __atomic_load_n(c->entry[i], __ATOMIC_RELAXED) ^ c->value[i];
    }
    if (__builtin_expect(diff != 0, 0))
        page = code_walk(v, cr3, levels, va);
    *room = PAGE_SIZE - off;
    return page ? page + off : NULL;
}

/* The hidden state after INIT: SDM 3A table 10-1. */
struct reset_seg {
    enum seg_name name;
    struct guest_seg seg;
};
extern const struct reset_seg reset_segs[SEG_NR];

#endif
