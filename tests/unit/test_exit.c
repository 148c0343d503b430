/* The handlers of exits by ports, MMIO, hypercalls and interrupts. Each has a policy for what a
 * guest may do; these tests check both what is allowed and what is not. */
#include <takt/errno.h>
#include "exit_rig.h"
#include "fake_log.h"
#include "trace/trace.h"
#include "x86/tsc.h"

/* ---- ports ---- */

static u64 in(u16 port, u8 size) {
    gpr[REG_RAX] = 0x1122334455667788;
    handle((struct vm_exit){
        .reason = EXIT_IO, .insn_len = 1, .io = { .port = port, .size = size, .in = true } });
    return gpr[REG_RAX];
}

static void out(u16 port, u8 size, u32 val) {
    gpr[REG_RAX] = val;
    handle(
        (struct vm_exit){ .reason = EXIT_IO, .insn_len = 1, .io = { .port = port, .size = size } });
}

static void test_ports(void **state) {
    char c[4];

    for (u32 p = 0; p < 65536; p++) {
        if (p >= 0x3f8 - 3 && p < 0x400) continue;
        if (p == 0xe9 || (p > 0xf0 && p < 0xf8) || (p > 0xe5 && p < 0xea)) continue;
        assert_int_equal(in((u16)p, 1), 0x11223344556677ff);
        assert_int_equal(in((u16)p, 2), 0x112233445566ffff);
        assert_int_equal(in((u16)p, 4), 0xffffffff);
        if (p != 0xf4) out((u16)p, 4, 0x80000000); /* 0xcf8 among them */
    }
    assert_int_equal(in(0xcfc, 4), 0xffffffff);
    assert_int_equal(in(0x3fe, 4), 0xffffffff); /* beyond the end of the UART */
    assert_int_equal(in(0xe9, 1), 0x11223344556677e9);
    out(0xe9, 1, 'x');
    out(0x3f8, 1, 'y');
    assert_int_equal(ring_get(&vm->console.out, c, 4), 2);
    assert_memory_equal(c, "xy", 2);
    assert_int_equal(vm->state, VM_RUNNING);
    out(0xf4, 4, 3); /* the operator is told what the guest wrote */
    assert_int_equal(vm->state, VM_DYING);
    assert_int_equal(vm->exit_code, 3);
}

/* Long mode with an identity map of the first 2 MiB would need tables; paging off is enough to
 * find code. */
static void real_code(const char *bytes, size_t n) {
    struct fake_vcpu *f = fake_of(v);

    f->reg[VREG_CR0] = 0x11;
    f->reg[VREG_EFER] = 0;
    f->seg[SEG_CS] = (struct guest_seg){ 8, 0xc9b, 0xffffffff, 0 };
    f->seg[SEG_DS] = f->seg[SEG_ES] = (struct guest_seg){ 16, 0xc93, 0xffffffff, 0 };
    v->virt.regs.rip = CODE;
    guestmem_write(&vm->mem, CODE, bytes, n);
}

static void test_string_out(void **state) {
    static char text[201], got[201];
    struct vm_exit e = { .reason = EXIT_IO, .insn_len = 2, .io = { 0xe9, 1, false, true, true } };
    u32 turns = 0;

    memset(text, 'a', 200);
    guestmem_write(&vm->mem, BUF, text, 200);
    real_code("\xf3\x6e", 2);
    gpr[REG_RSI] = BUF;
    gpr[REG_RCX] = 200;
    while (v->virt.regs.rip == CODE && turns < 10) {
        vcpu_handle_exit(v, &e);
        turns++;
    }
    assert_in_range(turns, 3, 9); /* in parts, so that others get their turn */
    assert_int_equal(gpr[REG_RCX], 0);
    assert_int_equal(gpr[REG_RSI], BUF + 200);
    assert_int_equal(v->virt.regs.rip, CODE + 2);
    assert_int_equal(ring_get(&vm->console.out, got, 200), 200);
    assert_memory_equal(got, text, 200);
}

static void test_string_edges(void **state) {
    struct vm_exit e = { .reason = EXIT_IO, .insn_len = 2, .io = { 0x1234, 4, true, true, true } };
    u32 word = 0;

    real_code("\xf3\x6d", 2); /* rep insd, downwards */
    v->virt.regs.rflags |= BIT(10);
    gpr[REG_RDI] = BUF + 8;
    gpr[REG_RCX] = 3;
    vcpu_handle_exit(v, &e);
    assert_int_equal(gpr[REG_RDI], BUF - 4);
    guestmem_read(&vm->mem, BUF + 4, &word, 4);
    assert_int_equal(word, 0xffffffff);
    v->virt.regs.rip = CODE;
    gpr[REG_RCX] = 0; /* nothing to do */
    vcpu_handle_exit(v, &e);
    assert_int_equal(v->virt.regs.rip, CODE + 2);
    v->virt.regs.rip = CODE;
    gpr[REG_RCX] = 1;
    fake_of(v)->seg[SEG_ES].limit = 0xfff;
    vcpu_handle_exit(v, &e);
    assert_int_equal(v->virt.pending.vector, EXC_GP);
    fake_of(v)->seg[SEG_ES].limit = 0xffffffff;
    gpr[REG_RDI] = 0xfee00000; /* not RAM */
    gpr[REG_RCX] = 1;
    vcpu_handle_exit(v, &e);
    assert_int_equal(vm->state, VM_CRASHED);
}

