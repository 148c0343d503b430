/* All that concerns more than one CPU: starting the others at boot (an "AP" is a CPU that the boot
 * CPU starts), making their TSCs agree, kicking, and watching each other. To kick a CPU is to
 * interrupt it, so that it leaves its guest and goes once through its loop, where it sees what
 * others want of it. An AP begins on the "trampoline", a few instructions in a page below 1 MiB, as
 * a CPU starts in 16-bit mode. */
#include "platform/smp.h"

#include <takt/errno.h>
#include "lib/printf.h"
#include "common/string.h"
#include "mm/frame.h"
#include "platform/apic.h"
#include "platform/clock.h"
#include "platform/hostmap.h"
#include "platform/timer.h"
#include "trace/trace.h"
#include "x86/cpu.h"
#include "common/insn.h"
#include "x86/place.h"
#include "x86/trap.h"
#include "x86/tsc.h"

DEFINE_COUNTER(kicks);
DEFINE_COUNTER(kicks_by_nmi);

#define ANSWER_NS        NS_PER_S
#define INIT_NS          (200 * NS_PER_US) /* from INIT to SIPI: older CPUs needed 10 ms */
#define TSC_TRIES        4                 /* at mending a TSC */
#define FAULT_LAG        100000u
#define CPUID_TSC_ADJUST BIT(1)            /* leaf 7, EBX */
#define LOST_NS          (100 * NS_PER_MS) /* after which a kick is repeated by an NMI */
#define SILENT_NS        (2 * NS_PER_S)    /* between two looks at a CPU's heartbeat */
#define SILENT_DUMP      2 /* looks that found it silent, after which it is dumped */

extern const u8 trampoline[], trampoline_end[];
extern u64 ap_final_cr3, ap_stack;

/* ---- starting ---- */

static struct cpu *volatile starting; /* the AP that is on the trampoline */
static volatile bool compared;

/* What the AP that is starting is to do, once it has compared its TSC with the boot CPU's. The
 * boot CPU writes it; the AP sets AP_COMPARE again when it has mended its TSC. */
static volatile enum ap_order { AP_WAIT, AP_COMPARE, AP_MEND, AP_GO } ap_order;
static u64 adjustment; /* for AP_MEND: what the AP's IA32_TSC_ADJUST is to hold */
static u64 ap_adjust;  /* what it holds; 0 without that register */

bool smp_fault_tsc, smp_fault_no_adjust;
volatile bool smp_fault_kick;
static void (*ap_entry)(void);

/* Gives a CPU all its stacks. Returns 0 or -ENOMEM. The page below each stack is not mapped, so a
 * stack that overflows causes a fault instead of overwriting other data. NMIs, double faults and
 * machine checks have stacks of their own (IST): they may come when the normal stack is of no
 * use. */
int cpu_give_stacks(struct cpu *c) {
    c->p.stack_top = stack_map(STACK_SIZE);
    if (!c->p.stack_top) return -ENOMEM;
    for (unsigned i = IST_DF; i < IST_NR; i++) {
        c->tss.ist[i - 1] = (u64)stack_map(ISTACK_SIZE);
        if (!c->tss.ist[i - 1]) return -ENOMEM;
    }
    return 0;
}

/* Does this CPU have IA32_TSC_ADJUST, a register that is added to its TSC? */
static bool has_tsc_adjust(void) {
    return cpuid_or_zero(7, 0).ebx & CPUID_TSC_ADJUST && !smp_fault_no_adjust;
}

/* Returns this CPU's IA32_TSC_ADJUST; 0 without that register. */
static u64 read_tsc_adjust(void) {
    if (!has_tsc_adjust()) return 0;
    return rdmsr(MSR_TSC_ADJUST);
}

/* Has the boot CPU compare this CPU's TSC with its own, as time must not go back when a vCPU moves
 * from one CPU to another. The boot CPU may have this TSC mended several times before it lets this
 * CPU go. If that does not help, it stops this CPU by an INIT while it waits here. */
static void join_clocks(void) {
    if (smp_fault_tsc) wrmsr(MSR_TSC, rdtsc() - FAULT_LAG);
    do {
        ap_adjust = read_tsc_adjust();
        ap_order = AP_WAIT;
        starting->p.online = true;
        clock_compare(&compared, true);
        while (ap_order == AP_WAIT) cpu_relax();
        if (ap_order == AP_MEND) wrmsr(MSR_TSC_ADJUST, adjustment);
    } while (ap_order != AP_GO);
}

/* Begins the life of a CPU that smp_start() has started; boot.asm calls it, and it does not return.
 * join_clocks() must come before ap_entry(): once guests run here, a wrong TSC can no longer be
 * mended. */
void ap_main(void) {
    struct cpu *c = starting;

    cpu_load_tables(c);
    apic_init_cpu();
    timers_init_cpu();
    join_clocks();
    ap_entry();
    panic("CPU %u came back from its loop", c->p.id);
}

