/* A VM with two devices and the VM that serves them, on the fake machine: `web` is the front end,
 * `io` the back end. The test makes hypercalls for `io`, as its driver would, and writes to the
 * registers of the devices of `web`, as its guest would. Included by the one source of a test. */
#ifndef TESTS_BACKEND_RIG_H
#define TESTS_BACKEND_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "fake_log.h"
#include "fake_machine.h"
#include "fake_timer.h"
#include "npt_model.h"
#include "sched/policy.h"

#define BUF     0x10000u /* in the back end's RAM */
#define AGREED  (VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK)
#define RUNNING (AGREED | VIRTIO_DRIVER_OK)

static struct vm *web, *io;
static u64 frames, heap; /* free frames and bytes in use without the two VMs */

static inline struct config_vm io_config(void) {
    struct config_vm c = fake_config("iodom", 1);

    c.cpus = cpumask_of(1);
    return c;
}

static inline struct config_vm web_config(u64 chunks) {
    struct config_vm c = fake_config("web", 1);

    c.memory = chunks << CHUNK_SHIFT;
    c.cpus = cpumask_of(0);
    c.nr_devices = 2;
    c.device[0] =
        (struct config_device){ .type = VIRTIO_ID_NET, .back = "iodom", .options = "rate=1M" };
    c.device[1] = (struct config_device){ .type = VIRTIO_ID_BLOCK, .back = "iodom" };
    return c;
}

static inline struct vm *make_io(void) {
    struct config_vm c = io_config();

    return fake_vm(&c);
}

static inline struct vm *make_web(u64 chunks) {
    struct config_vm c = web_config(chunks);

    return fake_vm(&c);
}

/* Destroys both VMs. No memory may be missing then, and no lock may be held. */
static inline void cleanup(void) {
    if (web) fake_destroy(web);
    if (io) fake_destroy(io);
    web = io = NULL;
    assert_int_equal(frame_free_count(), frames);
    assert_int_equal(heap_in_use(), heap);
    assert_false(spin_is_locked(&backend_lock));
}

/* Once for a program. RAM is made dirty first, so that a frame that a VM gets without being
 * scrubbed shows what was there before. */
static inline int setup(void **state) {
    hpa_t dirty;

    fake_machine("null");
    fake_clock(1000);
    dirty = frame_alloc(13);
    memset(hpa_to_va(dirty), 0x5e, 32 << 20);
    frame_free(dirty, 13);
    /* Some memory is allocated once and kept, so both VMs are made once before it is counted. */
    io = make_io();
    web = make_web(1);
    fake_destroy(web);
    fake_destroy(io);
    frames = frame_free_count();
    heap = heap_in_use();
    return 0;
}

/* Before each test. */
static inline int both(void **state) {
    io = make_io();
    web = make_web(3);
    assert_non_null(io);
    assert_non_null(web);
    return 0;
}

/* After each test. */
static inline int none_left(void **state) {
    cleanup();
    return 0;
}

/* A hypercall of the VM's vCPU 0. The hypervisor does a long one in parts, and lets the guest
 * execute the instruction again until all parts are done. Returns what the guest finds in RAX. */
static inline i64 call(struct vm *vm, u32 nr, u64 a, u64 b, u64 c) {
    struct vcpu *v = vm->vcpu[0];
    u64 *gpr = v->virt.regs.gpr;
    u64 rip = v->virt.regs.rip;
    u32 cpu = this_cpu()->id;

    fake_cpu(v->sched.cpu);
    for (int i = 0; v->virt.regs.rip == rip; i++) {
        assert_in_range(i, 0, 1000);
        gpr[REG_RAX] = nr;
        gpr[REG_RBX] = a;
        gpr[REG_RCX] = b;
        gpr[REG_RDX] = c;
        vcpu_handle_exit(
            v, &(struct vm_exit){ .reason = EXIT_HYPERCALL, .insn_len = 3, .hc = { .mode = 64 } });
    }
    fake_cpu(cpu);
    assert_false(spin_is_locked(&backend_lock));
    return (i64)gpr[REG_RAX];
}

/* Only one part of a hypercall. Returns true if that was the last one; *result is then its
 * answer. */
