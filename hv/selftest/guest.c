/* Checks of the CPUs by a guest of a few instructions: entries and exits, the TLB, the timer that
 * ends slices, and interrupts between CPUs. The guest is no VM: there is no scheduler yet, so the
 * checks enter it themselves, and nothing but hv/virt is between them and the CPU. Each CPU has a
 * "tester", a vCPU of that guest and what was found with it. A check writes its result to struct
 * finding. */
#include <takt/errno.h>
#include "lib/printf.h"
#include "common/string.h"
#include "platform/apic.h"
#include "platform/clock.h"
#include "platform/smp.h"
#include "platform/timer.h"
#include "selftest/check.h"
#include "virt/bits.h"
#include "x86/cpu.h"
#include "common/insn.h"
#include "x86/tsc.h"

/* Where things are in the guest's memory. */
#define REAL_VECTORS 0x0000u /* real mode: an offset and a segment for each vector */
#define COUNTERS     0x0800u /* a word for each CPU */
#define ASK          0x1000u /* programs */
#define ANSWER       0x1100u
#define LOOK         0x1200u
#define LOOK_ON      0x1300u
#define SPIN         0x1400u
#define STACK        0x8000u
#define PML4         0x10000u /* page tables for 64-bit mode */
#define PDPT         0x11000u
#define DIRECTORY    0x12000u
/* behind its memory: where a frame is mapped and taken away */
#define WINDOW                 0x400000u

#define VECTOR                 0x40u
#define PASSES                 1000u /* of each program on each CPU */
#define SLICES                 20u
#define SLICE_NS               (500 * NS_PER_US)
#define ROUNDS                 20u
#define ENTRY_PRESENT_WRITABLE 3u     /* of a page table's entry: SDM 3A 4.5 */
#define ENTRY_LARGE            BIT(7) /* a 2 MiB page */

/* Time limits after which something is broken, and is not just slow. An emulator on a busy host
 * stands still for some ten milliseconds now and then. */
#define PATIENCE_NS NS_PER_S
#define JOB_NS      (5 * NS_PER_S)
#define LATE_NS     (5 * NS_PER_MS) /* the least late end of a slice */
#define SAFETY_NS   (100 * NS_PER_MS)
#define SETTLE_NS   (30 * NS_PER_US) /* in so long a CPU is back in its guest, or its halt */

enum mode { REAL, PROTECTED, LONG, MODES };
static const char *const mode_name[] = { "real mode", "32-bit mode", "64-bit mode" };

static struct virt_vm guest;
static struct guestmem memory;
static u8 *ram;        /* the guest's memory */
static hpa_t frame[2]; /* for the window; each is full of its number */

/* One CPU's part in a check. */
static struct tester {
    struct virt_vcpu vcpu; /* first, as virt_vcpu_alloc() wants it */
    bool bad;
    char why[80];
    u64 best_tsc; /* of a CPUID exit, from entry to return */
    u64 late_ns[SLICES];
    enum { IN_HALT, IN_GUEST } wait_in; /* where it waits to be kicked ... */
    volatile bool waiting, over;        /* ... it does; it need not any more */
    bool left;                          /* it was stopped when its page was taken away */
} * tester[TAKT_MAX_CPUS];

/* Notes what is wrong on this CPU. Only the first such sentence is kept, as others may follow from
 * it. */
static void __attribute__((format(printf, 2, 3))) wrong(struct tester *t, const char *fmt, ...) {
    va_list ap;

    if (t->bad) return; /* the first thing tells most */
    t->bad = true;
    va_start(ap, fmt);
    hv_vsnprintf(t->why, sizeof(t->why), fmt, ap);
    va_end(ap);
}

/* ---- the guest ---- */

/* Copies bytes into the guest's memory. */
static void guest_put(u32 at, const void *bytes, size_t n) { memcpy(ram + at, bytes, n); }

/* Copies a number of 64 bits there. */
static void guest_put64(u32 at, u64 value) { guest_put(at, &value, sizeof(value)); }

/* Writes the programs and the page tables into the guest's memory. The programs mean the same in
 * 16, 32 and 64 bits, but for LOOK and LOOK_ON, which are for 32. */
