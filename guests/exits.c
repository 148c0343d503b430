/* Does one thing n times, for tools/apicvexits.py, which counts the exits of this VM: `op=` is
 *   write  an IPI to itself, which waits, as interrupts are off
 *   eoi    an EOI, with nothing in service
 *   self   an IPI to itself, its handler and the EOI
 *   timer  an interrupt of the timer, for which the guest waits in a loop: arming, handler, EOI
 *   ipi    an IPI to the other vCPU, which waits in a loop: handler and EOI there
 * With `xapic` the local APIC is in xAPIC mode. At the end the VM sleeps, so that it can be looked
 * at. */
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

#define VECTOR 0x50
#define TICKS  5000 /* of the TSC, from arming the timer to its interrupt */

static volatile u32 taken;
static volatile bool end;

static void handler(void *arg) {
    taken++;
    lapic_eoi();
}

/* Waits until one more interrupt was taken than before. */
static void wait(u32 before) {
    while (taken == before) {
    }
}

static void one_timer(void) {
    u32 before = taken;

    wrmsr(MSR_TSC_DEADLINE, rdtsc() + TICKS);
    wait(before);
}

static void one_ipi(void) {
    u32 before = taken;

    lapic_ipi(1, VECTOR);
    wait(before);
}

static void spin(void *arg) {
    while (!end) {
    }
}

static void do_op(const char *op, u32 n) {
    struct thread *other = NULL;

    if (op[0] == 'w' || op[0] == 'e') irq_disable();
    if (op[0] == 't') lapic_write(LAPIC_LVT_TIMER, LVT_DEADLINE | VECTOR);
    if (op[0] == 'i') other = thread_start(1, "spin", spin, NULL);
    for (u32 i = 0; i < n; i++) {
        switch (op[0]) {
        case 'e': lapic_eoi(); break;
        case 't': one_timer(); break;
        case 'i': one_ipi(); break;
        default: lapic_self_ipi(VECTOR); break;
        }
    }
    end = true;
    if (other) thread_join(other);
}

int main(void) {
    char op[8] = "";

    cmdline_str("op", op, sizeof(op));
    irq_set_raw_handler(VECTOR, handler, NULL);
    if (op[0] == 'i') vcpu_start_all();
    do_op(op, (u32)cmdline_u64("n", 1000));
    printf("EXITS %s done, %u taken\n", op, taken);
    irq_disable();
    for (;;) __asm__ volatile("hlt");
}
