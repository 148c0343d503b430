/* What the tests of this lab stand on: a few frames of memory, a VM with some RAM, and a vCPU whose
 * registers are an array. */
#ifndef LAB3_RIG_H
#define LAB3_RIG_H

#include <takt/errno.h>
#include "check.h"
#include "frame_model.h"
#include "npt_model.h"
#include "virt/vendor.h"

#define P  0x1ull
#define W  0x2ull
#define U  0x4ull
#define A  0x20ull
#define D  0x40ull
#define PS 0x80ull
#define NX BIT(63)
#define M2 BIT(21)

/* The bits of the error code of a page fault. */
enum { PF_P = 1, PF_W = 2, PF_U = 4, PF_RSVD = 8, PF_I = 16 };

static u64 regs[VREG_NR];
static struct guestmem mem;
static struct virt_vm vm = { .mem = &mem };
static struct virt_vcpu vcpu = { .vm = &vm };

static u64 get_reg(struct virt_vcpu *v, enum virt_reg reg) { return regs[reg]; }

static const struct virt_ops fake = { .get_reg = get_reg };
const struct virt_ops *virt = &fake;

void panic(const char *format, ...) {
    printf("a rule of the hypervisor\tthat it holds\tpanic: %s\n", format);
    exit(1);
}

void cache_write_back(const void *p, u64 len) {}

/* Only tables come from the frames of the model. What else the files allocate is the host's. */
void *heap_alloc(size_t size) { return calloc(1, size); }
void heap_free(void *p) { free(p); }

/* Makes an empty table. */
static inline void npt_begin(struct npt *t) {
    model_setup();
    expect_result("npt_init", npt_init(t, &npt_format_ept), 0);
}

/* Checks where the processor finds `gpa`, and with which rights. */
static inline void maps(struct npt *t, gpa_t gpa, hpa_t hpa, unsigned prot) {
    unsigned came = 99;
    char what[80];

    snprintf(what, sizeof(what), "where the processor finds guest address %#llx",
             (unsigned long long)gpa);
    expect(what, npt_lookup(t, gpa, &came), hpa);
    if (hpa == HPA_NONE) return;
    snprintf(what, sizeof(what), "the rights of guest address %#llx", (unsigned long long)gpa);
    expect(what, came, prot);
}

/* Begins a test of the page walk: a VM of 8 MiB in 64-bit mode, whose tables are at 0x1000. */
static inline void walk_begin(void) {
    model_setup();
    expect_result("npt_init", npt_init(&vm.npt, &npt_format_ept), 0);
    expect_result("the VM's RAM", guestmem_init(&mem, 4 * CHUNK_SIZE), 0);
    while (guestmem_grow(&mem) == 0) memset(hpa_to_va(mem.chunk[mem.grown - 1]), 0, CHUNK_SIZE);
    regs[VREG_CR0] = CR0_PE | CR0_PG | CR0_WP;
    regs[VREG_CR4] = CR4_PAE;
    regs[VREG_EFER] = EFER_LME | EFER_LMA | EFER_NXE;
    regs[VREG_CR3] = 0x1000;
}

static inline void put(gpa_t at, u64 e) { guestmem_write(&mem, at, &e, 8); }

static inline u64 entry(gpa_t at) {
    u64 e = 0;

    guestmem_read(&mem, at, &e, 8);
    return e;
}

/* VA + x is mapped to 0x300000 + x, by tables at 0x1000, 0x2000, 0x3000 and 0x4000. */
#define VA 0x40201000ull

static inline void map4(u64 leaf) {
    put(0x1000, 0x2000 | P | W | U);
    put(0x2000 + 1 * 8, 0x3000 | P | W | U);
    put(0x3000 + 1 * 8, 0x4000 | P | W | U);
    put(0x4000 + 1 * 8, 0x300000 | leaf);
}

/* Checks that an access goes to guest-physical address `expected`. */
static inline void reaches(const char *what, u64 va, unsigned access, gpa_t expected) {
    gpa_t gpa = 0;
    u32 fault = 0x77;
    int err = guest_translate(&vcpu, va, access, &gpa, &fault);
    char text[160];

    snprintf(text, sizeof(text), "%s, at %#llx: 0, or the error", what, (unsigned long long)va);
    expect_result(text, err, 0);
    snprintf(text, sizeof(text), "%s, at %#llx: guest-physical address", what,
             (unsigned long long)va);
    expect(text, gpa, expected);
}

/* Checks that an access ends in a page fault with the error code `expected`. */
static inline void faults(const char *what, u64 va, unsigned access, u32 expected) {
    gpa_t gpa = 0;
    u32 fault = 0x77;
    int err = guest_translate(&vcpu, va, access, &gpa, &fault);
    char text[160];

    snprintf(text, sizeof(text), "%s, at %#llx: that it faults", what, (unsigned long long)va);
    expect(text, err == -EFAULT, true);
    snprintf(text, sizeof(text), "%s, at %#llx: error code", what, (unsigned long long)va);
    expect(text, fault, expected);
}

#endif
