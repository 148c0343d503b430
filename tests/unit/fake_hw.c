#include "fake_hw.h"

#include <stdio.h>
#include <string.h>
#include "fake_insn.h"
#include "fake_machine.h"
#include "lib/printf.h"
#include "virt/hw.h"
#include "virt/vendor.h"
#include "virt/vmcs.h"
#include "vcpu/vcpu.h"

#define MSR_VMX_BASIC 0x480
#define XSTATE_BV     512 /* offset in the area of XSAVE */

#define PAT_RESET     0x0007040600070406ull
#define GARBAGE       0xdead0000ull /* in each field of a VMCS that was not written */

static enum hw_kind kind;
static struct hw_cpu cpus[FAKE_CPUS];
static struct hw_vmcs vmcss[16];
static struct vmcb *entered;

void (*hw_guest)(struct guest_regs *regs);
void (*hw_meanwhile)(void);
const char *hw_broken;
bool hw_expect_broken;

struct hw_cpu *hw_cpu_nr(u32 cpu) {
    return &cpus[cpu];
}

struct hw_cpu *hw_cpu(void) {
    return &cpus[this_cpu()->id];
}

static bool intel(void) { return kind == HW_INTEL || kind == HW_KVM_INTEL; }

/* ---- CPUID, MSRs ---- */

u32 hw_svm_features;
u8 hw_bytes_told;

static struct cpuid model_cpuid(u32 leaf, u32 sub) {
    switch (leaf) {
    case 0: /* "GenuineIntel" or "AuthenticAMD", of which the first four letters are looked at */
        return (struct cpuid){ .eax = 0xd, .ebx = intel() ? 0x756e6547 : 0x68747541 };
    case 1: /* XSAVE, VMX, and what each CPU with long mode has */
        return (struct cpuid){ .ecx = (u32)BIT(26) | (u32)intel() << 5, .edx = 0x078bfbff };
    /* FSGSBASE, SMEP, SMAP */
    case 7: return (struct cpuid){ .ebx = (u32)(BIT(0) | BIT(7) | BIT(20)) };
    case 0xd: return (struct cpuid){ .eax = 7, .ebx = 832, .ecx = 832 };
    case 0x80000000u: return (struct cpuid){ .eax = 0x8000000a };
    case 0x80000001u: return (struct cpuid){ .ecx = (u32)!intel() << 2, .edx = 0x28100800 };
    case 0x80000008u: return (struct cpuid){ .eax = 48 << 8 | HW_PHYSBITS };
    case 0x8000000au: /* nested paging; pause filter, its threshold */
        return (struct cpuid){ .ebx = 16,
                               .edx = (u32)(kind == HW_AMD ? BIT(0) | BIT(10) | BIT(12) : BIT(0)) |
                                      hw_svm_features };
    default: return (struct cpuid){ 0 };
    }
}

static u64 *find_msr(struct hw_cpu *c, u32 msr) {
    for (u32 i = 0; i < c->nr_msrs; i++)
        if (c->msrs[i].msr == msr) return &c->msrs[i].value;
    return NULL;
}

u64 *hw_msr(struct hw_cpu *c, u32 msr) {
    u64 *value = find_msr(c, msr);

    if (value) return value;
    ASSERT(c->nr_msrs < ARRAY_SIZE(c->msrs));
    c->msrs[c->nr_msrs].msr = msr;
    return &c->msrs[c->nr_msrs++].value;
}

static u64 model_rdmsr(u32 msr) {
    const u64 *value = find_msr(hw_cpu(), msr);

    if (!value) panic("RDMSR of %#x, which this CPU does not have: #GP", msr);
    return *value;
}

/* APM2 15.4: EFER.SVME cannot be set while VM_CR.SVMDIS is. SDM 3C 24.7: FEATURE_CONTROL may be
 * locked. */
static void model_wrmsr(u32 msr, u64 value) {
    u64 *old = find_msr(hw_cpu(), msr);

    if (!old) panic("WRMSR of %#x, which this CPU does not have: #GP", msr);
    if (msr == MSR_EFER && value & EFER_SVME &&
        (intel() || *find_msr(hw_cpu(), MSR_VM_CR) & BIT(4)))
        panic("EFER.SVME is set while VM_CR.SVMDIS is: #GP");
    if (msr == MSR_FEATURE_CONTROL && *old & 1) panic("FEATURE_CONTROL is locked: #GP");
    if (msr == MSR_VM_CR && *old & BIT(3)) value = (value & ~BIT(4)) | (*old & BIT(4)); /* LOCK */
    *old = value;
}