static void write_programs(void) {
    static const u8 ask[] = { 0x0f, 0xa2,                 /* cpuid */
                              0xf4,                       /* hlt */
                              0xeb, 0xfb };               /* jmp to the start */
    static const u8 answer[] = { 0xf4 };                  /* hlt */
    static const u8 look[] = { 0xa1, 0,   0, 0x40, 0,     /* mov eax, [WINDOW] */
                               0x0f, 0xa2 };              /* cpuid */
    static const u8 look_on[] = { 0xa1, 0,    0, 0x40, 0, /* mov eax, [WINDOW] */
                                  0xff, 0x06,             /* inc dword [esi] */
                                  0xeb, 0xf7 };           /* jmp to the start */
    static const u8 spin[] = { 0xeb, 0xfe };              /* jmp to itself */
    static const u16 gate[] = { ANSWER, 0 };

    guest_put(ASK, ask, sizeof(ask));
    guest_put(ANSWER, answer, sizeof(answer));
    guest_put(LOOK, look, sizeof(look));
    guest_put(LOOK_ON, look_on, sizeof(look_on));
    guest_put(SPIN, spin, sizeof(spin));
    guest_put(REAL_VECTORS + 4 * VECTOR, gate, sizeof(gate));
    guest_put64(PML4, PDPT | ENTRY_PRESENT_WRITABLE);
    guest_put64(PDPT, DIRECTORY | ENTRY_PRESENT_WRITABLE);
    guest_put64(DIRECTORY, ENTRY_LARGE | ENTRY_PRESENT_WRITABLE);
}

/* Makes the tester of a CPU. Returns 0 or -ENOMEM. */
static int make_tester(u32 cpu) {
    struct tester *t = virt_vcpu_alloc(sizeof(*t));

    if (!t) return -ENOMEM;
    tester[cpu] = t;
    t->vcpu.vm = &guest;
    if (virt->vcpu_init(&t->vcpu)) return -ENOMEM;
    guest_reset(&t->vcpu); /* load() wants a whole state */
    return 0;
}

/* Makes the guest: 2 MiB of memory with the programs, two frames for the window, and a vCPU for
 * each CPU. Returns 0 or -ENOMEM. */
int guest_init(void) {
    if (guestmem_init(&memory, CHUNK_SIZE) || guestmem_grow(&memory)) return -ENOMEM;
    ram = hpa_to_va(memory.chunk[0]);
    memset(ram, 0, CHUNK_SIZE);
    write_programs();
    guest.mem = &memory;
    if (npt_init(&guest.npt, virt->npt_format)) return -ENOMEM;
    if (npt_map(&guest.npt, 0, memory.chunk[0], CHUNK_SIZE, NPT_RWX, NPT_WB)) return -ENOMEM;
    for (u32 i = 0; i < ARRAY_SIZE(frame); i++) {
        frame[i] = frame_alloc(0);
        if (frame[i] == HPA_NONE) return -ENOMEM;
        memset(hpa_to_va(frame[i]), (int)i + 1, PAGE_SIZE);
    }
    for (u32 cpu = 0; cpu < nr_cpus; cpu++)
        if (make_tester(cpu)) return -ENOMEM;
    return 0;
}

/* Returns what the guest reads in the window while frame i is there. */
static u32 frame_mark(u32 i) { return (i + 1) * 0x01010101u; }

/* Maps frame i in the window, a place in the guest's memory whose mapping changes. */
static int show_frame(u32 i) {
    return npt_map(&guest.npt, WINDOW, frame[i], PAGE_SIZE, NPT_RW, NPT_WB);
}

/* Sets the vCPU's registers as the program at `rip` needs them in this mode. It has to be loaded on
 * this CPU. */