/* ---- MMIO ---- */

static void npf(u64 gpa, bool write) {
    struct vm_exit e = { .reason = EXIT_NPF, .npf = { .gpa = gpa, .write = write } };

    vcpu_handle_exit(v, &e);
}

static void test_mmio(void **state) {
    real_code("\x8b\x03", 2); /* mov eax, [ebx] */
    gpr[REG_RAX] = ~0ull;
    npf(0xfee00030, false);
    /* A 32-bit access clears the upper half of the register. */
    assert_int_equal(gpr[REG_RAX], vlapic_read(&v->lapic, 0x30, 0));
    assert_int_equal(v->virt.regs.rip, CODE + 2);
    real_code("\x89\x03", 2);
    gpr[REG_RAX] = 0x60;
    npf(0xfee00080, true);
    assert_int_equal(v->lapic.reg[R_TPR], 0x60);
    assert_int_equal(v->virt.cr8, 6);
    v->virt.regs.rip = CODE;
    /* The exit was for a read, but the instruction there is a write by now. So it is executed
     * again. */
    npf(0xfee00080, false);
    assert_int_equal(v->virt.regs.rip, CODE);
    assert_int_equal(vm->state, VM_RUNNING);
    npf(0xfed10000, true);
    assert_int_equal(vm->state, VM_CRASHED);
    assert_string_equal(vm->why, "write of guest-physical fed10000: no device there");
}

/* Its second byte is in a page that another vCPU has just unmapped: a fault for the guest, not
 * its end. */
static void test_mmio_cut_off(void **state) {
    struct fake_vcpu *f = fake_of(v);
    u32 pde = 0x4007, pte = CODE | 7;

    real_code("", 0);
    f->reg[VREG_CR0] = 0x80000011;
    f->reg[VREG_CR3] = 0x3000;
    f->reg[VREG_CR4] = 0;
    guestmem_write(&vm->mem, 0x3000, &pde, 4);
    guestmem_write(&vm->mem, 0x4000 + (CODE >> 12) * 4, &pte, 4);
    v->virt.regs.rip = CODE + 0xfff;
    guestmem_write(&vm->mem, CODE + 0xfff, "\x8b", 1);
    npf(0xfee00030, false);
    assert_int_equal(vm->state, VM_RUNNING);
    assert_int_equal(v->virt.pending.vector, EXC_PF);
    assert_int_equal(f->reg[VREG_CR2], CODE + 0x1000);
    assert_int_equal(v->virt.regs.rip, CODE + 0xfff);

    /* In 64-bit mode RIP can have a value that is not an address at all. */
    f->reg[VREG_CR4] = 0x20;
    f->reg[VREG_EFER] = 0x500;
    f->seg[SEG_CS].attr = 0xa9b;
    v->virt.regs.rip = BIT(63);
    v->virt.pending.type = EVENT_NONE;
    npf(0xfee00030, false);
    assert_int_equal(v->virt.pending.vector, EXC_GP);
    assert_int_equal(v->virt.pending.code, 0);
}

static void test_mmio_unknown_insn(void **state) {
    real_code("\x0f\xbb\x03", 3); /* btc */
    npf(0xfee00080, true);
    assert_int_equal(vm->state, VM_CRASHED);
}

/* ---- hypercalls ---- */

static i64 hc(u64 nr, u64 a, u64 b, u64 c) {
    gpr[REG_RAX] = nr;
    gpr[REG_RBX] = a;
    gpr[REG_RCX] = b;
    gpr[REG_RDX] = c;
    assert_int_equal(handle((struct vm_exit){ .reason = EXIT_HYPERCALL, .insn_len = 3 }), NO_GP);
    return (i64)gpr[REG_RAX];
}

static void test_hc_numbers(void **state) {
    assert_int_equal(hc(TAKT_HC_VERSION, 0, 0, 0), TAKT_ABI_VERSION);
    assert_int_equal(hc(TAKT_HC_TIME, 0, 0, 0), 1000);
    for (u64 n = 30; n < 64; n++) assert_int_equal(hc(n, 1, 2, 3), -ENOSYS);
    assert_int_equal(hc(TAKT_HC_STORE_CONNECT, 1, 2, 3), -EINVAL);
    assert_int_equal(hc(TAKT_HC_STORE_CONNECT, BIT(50), 2, 3), -EFAULT);
    assert_int_equal(hc(TAKT_HC_STORE_NOTIFY, 1, 2, 3), -ENOENT);
    assert_true((i64)hc(TAKT_HC_STORE_CONNECT, 0, 2, 3) > 0);
    assert_int_equal(hc(TAKT_HC_STORE_NOTIFY, 1, 2, 3), 0);
    for (u64 n = TAKT_HC_PCI_INFO; n <= TAKT_HC_PCI_WRITE; n++) /* hv/passthrough registers these */
        assert_int_equal(hc(n, 1, 2, 3), -ENOSYS);
    fake_log_lines = 0;
    for (u64 n = 64; n < 128; n++) assert_int_equal(hc(n, 1, 2, 3), -EPERM);
    assert_int_equal(fake_log_lines, 1); /* once a second */
    assert_int_equal(hc(128, 0, 0, 0), -ENOSYS);
    assert_int_equal(hc(BIT(32), 0, 0, 0), -ENOSYS);
    assert_int_equal(hc(~0ull, 0, 0, 0), -ENOSYS);
}