static inline bool part(struct vm *vm, u32 nr, u64 a, u64 b, i64 *result) {
    struct vcpu *v = vm->vcpu[0];
    u64 rip = v->virt.regs.rip;

    v->virt.regs.gpr[REG_RAX] = nr;
    v->virt.regs.gpr[REG_RBX] = a;
    v->virt.regs.gpr[REG_RCX] = b;
    vcpu_handle_exit(
        v, &(struct vm_exit){ .reason = EXIT_HYPERCALL, .insn_len = 3, .hc = { .mode = 64 } });
    *result = (i64)v->virt.regs.gpr[REG_RAX];
    return v->virt.regs.rip != rip;
}

/* The front end writes a register of its device number n. */
static inline void put(u32 n, u32 reg, u32 value) {
    u64 v = value;

    assert_true(bus_do(&web->mmio,
                       &(struct bus_access){ .addr = TAKT_VIRTIO_GPA + n * PAGE_SIZE + reg,
                                             .size = 4,
                                             .write = true },
                       &v));
    assert_false(spin_is_locked(&backend_lock));
}

/* The front end reads a register of its device number n. */
static inline u32 get(u32 n, u32 reg) {
    u64 v;

    assert_true(bus_do(
        &web->mmio,
        &(struct bus_access){ .addr = TAKT_VIRTIO_GPA + n * PAGE_SIZE + reg, .size = 4 }, &v));
    return (u32)v;
}

/* Clears an event channel's pending bit. Returns whether it was set. */
static inline bool take(struct vm *vm, u32 port) {
    u64 *word = &vm->events.shared->pending[port / 64], old = *word;

    *word &= ~BIT(port % 64);
    return old >> (port % 64) & 1;
}

/* The buffer of the back end that its hypercalls read and write, see BUF. */
static inline void *buf(void) {
    u64 room;

    return guestmem_at(&io->mem, BUF, &room);
}

/* What the back end calls device number n of `web`. */
static inline u32 handle(u32 n) { return web->id * TAKT_MAX_DEVICES + n; }

/* The back end offers device number n. Returns its event channel or an error. */
static inline i64 offer(u32 n) {
    struct takt_offer *o = buf();

    *o = (struct takt_offer){
        .features = BIT(VIRTIO_F_VERSION_1), .nr_queues = 2, .queue_max = 64, .config_len = 8
    };
    return call(io, TAKT_HC_BACK_OFFER, handle(n), BUF, 0);
}

/* What the back end is told about the front end; `resets` are those that it has acknowledged. */
static inline struct takt_front state(u32 n, u32 resets) {
    assert_int_equal(call(io, TAKT_HC_BACK_STATE, handle(n), BUF, resets), 0);
    return *(struct takt_front *)buf();
}

/* The back end maps the RAM of the VM that has device number n. */
static inline struct takt_window map(u32 n) {
    assert_int_equal(call(io, TAKT_HC_BACK_MAP, handle(n), BUF, 0), 0);
    return *(struct takt_window *)buf();
}

/* The front end's driver sets its device up, with one queue of 64. */
static inline void start(u32 n) {
    put(n, VIRTIO_STATUS, VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER);
    put(n, VIRTIO_DRIVER_FEATURES_SEL, 1);
    put(n, VIRTIO_DRIVER_FEATURES, 1);
    put(n, VIRTIO_STATUS, AGREED);
    put(n, VIRTIO_QUEUE_NUM, 64);
    put(n, VIRTIO_QUEUE_DESC, 0x1000);
    put(n, VIRTIO_QUEUE_DRIVER, 0x2000);
    put(n, VIRTIO_QUEUE_DEVICE, 0x3000);
    put(n, VIRTIO_QUEUE_READY, 1);
    put(n, VIRTIO_STATUS, RUNNING);
}

/* All RAM of `web` is in the window `w` of the back end, readable and writable but not executable,
 * or (!there) nothing is. Nothing is mapped behind it. */
static inline void assert_window(const struct takt_window *w, bool there) {
    unsigned prot = 0;

    for (u32 n = 0; n < web->mem.size >> CHUNK_SHIFT; n++) {
        gpa_t at = w->base + guestmem_chunk_gpa(&web->mem, n) + 0x12345;
        hpa_t found = npt_lookup(&io->virt.npt, at, &prot);

        if (!there) {
            assert_int_equal(found, HPA_NONE);
            continue;
        }
        assert_int_equal(found, web->mem.chunk[n] + 0x12345);
        assert_int_equal(prot, NPT_RW);
    }
    assert_int_equal(npt_lookup(&io->virt.npt, w->base + w->low, NULL), HPA_NONE);
}

#endif
