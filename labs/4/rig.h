/* A vCPU with a local APIC. The test plays the rest of the hypervisor: it counts how often the vCPU
 * was told of an interrupt, keeps the time for which the timer was armed, and hears of EOIs. */
#ifndef LAB4_RIG_H
#define LAB4_RIG_H

#include "check.h"
#include "vdev/vlapic.h"

#define NEVER    (~0ull)
#define MASKED   0x10000u
#define PERIODIC 0x20000u
#define DEADLINE 0x40000u

static struct vlapic apic;
static unsigned told, eois;
static u64 armed;
static u8 eoi_of;

static struct vlapic *peer(struct vlapic *l, u32 id) {
    if (id == 0) return l;
    return NULL;
}

static void notify(struct vlapic *l, enum delivery_mode what, u8 vector) { told++; }
static void arm(struct vlapic *l, u64 when) { armed = when; }
static u64 tsc_to_ns(struct vlapic *l, u64 tsc) { return tsc / 2; }

static void eoi(struct vlapic *l, u8 vector) {
    eois++;
    eoi_of = vector;
}

static const struct vlapic_ops ops = {
    .peer = peer, .notify = notify, .arm = arm, .tsc_to_ns = tsc_to_ns, .eoi = eoi
};

/* Writes and reads a register of the page. */
static inline void wr(enum vlapic_reg n, u32 value, u64 now) {
    vlapic_write(&apic, n * 16u, value, now);
}
static inline u32 rd(enum vlapic_reg n, u64 now) { return vlapic_read(&apic, n * 16u, now); }

/* Begins with a LAPIC that is switched on. */
static inline void begin(void) {
    vlapic_init(&apic, 0, &ops);
    apic.base = APIC_BASE_EN;
    wr(R_SVR, 0x1ff, 0);
    told = eois = 0;
    armed = NEVER;
}

/* Is the bit of a vector set in the eight registers from n on? */
static inline bool bit_of(enum vlapic_reg n, u32 vector) {
    return rd(n + vector / 32, 0) >> vector % 32 & 1;
}

/* Takes the highest interrupt as the vCPU does. */
static inline void take(const char *what, int expected) {
    int vector = vlapic_pending(&apic);

    expect_result(what, vector, expected);
    if (vector > 0) vlapic_accept(&apic, (u8)vector);
}

#endif