/* Makes the MSR that tells the controls of VT-x: the lower half says which must be 1, and the upper
 * half which may be 1. */
static void offer(struct hw_cpu *c, u32 msr, u32 must, u32 may) {
    *hw_msr(c, msr) = (u64)(must | may) << 32 | must;
}

/* The bits that are 1 on every CPU: SDM 3D A.3 to A.5. */
#define PIN_ALWAYS     0x16u
#define PRIMARY_ALWAYS 0x04006172u
#define EXIT_ALWAYS    0x00036dfbu
#define ENTRY_ALWAYS   0x000011fbu

static void intel_msrs(struct hw_cpu *c) {
    bool kvm = kind == HW_KVM_INTEL;
    /* These are the controls that KVM offers to its guests (nested_vmx_setup_ctls_msrs()), on a
     * host with APIC virtualization off. */
    u32 primary = PRI_IRQ_WINDOW | PRI_NMI_WINDOW | PRI_TSC_OFFSET | PRI_HLT | (1u << 9) |
                  PRI_MWAIT | PRI_CR3 | PRI_CR8_LOAD | (1u << 20) | (1u << 23) | PRI_IO |
                  (1u << 25) | (1u << 27) | PRI_MONITOR | PRI_RDPMC | (1u << 12) | PRI_PAUSE |
                  PRI_TPR_SHADOW | PRI_SECONDARY | PRI_MSR_BITMAP;
    u32 secondary = (1u << 2) | SEC_RDTSCP | (1u << 4) | SEC_WBINVD | (1u << 11) | (1u << 12) |
                    (1u << 14) | (1u << 16) | (1u << 20) | SEC_EPT | SEC_VPID | SEC_UNRESTRICTED;
    u64 ept = BIT(0) | BIT(6) | BIT(14) | BIT(16) | BIT(17) | BIT(20) | BIT(21) | BIT(25) | BIT(26);

    *hw_msr(c, MSR_FEATURE_CONTROL) = 5; /* locked, VMXON outside SMX */
    *hw_msr(c, MSR_VMX_BASIC) = 0x11e57ed0 | 4096ull << 32 | 6ull << 50 | BIT(55);
    /* MISC says the rate of the preemption timer, that EFER.LMA is saved, and that there is the
     * activity state HLT. KVM has neither CR3 targets nor injection with a length of 0. */
    *hw_msr(c, 0x485) = BIT(5) | BIT(6) | BIT(29) | (kvm ? 5 : 7 | 4 << 16 | BIT(30));
    *hw_msr(c, 0x486) = CR0_PE | CR0_NE | CR0_PG;
    *hw_msr(c, 0x487) = 0xffffffff;
    *hw_msr(c, 0x488) = BIT(13); /* CR4.VMXE */
    *hw_msr(c, 0x489) = 0x27ff | CR4_FSGSBASE | CR4_OSXSAVE | CR4_SMEP | CR4_SMAP;
    *hw_msr(c, 0x48c) = ept | BIT(32) | BIT(40) | BIT(41) | BIT(42) | BIT(43);
    offer(c, 0x48d, PIN_ALWAYS, PIN_INTR | PIN_NMI | PIN_VIRTUAL_NMIS | PIN_PREEMPTION_TIMER);
    offer(c, 0x48e, PRIMARY_ALWAYS, primary);
    if (!kvm) secondary |= SEC_PLE | SEC_ENCLS | SEC_APIC_PAGE | SEC_APIC_REGS | SEC_VIRQ;
    offer(c, 0x48b, 0, secondary);
    offer(c, 0x48f, EXIT_ALWAYS,
          EXIT_DEBUG | EXIT_HOST_64 | BIT(15) | EXIT_SAVE_PAT | EXIT_LOAD_PAT | EXIT_SAVE_EFER |
              EXIT_LOAD_EFER | (1u << 22));
    offer(c, 0x490, ENTRY_ALWAYS, ENTRY_DEBUG | ENTRY_IA32E | ENTRY_LOAD_PAT | ENTRY_LOAD_EFER);
}

static void amd_msrs(struct hw_cpu *c) {
    *hw_msr(c, MSR_VM_CR) = 0;   /* VM_CR */
    *hw_msr(c, 0xc0010117u) = 0; /* VM_HSAVE_PA */
}