/* Sends a SIPI, and waits for at most `ns` until the CPU is online. Returns whether it is. */
static bool send_startup(struct cpu *c, hpa_t page, u64 ns) {
    u64 end = rdtsc() + ns_to_tsc(ns);

    apic_send(c->p.apic_id, APIC_STARTUP, (u8)(page >> PAGE_SHIFT));
    while (!c->p.online && rdtsc() < end) cpu_relax();
    return c->p.online;
}

/* Compares the AP's TSC with this CPU's, and mends it by IA32_TSC_ADJUST (SDM 3B 18.17.3). The
 * first try gives it the boot CPU's value, as the usual cause is firmware that wrote that register
 * of one CPU alone; the next ones add the lag that is seen. The AP waits in join_clocks(), where it
 * takes part in each comparison and does what `ap_order` says. Returns false if its TSC could not
 * be mended. */
static bool clocks_agree(const struct cpu *c) {
    u64 mine = read_tsc_adjust();

    for (u32 tries = 0;; tries++) {
        u64 end = rdtsc() + ns_to_tsc(ANSWER_NS);
        i64 lag;

        clock_compare(&compared, false);
        lag = clock_lag();
        if (!lag) return true;
        if (lag > 0)
            log_warn("CPU %u: its TSC is %ld ticks behind the first CPU's", c->p.id, lag);
        else
            log_warn("CPU %u: its TSC is %ld ticks ahead of the first CPU's", c->p.id, -lag);
        if (!has_tsc_adjust() || tries == TSC_TRIES) return false;
        if (ap_adjust != mine)
            adjustment = mine;
        else
            adjustment = ap_adjust + (u64)lag;
        compared = false;
        ap_order = AP_MEND;
        while (ap_order == AP_MEND && rdtsc() < end) cpu_relax();
    }
}

/* Starts one CPU as SDM 3A 9.4.4.1 describes; the pauses between INIT and SIPI are those for newer
 * CPUs. Returns false if it does not answer, or if its TSC cannot be set right. */
static bool start_one(struct cpu *c, hpa_t page) {
    starting = c;
    compared = false;
    ap_stack = (u64)c->p.stack_top;
    apic_send(c->p.apic_id, APIC_INIT, 0);
    delay_ns(INIT_NS);
    if (!send_startup(c, page, NS_PER_MS) && !send_startup(c, page, ANSWER_NS)) {
        /* It may still come late, and must not find itself on the stack of the next CPU. */
        apic_send(c->p.apic_id, APIC_INIT, 0);
        return false;
    }
    if (clocks_agree(c)) {
        ap_order = AP_GO;
        return true;
    }
    log_warn("the CPU with APIC id %u has a TSC that cannot be set right: it is not used, as time "
             "would go backwards",
             c->p.apic_id);
    apic_send(c->p.apic_id, APIC_INIT, 0);
    return false;
}

/* Starts all other CPUs of the machine, each of which then calls `entry`. CPUs are started one
 * after the other, because they share the trampoline and `starting`. */
void smp_start(const struct acpi_info *a, hpa_t page, bool smt, u32 most, void (*entry)(void)) {
    static u32 ids[ACPI_MAX_CPUS];
    u32 nr = a->nr_cpus, left_out = a->cpus_left_out;
    struct place_bits bits = place_bits_read();
    const char *mode = "";

    if (!page) {
        log_warn("no page below 640 KiB is free: other CPUs cannot be started");
        nr = 0;
    }
    if (apic_x2) mode = ", x2APIC";
    ap_entry = entry;
    ap_final_cr3 = hostmap_root();
    if (nr) memcpy(hpa_to_va(page), trampoline, (size_t)(trampoline_end - trampoline));
    memcpy(ids, a->apic_id, nr * sizeof(ids[0]));
    place_sort(&bits, ids, nr, boot_cpu.p.apic_id);
    if (!smt) nr = place_one_per_core(&bits, ids, nr);
    for (u32 i = 1; i < nr; i++) { /* the first is this one: acpi_boot_cpu() */
        u32 id = ids[i];
        struct cpu *c;

        if (nr_cpus == most) {
            left_out += nr - i;
            break;
        }
        c = heap_alloc(sizeof(*c));
        if (!c || cpu_give_stacks(c) < 0) {
            log_warn("there is no memory for more than %u CPU%s: the others are not used", nr_cpus,
                     plural(nr_cpus));
            break;
        }
        c->p.self = &c->p;
        c->p.id = nr_cpus;
        c->p.apic_id = id;
        c->p.node = acpi_node_of_cpu(a, id);
        percpu_of[nr_cpus] = &c->p;
        /* xAPIC mode has 8 bits for an id. With a longer one, another CPU would be started. */
        if ((apic_x2 || id < 255) && start_one(c, page))
            nr_cpus++;
        else
            log_warn("the CPU with APIC id %u does not answer: it is not used", id);
    }
    if (left_out)
        log_warn("Takt uses %u CPU%s at most: %u are left out", most, plural(most), left_out);
    log_info("%u CPU%s%s", nr_cpus, plural(nr_cpus), mode);
}

/* ---- kicking ---- */

/* Handles the interrupt of a kick. The pCPU has left its guest by now, and its loop does the rest.
 * So the kick is answered, and the next one has to send an interrupt again. */
