/* vcpus: 2 */
/* NMIs that come while a fault is on its way to the guest leave no trace in it. The handler of
 * the fault finds no trap flag in its registers, and no trap comes. */
#include <guest/lapic.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <guest/x86.h>

#define FAULTS 2000

static volatile u32 nmis, faults, flagged, traps;
static volatile bool done;

static bool on_nmi(struct trap_frame *f) {
    nmis++;
    return true;
}

static bool on_gp(struct trap_frame *f) {
    faults++;
    if (f->rflags & RFLAGS_TF) flagged++;
    f->rflags &= ~RFLAGS_TF;
    f->rip += 2; /* RDMSR */
    return true;
}

static bool on_db(struct trap_frame *f) {
    traps++;
    f->rflags &= ~RFLAGS_TF;
    return true;
}

static void target(void *arg) {
    irq_disable();
    /* There is no such MSR, so each read is a #GP. */
    while (faults < FAULTS) __asm__ volatile("rdmsr" : : "c"(0x4fff) : "eax", "edx");
    done = true;
}

int main(void) {
    struct thread *t;
    u64 end;

    test_begin();
    if (vcpu_start_all() < 2) test_error("too few vCPUs");
    exception_set_hook(EXC_NMI, on_nmi);
    exception_set_hook(EXC_GP, on_gp);
    exception_set_hook(EXC_DB, on_db);
    t = thread_start(1, "target", target, NULL);
    end = time_ns() + 2 * NS_PER_S;
    /* Sends NMIs at changing times, and waits for a fault after each of them. */
    for (u32 i = 0, seen; !done && time_ns() < end; i++) {
        /* Without this wait the target would only handle NMIs and get no further. */
        seen = faults;
        lapic_icr(1, ICR_NMI | ICR_ASSERT);
        while (faults == seen && !done && time_ns() < end) cpu_relax();
        for (volatile u32 n = i % 61; n; n--)
            ;
    }
    CHECK(faults > FAULTS / 10, "%u of %u faults", faults, FAULTS); /* NMIs take their time */
    thread_join(t);
    CHECK(nmis > 0, "no NMI came");
    CHECK(!flagged && !traps,
          "of %u faults %u found the trap flag, and there were %u traps; %u NMIs", faults, flagged,
          traps, nmis);
    return test_end("NMIs beside faults");
}
