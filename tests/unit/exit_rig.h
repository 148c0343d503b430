/* A guest on the fake machine. The test makes up its exits. Included by the one source of a
 * test. */
#ifndef EXIT_RIG_H
#define EXIT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "fake_machine.h"
#include "fake_timer.h"

#define BUF   0x10000u /* a page of guest RAM that the tests use */
#define CODE  0x100000u
#define NO_GP 0x100

static struct vm *vm;
static struct vcpu *v;
static u64 *gpr;

static inline int setup(void **state) {
    struct config_vm c = fake_config("guest", 3);

    fake_machine("null");
    fake_clock(1000);
    c.debugcon = c.debug_exit = true;
    vm = fake_vm(&c);
    v = vm->vcpu[0];
    fake_cpu(v->sched.cpu);
    fake_current(v);
    gpr = v->virt.regs.gpr;
    return 0;
}

static inline int teardown(void **state) {
    fake_destroy(vm);
    return 0;
}

/* The mode of the fake vCPU, as vmx.c and svm.c report it. */
static inline void hc_mode(struct vm_exit *e) {
    struct fake_vcpu *f = fake_of(v);

    e->hc.mode = 16;
    if (f->seg[SEG_CS].attr & BIT(10)) e->hc.mode = 32; /* CS.D */
    if (f->reg[VREG_EFER] & BIT(10) && f->seg[SEG_CS].attr & BIT(9))
        e->hc.mode = 64; /* LMA, CS.L */
    e->hc.cpl = (u8)f->cpl;
    e->hc.real = !(f->reg[VREG_CR0] & 1);
}

/* Handles an exit by an instruction of `len` bytes. Returns the vector of the fault that it
 * raised, or NO_GP. */
static inline u32 handle(struct vm_exit e) {
    u64 rip = v->virt.regs.rip;
    u32 fault = NO_GP;

    if (!e.insn_len) e.insn_len = 2;
    if (e.reason == EXIT_HYPERCALL) hc_mode(&e);
    vcpu_handle_exit(v, &e);
    if (v->virt.pending.type == EVENT_EXCEPTION) {
        fault = v->virt.pending.vector;
        assert_int_equal(v->virt.regs.rip, rip); /* a fault leaves it where it was */
    }
    v->virt.pending.type = EVENT_NONE;
    return fault;
}

/* MOV to a control register. */
static inline u32 cr(u8 n, u64 val) {
    return handle((struct vm_exit){
        .reason = EXIT_CR, .cr = { .cr = n, .write = true, .value = val }, .insn_len = 3 });
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