static void test_hc_modes(void **state) {
    struct fake_vcpu *f = fake_of(v);

    f->cpl = 3;
    assert_int_equal(hc(TAKT_HC_VERSION, 0, 0, 0), -EPERM);
    f->cpl = 0;
    /* In compatibility mode the upper halves of the registers do not count. */
    f->seg[SEG_CS].attr = 0xc9b;
    assert_int_equal(hc(0xdead00000000 | TAKT_HC_VERSION, ~0ull, 0, 0), TAKT_ABI_VERSION);
    assert_int_equal(hc(200, 0, 0, 0), (u32)-ENOSYS);
    assert_int_equal(hc(TAKT_HC_CONSOLE_WRITE, 0xdead000000000000 | BUF, 0xdead000000000000 | 4, 0),
                     4);
    f->reg[VREG_CR0] = 0x10; /* real mode */
    f->reg[VREG_EFER] = 0;
    gpr[REG_RAX] = 0;
    assert_int_equal(handle((struct vm_exit){ .reason = EXIT_HYPERCALL, .insn_len = 3 }), EXC_UD);
}

static void test_hc_pointers(void **state) {
    static const u64 bad[] = { 0x200000, 0x1ff800,  0xfee00000, TAKT_INFO_GPA, TAKT_SHARED_GPA,
                               ~0ull,    ~0ull - 5, BIT(63),    1ull << 40,    0xffffffff80000000 };

    for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(hc(TAKT_HC_CONSOLE_WRITE, bad[i], 4096, 0), -EFAULT);
        assert_int_equal(hc(TAKT_HC_CONSOLE_READ, bad[i], 4096, 0), -EFAULT);
        if (bad[i] != 0x1ff800) assert_int_equal(hc(TAKT_HC_VCPU_INFO, 0, bad[i], 0), -EFAULT);
    }
    /* None of these calls has written anything to the console. */
    assert_int_equal(ring_get(&vm->console.out, (char[8]){ 0 }, 8), 0);
    assert_int_equal(hc(TAKT_HC_CONSOLE_WRITE, 0, 4097, 0), -EINVAL);
    assert_int_equal(hc(TAKT_HC_CONSOLE_WRITE, 0, BIT(32), 0), -EINVAL);
    assert_int_equal(hc(TAKT_HC_CONSOLE_WRITE, ~0ull, 0, 0), 0);
    assert_int_equal(hc(TAKT_HC_VCPU_INFO, 3, BUF, 0), -EINVAL);
    assert_int_equal(hc(TAKT_HC_VCPU_INFO, BIT(32), BUF, 0), -EINVAL);
}

static void test_hc_console(void **state) {
    static char text[4096], got[4096];
    u64 total = 0;

    memset(text, 'q', sizeof(text));
    guestmem_write(&vm->mem, 0xff800, text, sizeof(text));
    assert_int_equal(hc(TAKT_HC_CONSOLE_WRITE, 0xff800, 4096, 0), 4096);
    assert_int_equal(hc(TAKT_HC_CONSOLE_WRITE, 0xff800, 4096, 0), -EAGAIN); /* full */
    assert_int_equal(ring_get(&vm->console.out, got, 100), 100);
    assert_int_equal(hc(TAKT_HC_CONSOLE_WRITE, 0xff800, 4096, 0), 100);
    while (ring_get(&vm->console.out, got, 1)) total++;
    assert_int_equal(total, 4096);
    ring_put(&vm->console.in, "hello", 5);
    assert_int_equal(hc(TAKT_HC_CONSOLE_READ, BUF, 3, 0), 3);
    guestmem_read(&vm->mem, BUF, got, 3);
    assert_memory_equal(got, "hel", 3);
    assert_int_equal(hc(TAKT_HC_CONSOLE_READ, BUF, 4096, 0), 2);
    assert_int_equal(hc(TAKT_HC_CONSOLE_READ, BUF, 4096, 0), 0);
}

static void test_hc_events(void **state) {
    static struct trace_record ring[4], got[4];
    i64 a = hc(TAKT_HC_EVTCHN_ALLOC, vm->id, 0, 0), b = hc(TAKT_HC_EVTCHN_BIND, vm->id, (u64)a, 0);

    assert_true(a > 0 && b > 0);
    assert_int_equal(hc(TAKT_HC_EVTCHN_VECTOR, (u64)b, 0, 0x40), 0);
    assert_int_equal(hc(TAKT_HC_EVTCHN_VECTOR, (u64)b, 3, 0x40), -EINVAL);
    assert_int_equal(hc(TAKT_HC_EVTCHN_VECTOR, (u64)b, 0, BIT(32)), -EINVAL);
    assert_int_equal(trace_init(0, ring, ARRAY_SIZE(ring)), 0);
    trace_mask = TRACE_CLASS_EVENT;
    assert_int_equal(hc(TAKT_HC_EVTCHN_SEND, (u64)a, 0, 0), 0);
    assert_true(v->todo & TODO_EVENT);
    fake_clock(now_ns() + 700);
    assert_true(vcpu_prepare(v));
    trace_mask = 0;
    assert_int_equal(v->virt.pending.type, EVENT_IRQ);
    assert_int_equal(v->virt.pending.vector, 0x40);
    v->virt.pending.type = EVENT_NONE;
    assert_int_equal(trace_read(0, got, ARRAY_SIZE(got)), 2);
    assert_int_equal(got[0].event, TRC_EVTCHN_SEND);
    assert_int_equal(got[1].event, TRC_EVTCHN_TAKE);
    assert_int_equal(got[1].arg[0], b);
    assert_int_equal(got[1].arg[1], 700);
    assert_int_equal(hc(TAKT_HC_EVTCHN_MASK, (u64)b, 2, 0), -EINVAL);
    assert_int_equal(hc(TAKT_HC_EVTCHN_MASK, (u64)b, 1, 0), 0);
    assert_int_equal(hc(TAKT_HC_EVTCHN_CLOSE, (u64)a, 0, 0), 0);
    assert_int_equal(hc(TAKT_HC_EVTCHN_SEND, BIT(33) | (u64)b, 0, 0), -EINVAL);
    assert_int_equal(hc(TAKT_HC_EVTCHN_CLOSE, (u64)b, 0, 0), 0);
}

