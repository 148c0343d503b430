/* The self test, which the operator asks for on the command line: checks at boot whether this
 * machine does what Takt relies on. Here is the list of checks, and how other CPUs take part in
 * them: the boot CPU gives a CPU a job, a function to call, and waits until it is done. */
#include "selftest/selftest.h"

#include "lib/printf.h"
#include "platform/power.h"
#include "platform/smp.h"
#include "selftest/check.h"
#include "common/insn.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

/* ---- work for other CPUs ---- */

static struct job {
    void (*fn)(void *arg); /* NULL: nothing to do. The boot CPU sets it, the other CPU clears it */
    void *arg;
} jobs[TAKT_MAX_CPUS];

/* Has CPU `cpu` call fn(arg), and does not wait for that. */
void job_begin(u32 cpu, void (*fn)(void *arg), void *arg) {
    if (cpu == this_cpu()->id) {
        fn(arg);
        return;
    }
    jobs[cpu].arg = arg;
    __atomic_store_n(&jobs[cpu].fn, fn, __ATOMIC_RELEASE);
}

/* Waits until CPU `cpu` has done its job, for at most `ns`. Returns false if it has not. A CPU that
 * does not come back must not hang the self test, so there is a limit. */
bool job_end(u32 cpu, u64 ns) {
    u64 end = now_ns() + ns;

    while (__atomic_load_n(&jobs[cpu].fn, __ATOMIC_ACQUIRE)) {
        if (now_ns() > end) return false;
        cpu_relax();
    }
    return true;
}

/* Does what a check wants of this CPU, which is not the boot CPU. */
void selftest_serve(void) {
    struct job *j = &jobs[this_cpu()->id];
    void (*fn)(void *arg) = __atomic_load_n(&j->fn, __ATOMIC_ACQUIRE);

    if (!fn) return;
    fn(j->arg);
    __atomic_store_n(&j->fn, NULL, __ATOMIC_RELEASE);
}

/* ---- the checks ---- */

/* Notes the result of a check: whether it holds, and a sentence about it. */
void found(struct finding *f, enum verdict v, const char *fmt, ...) {
    va_list ap;

    f->verdict = v;
    va_start(ap, fmt);
    hv_vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
}

/* Logs the result of a check, and counts it in count[]. */
static void log_finding(const char *what, const struct finding *f, u32 count[]) {
    static const char *const word[] = { [HOLDS] = "ok", [FAILS] = "FAILS", [NOT_HERE] = "-" };

    log_at(f->verdict == FAILS ? LOG_ERR : LOG_INFO, "  %-18s %-5s  %s", what, word[f->verdict],
           f->text);
    count[f->verdict]++;
}

/* Makes all checks, logs the verdict, and ends the machine. A check that stops the machine logs no
 * line of its own, so the last line of the log is that of the check before it. */
void selftest_run(const struct acpi_info *acpi, const char *no_iommu) {
    static const struct {
        const char *what;
        void (*check)(struct finding *f);
    } of_cpus[] = { { "entry and exit", check_entry },
                    { "TLB", check_tlb },
                    { "timer", check_timer },
                    { "kicks", check_kick },
                    { "NMIs", check_nmi } };
    struct finding f;
    u32 count[] = { [HOLDS] = 0, [FAILS] = 0, [NOT_HERE] = 0 };
    u64 start = now_ns();

    log_info("Self test. If it stops, the check behind the last line did it.");
    if (guest_init() < 0) stop_machine("The self test needs more memory than there is.");
    for (u32 i = 0; i < ARRAY_SIZE(of_cpus); i++) {
        of_cpus[i].check(&f);
        log_finding(of_cpus[i].what, &f, count);
    }
    check_interrupt(&f, acpi, no_iommu);
    log_finding("device interrupt", &f, count);
    check_dma(&f, no_iommu);
    log_finding("DMA", &f, count);

    log_info("Self test: %u check%s held, %u failed, %u could not be made, in %lu ms", count[HOLDS],
             plural(count[HOLDS]), count[FAILS], count[NOT_HERE], in_us(now_ns() - start) / 1000);
    if (count[FAILS]) {
        log_err("The self test failed: no result from this machine can be trusted.");
        stop_machine("Update its firmware and test again. Else see docs/boot.md.");
    }
    log_info("The self test passed.");
    platform_halt();
}