void hw_power_on(enum hw_kind k) {
    kind = k;
    hw_guest = NULL;
    hw_meanwhile = NULL;
    hw_broken = NULL;
    hw_expect_broken = false;
    hw_bytes_told = 15;
    memset(cpus, 0, sizeof(cpus));
    memset(vmcss, 0, sizeof(vmcss));
    svm_forget_exits();
    for (u32 i = 0; i < FAKE_CPUS; i++) {
        struct hw_cpu *c = &cpus[i];

        c->xcr0 = 1;
        *hw_msr(c, MSR_PAT) = PAT_RESET;
        *hw_msr(c, MSR_EFER) = EFER_SCE | EFER_LME | EFER_LMA | EFER_NXE;
        for (u32 msr = 0xc0000081u; msr <= 0xc0000084u; msr++) *hw_msr(c, msr) = 0;
        for (u32 msr = 0xc0000100u; msr <= 0xc0000103u; msr++) *hw_msr(c, msr) = 0;
        if (intel())
            intel_msrs(c);
        else
            amd_msrs(c);
    }
    fake_cpuid = model_cpuid;
    fake_rdmsr = model_rdmsr;
    fake_wrmsr = model_wrmsr;
    fake_cr[0] = CR0_PE | CR0_ET | CR0_NE | CR0_WP | CR0_PG;
    fake_cr[3] = 0x1000;
    fake_cr[4] = CR4_PAE | CR4_MCE;
    fake_cpu(0);
    virt_xcr0_mask = 0; /* no CPU was enabled yet */
}

void hw_start(enum hw_kind k) {
    hw_power_on(k);
    hw_enable();
}

void hw_enable(void) {
    struct virt_caps caps;

    ASSERT(virt_probe(&caps) == 0);
    for (u32 i = FAKE_CPUS; i-- > 0;) {
        fake_cpu(i);
        ASSERT(virt_cpu_enable() == 0);
    }
    cpuid_policy_init();
}

/* ---- VMCSs ---- */

static struct hw_vmcs *vmcs_at(hpa_t pa) {
    struct hw_vmcs *free = NULL;

    for (unsigned i = 0; i < ARRAY_SIZE(vmcss); i++) {
        if (vmcss[i].pa == pa) return &vmcss[i];
        if (!vmcss[i].pa) free = &vmcss[i];
    }
    ASSERT(free);
    free->pa = pa;
    for (u32 f = 0; f < HW_FIELDS; f++) free->value[f] = GARBAGE << 16 | f;
    return free;
}

struct hw_vmcs *hw_vmcs_of(const struct virt_vcpu *v) {
    return vmcs_at(*(const hpa_t *)v->priv);
}

/* The fields that there are: KVM's vmcs12 is what this has from vmcs_field_to_offset_table. */
static bool offered(u32 f) {
    static const struct {
        u32 first, last;
    } ranges[] = { { 0, 2 },           { 0x800, 0x80e },   { 0xc00, 0xc0c },   { 0x2000, 0x2016 },
                   { 0x201a, 0x202c }, { 0x2400, 0x2400 }, { 0x2800, 0x2812 }, { 0x2c00, 0x2c04 },
                   { 0x4000, 0x401e }, { 0x4400, 0x440e }, { 0x4800, 0x4826 }, { 0x482a, 0x482a },
                   { 0x482e, 0x482e }, { 0x4c00, 0x4c00 }, { 0x6000, 0x6006 }, { 0x6400, 0x6400 },
                   { 0x640a, 0x640a }, { 0x6800, 0x6826 }, { 0x6c00, 0x6c16 } };

    if (kind == HW_INTEL && (f == VMCS_ENCLS_BITMAP || f == VMCS_PLE_GAP || f == VMCS_PLE_WINDOW ||
                             f == VMCS_GUEST_APIC))
        return true;
    for (unsigned i = 0; i < ARRAY_SIZE(ranges); i++)
        if (f >= ranges[i].first && f <= ranges[i].last) return !(f & 1);
    return false;
}

static bool read_only(u32 f) { return (f >> 10 & 3) == 1; } /* exit information: SDM 3C 25.11.2 */

static struct hw_vmcs *current(const char *what, u32 field) {
    struct hw_vmcs *m = hw_cpu()->current;

    if (!m) panic("%s of field %#x without a current VMCS", what, field);
    if (!offered(field)) panic("%s of field %#x, which this CPU does not have", what, field);
    return m;
}

u64 vmread(u64 at) {
    u32 field = (u32)at;
    const struct hw_vmcs *m = current("VMREAD", field);

    if (!m->written[field] && !read_only(field))
        panic("VMREAD of field %#x, which nobody has written", field);
    return m->value[field];
}