static void test_hc_io_report(void **state) {
    u64 before = vm->sched.io_events, told = vm->sched.io_report;
    i64 a, b;

    assert_int_equal(hc(TAKT_HC_IO_REPORT, 0, 0, 0), 0);
    assert_int_equal(hc(TAKT_HC_IO_REPORT, 7, 0, 0), 0);
    assert_int_equal(hc(TAKT_HC_IO_REPORT, TAKT_IO_REPORT_MAX, 0, 0), 0);
    assert_int_equal(hc(TAKT_HC_IO_REPORT, TAKT_IO_REPORT_MAX + 1, 0, 0), -EINVAL);
    assert_int_equal(hc(TAKT_HC_IO_REPORT, BIT(32), 0, 0), -EINVAL);
    assert_int_equal(hc(TAKT_HC_IO_REPORT, ~0ull, 0, 0), -EINVAL);
    assert_int_equal(vm->sched.io_report - told, TAKT_IO_REPORT_MAX + 7);
    a = hc(TAKT_HC_EVTCHN_ALLOC, vm->id, 0, 0);
    b = hc(TAKT_HC_EVTCHN_BIND, vm->id, (u64)a, 0);
    assert_int_equal(hc(TAKT_HC_EVTCHN_SEND, (u64)a, 0, 0), 0); /* to itself: does not count */
    hc(TAKT_HC_EVTCHN_CLOSE, (u64)a, 0, 0);
    hc(TAKT_HC_EVTCHN_CLOSE, (u64)b, 0, 0);
    assert_int_equal(vm->sched.io_events, before);
}

static void test_hc_io_class(void **state) {
    assert_int_equal(hc(TAKT_HC_IO_CLASS, 1, 0, 0), 0);
    assert_true(vm->sched.io_says);
    assert_int_equal(hc(TAKT_HC_IO_CLASS, 2, 0, 0), -EINVAL);
    assert_int_equal(hc(TAKT_HC_IO_CLASS, BIT(32), 0, 0), -EINVAL);
    assert_true(vm->sched.io_says);
    assert_int_equal(hc(TAKT_HC_IO_CLASS, 0, 0, 0), 0);
    assert_false(vm->sched.io_says);
}

static void test_hc_poll(void **state) {
    u64 rip;
    i64 a = hc(TAKT_HC_EVTCHN_ALLOC, vm->id, 0, 0), b = hc(TAKT_HC_EVTCHN_BIND, vm->id, (u64)a, 0);

    assert_int_equal(hc(TAKT_HC_POLL, 0, 0, 0), -EINVAL);
    assert_int_equal(hc(TAKT_HC_POLL, TAKT_MAX_PORTS, 0, 0), -EINVAL);
    assert_int_equal(hc(TAKT_HC_POLL, 900, 0, 0), -ENOENT);
    assert_int_equal(hc(TAKT_HC_POLL, BIT(32), 0, 0), -EINVAL);
    assert_int_equal(hc(TAKT_HC_POLL, TAKT_PORT_ANY, 999, 0), -ETIMEDOUT);
    assert_int_equal(hc(TAKT_HC_POLL, TAKT_PORT_ANY, 1, 0), -ETIMEDOUT);

    rip = v->virt.regs.rip;
    hc(TAKT_HC_POLL, (u64)b, ~0ull, 0); /* a deadline that never comes */
    assert_int_equal(v->virt.regs.rip, rip);
    assert_true(v->sched.blocked);
    assert_int_equal(v->poll_port, (u32)b);
    evtchn_send(&vm->events, (u32)a, 1001);
    assert_false(v->sched.blocked);
    assert_int_equal(hc(TAKT_HC_POLL, (u64)b, ~0ull, 0), 0); /* as it is executed again */
    assert_int_equal(v->virt.regs.rip, rip + 3);
    assert_int_equal(v->poll_port, 0);
    assert_false(v->poll_timer.queued);

    assert_true(vcpu_prepare(v)); /* takes note of what woke it */
    evtchn_mask(&vm->events, (u32)b, true, 0);
    hc(TAKT_HC_POLL, (u64)b, 5000, 0);
    assert_true(v->sched.blocked);
    fake_clock(5000);
    timers_run();
    assert_false(v->sched.blocked);
    assert_int_equal(hc(TAKT_HC_POLL, (u64)b, 5000, 0), -ETIMEDOUT);
    fake_clock(1000);
}

/* The port that a vCPU polls is closed by another vCPU. The first one looks again, and its poll
 * says that the port is closed. A vCPU that polls another port, or any port, sleeps on. */