static void tester_begin(struct tester *t, enum mode mode, u32 rip) {
    /* SDM 3A 3.4.5: present, accessed; code of 16, 32 and 64 bits, and data for all of it */
    static const struct guest_seg code[] = { [REAL] = { 0, 0x09b, 0xffff, 0 },
                                             [PROTECTED] = { 8, 0xc9b, 0xffffffff, 0 },
                                             [LONG] = { 8, 0xa9b, 0xffffffff, 0 } };
    static const struct guest_seg flat = { 0x10, 0xc93, 0xffffffff, 0 };
    struct virt_vcpu *v = &t->vcpu;

    guest_reset(v);
    virt->set_seg(v, SEG_CS, &code[mode]);
    if (mode != REAL)
        for (int s = SEG_ES; s <= SEG_GS; s++)
            if (s != SEG_CS) virt->set_seg(v, (enum seg_name)s, &flat);
    if (mode == LONG) {
        virt->set_reg(v, VREG_CR4, CR4_PAE);
        virt->set_reg(v, VREG_CR3, PML4);
        virt->set_reg(v, VREG_EFER, EFER_LME | EFER_LMA);
    }
    if (mode == REAL)
        virt->set_reg(v, VREG_CR0, CR0_ET);
    else
        virt->set_reg(v, VREG_CR0, CR0_ET | CR0_PE | (mode == LONG ? CR0_PG : 0));
    /* Bochs' guests keep interrupts of the host waiting while it is clear */
    v->regs.rflags |= RFLAGS_IF;
    v->regs.rip = rip;
    v->regs.gpr[REG_RSP] = STACK;
}

/* Lets the guest run until it exits by itself (true) or `until_ns` has passed. Interrupts of the
 * machine and the timer that ends its stay do not count. */
static bool tester_enter(struct tester *t, u64 until_ns, struct vm_exit *e) {
    do {
        virt->run(&t->vcpu, until_ns, e);
        if (e->reason == EXIT_INTR || e->reason == EXIT_NMI)
            irq_window();
        else if (e->reason != EXIT_TIMER)
            return true;
    } while (now_ns() < until_ns);
    return false;
}

/* Enters the guest, and notes if it does not exit for this reason at this instruction. Returns
 * false if something was wrong. */
static bool exits_by(struct tester *t, enum exit_reason reason, u64 rip, const char *where) {
    struct vm_exit e;

    if (!tester_enter(t, now_ns() + PATIENCE_NS, &e))
        wrong(t, "in %s it runs on where it has to exit", where);
    else if (e.reason == EXIT_ENTRY_FAILED)
        wrong(t, "%s cannot be entered: %s", where, guest_why(&t->vcpu));
    else if (e.reason != reason)
        wrong(t, "in %s it exits by reason %u (%x) and not by %u", where, e.reason, e.raw, reason);
    else if (t->vcpu.regs.rip != rip)
        wrong(t, "in %s it exits at %lx and not at %lx", where, t->vcpu.regs.rip, rip);
    return !t->bad;
}

/* Has each CPU in turn call fn with its tester. Returns false if something was wrong, and `f` says
 * so. */
static bool on_each_cpu(struct finding *f, void (*fn)(void *arg)) {
    for (u32 cpu = 0; cpu < nr_cpus; cpu++) {
        tester[cpu]->bad = false;
        job_begin(cpu, fn, tester[cpu]);
        if (!job_end(cpu, JOB_NS)) {
            found(f, FAILS, "CPU %u did not come back", cpu);
            return false;
        }
        if (!tester[cpu]->bad) continue;
        found(f, FAILS, "CPU %u: %s", cpu, tester[cpu]->why);
        return false;
    }
    return true;
}

/* ---- entry and exit ---- */

/* The values of registers come out as they went in. RSP is left out, as the program has a stack. */
static void check_registers(struct tester *t, const u64 before[16], const char *where) {
    for (u32 i = 0; i < 16; i++)
        if (t->vcpu.regs.gpr[i] != before[i]) wrong(t, "in %s register %u changes", where, i);
}

/* Runs a program in one mode: registers must keep their values, and each of PASSES exits must be
 * for the right reason. Also measures how long the shortest exit takes. */
static void run_mode(struct tester *t, enum mode mode) {
    struct virt_vcpu *v = &t->vcpu;
    u64 before[16], spent;
    struct vm_exit e;

    tester_begin(t, mode, ASK);
    for (u32 i = 0; i < 16; i++)
        if (i != REG_RSP) v->regs.gpr[i] = 0x11111111u * (i & 7);
    memcpy(before, v->regs.gpr, sizeof(before));
    if (!exits_by(t, EXIT_CPUID, ASK, mode_name[mode])) return;
    check_registers(t, before, mode_name[mode]);
    v->regs.rip = ASK + 2; /* behind CPUID */
    if (!exits_by(t, EXIT_HLT, ASK + 2, mode_name[mode])) return;
    for (u32 i = 0; i < PASSES; i++) {
        v->regs.rip = ASK;
        spent = rdtsc();
        virt->run(v, ~0ull, &e);
        spent = rdtsc() - spent;
        if (e.reason == EXIT_CPUID) t->best_tsc = MIN(t->best_tsc, spent);
        if (e.reason == EXIT_INTR || e.reason == EXIT_NMI)
            irq_window();
        else if (e.reason != EXIT_CPUID)
            wrong(t, "in %s pass %u exits by reason %u (%x)", mode_name[mode], i, e.reason, e.raw);
    }
}

