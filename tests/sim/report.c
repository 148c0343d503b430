/* What a scenario prints: a table for people, or JSON (docs/simulation.md has its fields). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim.h"

/* How late the events of a vCPU were done. */
struct lateness {
    double mean, p50, p99, p999, max; /* us */
};

/* Compares two numbers for qsort(): the smaller one comes first. */
static int by_size(const void *a, const void *b) {
    u64 x = *(const u64 *)a, y = *(const u64 *)b;

    return (x > y) - (x < y);
}

/* Returns the smallest sample that is not below `permille` of the `n` sorted ones, in us. */
static double percentile(const u64 *sorted, u32 n, u32 permille) {
    return (double)sorted[((u64)n * permille + 999) / 1000 - 1] / 1e3;
}

/* Computes mean and percentiles from all samples of the part, so they are exact. */
static struct lateness lateness_of(const struct sim_vcpu *v, const struct sim_span *span) {
    u32 n = span->nr_late;
    u64 *sorted = malloc((n + 1) * sizeof(*sorted));
    struct lateness l = { 0 };
    double sum = 0;

    memcpy(sorted, v->late.ns + span->first_late, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), by_size);
    for (u32 i = 0; i < n; i++) sum += (double)sorted[i];
    if (n)
        l = (struct lateness){ .mean = sum / n / 1e3,
                               .p50 = percentile(sorted, n, 500),
                               .p99 = percentile(sorted, n, 990),
                               .p999 = percentile(sorted, n, 999),
                               .max = (double)sorted[n - 1] / 1e3 };
    free(sorted);
    return l;
}

/* Returns how many events were raised in the measurement and are not yet done. They are in no
 * percentile, so a server that does not keep up would look good without this number. */
static u32 waiting_events(const struct sim_vcpu *v) {
    struct arrivals due = v->due;
    u32 n = 0;

    if (v->work.kind != WORK_MIXED) return 0;
    for (; due.next <= sim.now; arrivals_advance(&due)) {
        if (due.next >= v->marked) n++;
    }
    return n;
}

/* ---- for people ---- */

/* Prints the line of one vCPU, and a second one if it served events. */
static void table_row(const struct scenario *sc, const char *vm, u32 number, struct sim_vcpu *v) {
    double seconds = (double)sc->run_ns / 1e9;
    struct sim_span all;

    sim_span(v, 2, &all);
    printf("%-16s %4u %4u %7.2f %6.1f ms %6.0f us %6.0f us %6.0f us %7.1f/s\n", vm, number,
           v->s.cpu, 100 * (double)all.state_ns[RS_RUNNING] / (seconds * 1e9),
           (double)all.wait_max / 1e6, (double)hist_percentile(&all.wake, 500) / 1e3,
           (double)hist_percentile(&all.wake, 990) / 1e3, (double)all.wake.max / 1e3,
           (double)all.switches / seconds);
    if (all.nr_late) {
        struct lateness l = lateness_of(v, &all);

        printf("%-16s %u events, us from raised to done: mean %.0f, p99 %.0f, max %.0f\n", "",
               all.nr_late, l.mean, l.p99, l.max);
    }
}

/* Prints what is needed to repeat the run. */
static void table_end(const struct scenario *sc) {
    printf("seed %llu, trace %016llx, %llu records, %g s\n", (unsigned long long)sim.opt.seed,
           (unsigned long long)sim.hash, (unsigned long long)sim.records, (double)sc->run_ns / 1e9);
}

/* ---- JSON ---- */

/* Prints a text as a string of JSON. */
void json_string(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putchar('\\');
        if ((unsigned char)*text < ' ')
            printf("\\u%04x", (unsigned char)*text);
        else
            putchar(*text);
    }
    putchar('"');
}

/* Prints all parameters of one scope as they are now, including those that a preset has set and
 * those that still have their defaults. */
static void json_params(struct sched_pool *p, enum param_scope scope, const void *object) {
    const char *comma = "";
    const struct param *e;
    char number[24];

    printf("{");
    for (unsigned i = 0; (e = param_at(p, i)); i++) {
        const char *quote = "";

        if (e->scope != scope) continue;
        if (e->names) quote = "\""; /* the value is a word, not a number */
        printf("%s\"%s\": %s%s%s", comma, e->name, quote, param_text(e, p, object, number), quote);
        comma = ", ";
    }
    printf("}");
}