static void test_poll_of_closed(void **state) {
    i64 a = hc(TAKT_HC_EVTCHN_ALLOC, vm->id, 0, 0), b = hc(TAKT_HC_EVTCHN_ALLOC, vm->id, 0, 0);

    hc(TAKT_HC_POLL, (u64)a, 0, 0);
    assert_true(v->sched.blocked);
    assert_int_equal(evtchn_close(&vm->events, (u32)b), 0);
    assert_true(v->sched.blocked);
    assert_int_equal(evtchn_close(&vm->events, (u32)a), 0);
    assert_false(v->sched.blocked);
    assert_int_equal(hc(TAKT_HC_POLL, (u64)a, 0, 0), -ENOENT);
    assert_true(vcpu_prepare(v));
    b = evtchn_make(&vm->events);
    hc(TAKT_HC_POLL, TAKT_PORT_ANY, 0, 0);
    assert_true(v->sched.blocked);
    evtchn_unmake(&vm->events, (u32)b);
    assert_true(v->sched.blocked);
    sched_wake(&v->sched);
    v->poll_port = 0;
}

static i64 late_port;

static void send_from_elsewhere(struct virt_vcpu *x) {
    u32 here = this_cpu()->id;

    fake_cpu(1 - here);
    evtchn_send(&vm->events, (u32)late_port, 1000);
    fake_cpu(here);
}

/* If an event comes after a poll has looked and before the vCPU is asleep, there is no sleeping
 * vCPU to wake. So the vCPU has to see the event by itself. Between the two the poll clears the
 * interrupt shadow, which is where this test steps in. */
static void test_event_before_sleep(void **state) {
    i64 from = hc(TAKT_HC_EVTCHN_ALLOC, vm->id, 0, 0),
        to = hc(TAKT_HC_EVTCHN_BIND, vm->id, (u64)from, 0);
    const struct virt_ops *usual = virt;
    struct virt_ops late = *virt;

    late_port = from;
    late.clear_shadow = send_from_elsewhere;
    virt = &late;
    hc(TAKT_HC_POLL, (u64)to, 0, 0);
    virt = usual;
    assert_false(sched_blocked(&v->sched));
    assert_int_equal(hc(TAKT_HC_POLL, (u64)to, 0, 0), 0);
    assert_true(vcpu_prepare(v));
    vm->events.shared->pending[0] = 0;
}

/* A driver domain polls: that its poll ends is when it takes its events, each once. */
static void test_poll_traced(void **state) {
    static const u32 waited[] = { 1000, 800, 500 }; /* ns since the event was sent */
    static struct trace_record ring[8], got[8];
    i64 from[2], to[2];

    for (u32 i = 0; i < 2; i++) {
        from[i] = hc(TAKT_HC_EVTCHN_ALLOC, vm->id, 0, 0);
        to[i] = hc(TAKT_HC_EVTCHN_BIND, vm->id, (u64)from[i], 0);
        evtchn_send(&vm->events, (u32)from[i], 1000 + 200 * i);
    }
    assert_int_equal(trace_init(v->sched.cpu, ring, ARRAY_SIZE(ring)), 0);
    fake_clock(2000);
    trace_mask = TRACE_CLASS_EVENT;
    assert_int_equal(hc(TAKT_HC_POLL, TAKT_PORT_ANY, 0, 0), 0);
    /* They are still pending, but the vCPU was told already. */
    assert_int_equal(hc(TAKT_HC_POLL, TAKT_PORT_ANY, 0, 0), 0);
    vm->events.shared->pending[0] = 0;
    evtchn_send(&vm->events, (u32)from[1], 1500);
    assert_int_equal(hc(TAKT_HC_POLL, (u64)to[1], 0, 0), 0);
    trace_mask = 0;
    assert_int_equal(trace_read(v->sched.cpu, got, ARRAY_SIZE(got)), 3);
    for (u32 i = 0; i < 3; i++) {
        assert_int_equal(got[i].event, TRC_EVTCHN_TAKE);
        assert_int_equal(got[i].who, vm->id << 16);
        assert_int_equal(got[i].arg[0], to[i > 0]);
        assert_int_equal(got[i].arg[1], waited[i]);
    }
    vm->events.shared->pending[0] = 0;
    fake_clock(1000);
}

static void test_hc_random(void **state) {
    srand(3);
    for (int i = 0; i < 100000; i++) {
        static const u64 edge[] = { 0,        1,          2,          0x40,    0x1000, 0x1ff000,
                                    0x200000, 0xfed81000, 0xffffffff, BIT(32), ~0ull };
        u64 nr = (u64)rand() % (TAKT_HC_STORE_NOTIFY + 2);

        if (nr == TAKT_HC_SHUTDOWN || nr == TAKT_HC_POLL) continue;
        fake_of(v)->cpl = rand() % 8 ? 0 : 3;
        fake_of(v)->seg[SEG_CS].attr = rand() & 1 ? 0xa9b : 0xc9b;
        hc(nr, edge[rand() % 11], edge[rand() % 11], edge[rand() % 11]);
        assert_int_equal(vm->state, VM_RUNNING);
    }
}

/* ---- interrupts ---- */

/* From vCPU 1, by its ICR: delivery mode NMI, to APIC id 0. */
static void send_nmi(void) {
    struct vlapic *l = &vm->vcpu[1]->lapic;

    vlapic_write(l, 0x310, 0, 0);
    vlapic_write(l, 0x300, 4 << 8 | 1 << 14, 0);
}