/* Gives the guest an interrupt, which must reach its handler. The handler halts. */
static void run_event(struct tester *t) {
    tester_begin(t, REAL, SPIN);
    t->vcpu.regs.rflags |= RFLAGS_IF;
    t->vcpu.pending = (struct virt_event){ .type = EVENT_IRQ, .vector = VECTOR };
    exits_by(t, EXIT_HLT, ANSWER, "the handler of an interrupt");
}

/* The job of each CPU: runs the guest in all modes, one after the other. */
static void run_modes(void *arg) {
    struct tester *t = arg;

    t->best_tsc = ~0ull;
    virt->load(&t->vcpu);
    for (u32 mode = 0; mode < MODES && !t->bad; mode++) run_mode(t, (enum mode)mode);
    if (!t->bad) run_event(t);
    virt->save(&t->vcpu);
}

/* Checks entry and exit: guests run in each mode, keep their registers, and exit for the right
 * reason. */
void check_entry(struct finding *f) {
    u64 best = ~0ull, worst = 0;

    if (!on_each_cpu(f, run_modes)) return;
    for (u32 cpu = 0; cpu < nr_cpus; cpu++) {
        best = MIN(best, tester[cpu]->best_tsc);
        worst = MAX(worst, tester[cpu]->best_tsc);
    }
    found(f, HOLDS, "real, 32-bit and 64-bit mode on %u CPU%s; an exit takes %lu to %lu ticks",
          nr_cpus, plural(nr_cpus), best, worst);
}

/* ---- TLB ---- */

/* Maps frame `i` in the window and lets the guest read it. If the CPU used an old translation, the
 * guest would read the other frame. */
static void expect_frame(struct tester *t, u32 i) {
    if (show_frame(i)) {
        wrong(t, "there is no memory for its page tables");
        return;
    }
    t->vcpu.regs.rip = LOOK;
    if (!exits_by(t, EXIT_CPUID, LOOK + 5, "a read of new memory")) return;
    if ((u32)t->vcpu.regs.gpr[REG_RAX] != frame_mark(i))
        wrong(t, "it reads %x where %x was mapped", (u32)t->vcpu.regs.gpr[REG_RAX], frame_mark(i));
}

/* The job of each CPU: changes what is in the window, and at last takes it away. Each change must
 * be seen by the next instruction of the guest. */
static void change_mapping(void *arg) {
    struct tester *t = arg;

    virt->load(&t->vcpu);
    tester_begin(t, PROTECTED, LOOK);
    for (u32 i = 0; i < ROUNDS && !t->bad; i++) expect_frame(t, i & 1);
    npt_unmap(&guest.npt, WINDOW, PAGE_SIZE);
    t->vcpu.regs.rip = LOOK;
    if (!t->bad) exits_by(t, EXIT_NPF, LOOK, "a read of memory that was taken away");
    virt->save(&t->vcpu);
}

/* Returns the word in the guest's memory in which a CPU counts its reads. */
static volatile u32 *counter_of(u32 cpu) { return (volatile u32 *)(ram + COUNTERS) + cpu; }

/* The guest reads the window (the page whose mapping changes) until it is taken away. */
static void read_on(void *arg) {
    struct tester *t = arg;
    struct vm_exit e;

    virt->load(&t->vcpu);
    tester_begin(t, PROTECTED, LOOK_ON);
    t->vcpu.regs.gpr[REG_RSI] = COUNTERS + 4 * this_cpu()->id;
    t->left = tester_enter(t, now_ns() + JOB_NS / 2, &e) && e.reason == EXIT_NPF;
    virt->save(&t->vcpu);
}

/* Waits until the guest on this CPU has read the window once. Returns false if it does not. */
static bool tester_runs(u32 cpu) {
    u64 end = now_ns() + PATIENCE_NS;

    while (!*counter_of(cpu) && now_ns() < end) cpu_relax();
    return *counter_of(cpu) != 0;
}

