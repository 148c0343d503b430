/* Why VT-x refused an entry, in words. */
#include "virt/vendor.h"
#include "virt/vmcs.h"

const char *vmx_error(u64 number) {
    static const char *const text[] = {
        [1] = "VMCALL in VMX root operation",
        [2] = "VMCLEAR with an invalid address",
        [3] = "VMCLEAR of the VMXON region",
        [4] = "VMLAUNCH of a VMCS that is not clear",
        [5] = "VMRESUME of a VMCS that was not launched",
        [6] = "VMRESUME after VMXOFF",
        [7] = "entry with invalid control fields",
        [8] = "entry with invalid host state",
        [9] = "VMPTRLD with an invalid address",
        [10] = "VMPTRLD of the VMXON region",
        [11] = "VMPTRLD with a wrong revision",
        [12] = "access to a VMCS field that does not exist",
        [13] = "write to a read-only VMCS field",
        [15] = "VMXON in VMX root operation",
        [26] = "entry with events blocked by MOV SS",
        [28] = "INVEPT or INVVPID with an invalid operand",
    };

    return number < ARRAY_SIZE(text) && text[number] ? text[number] : "an error that has no name";
}

static const char *check_registers(void) {
    u64 cr0 = vmread(VMCS_GUEST_CR0), cr4 = vmread(VMCS_GUEST_CR4), efer = vmread(VMCS_GUEST_EFER);
    bool ia32e = vmread(VMCS_ENTRY_CTL) & ENTRY_IA32E;

    if (cr0 & CR0_PG && !(cr0 & CR0_PE)) return "CR0.PG is set without CR0.PE";
    if (!(cr0 & CR0_NE)) return "CR0.NE is clear";
    if (!(cr4 & CR4_VMXE)) return "CR4.VMXE is clear";
    if (ia32e && !(cr0 & CR0_PG && cr4 & CR4_PAE)) return "an IA-32e guest without CR0.PG or CR4.PAE";
    if (ia32e != !!(efer & EFER_LMA)) return "EFER.LMA differs from the entry control for IA-32e";
    if (cr0 & CR0_PG && !!(efer & EFER_LME) != !!(efer & EFER_LMA))
        return "EFER.LMA differs from EFER.LME under paging";
    if (vmread(VMCS_GUEST_CR3) >> 52) return "CR3 is beyond the physical addresses";
    if (vmread(VMCS_GUEST_DR7) >> 32) return "DR7 has a bit above 31";
    return NULL;
}

static const char *check_segments(void) {
    static const char *const name[] = { "ES", "CS", "SS", "DS", "FS", "GS", "LDTR", "TR" };
    static char text[64];
    bool ia32e = vmread(VMCS_ENTRY_CTL) & ENTRY_IA32E;

    for (unsigned i = SEG_ES; i <= SEG_TR; i++) {
        u64 ar = vmread(VMCS_GUEST_AR + 2 * i), limit = vmread(VMCS_GUEST_LIMIT + 2 * i);
        const char *what = NULL;

        if (ar & AR_UNUSABLE && i != SEG_CS && i != SEG_TR) continue;
        if (ar & AR_UNUSABLE)
            what = "is unusable";
        else if (!(ar & ATTR_P))
            what = "is not present";
        else if (!!(ar & BIT(4)) != (i < SEG_LDTR))
            what = "has the wrong S bit";
        else if (i == SEG_TR && (ar & 15) != 11 && ((ar & 15) != 3 || ia32e))
            what = "is no busy TSS";
        else if (i == SEG_CS && (ar & 9) != 9 && (ar & 15) != 3)
            what = "is no accessed code segment";
        else if (i < SEG_LDTR && !(ar & 1))
            what = "is not accessed";
        else if (ar & 0xf00 || ar >> 17)
            what = "has reserved rights";
        else if ((limit & 0xfff) != 0xfff && ar & BIT(15))
            what = "has G set and a limit of bytes";
        else if (limit >> 20 && !(ar & BIT(15)))
            what = "has G clear and a limit of pages";
        if (what) {
            hv_snprintf(text, sizeof(text), "%s %s", name[i], what);
            return text;
        }
    }
    return NULL;
}

static const char *check_rip_and_events(void) {
    u64 flags = vmread(VMCS_GUEST_RFLAGS), shadow = vmread(VMCS_SHADOW), event = vmread(VMCS_ENTRY_EVENT);
    bool is_64bit = vmread(VMCS_ENTRY_CTL) & ENTRY_IA32E && vmread(VMCS_GUEST_AR + 2 * SEG_CS) & BIT(13);

    if (vmread(VMCS_GUEST_RIP) >> 32 && !is_64bit) return "RIP is above 4 GiB outside 64-bit mode";
    if (!(flags & RFLAGS_ONE) || flags & 0xffffffffffc08028ull) return "RFLAGS has a reserved bit";
    if (event & EVENT_VALID && (event >> 8 & 7) == EVENT_TYPE_INTR && !(flags & RFLAGS_IF))
        return "an interrupt is injected while IF is clear";
    if (shadow & SHADOW_STI && !(flags & RFLAGS_IF)) return "blocking by STI while IF is clear";
    if (shadow & SHADOW_STI && shadow & SHADOW_MOV_SS) return "blocking by STI and by MOV SS";
    if (event & EVENT_VALID && (event >> 8 & 7) == EVENT_TYPE_INTR && shadow & (SHADOW_STI | SHADOW_MOV_SS))
        return "an interrupt is injected into a shadow";
    if (shadow & (SHADOW_STI | SHADOW_MOV_SS) && flags & RFLAGS_TF && !(vmread(VMCS_PENDING_DEBUG) & BIT(14)))
        return "single step in a shadow without a pending debug exception";
    if (vmread(VMCS_ACTIVITY) > 3) return "an unknown activity state";
    if (vmread(VMCS_LINK) != ~0ull) return "the VMCS link pointer is set";
    return NULL;
}

const char *vmx_broken_rule(void) {
    const char *why = check_registers();

    if (!why) why = check_segments();
    if (!why) why = check_rip_and_events();
    return why ? why : "a rule that is not among those checked here";
}