static void test_hlt(void **state) {
    struct vm_exit hlt = { .reason = EXIT_HLT, .insn_len = 1 };

    vcpu_handle_exit(v, &hlt);
    assert_false(vcpu_prepare(v));
    assert_true(v->sched.blocked);
    vlapic_raise(&v->lapic, 0x31);
    assert_false(v->sched.blocked);
    assert_true(vcpu_prepare(v));
    assert_int_equal(v->virt.pending.vector, 0x31);
    v->virt.pending.type = EVENT_NONE;
    vlapic_write(&v->lapic, R_EOI << 4, 0, 0);

    vlapic_raise(&v->lapic, 0x32); /* pending before it halts: it does not sleep at all */
    vcpu_handle_exit(v, &hlt);
    assert_true(vcpu_prepare(v));
    assert_int_equal(v->virt.pending.vector, 0x32);
    v->virt.pending.type = EVENT_NONE;
    vlapic_write(&v->lapic, R_EOI << 4, 0, 0);

    v->virt.regs.rflags = 2; /* with interrupts off only an NMI wakes it */
    vcpu_handle_exit(v, &hlt);
    assert_false(vcpu_prepare(v));
    vlapic_raise(&v->lapic, 0x33);
    assert_false(vcpu_prepare(v));
    assert_true(v->sched.blocked);
    send_nmi();
    assert_true(vcpu_prepare(v));
    assert_int_equal(v->virt.pending.type, EVENT_NMI);
    assert_true(v->virt.want_irq_window);
}

/* Both are raised, and the first is delivered. */
static void two_wait(void) {
    vlapic_raise(&v->lapic, 0x61);
    vlapic_raise(&v->lapic, 0x42);
    assert_true(vcpu_prepare(v));
    assert_int_equal(v->virt.pending.vector, 0x61);
}

/* A handler that makes no EOI may end without an exit. So what waits behind its interrupt asks for
 * the next moment at which the guest can take it: the end of the handler, or a lower priority. */
static void test_behind_no_eoi(void **state) {
    vlapic_set_no_eoi(&v->lapic, 0x61, true);
    two_wait();
    assert_true(v->virt.want_irq_window);
    handle((struct vm_exit){ .reason = EXIT_IRQ_WINDOW });
    assert_true(vcpu_prepare(v));
    assert_int_equal(v->virt.pending.vector, 0x42);
    assert_false(v->virt.want_irq_window);
    v->virt.pending.type = EVENT_NONE;
    vlapic_write(&v->lapic, R_EOI << 4, 0, 0);

    v->virt.cr8 = 5;
    two_wait();
    assert_true(v->virt.want_cr8_exit);
    assert_false(v->virt.want_irq_window);
    v->virt.pending.type = EVENT_NONE;
    cr(8, 0);
    assert_true(vcpu_prepare(v));
    assert_int_equal(v->virt.pending.vector, 0x42);
}

/* Of the NMIs that come while it does not run two are kept, and one while another one's handler
 * runs. */
static void test_two_nmis_are_kept(void **state) {
    for (int i = 0; i < 3; i++) send_nmi();
    assert_true(vcpu_prepare(v));
    assert_int_equal(v->virt.pending.type, EVENT_NMI);
    assert_true(v->virt.want_nmi_window);
    v->virt.pending.type = EVENT_NONE; /* it is delivered */
    fake_of(v)->nmi_masked = true;
    send_nmi();
    send_nmi();
    assert_true(vcpu_prepare(v));
    assert_int_equal(v->virt.pending.type, EVENT_NONE);
    fake_of(v)->nmi_masked = false; /* IRET */
    assert_true(vcpu_prepare(v));
    assert_int_equal(v->virt.pending.type, EVENT_NMI);
    v->virt.pending.type = EVENT_NONE;
    assert_false(v->virt.want_nmi_window);
    assert_true(vcpu_prepare(v));
    assert_int_equal(v->virt.pending.type, EVENT_NONE);
}

/* Where the CPU does not count PAUSEs a loop of them yields, but not each PAUSE. */
static void test_pauses_are_counted(void **state) {
    struct vm_exit e = { .reason = EXIT_PAUSE, .insn_len = 2 };
    u32 yields = 0;

    virt_counts_pauses = false;
    for (int i = 0; i < 320; i++) {
        this_cpu()->need_resched = false;
        vcpu_handle_exit(v, &e);
        yields += this_cpu()->need_resched;
    }
    assert_int_equal(yields, 10);
    this_cpu()->need_resched = false;
    for (int i = 0; i < 320; i++) {
        vcpu_handle_exit(v, &e);
        v->paused_at -= ns_to_tsc(101 * NS_PER_US); /* far apart: they are not a loop */
    }
    assert_false(this_cpu()->need_resched);
    virt_counts_pauses = true;
    vcpu_handle_exit(v, &e);
    assert_true(this_cpu()->need_resched);
}