/* Waits until all CPUs have flushed what is older than `generation` (mm/tlbgen.h). Returns false if
 * that takes too long. */
static bool all_passed(u64 generation) {
    u64 end = now_ns() + PATIENCE_NS;

    while (!tlbgen_passed(&guest.npt.tlb, generation) && now_ns() < end) cpu_relax();
    return tlbgen_passed(&guest.npt.tlb, generation);
}

/* Does one round of the check of the TLB with all CPUs: guests on all other CPUs read a page again
 * and again; this one takes the page away and kicks them. Each guest must then exit by a fault.
 * Returns false if something is wrong, which `f` then says; *took_ns is how long it took until all
 * CPUs had forgotten the page. */
static bool take_away(struct finding *f, u64 *took_ns) {
    bool all_run = true, passed;
    u64 start;

    show_frame(0);
    for (u32 cpu = 1; cpu < nr_cpus; cpu++) {
        *counter_of(cpu) = 0;
        job_begin(cpu, read_on, tester[cpu]);
    }
    for (u32 cpu = 1; cpu < nr_cpus; cpu++) all_run &= tester_runs(cpu);
    start = now_ns();
    npt_unmap(&guest.npt, WINDOW, PAGE_SIZE);
    for (u32 cpu = 1; cpu < nr_cpus; cpu++) cpu_kick(cpu);
    passed = all_passed(guest.npt.tlb.current);
    *took_ns = now_ns() - start;
    for (u32 cpu = 1; cpu < nr_cpus; cpu++) {
        if (job_end(cpu, JOB_NS) && tester[cpu]->left) continue;
        found(f, FAILS, "CPU %u goes on reading a page that was taken away", cpu);
        return false;
    }
    if (!all_run) found(f, FAILS, "a guest on another CPU did not begin to run");
    if (all_run && !passed) found(f, FAILS, "a CPU did not say that it forgot the page");
    return all_run && passed;
}

/* Checks that no CPU goes on using a translation that was changed. */
void check_tlb(struct finding *f) {
    u64 ns, longest = 0;

    if (!on_each_cpu(f, change_mapping)) return;
    if (nr_cpus == 1) {
        found(f, HOLDS, "changed mappings are seen; there is no other CPU to tell");
        return;
    }
    for (u32 i = 0; i < ROUNDS; i++) {
        if (!take_away(f, &ns)) return;
        longest = MAX(longest, ns);
    }
    found(f, HOLDS, "changed mappings are seen; all CPUs forget a page within %lu us",
          in_us(longest));
}

/* ---- the timer that ends a slice ---- */

/* The job of each CPU: lets the guest run for SLICE_NS, and measures by how much it exits too
 * late. */
static void end_slices(void *arg) {
    struct tester *t = arg;
    struct vm_exit e;

    virt->load(&t->vcpu);
    tester_begin(t, PROTECTED, SPIN);
    for (u32 i = 0; i < SLICES; i++) {
        u64 deadline = now_ns() + SLICE_NS;

        /* Should the preemption timer fail, the APIC's gets us back; without one run() arms that
         * anew. */
        lapic_timer_arm(deadline + SAFETY_NS);
        if (tester_enter(t, deadline, &e))
            wrong(t, "`jmp` to itself exits by reason %u (%x)", e.reason, e.raw);
        t->late_ns[i] = now_ns() - deadline;
    }
    virt->save(&t->vcpu);
}

/* Sorts numbers, the lowest first. */
static void sort_numbers(u64 *a, u32 n) {
    for (u32 i = 1; i < n; i++)
        for (u32 j = i; j && a[j - 1] > a[j]; j--) {
            u64 t = a[j];

            a[j] = a[j - 1];
            a[j - 1] = t;
        }
}

/* Checks whether a guest's stay ends in time. On a busy host an emulator is late now and then,
 * however good its timer is; so what is judged is the end of a slice that was least late. */
void check_timer(struct finding *f) {
    u64 least = 0, median = 0, latest = 0;

    if (!on_each_cpu(f, end_slices)) return;
    for (u32 cpu = 0; cpu < nr_cpus; cpu++) {
        sort_numbers(tester[cpu]->late_ns, SLICES);
        least = MAX(least, tester[cpu]->late_ns[0]);
        median = MAX(median, tester[cpu]->late_ns[SLICES / 2]);
        latest = MAX(latest, tester[cpu]->late_ns[SLICES - 1]);
    }
    found(f, least < LATE_NS ? HOLDS : FAILS,
          "slices of %lu us end %lu us late, %lu at the median, %lu at most", in_us(SLICE_NS),
          in_us(least), in_us(median), in_us(latest));
}

