/* The instructions that only the files of hv/virt use: those of VT-x (SDM 3C chapter 31) and AMD-V
 * (APM3 chapter 4), and those that save and load the state of a guest which neither VMCS nor VMCB
 * holds. They act on the CPU on which they run. The functions of VT-x panic if the CPU refuses, as
 * that would be a bug of Takt; only vmxon() reports it. */
#ifndef HV_VIRT_HW_H
#define HV_VIRT_HW_H

#include "lib/printf.h"
#include "mm/frame.h"
#include "x86/cpu.h"

/* Which translations INVEPT forgets: those of one EPT pointer, or all (SDM 3C 31.3, INVEPT). */
enum invept_type { INVEPT_SINGLE = 1, INVEPT_ALL = 2 };

/* An ordinary process cannot execute these instructions. In unit tests, which run as one, they are
 * functions of a model of the CPU (tests/unit/fake_hw.c). */
#if __STDC_HOSTED__
u64 vmread(u64 field);
void vmwrite(u64 field, u64 v);
void vmclear(hpa_t pa);
void vmptrld(hpa_t pa);
bool vmxon(hpa_t pa);
void invept(enum invept_type type, u64 eptp);
void invvpid_all(void);
u64 idt_base(void);
void vmsave(hpa_t vmcb);
void raise_nmi(void);
void raise_mc(void);
u64 xgetbv(void);
void xsetbv(u64 v);
void xsave(void *area, u64 mask);
void xrstor(const void *area, u64 mask);
void fxsave(void *area);
void fxrstor(const void *area);
void read_debug_addresses(u64 dr[4]);
void write_debug_addresses(const u64 dr[4]);
u64 read_dr6(void);
void write_dr6(u64 v);
void x87_forget_pointers(void);
#else

/* ---- VT-x. Each function executes the instruction of its name (SDM 3C 31); one that fails is a
 * fault of the hypervisor. ---- */

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

/* Switches VMX operation on; `pa` is the VMXON region. Returns false if the CPU refuses. */
static inline bool vmxon(hpa_t pa) {
    bool failed;
    __asm__ volatile("vmxon %1" : "=@ccbe"(failed) : "m"(pa) : "memory");
    return !failed;
}

static inline void invept(enum invept_type type, u64 eptp) {
    const u64 descriptor[2] = { eptp, 0 };
    bool failed;

    __asm__ volatile("invept %1, %2"
                     : "=@ccbe"(failed)
                     : "m"(descriptor), "r"((u64)type)
                     : "memory");
    if (failed) panic("INVEPT of type %u for %#lx", type, eptp);
}

/* Forgets the translations of all VPIDs except 0, which is the host's: INVVPID of type 2. */
static inline void invvpid_all(void) {
    static const u64 descriptor[2];

    __asm__ volatile("invvpid %0, %1" : : "m"(descriptor), "r"(2ull) : "cc", "memory");
}

static inline u64 idt_base(void) {
    struct table_register idt;

    __asm__ volatile("sidt %0" : "=m"(idt));
    return idt.base;
}

/* ---- AMD-V ---- */

/* Stores in the VMCB at `vmcb` the registers that VMRUN does not switch: FS, GS, TR, LDTR,
 * KernelGsBase, STAR and so on (APM3, VMSAVE). */
static inline void vmsave(hpa_t vmcb) { __asm__ volatile("vmsave %0" : : "a"(vmcb) : "memory"); }

/* ---- NMIs and machine checks that made a guest exit, but are meant for the host: these two run
 * the host's handler ---- */

/* The IRET of the handler also ends the blocking of NMIs, so that the next one can come. */
static inline void raise_nmi(void) { __asm__ volatile("int $2"); }
static inline void raise_mc(void) { __asm__ volatile("int $18"); }

/* ---- state that stays in the CPU while the hypervisor runs ---- */

static inline u64 xgetbv(void) {
    u32 lo, hi;

    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (u64)hi << 32 | lo;
}

static inline void xsetbv(u64 v) {
    __asm__ volatile("xsetbv" : : "c"(0), "a"((u32)v), "d"((u32)(v >> 32)) : "memory");
}

static inline void xsave(void *area, u64 mask) {
    __asm__ volatile("xsave64 (%0)" : : "r"(area), "a"((u32)mask), "d"(0) : "memory");
}

static inline void fxsave(void *area) {
    __asm__ volatile("fxsave64 (%0)" : : "r"(area) : "memory");
}

static inline void fxrstor(const void *area) {
    __asm__ volatile("fxrstor64 (%0)" : : "r"(area) : "memory");
}

static inline void xrstor(const void *area, u64 mask) {
    __asm__ volatile("xrstor64 (%0)" : : "r"(area), "a"((u32)mask), "d"(0) : "memory");
}

static inline void read_debug_addresses(u64 dr[4]) {
    __asm__ volatile("mov %%dr0, %0\n\tmov %%dr1, %1\n\tmov %%dr2, %2\n\tmov %%dr3, %3"
                     : "=r"(dr[0]), "=r"(dr[1]), "=r"(dr[2]), "=r"(dr[3]));
}

static inline void write_debug_addresses(const u64 dr[4]) {
    __asm__ volatile("mov %0, %%dr0\n\tmov %1, %%dr1\n\tmov %2, %%dr2\n\tmov %3, %%dr3"
                     :
                     : "r"(dr[0]), "r"(dr[1]), "r"(dr[2]), "r"(dr[3]));
}

static inline u64 read_dr6(void) {
    u64 v;
    __asm__ volatile("mov %%dr6, %0" : "=r"(v));
    return v;
}

static inline void write_dr6(u64 v) { __asm__ volatile("mov %0, %%dr6" : : "r"(v)); }

/* Overwrites the last opcode and addresses that the x87 unit remembers. FXRSTOR may leave those of
 * the vCPU that ran before, and a guest must not read them. */
static inline void x87_forget_pointers(void) {
    static const u32 zero;

    __asm__ volatile("fnclex\n\tffree %%st(7)\n\tfildl %0" : : "m"(zero));
}

#endif

#endif