/* An event's delivery wrote to a device: whatever instruction RIP is at, it did not. */
static void test_mmio_of_a_delivery(void **state) {
    struct vm_exit e = { .reason = EXIT_NPF,
                         .npf = { TAKT_LAPIC_GPA + 0x80, .write = true, .mode = 64 } };
    static const u8 mov[] = { 0x89, 0x07 }; /* mov %eax, (%rdi) */

    memcpy(e.npf.bytes, mov, sizeof(mov));
    e.npf.nr_bytes = sizeof(e.npf.bytes);
    e.npf.in_delivery = true;
    gpr[REG_RAX] = 0x30;
    vcpu_handle_exit(v, &e);
    assert_int_equal(vlapic_cr8(&v->lapic), 0);
    assert_int_equal(vm->state, VM_CRASHED);
    assert_non_null(strstr(vm->why, "what an event is delivered by has to be in RAM"));
}

static void test_priorities(void **state) {
    vlapic_raise(&v->lapic, 0x31);
    assert_int_equal(cr(8, 3), NO_GP);
    assert_true(vcpu_prepare(v));
    assert_int_equal(v->virt.pending.type, EVENT_NONE);
    assert_true(v->virt.want_cr8_exit);
    assert_int_equal(cr(8, 2), NO_GP);
    assert_true(v->todo & TODO_EVENT);
    assert_true(vcpu_prepare(v));
    assert_int_equal(v->virt.pending.vector, 0x31);
    assert_false(v->virt.want_cr8_exit);
}

/* Whoever raises something while it runs has to find nothing set, or does not kick it. */
static void test_timer_leaves_nothing_to_do(void **state) {
    vlapic_write(&v->lapic, 0x320, 0x40, 0);
    vlapic_write(&v->lapic, 0x380, 1, 0);
    vcpu_notify(v, TODO_TICK);
    assert_true(vcpu_prepare(v));
    assert_int_equal(v->virt.pending.vector, 0x40);
    assert_int_equal(v->todo, 0);
}

/* However far a deadline is, it is not taken for one that is near, nor has the slice's
 * timer a count of that. At 100 MHz nanoseconds overflow before ticks do. */
static void test_deadline_far(void **state) {
    static const u64 far[] = { 1ull << 58, 1ull << 60, ~0ull / 10, ~0ull / 10 + 1000,
                               1ull << 63, ~0ull - 1,  ~0ull };

    tsc_khz = 100000;
    tsc_to_ns_mul = 10ull << 32;
    ns_to_tsc_mul = (1ull << 32) / 10;
    tsc_boot = rdtsc();
    vm->tsc_offset = -tsc_boot;
    vlapic_write(&v->lapic, 0x320, 0x40040, 0); /* TSC deadline */
    for (u32 i = 0; i < ARRAY_SIZE(far); i++) {
        vlapic_wrmsr(&v->lapic, MSR_TSC_DEADLINE, far[i], now_ns());
        assert_true(v->lapic.next > 1ull << 60);
        assert_true(tsc_at(v->lapic.next) - tsc_boot > (1ull << 60) / 11);
        vcpu_notify(v, TODO_TICK);
        assert_true(vcpu_prepare(v));
        assert_int_equal(v->virt.pending.type, EVENT_NONE);
        assert_int_equal(v->lapic.deadline, far[i]);
    }
    assert_true(tsc_at(~0ull) > 1ull << 60 && tsc_at(0) == tsc_boot);
    fake_clock(1000);
}

static void test_init_sipi(void **state) {
    struct vcpu *ap = vm->vcpu[1];

    assert_true(ap->waiting_sipi);
    ap->virt.cr8 = 5;
    vlapic_write(&v->lapic, 0x310, 1 << 24, 0);
    vlapic_write(&v->lapic, 0x300, 0x4500, 0); /* INIT */
    vlapic_write(&v->lapic, 0x300, 0x4608, 0); /* SIPI to 0x8000 */
    assert_true(vcpu_prepare(ap));
    assert_false(ap->waiting_sipi);
    assert_int_equal(ap->virt.regs.rip, 0);
    assert_int_equal(ap->virt.cr8, 0);
    assert_int_equal(fake_of(ap)->seg[SEG_CS].base, 0x8000);
    assert_int_equal(fake_of(ap)->seg[SEG_CS].sel, 0x800);
    vlapic_write(&v->lapic, 0x300, 0x4609, 0); /* to one that runs: dropped */
    assert_true(vcpu_prepare(ap));
    assert_int_equal(fake_of(ap)->seg[SEG_CS].base, 0x8000);
    vlapic_write(&v->lapic, 0x310, 200u << 24, 0);
    vlapic_write(&v->lapic, 0x300, 0x4608, 0);
    assert_true(vm->vcpu[2]->waiting_sipi);
}

static u32 entries;

static void count_entry(struct virt_vcpu *x, struct vm_exit *e) {
    entries++;
    e->reason = EXIT_INTR;
}

/* Code that notifies a vCPU sets `todo` and then wakes it. In between the vCPU may handle the bit
 * and fall asleep. The wake then comes for nothing, and the vCPU sleeps on. */
static void test_late_wake(void **state) {
    struct vcpu *ap = vm->vcpu[1], *sleepers[] = { v, ap };

    entries = 0;
    fake_run = count_entry;
    vcpu_handle_exit(v, &(struct vm_exit){ .reason = EXIT_HLT, .insn_len = 1 });
    for (u32 i = 0; i < ARRAY_SIZE(sleepers); i++) {
        for (u32 n = 0; n < 4; n++) fake_pass(sleepers[i]->sched.cpu);
        assert_true(sleepers[i]->sched.blocked);
        sched_wake(&sleepers[i]->sched);
        for (u32 n = 0; n < 4; n++) fake_pass(sleepers[i]->sched.cpu);
        assert_true(sleepers[i]->sched.blocked);
    }
    assert_int_equal(entries, 0);
    vcpu_notify(ap, TODO_SIPI);
    for (u32 n = 0; n < 4; n++) fake_pass(ap->sched.cpu);
    assert_true(entries > 0);
    fake_run = NULL;
    fake_cpu(v->sched.cpu);
}