/* ---- interrupts from one CPU to another ---- */

/* The job of another CPU: stays in the guest, or halted, until the check is over, so that the boot
 * CPU can measure how soon it answers. */
static void wait_for_kicks(void *arg) {
    struct tester *t = arg;
    struct vm_exit e;

    virt->load(&t->vcpu);
    tester_begin(t, PROTECTED, SPIN);
    t->waiting = true;
    while (!t->over) {
        u64 soon = now_ns() + NS_PER_MS; /* to look whether it is over */

        if (t->wait_in == IN_GUEST) {
            tester_enter(t, soon, &e);
        } else {
            lapic_timer_arm(soon);
            cpu_halt();
        }
    }
    virt->save(&t->vcpu);
}

/* Has this CPU answered the last kick? */
static bool kick_answered(u32 cpu) { return !cpu_of(percpu_of[cpu])->kicked_at; }

/* Sends an NMI that counts as a kick, so that its handler does not report it as a stranger. */
static void send_nmi(u32 cpu) {
    __atomic_fetch_add(&cpu_of(percpu_of[cpu])->nmi_kicks, 1, __ATOMIC_SEQ_CST);
    apic_send(percpu_of[cpu]->apic_id, APIC_NMI, 0);
}

/* Has this CPU handled the NMI? */
static bool nmi_answered(u32 cpu) {
    return !__atomic_load_n(&cpu_of(percpu_of[cpu])->nmi_kicks, __ATOMIC_SEQ_CST);
}

/* Sends an interrupt to a CPU by send(), and waits until answered() says that it has handled it.
 * Returns the time that this took, in ns, or ~0 if there was no answer. */
static u64 ask_one(u32 cpu, void (*send)(u32 cpu), bool (*answered)(u32 cpu)) {
    u64 start;

    delay_ns(SETTLE_NS);
    start = now_ns();
    send(cpu);
    while (!answered(cpu)) {
        if (now_ns() - start > PATIENCE_NS) return ~0ull;
        cpu_relax();
    }
    return now_ns() - start;
}

/* Measures how soon other CPUs notice an interrupt of this one. Each of them is asked ROUNDS times
 * while it is halted, and as often while it is in a guest. send() sends the interrupt to a CPU: a
 * kick (the IPI that makes a CPU leave its guest) or an NMI. answered() says whether the CPU has
 * noticed. ask_one() returns ~0 if it has not in PATIENCE_NS. So a CPU that does not even begin to
 * wait is reported by the first question. */
static void ask_all(struct finding *f, void (*send)(u32 cpu), bool (*answered)(u32 cpu)) {
    u64 best = ~0ull, worst = 0;

    if (nr_cpus == 1) {
        found(f, NOT_HERE, "there is one CPU");
        return;
    }
    for (u32 i = 0; i < 2 * (nr_cpus - 1); i++) {
        u32 cpu = 1 + i / 2;
        struct tester *t = tester[cpu];
        u64 took = 0;

        t->wait_in = i & 1 ? IN_GUEST : IN_HALT;
        t->waiting = t->over = false;
        job_begin(cpu, wait_for_kicks, t);
        for (u64 end = now_ns() + PATIENCE_NS; !t->waiting && now_ns() < end;) cpu_relax();
        for (u32 round = 0; round < ROUNDS && took != ~0ull; round++) {
            took = ask_one(cpu, send, answered);
            best = MIN(best, took);
            worst = MAX(worst, took);
        }
        t->over = true;
        if (took == ~0ull || !job_end(cpu, JOB_NS)) {
            found(f, FAILS, "CPU %u does not answer in %s", cpu, i & 1 ? "a guest" : "its halt");
            return;
        }
    }
    found(f, HOLDS, "answered within %lu to %lu ns, in a guest and in a halt", best, worst);
}

/* Check whether kicks, and NMIs, reach other CPUs. */
void check_kick(struct finding *f) { ask_all(f, cpu_kick, kick_answered); }

void check_nmi(struct finding *f) { ask_all(f, send_nmi, nmi_answered); }
