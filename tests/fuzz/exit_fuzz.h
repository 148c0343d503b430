/* What the fuzzers of exit handlers share: a VM of two vCPUs, which is made again when the fuzzer
 * has ended it, and what must hold after each exit. A guest chooses all of what these handlers
 * read, so whatever it chooses must not crash the hypervisor or leave a lock held. */
#ifndef EXIT_FUZZ_H
#define EXIT_FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../unit/fake_machine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_input {
    const uint8_t *data;
    size_t size;
};

#define check(ok)                                                                                  \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #ok);                 \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The next `n` bytes of the input as a number, and zeros behind its end. */
static inline u64 take(struct fuzz_input *in, unsigned n) {
    u64 v = 0;

    n = (unsigned)MIN(in->size, (size_t)n);
    memcpy(&v, in->data, n);
    in->data += n;
    in->size -= n;
    return v;
}

/* A number from the input. Most are values at which a handler does something else than one
 * below. */
static inline u64 take_value(struct fuzz_input *in) {
    static const u64 edge[] = {
        0,       1,          0xffff,     0x10000,    0x1ff000,    0x200000,           0x7fffffff,
        1 << 31, 0xffffffff, 0xfed80000, 0xfee00000, 0x100000000, 0x7fffffffffffffff, ~0ull
    };
    u8 how = (u8)take(in, 1);

    if (how < ARRAY_SIZE(edge)) return edge[how];
    if (how & 1) return take(in, 8);
    if (how & 2) return take(in, 4);
    return take(in, 2);
}

/* Returns a vCPU of a VM that runs, loaded on its pCPU. */
static inline struct vcpu *fuzz_vcpu(void) {
    static struct vm *vm;
    static struct vcpu *v;

    fake_machine("null");
    if (vm && vm->state == VM_RUNNING) return v;
    if (vm) {
        if (vm->state == VM_CRASHED) vm_destroy(vm, NULL, NULL);
        vm_put(vm);
        fake_work();
    }
    struct config_vm c = fake_config("fuzz", 2);

    c.debugcon = c.debug_exit = true;
    vm = vm_find("fuzz"); /* if it rebooted, it is there */
    if (!vm) vm = fake_vm(&c);
    check(vm);
    v = vm->vcpu[0];
    fake_cpu(v->sched.cpu);
    fake_current(v);
    return v;
}

/* Attributes of a code segment as in SDM 3C 24.4.1: present, of 64, 32 or 16 bits. */
enum { CODE_64 = 0xa9b, CODE_32 = 0xc9b, CODE_16 = 0x9b };

#define FUZZ_REAL_MODE 0x10u       /* CR0: ET */
#define FUZZ_PROTECTED 0x11u       /* CR0: ET, PE */
#define FUZZ_PAGING    0x80000011u /* CR0: PG, ET, PE */
#define FUZZ_LONG_MODE 0x500u      /* EFER: LMA, LME */

/* Sets any mode and privilege, by the bits of `how`. RIP may be at the end of the addresses. */
static inline void fuzz_mode(struct vcpu *v, u8 how) {
    struct fake_vcpu *f = fake_of(v);

    f->cpl = how & 3;
    f->reg[VREG_CR0] = FUZZ_REAL_MODE;
    if (how & 8) f->reg[VREG_CR0] = FUZZ_PROTECTED;
    if (how & 4) f->reg[VREG_CR0] = FUZZ_PAGING;
    f->reg[VREG_EFER] = 0;
    if ((how & 16) && (how & 4)) f->reg[VREG_EFER] = FUZZ_LONG_MODE;
    f->seg[SEG_CS].attr = CODE_16;
    if (how & 64) f->seg[SEG_CS].attr = CODE_32;
    if (how & 32) f->seg[SEG_CS].attr = CODE_64;
    v->virt.regs.rip = 0x100000;
    if (how & 128) v->virt.regs.rip = 0x7ffffffffffe;
    v->virt.pending.type = EVENT_NONE;
}

/* Handles an exit, and checks what must hold afterwards. A vCPU that sleeps then is woken. */
static inline void fuzz_handle(struct vcpu *v, struct vm_exit e) {
    u64 rip = v->virt.regs.rip;

    vcpu_handle_exit(v, &e);
    check(!spin_is_locked(&evtchn_lock) && !spin_is_locked(&backend_lock));
    check(!spin_is_locked(&v->vm->console.out.lock) && !spin_is_locked(&v->vm->console.in.lock));
    if (v->virt.pending.type == EVENT_EXCEPTION)
        check(v->virt.regs.rip == rip && v->virt.pending.vector < 32);
    v->virt.pending.type = EVENT_NONE;
    if (v->sched.blocked) sched_wake(&v->sched);
}

#endif
