/* KVM's clock, for VMs that are PCs. It tells an operating system without drivers for Takt how fast
 * its TSC runs, and how much time it has waited while other VMs ran. The layout is KVM's (Linux,
 * Documentation/virt/kvm/x86/cpuid.rst and msr.rst). KVM's hypercalls are not offered, because the
 * same numbers mean other calls here. */
#include <takt/errno.h>
#include "common/string.h"
#include "platform/rtc.h"
#include "vcpu/exits.h"
#include "x86/tsc.h"

#define KVM_SIGNATURE        "KVMKVMKVM\0\0"
#define LEAF_FREQUENCIES     (KVMCLOCK_CPUID + 0x10) /* QEMU: vmware-cpuid-freq */
#define FEATURE_NO_IO_DELAY  BIT(1)
#define FEATURE_CLOCK        BIT(3)
#define FEATURE_STEAL        BIT(5)
#define FEATURE_CLOCK_STABLE BIT(24)

#define MSR_WALL_CLOCK       0x4b564d00u
#define MSR_SYSTEM_TIME      0x4b564d01u
#define MSR_STEAL_TIME       0x4b564d03u
#define MSR_ENABLE           BIT(0) /* bit of the last two; the other bits are an address */
#define STEAL_ALIGN          64u

struct kvm_wall_clock {
    u32 version, seconds, nanoseconds;
};

/* time = system_time + ((tsc - tsc_timestamp) << shift) * mul >> 32, in ns */
struct kvm_vcpu_time {
    u32 version, pad;
    u64 tsc_timestamp, system_time;
    u32 mul;
    signed char shift;
    u8 flags, pad2[2];
};
#define TIME_STABLE 1 /* in flags: all vCPUs' clocks agree */

struct kvm_steal {
    u64 ns;
    u32 version, flags;
    u8 preempted, pad[47];
};

/* Returns what a guest reads in a leaf of CPUID that belongs to this clock. The first leaf holds
 * KVM's signature, the second one the features of KVM that are offered. By these a guest finds the
 * clock. The last one tells how many kHz the TSC and the timer of the LAPIC have, so that a guest
 * without a driver for the clock need not measure them by a PIT, which it does not have. VMware
 * defined this leaf, and QEMU has it with KVM's. */
struct cpuid kvmclock_cpuid(u32 leaf) {
    struct cpuid r = { 0 };

    if (leaf == KVMCLOCK_CPUID) {
        r.eax = LEAF_FREQUENCIES;
        memcpy(&r.ebx, KVM_SIGNATURE, 4);
        memcpy(&r.ecx, &KVM_SIGNATURE[4], 4);
        memcpy(&r.edx, &KVM_SIGNATURE[8], 4);
    } else if (leaf == KVMCLOCK_CPUID + 1) {
        r.eax = FEATURE_NO_IO_DELAY | FEATURE_CLOCK | FEATURE_STEAL | FEATURE_CLOCK_STABLE;
    } else if (leaf == LEAF_FREQUENCIES) {
        r.eax = (u32)tsc_khz;
        r.ebx = VLAPIC_TIMER_KHZ;
    }
    return r;
}

/* Sets t->mul and t->shift for a TSC of `khz`. The shift is chosen so that `mul` has as many valid
 * bits as fit. */
static void scale(u64 khz, struct kvm_vcpu_time *t) {
    u64 hz = khz * 1000;

    for (t->shift = 0; hz <= NS_PER_S; t->shift++) hz *= 2;
    t->mul = (u32)((NS_PER_S << 32) / hz);
}

/* Writes the time structure of a vCPU to the guest's memory. The VM's TSC began with 0 when the VM
 * was made, and its time begins with 0 then, too. */
static bool write_time(struct vcpu *v, gpa_t gpa) {
    struct kvm_vcpu_time t = { .version = 2, .flags = TIME_STABLE };

    scale(tsc_khz, &t);
    return guestmem_write(&v->vm->mem, gpa, &t, sizeof(t)) == 0;
}

/* Writes the time of day at which the VM began, which is where its own time has its 0. */
static bool write_wall_clock(struct vcpu *v, gpa_t gpa) {
    u64 ns = rtc_at(tsc_to_ns(-v->vm->tsc_offset - tsc_boot));
    struct kvm_wall_clock w = { .version = 2,
                                .seconds = (u32)(ns / NS_PER_S),
                                .nanoseconds = (u32)(ns % NS_PER_S) };

    return guestmem_write(&v->vm->mem, gpa, &w, sizeof(w)) == 0;
}

/* Sets where the guest reads how long it had to wait for a pCPU, or ends that. Returns false if the
 * address is not good. */
static bool set_steal(struct vcpu *v, u64 value) {
    gpa_t gpa = value & ~MSR_ENABLE;
    u64 room = 0;
    void *at;

    __atomic_store_n(&v->steal, NULL, __ATOMIC_RELEASE);
    if (!(value & MSR_ENABLE)) return true;
    at = guestmem_at(&v->vm->mem, gpa, &room);
    if (!at || gpa % STEAL_ALIGN) return false;
    memset(at, 0, sizeof(struct kvm_steal));
    __atomic_store_n(&v->steal, at, __ATOMIC_RELEASE);
    return true;
}

/* Writes the vCPU's steal time to where its guest reads it. "Steal" is time in which the vCPU
 * wanted to run and did not. `version` is odd while the numbers change, so that the guest can
 * notice that it has to read again. */
void kvmclock_steal(struct kvm_steal *s, u64 ns, bool preempted) {
    __atomic_store_n(&s->version, s->version + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    s->ns = ns;
    s->preempted = preempted;
    __atomic_store_n(&s->version, s->version + 1, __ATOMIC_RELEASE);
}

/* Reads an MSR of this clock: what the guest has written there. Returns false if the access has to
 * raise #GP, because the VM is no PC or the MSR is not of this clock. */
bool kvmclock_read(struct vcpu *v, u32 msr, u64 *value) {
    if (!v->vm->ioapic || msr < MSR_WALL_CLOCK || msr > MSR_STEAL_TIME) return false;
    *value = v->kvmclock[msr - MSR_WALL_CLOCK];
    return true;
}

/* Carries out a guest's write to an MSR of this clock. The guest writes the address at which it
 * wants to read: the time of day, its time, or its steal. */
bool kvmclock_write(struct vcpu *v, u32 msr, u64 value) {
    bool ok = false;

    if (!v->vm->ioapic) return false;
    switch (msr) {
    case MSR_WALL_CLOCK: ok = write_wall_clock(v, value); break;
    case MSR_SYSTEM_TIME: ok = !(value & MSR_ENABLE) || write_time(v, value & ~MSR_ENABLE); break;
    case MSR_STEAL_TIME: ok = set_steal(v, value); break;
    }
    if (ok) v->kvmclock[msr - MSR_WALL_CLOCK] = value;
    return ok;
}