/* Prints the CPUs of a set as a list. */
static void json_cpus(const struct cpumask *m) {
    const char *comma = "";

    printf("[");
    cpumask_for_each(cpu, m) {
        printf("%s%u", comma, cpu);
        comma = ", ";
    }
    printf("]");
}

/* Prints a pool and its parameters. */
static void json_pool(struct sched_pool *p) {
    printf("\n {\"pool\": \"%s\", \"policy\": \"%s\", \"cpus\": ", p->name, p->policy->name);
    json_cpus(&p->cpus);
    printf(", \"turbo_of\": ");
    if (p->regular)
        json_string(p->regular->name);
    else
        printf("null");
    printf(",\n  \"params\": ");
    json_params(p, PARAM_POOL, p);
    printf("}");
}

/* Prints where a VM may run, and how much its file says that each vCPU will ask for. */
static void json_wants(const struct scenario *sc, const struct config_vm *v) {
    const struct cpumask machine = sim_cpus(0, sc->cpus - 1),
                         cpus = cpumask_and(&v->cpus, &machine);

    printf("\"affinity\": ");
    json_cpus(&cpus);
    printf(", \"demand_pct\": ");
    if (config_place_of(&v->head, "demand").line != v->head.line)
        printf("%g", v->demand_permille / 10.0);
    else
        printf("null");
}

/* Prints a VM, its parameters, and what the I/O monitor finds. */
static void json_vm(const struct scenario *sc, const struct report_vm *vm) {
    const struct sched_vm *d = &vm->d->d;

    printf("\n {\"vm\": \"%s\", \"pool\": \"%s\", \"image\": ", d->name, d->pool->name);
    json_string(vm->config->image);
    printf(", \"cmdline\": ");
    json_string(vm->config->cmdline);
    printf(", \"vcpus\": %u, \"turbo\": %s, ", vm->d->nr_vcpus, vm->turbo ? "true" : "false");
    json_wants(sc, vm->config);
    printf(",\n");
    printf("  \"io_intensive\": %s, \"events_per_s\": %.1f, \"label_changes\": %u, "
           "\"label_changed_s\": ",
           d->io ? "true" : "false", (double)d->io_rate / 1000, vm->label_changes);
    if (vm->label_changes)
        printf("%.6f", (double)vm->label_changed / 1e9);
    else
        printf("null");
    printf(",\n  \"params\": ");
    json_params(d->pool, PARAM_DOM, d);
    printf("}");
}

/* Prints what a vCPU did in a part of the measurement, which took so many seconds. */
static void json_span(const struct sim_vcpu *v, const struct sim_span *s, double seconds) {
    static const char *const states[RS_NR] = { "cpu", "runnable", "blocked", "offline" };

    for (u32 i = 0; i < RS_NR; i++)
        printf("\"%s_pct\": %.4f, ", states[i], 100 * (double)s->state_ns[i] / (seconds * 1e9));
    printf("\"wait_max_ms\": %.4f, \"wakes\": %llu, \"wake_us\": {\"p50\": %.1f, \"p99\": %.1f, "
           "\"max\": %.1f}, \"switches\": %llu, \"switches_per_s\": %.1f, \"migrations\": %llu",
           (double)s->wait_max / 1e6, (unsigned long long)s->wakes,
           (double)hist_percentile(&s->wake, 500) / 1e3,
           (double)hist_percentile(&s->wake, 990) / 1e3, (double)s->wake.max / 1e3,
           (unsigned long long)s->switches, (double)s->switches / seconds,
           (unsigned long long)s->migrations);
    printf(",\n  \"preemptions\": %llu, \"boosts\": %llu, \"grants\": %llu, \"granted_ms\": %.4f",
           (unsigned long long)s->preemptions, (unsigned long long)s->boosts,
           (unsigned long long)s->grants, (double)s->granted_ns / 1e6);
    if (s->credit_samples)
        printf(", \"credit_ms\": %.3f", (double)s->credit_sum / s->credit_samples / 1e6);
    if (s->nr_late) {
        struct lateness l = lateness_of(v, s);

        printf(",\n  \"events\": %u, \"event_us\": {\"mean\": %.2f, \"p50\": %.2f, \"p99\": %.2f, "
               "\"p999\": %.2f, \"max\": %.2f}",
               s->nr_late, l.mean, l.p50, l.p99, l.p999, l.max);
    }
}

