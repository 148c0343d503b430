/* The virtual machine control structure of VT-x: field encodings (SDM 3D appendix B), controls (SDM 3C
 * chapter 25), exit reasons (appendix C), and the instructions that reach it. */
#ifndef HV_VIRT_VMCS_H
#define HV_VIRT_VMCS_H

#include "lib/printf.h"
#include "mm/frame.h"

/* Those that are named in more than a table. */
enum vmcs_field {
    VMCS_VPID = 0x0000,
    VMCS_GUEST_SEL = 0x0800, /* + 2 * enum seg_name, as are the limits, rights and bases below */
    VMCS_HOST = 0x0c00,      /* + 2 * enum seg_name, but TR is the seventh */
    VMCS_GPA = 0x2400,
    VMCS_GUEST_EFER = 0x2806,
    VMCS_GUEST_PDPTE = 0x280a, /* + 2 * n */
    VMCS_PRIMARY = 0x4002,
    VMCS_ENTRY_CTL = 0x4012,
    VMCS_ENTRY_EVENT = 0x4016,
    VMCS_ENTRY_CODE = 0x4018,
    VMCS_ERROR = 0x4400,
    VMCS_REASON = 0x4402,
    VMCS_EXIT_EVENT = 0x4404,
    VMCS_EXIT_CODE = 0x4406,
    VMCS_IDT_EVENT = 0x4408,
    VMCS_IDT_CODE = 0x440a,
    VMCS_INSN_LEN = 0x440c,
    VMCS_GUEST_LIMIT = 0x4800,
    VMCS_GUEST_AR = 0x4814,
    VMCS_SHADOW = 0x4824, /* "interruptibility state" */
    VMCS_PREEMPTION_TIMER = 0x482e,
    VMCS_CR0_MASK = 0x6000,
    VMCS_CR4_MASK = 0x6002,
    VMCS_CR0_SHADOW = 0x6004,
    VMCS_CR4_SHADOW = 0x6006,
    VMCS_QUALIFICATION = 0x6400,
    VMCS_GUEST_CR0 = 0x6800,
    VMCS_GUEST_CR3 = 0x6802,
    VMCS_GUEST_CR4 = 0x6804,
    VMCS_GUEST_BASE = 0x6806,
    VMCS_GUEST_RSP = 0x681c,
    VMCS_GUEST_RIP = 0x681e,
    VMCS_GUEST_RFLAGS = 0x6820,
    VMCS_PENDING_DEBUG = 0x6822,
};

/* SDM 3C 25.6.1 */
#define PIN_PREEMPTION_TIMER (1u << 6)
/* 25.6.2 */
#define PRI_IRQ_WINDOW   (1u << 2)
#define PRI_CR3          (3u << 15)
#define PRI_CR8_LOAD     (1u << 19)
#define PRI_NMI_WINDOW   (1u << 22)
#define PRI_PAUSE        (1u << 30)
#define SEC_EPT          (1u << 1)
#define SEC_VPID         (1u << 5)
#define SEC_UNRESTRICTED (1u << 7)
#define SEC_PLE          (1u << 10)
#define SEC_ENCLS        (1u << 15)
/* 25.7.1, 25.8.1 */
#define ENTRY_IA32E   (1u << 9)

#define SHADOW_STI    BIT(0)
#define SHADOW_MOV_SS BIT(1)
#define SHADOW_NMI    BIT(3)

#define AR_UNUSABLE   BIT(16)

/* Basic exit reasons that take more than a table: SDM 3D appendix C. */
enum {
    VMX_EXCEPTION = 0,
    VMX_VMCALL = 18,
    VMX_CR = 28,
    VMX_IO = 30,
    VMX_MC_ENTRY = 41,
    VMX_EPT_VIOLATION = 48
};

static inline u64 vmread(u64 field) {
    u64 v;
    __asm__ volatile("vmread %1, %0" : "=r"(v) : "r"(field) : "cc");
    return v;
}

static inline void vmwrite(u64 field, u64 v) {
    bool failed;
    __asm__ volatile("vmwrite %2, %1" : "=@ccbe"(failed) : "r"(field), "r"(v));
    if (__builtin_expect(failed, 0)) panic("VMWRITE of %#lx to field %#lx", v, field);
}

static inline void vmclear(hpa_t pa) {
    bool failed;
    __asm__ volatile("vmclear %1" : "=@ccbe"(failed) : "m"(pa) : "memory");
    if (failed) panic("VMCLEAR of %#lx", pa);
}

static inline void vmptrld(hpa_t pa) {
    bool failed;
    __asm__ volatile("vmptrld %1" : "=@ccbe"(failed) : "m"(pa) : "memory");
    if (failed) panic("VMPTRLD of %#lx", pa);
}

#endif
