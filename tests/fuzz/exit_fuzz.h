/* What the fuzzers of exit handlers share: a VM of two vCPUs that is made anew when it has come
 * to an end, and what must hold after any exit. */
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

/* The next `n` bytes as a number; zeros at the end. */
static inline u64 take(struct fuzz_input *in, unsigned n) {
    u64 v = 0;

    n = in->size < n ? (unsigned)in->size : n;
    memcpy(&v, in->data, n);
    in->data += n;
    in->size -= n;
    return v;
}

/* Mostly values at which something changes. */
static inline u64 take_value(struct fuzz_input *in) {
    static const u64 edge[] = {
        0,       1,          0xffff,     0x10000,    0x1ff000,    0x200000,           0x7fffffff,
        1 << 31, 0xffffffff, 0xfed80000, 0xfee00000, 0x100000000, 0x7fffffffffffffff, ~0ull
    };
    u8 how = (u8)take(in, 1);

    if (how < ARRAY_SIZE(edge)) return edge[how];
    return how & 1 ? take(in, 8) : how & 2 ? take(in, 4) : take(in, 2);
}

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
    vm = vm_find("fuzz"); /* it rebooted */
    if (!vm) vm = fake_vm(&c);
    check(vm);
    v = vm->vcpu[0];
    fake_cpu(v->sched.cpu);
    fake_current(v);
    return v;
}

/* Any mode, any privilege, any registers. */
static inline void fuzz_mode(struct vcpu *v, u8 how) {
    struct fake_vcpu *f = fake_of(v);

    f->cpl = how & 3;
    f->reg[VREG_CR0] = how & 4 ? 0x80000011 : how & 8 ? 0x11 : 0x10;
    f->reg[VREG_EFER] = how & 16 && how & 4 ? 0x500 : 0;
    f->seg[SEG_CS].attr = how & 32 ? 0xa9b : how & 64 ? 0xc9b : 0x9b;
    v->virt.regs.rip = how & 128 ? 0x7ffffffffffe : 0x100000;
    v->virt.pending.type = EVENT_NONE;
}

static inline void fuzz_handle(struct vcpu *v, struct vm_exit e) {
    u64 rip = v->virt.regs.rip;

    vcpu_handle_exit(v, &e);
    check(!spin_is_locked(&evtchn_lock) && !spin_is_locked(&backend_lock));
    check(!spin_is_locked(&v->vm->console.out.lock) && !spin_is_locked(&v->vm->console.in.lock));
    if (v->virt.pending.type == EVENT_EXCEPTION)
        check(v->virt.regs.rip == rip && v->virt.pending.vector < 32);
    v->virt.pending.type = EVENT_NONE;
    if (v->sched.blocked) /* polls, or halts */
        sched_wake(&v->sched);
}

#endif