/* A field is as wide as its number says: SDM 3C 25.11.2. */
static void check_width(u32 field, u64 value) {
    static const u8 bits[] = { 16, 64, 32, 64 };
    u8 n = bits[field >> 13 & 3];

    if (n < 64 && value >> n) panic("VMWRITE of %#lx to field %#x of %u bits", value, field, n);
}

void vmwrite(u64 at, u64 value) {
    u32 field = (u32)at;
    struct hw_vmcs *m = current("VMWRITE", field);

    if (read_only(field)) panic("VMWRITE to field %#x of exit information", field);
    check_width(field, value);
    m->value[field] = value;
    m->written[field] = true;
}

u64 hw_get(u32 field) { return hw_cpu()->current->value[field]; }

void hw_set(u32 field, u64 value) {
    hw_cpu()->current->value[field] = value;
    hw_cpu()->current->written[field] = true;
}

void vmclear(hpa_t pa) {
    struct hw_vmcs *m = vmcs_at(pa);

    m->launched = false;
    m->on = NULL;
    if (hw_cpu()->current == m) hw_cpu()->current = NULL;
}

void vmptrld(hpa_t pa) {
    struct hw_vmcs *m = vmcs_at(pa);

    if (m->on && m->on != hw_cpu()) panic("VMPTRLD of a VMCS that is active on another CPU");
    if (*(u32 *)hpa_to_va(pa) != (u32)rdmsr(MSR_VMX_BASIC))
        panic("VMPTRLD of a region without revision");
    m->on = hw_cpu();
    hw_cpu()->current = m;
}

bool vmxon(hpa_t pa) {
    struct hw_cpu *c = hw_cpu();

    if (*(u32 *)hpa_to_va(pa) != (u32)rdmsr(MSR_VMX_BASIC) || !(read_cr4() & BIT(13)) ||
        !(read_cr0() & CR0_NE))
        return false;
    c->vmx_on = true;
    return true;
}

void invept(enum invept_type type, u64 eptp) {
    struct hw_cpu *c = hw_cpu();

    if (type == INVEPT_SINGLE)
        c->invept_single[c->invept_singles++ % ARRAY_SIZE(c->invept_single)] = eptp;
    else
        c->invept_all++;
}

/* ---- the other instructions ---- */

void invvpid_all(void) { hw_cpu()->invvpids++; }

u64 idt_base(void) { return HW_IDT; }

void vmsave(hpa_t vmcb) {}

void raise_nmi(void) { hw_cpu()->nmis++; }

void raise_mc(void) { hw_cpu()->machine_checks++; }

u64 xgetbv(void) { return hw_cpu()->xcr0; }

void xsetbv(u64 v) { hw_cpu()->xcr0 = v; }

/* Does what QEMU's XSAVE does: it does not keep track of what is in use. */
void xsave(void *area, u64 mask) {
    memcpy(area, hw_cpu()->x87, sizeof(hw_cpu()->x87));
    *(u64 *)((u8 *)area + XSTATE_BV) = mask;
}

void xrstor(const void *area, u64 mask) {
    static const u64 initial[20] = { 0x37f };
    struct hw_cpu *c = hw_cpu();

    c->loaded = *(const u64 *)((const u8 *)area + XSTATE_BV) & mask;
    memcpy(c->x87, c->loaded & XCR0_X87 ? area : initial, sizeof(c->x87));
}

void fxsave(void *area) {}

void fxrstor(const void *area) {}

void read_debug_addresses(u64 dr[4]) { memcpy(dr, hw_cpu()->dr, sizeof(hw_cpu()->dr)); }

void write_debug_addresses(const u64 dr[4]) { memcpy(hw_cpu()->dr, dr, sizeof(hw_cpu()->dr)); }

u64 read_dr6(void) { return hw_cpu()->dr6; }

void write_dr6(u64 v) { hw_cpu()->dr6 = v; }

void x87_forget_pointers(void) {}

/* ---- entries ---- */

static bool refused(const char *rule) {
    hw_broken = rule;
    hw_cpu()->entries++;
    if (rule && !hw_expect_broken) panic("an entry that the CPU refuses: %s", rule);
    return rule;
}

void vmx_exit(void) {}