static void on_kick(u8 vector) { cpu_of(this_cpu())->kicked_at = 0; }

/* Makes `cpu` leave its guest or its halt soon and go through its loop. kicked_at is the time of a
 * kick that is not answered yet, or 0. If it is not 0, an interrupt is on its way already, and a
 * second one would only cost time. repeat_kick() is for an interrupt that is lost. */
void cpu_kick(unsigned cpu) {
    struct cpu *c = cpu_of(percpu_of[cpu]), *self = cpu_of(this_cpu());
    u64 none = 0;

    if (c == self || !__atomic_compare_exchange_n(&c->kicked_at, &none, rdtsc(), false,
                                                  __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        return; /* the loop is on its way, or the interrupt */
    counter_inc(&kicks, self->p.id);
    if (smp_fault_kick) {
        smp_fault_kick = false; /* this kick is the one that shall be lost */
        return;
    }
    apic_send(c->p.apic_id, APIC_FIXED, VEC_KICK);
}

/* Sends an NMI to a CPU that has not answered a kick for LOST_NS: its interrupt was lost. Only the
 * heartbeat looks for that. A timer for each kick would find it sooner, but would itself be an
 * exit of the VM that runs on the kicking CPU, hundreds of times a second. */
static void repeat_kick(struct cpu *c) {
    u64 at = c->kicked_at;

    /* Another CPU's TSC may be a little ahead of this one's: hence the signs. */
    if (!at || (i64)(rdtsc() - at) < (i64)ns_to_tsc(LOST_NS)) return;
    c->kicked_at = 0;
    __atomic_fetch_add(&c->nmi_kicks, 1, __ATOMIC_SEQ_CST);
    counter_inc(&kicks_by_nmi, this_cpu()->id);
    apic_send(c->p.apic_id, APIC_NMI, 0);
}

/* Makes an interrupt pending on this CPU, because of which the next guest exits at once. */
void cpu_interrupt_self(void) { apic_send(this_cpu()->apic_id, APIC_FIXED, VEC_KICK); }

/* Stops all other CPUs for ever, before this one panics or ends the machine. An NMI reaches also a
 * CPU that has its interrupts switched off. */
void smp_stop_others(void) {
    cpus_stop = true;
    for (unsigned cpu = 0; cpu < nr_cpus; cpu++)
        if (cpu != this_cpu()->id) apic_send(percpu_of[cpu]->apic_id, APIC_NMI, 0);
}

/* ---- waiting ---- */

/* Takes the pending interrupts of this CPU: switches interrupts on for a moment. */
void irq_window(void) { __asm__ volatile("sti; nop; cli" : : : "memory"); }

/* Halts this CPU until an interrupt comes, and takes it. */
void cpu_halt(void) {
    struct cpu *c = cpu_of(this_cpu());

    c->halted = true;
    irq_halt();
    c->halted = false;
}

/* ---- heartbeat: each CPU watches the next one ---- */

/* Has this CPU not come through its loop for SILENT_NS? A CPU that halts is silent only if its next
 * timer is overdue for so long. */
static bool is_silent(const struct cpu *c, u64 now) {
    if (!c->p.heartbeat) return false;
    if (c->halted) return timers_late(c->p.id, now) > SILENT_NS; /* else it stands still rightly */
    return (i64)(rdtsc() - c->p.heartbeat) >= (i64)ns_to_tsc(SILENT_NS);
}

/* Checks the next CPU. A kick that it has not answered is repeated. If it is silent, it is kicked,
 * which wakes it if it halts and its timer was lost. If it is still silent at the next check, an
 * NMI makes it dump its state. */
static void on_heartbeat(struct timer *t, u64 now) {
    u32 me = this_cpu()->id;
    struct cpu *c = cpu_of(percpu_of[(me + 1) % nr_cpus]);

    repeat_kick(c);
    if (is_silent(c, now))
        c->silent++;
    else
        c->silent = 0;
    if (c->silent == 1 && c->halted) log_warn("CPU %u slept through its timer; waking it", c->p.id);
    if (c->silent == 1) cpu_kick(c->p.id);
    if (c->silent == SILENT_DUMP) {
        c->dump_wanted = true;
        apic_send(c->p.apic_id, APIC_NMI, 0);
    }
    timer_set(me, t, now + SILENT_NS);
}

/* Returns whether all CPUs still go through their loops. */
bool smp_all_alive(void) {
    for (unsigned cpu = 0; cpu < nr_cpus; cpu++)
        if (cpu_of(percpu_of[cpu])->silent >= SILENT_DUMP) return false;
    return true;
}

/* Lets this CPU answer kicks from now on, and watch the next CPU. Each CPU watches the next one, in
 * a circle. So a CPU that hangs is noticed whichever it is. */
void smp_watch(void) {
    struct cpu *c = cpu_of(this_cpu());

    irq_register(VEC_KICK, on_kick);
    timer_init(&c->heartbeat_timer, on_heartbeat);
    timer_set(c->p.id, &c->heartbeat_timer, now_ns() + SILENT_NS);
}