static const u8 in_turn[] = { EXIT_INTR,       EXIT_TIMER, EXIT_IRQ_WINDOW,
                              EXIT_NMI_WINDOW, EXIT_CPUID, EXIT_WBINVD };

static void exit_in_turn(struct virt_vcpu *virt, struct vm_exit *e) {
    *e = (struct vm_exit){ .reason = in_turn[entries++ % ARRAY_SIZE(in_turn)], .insn_len = 2 };
}

/* v->interrupted counts the exits that the guest has not caused itself. What is left of v->exits
 * are those that it has caused. */
static void test_interrupted(void **state) {
    u64 exits = v->exits, interrupted = v->interrupted;

    entries = 0;
    fake_run = exit_in_turn;
    for (u32 n = 0; n < 100 && v->exits < exits + ARRAY_SIZE(in_turn); n++) fake_pass(v->sched.cpu);
    fake_run = NULL;
    fake_cpu(v->sched.cpu);
    assert_int_equal(v->exits - exits, ARRAY_SIZE(in_turn));
    assert_int_equal(v->interrupted - interrupted, 4);
}

static void test_unknown(void **state) {
    static const u8 deadly[] = { EXIT_TASK_SWITCH, EXIT_SHUTDOWN, EXIT_NPT_MISCONFIG,
                                 EXIT_ENTRY_FAILED, EXIT_UNKNOWN };

    for (u32 i = 0; i < ARRAY_SIZE(deadly); i++) {
        vcpu_handle_exit(v, &(struct vm_exit){ .reason = deadly[i] });
        assert_int_equal(vm->state, VM_CRASHED);
        teardown(state);
        setup(state);
    }
    assert_int_equal(handle((struct vm_exit){ .reason = EXIT_HIDDEN }), EXC_UD);
    assert_int_equal(handle((struct vm_exit){ .reason = EXIT_RDPMC }), EXC_GP);
    /* The length was 0, so it was not to be read. */
    vcpu_handle_exit(v, &(struct vm_exit){ .reason = EXIT_CPUID });
    assert_int_equal(vm->state, VM_CRASHED);
}

/* What a crash leaves in the log: a vCPU whose IDT is beyond its RAM, and then one whose tables
 * are empty. */
static void test_dump(void **state) {
    struct fake_vcpu *f = fake_of(v);

    real_code("\xeb\xfe", 2);
    f->reg[VREG_CR2] = 0xabc0;
    f->seg[SEG_IDTR] = (struct guest_seg){ .limit = 0xfff, .base = 0x70000000 };
    f->seg[SEG_SS] = (struct guest_seg){ 16, 0xc93, 0xffffffff, 0x1000 };
    gpr[REG_RSP] = 0x2000;
    fake_log_forget();
    vcpu_handle_exit(v, &(struct vm_exit){ .reason = EXIT_SHUTDOWN });
    assert_true(fake_log_said("crashed: triple fault"));
    assert_true(fake_log_said("cr2 abc0, IDT limit fff"));
    assert_true(fake_log_said("RIP at 100000: guest-physical 100000"));
    assert_false(fake_log_said("RIP at 100000: guest-physical 100000,"));
    assert_true(fake_log_said("IDT at 70000000: guest-physical 70000000, where there is no RAM"));
    assert_true(fake_log_said("stack at 3000: guest-physical 3000"));
    assert_true(fake_log_said("code: eb fe "));
    teardown(state);
    setup(state);

    f = fake_of(v);
    real_code("\xeb\xfe", 2);
    f->reg[VREG_CR0] = 0x80000011;
    f->reg[VREG_CR3] = BUF; /* nothing but zeros */
    fake_log_forget();
    vcpu_handle_exit(v, &(struct vm_exit){ .reason = EXIT_SHUTDOWN });
    assert_true(fake_log_said("RIP at 100000: page fault with error code 0"));
    assert_true(fake_log_said("code: none can be read"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_ports),
        TEST(test_string_out),
        TEST(test_string_edges),
        TEST(test_mmio),
        TEST(test_mmio_cut_off),
        TEST(test_mmio_unknown_insn),
        TEST(test_hc_numbers),
        TEST(test_hc_modes),
        TEST(test_hc_pointers),
        TEST(test_hc_console),
        TEST(test_hc_events),
        TEST(test_hc_io_report),
        TEST(test_hc_io_class),
        TEST(test_hc_poll),
        TEST(test_poll_of_closed),
        TEST(test_event_before_sleep),
        TEST(test_poll_traced),
        TEST(test_hc_random),
        TEST(test_two_nmis_are_kept),
        TEST(test_pauses_are_counted),
        TEST(test_mmio_of_a_delivery),
        TEST(test_hlt),
        TEST(test_behind_no_eoi),
        TEST(test_priorities),
        TEST(test_timer_leaves_nothing_to_do),
        TEST(test_deadline_far),
        TEST(test_init_sipi),
        TEST(test_interrupted),
        TEST(test_late_wake),
        TEST(test_unknown),
        TEST(test_dump),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
