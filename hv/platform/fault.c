#include "platform/power.h"

#include <takt/errno.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "platform/apic.h"
#include "platform/clock.h"
#include "platform/smp.h"
#include "x86/percpu.h"

#define STRAY_VECTOR 0xd5

const char fault_words[] = "pf|gp|ud|df|stack|mc|assert|nmi|stray|storm|hang";

static void page_fault(void) { *(volatile int *)(u64)nr_cpus = 0; /* a small address, which is not mapped */ }

static void general_protection(void) {
    *(volatile int *)(0x8000000000000000ull | nr_cpus) = 0; /* not canonical */
}

static void undefined(void) { __asm__ volatile("ud2"); }

static void double_fault(void) {
    __asm__ volatile("mov %0, %%rsp; push %%rax" : : "r"(0x1000ull) : "memory");
}

/* By pointer, or the compiler makes a loop of it. */
static void deeper(volatile u8 *caller_room);
static void (*volatile go_deeper)(volatile u8 *) = deeper;

static void deeper(volatile u8 *caller_room) {
    volatile u8 room[512];

    room[0] = (u8)(caller_room[0] + 1);
    go_deeper(room);
    caller_room[0] = room[0];
}

static void stack_overflow(void) {
    volatile u8 room = 0;

    go_deeper(&room);
}

static void machine_check(void) { __asm__ volatile("int $18"); }

static void assertion(void) { ASSERT(nr_cpus == 0); }

static void nmi(void) { apic_send(this_cpu()->apic_id, APIC_NMI, 0); }

static void stray_n(u32 n) {
    while (n--) {
        apic_send(this_cpu()->apic_id, APIC_FIXED, STRAY_VECTOR);
        irq_window();
    }
}

static void stray(void) { stray_n(1); }

static void storm(void) { stray_n(1200); }

static void hang(void) { delay_ns(10 * NS_PER_S); }

int fault_inject(const char *what) {
    static const struct {
        const char *word;
        void (*fn)(void);
    } faults[] = {
        { "pf", page_fault },
        { "gp", general_protection },
        { "ud", undefined },
        { "df", double_fault },
        { "stack", stack_overflow },
        { "mc", machine_check },
        { "assert", assertion },
        { "nmi", nmi },
        { "stray", stray },
        { "storm", storm },
        { "hang", hang },
    };

    for (u32 i = 0; i < ARRAY_SIZE(faults); i++) {
        if (strcmp(what, faults[i].word) == 0) {
            log_warn("fault on request: %s", what);
            faults[i].fn();
            return 0;
        }
    }
    return -EINVAL;
}