/* Prints a vCPU: the whole measurement, and its two halves. */
static void json_vcpu(const struct scenario *sc, const char *vm, u32 number, struct sim_vcpu *v) {
    double seconds = (double)sc->run_ns / 1e9;
    struct sim_span span;

    printf("\n {\"vm\": \"%s\", \"vcpu\": %u, \"pcpu\": %u, ", vm, number, v->s.cpu);
    sim_span(v, 2, &span);
    json_span(v, &span, seconds);
    if (v->work.kind == WORK_MIXED) printf(", \"events_waiting\": %u", waiting_events(v));
    printf(",\n  \"halves\": [{");
    sim_span(v, 0, &span);
    json_span(v, &span, seconds / 2);
    printf("},\n   {");
    sim_span(v, 1, &span);
    json_span(v, &span, seconds / 2);
    printf("}]}");
}

/* Prints under what conditions the run was made, the hash and the number of all records of the
 * trace, how many decisions and inputs came after the warm-up (those before it are subtracted),
 * then pools and VMs. The list "vcpus" is left open, for one_vcpu(). */
static void json_begin(const struct scenario *sc, const struct report_vm *vm, u32 nr_vms) {
    const char *comma = "";

    printf("{\"file\": ");
    json_string(sc->file);
    printf(", \"command_line\": ");
    json_string(sc->cmdline ? sc->cmdline : "");
    printf(
        ",\n \"pcpus\": %u, \"seed\": %llu, \"warm_up_s\": %g, \"seconds\": %g, \"kick_us\": %g, "
        "\"switch_us\": %g,\n",
        sc->cpus, (unsigned long long)sim.opt.seed, (double)sc->warm_up_ns / 1e9,
        (double)sc->run_ns / 1e9, (double)sc->kick_ns / 1e3, (double)sc->switch_ns / 1e3);
    printf(" \"trace\": \"%016llx\", \"records\": %llu, \"decisions\": %llu, \"inputs\": %llu,\n",
           (unsigned long long)sim.hash, (unsigned long long)sim.records,
           (unsigned long long)(sim.decisions - sim.marked_decisions),
           (unsigned long long)(sim.inputs - sim.marked_inputs));
    printf(" \"pools\": [");
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p)) {
        printf("%s", comma);
        json_pool(p);
        comma = ",";
    }
    printf("],\n \"vms\": [");
    comma = "";
    for (u32 i = 0; i < nr_vms; i++) {
        if (!vm[i].d) continue;
        printf("%s", comma);
        json_vm(sc, &vm[i]);
        comma = ",";
    }
    printf("],\n \"vcpus\": [");
}

/* ---- both ---- */

/* Prints a vCPU in the form that was asked for. */
static void one_vcpu(const struct scenario *sc, const char *vm, u32 number, struct sim_vcpu *v,
                     bool first) {
    if (!sc->json) {
        table_row(sc, vm, number, v);
        return;
    }
    if (!first) printf(",");
    json_vcpu(sc, vm, number, v);
}

/* Prints what the VMs of a scenario have done. The turbo vCPU of a VM is its vCPU 0, as in the
 * guest, though the scheduler keeps it apart. */
void report(const struct scenario *sc, const struct report_vm *vm, u32 nr_vms) {
    bool first = true;

    if (sc->json)
        json_begin(sc, vm, nr_vms);
    else
        printf("%-16s %4s %4s %7s %9s %9s %9s %9s %9s\n", "VM", "vCPU", "pCPU", "CPU %", "wait max",
               "wake p50", "p99", "max", "switches");
    for (u32 i = 0; i < nr_vms; i++) {
        const char *name = vm[i].config->head.name;
        u32 number = 0;

        if (vm[i].turbo) {
            one_vcpu(sc, name, number++, vm[i].turbo->vcpu[0], first);
            first = false;
        }
        for (u32 k = 0; vm[i].d && k < vm[i].d->nr_vcpus; k++) {
            one_vcpu(sc, name, number++, vm[i].d->vcpu[k], first);
            first = false;
        }
    }
    if (sc->json)
        printf("]}\n");
    else
        table_end(sc);
}