int vmx_enter(struct guest_regs *regs, bool launched) {
    struct hw_vmcs *m = hw_cpu()->current;

    if (!m) panic("an entry without a current VMCS");
    if (launched && !m->launched) panic("VMRESUME of a VMCS that is not launched");
    if (!launched && m->launched) panic("VMLAUNCH of a VMCS that is launched");
    hw_set(VMCS_HOST_RSP, 0xffffffff80300000ull); /* as the entry code */
    for (u32 f = VMCS_ERROR; f <= 0x440e; f += 2) m->value[f] = 0;
    m->value[VMCS_QUALIFICATION] = 0;
    m->value[VMCS_GPA] = 0;
    if (refused(vmx_broken_rule())) {
        m->value[VMCS_REASON] = BIT(31) | 33;
        m->launched = true; /* it is not, but nothing is lost */
        return 0;
    }
    m->launched = true;
    m->value[VMCS_REASON] = 1; /* an interrupt */
    if (hw_guest) hw_guest(regs);
    m->value[VMCS_ENTRY_EVENT] &= ~BIT(31); /* SDM 3C 28.2 */
    return 0;
}

static void (*once)(struct guest_regs *regs);

static void run_once(struct guest_regs *regs) {
    void (*guest)(struct guest_regs *) = once;

    once = NULL;
    if (guest) guest(regs);
}

void hw_once(void (*guest)(struct guest_regs *regs)) {
    once = guest;
    hw_guest = run_once;
}

void hw_enter(void (*guest)(struct guest_regs *regs)) {
    u32 before = hw_cpu()->entries;

    hw_once(guest);
    for (int i = 0; i < 100 && hw_cpu()->entries == before; i++) {
        this_cpu()->need_resched = true;
        cpu_pass();
    }
    if (hw_cpu()->entries == before) panic("no vCPU was entered in 100 passes of the loop");
}

struct vmcb *hw_vmcb(void) {
    return entered;
}

struct vmcb *hw_vmcb_of(const struct virt_vcpu *v) {
    return *(struct vmcb *const *)v->priv;
}

/* Copies the instruction at CS:RIP, as much as the CPU tells of it. Returns how many bytes. Guests
 * of these tests have no page tables; with paging on, the CPU can fetch nothing. */
static u8 fetch(const struct vmcb *b, u8 *bytes) {
    const struct guestmem *mem = this_virt()->vcpu->vm->mem;
    u8 n = 0;

    if (b->cr0 & CR0_PG) return 0;
    while (n < hw_bytes_told && !guestmem_read(mem, (u32)(b->cs.base + b->rip + n), bytes + n, 1))
        n++;
    return n;
}

/* Decode assists tell about a MOV to or from a control register, and about an access to data that
 * causes a nested page fault: APM2 15.8.1, 15.8.4. A CPU without them leaves there what it likes,
 * here the bytes of another instruction. */
static void assist(struct vmcb *b) {
    bool cr = b->exit_code <= SVM_EXIT_CR_WRITE15 || b->exit_code == SVM_EXIT_CR0_SELECTIVE;
    u8 bytes[15] = { 0 };

    if (!(cpuid(0x8000000a, 0).edx & HW_DECODE)) {
        if (cr) b->exit_info1 = CR_EXIT_IS_MOV | 7;
        b->nr_insn_bytes = 2;
        memcpy(b->insn_bytes, "\x8b\x0f", 2); /* mov (%rdi), %ecx */
        return;
    }
    b->nr_insn_bytes = 0;
    if (cr && !(b->exit_info1 & CR_EXIT_IS_MOV)) {
        b->exit_info1 = 0;
        fetch(b, bytes);
        if (bytes[0] == 0x0f && (bytes[1] & ~2) == 0x20)
            b->exit_info1 = CR_EXIT_IS_MOV | (bytes[2] & 7);
    }
    if (b->exit_code == SVM_EXIT_NPF && !(b->exit_info1 & NPF_EXEC)) {
        memset(b->insn_bytes, 0xcc, sizeof(b->insn_bytes));
        b->nr_insn_bytes = fetch(b, b->insn_bytes);
    }
}

void svm_enter(struct guest_regs *regs, u64 vmcb_pa, u64 host_pa) {
    struct vmcb *b = hpa_to_va(vmcb_pa);
    const char *broken;

    entered = b;
    broken = svm_broken_rule(b);
    if (!broken) broken = svm_broken_clean_bit(b);
    if (refused(broken)) {
        b->exit_code = ~0ull; /* VMEXIT_INVALID */
        return;
    }
    b->exit_code = 0x60; /* an interrupt */
    b->exit_int_info = b->exit_info1 = b->exit_info2 = 0;
    if (hw_guest) hw_guest(regs);
    assist(b);
    if (hw_meanwhile) hw_meanwhile();
    b->event_inj = 0; /* the CPU clears a delivered event (APM2 15.20) */
    svm_note_exit(b);
}
