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

static void deeper(void) { __asm__ volatile("call *%0" : : "r"(deeper) : "memory"); }

static void machine_check(void) { __asm__ volatile("int $18"); }

static void assertion(void) { ASSERT(nr_cpus == 0); }

static void nmi(void) { apic_send(this_cpu()->apic_id, APIC_NMI, 0); }

static void stray(void) {
    apic_send(this_cpu()->apic_id, APIC_FIXED, STRAY_VECTOR);
    irq_window();
}

static void storm(void) {
    for (int i = 0; i < 1200; i++) stray();
}

static void hang(void) { delay_ns(10 * NS_PER_S); }

int fault_inject(const char *what) {
    static const struct {
        const char *word;
        void (*fn)(void);
    } faults[] = {
        { "pf", page_fault }, { "gp", general_protection }, { "ud", undefined },     { "df", double_fault },
        { "stack", deeper },  { "mc", machine_check },      { "assert", assertion }, { "nmi", nmi },
        { "stray", stray },   { "storm", storm },           { "hang", hang }
    };

    for (u32 i = 0; i < ARRAY_SIZE(faults); i++) {
        if (strcmp(what, faults[i].word)) continue;
        log_warn("fault on request: %s", what);
        faults[i].fn();
        return 0;
    }
    return -EINVAL;
}
