/* Scenario files: the grammar of a VM file (docs/config.md), with [sim] for the machine and workload keys
 * for a VM. docs/scheduler.md lists them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/parse.h"
#include "sim.h"

#define MAX_SECTIONS 80
#define MAX_KEYS     24

struct key {
    char name[32], value[64];
    int line;
    bool used;
};

struct section {
    char kind[16], name[32];
    struct key key[MAX_KEYS];
    int nr_keys, line;
    void *object; /* struct sched_pool or sim_dom */
};

static struct section sections[MAX_SECTIONS];
static int nr_sections;
static const char *file_name;

static void fail(int line, const char *what, const char *more) {
    fprintf(stderr, "%s:%d: %s%s%s\n", file_name, line, what, more ? " " : "", more ? more : "");
    exit(2);
}

static char *trim(char *s) {
    char *end;

    while (*s == ' ' || *s == '\t') s++;
    end = s + strlen(s);
    while (end > s && strchr(" \t\r\n", end[-1])) *--end = 0;
    return s;
}

static void read_section(char *s, int line) {
    struct section *x = &sections[nr_sections];
    char *end = strchr(s, ']');

    if (!end || end[1] || nr_sections == MAX_SECTIONS)
        fail(line, "expected [section] or [section NAME]", NULL);
    *end = 0;
    if (sscanf(s + 1, "%15s %31s", x->kind, x->name) < 1)
        fail(line, "expected [section] or [section NAME]", NULL);
    if (strcmp(x->kind, "sim") && strcmp(x->kind, "hypervisor") && strcmp(x->kind, "pool") &&
        strcmp(x->kind, "vm"))
        fail(line, "unknown section", x->kind);
    x->line = line;
    nr_sections++;
}

static void read_file(FILE *f) {
    char buf[512];

    for (int line = 1; fgets(buf, sizeof(buf), f); line++) {
        char *s = trim(buf), *eq;

        for (char *c = s; *c; c++)
            if ((*c == '#' || *c == ';') && (c == s || c[-1] == ' ' || c[-1] == '\t')) *c = 0;
        s = trim(s);
        if (!*s) continue;
        if (*s == '[') {
            read_section(s, line);
            continue;
        }
        eq = strchr(s, '=');
        if (!eq || nr_sections == 0) fail(line, "expected key = value in a section", NULL);
        *eq = 0;
        struct section *x = &sections[nr_sections - 1];

        if (x->nr_keys == MAX_KEYS) fail(line, "too many keys in this section", NULL);
        struct key *k = &x->key[x->nr_keys++];

        k->line = line;
        k->used = false;
        snprintf(k->name, sizeof(k->name), "%s", trim(s));
        snprintf(k->value, sizeof(k->value), "%s", trim(eq + 1));
    }
}

static struct key *find(struct section *x, const char *name) {
    for (int i = 0; x && i < x->nr_keys; i++)
        if (strcmp(x->key[i].name, name) == 0) {
            x->key[i].used = true;
            return &x->key[i];
        }
    return NULL;
}

static const char *word(struct section *x, const char *name, const char *otherwise) {
    struct key *k = find(x, name);

    return k ? k->value : otherwise;
}

static u64 number(struct section *x, const char *name, u64 otherwise) {
    struct key *k = find(x, name);
    u64 v = otherwise;

    if (k && parse_u64(k->value, &v, NULL)) fail(k->line, name, "is not a number");
    return v;
}

static u64 duration(struct section *x, const char *name, u64 otherwise) {
    struct key *k = find(x, name);
    u64 v = otherwise;

    if (k && parse_time(k->value, &v, NULL)) fail(k->line, name, "is not a time such as 10ms or 50us");
    return v;
}

static struct cpumask cpu_list(struct section *x, struct cpumask otherwise) {
    struct key *k = find(x, "cpus");

    if (k && parse_cpus(k->value, &otherwise, NULL)) fail(k->line, "cpus", "is not a list such as 0-3,5");
    return otherwise;
}

static struct section *next_of(const char *kind, struct section *after) {
    for (struct section *x = after ? after + 1 : sections; x < &sections[nr_sections]; x++)
        if (strcmp(x->kind, kind) == 0) return x;
    return NULL;
}

/* Whatever the grammar does not know is a parameter of the policy. */
static void set_params(struct section *x, struct sched_pool *p, void *object, enum param_scope scope) {
    struct key *preset = scope == PARAM_POOL ? find(x, "sched_preset") : NULL;

    if (preset && param_preset(p, preset->value)) fail(preset->line, "no such preset:", preset->value);
    for (int i = 0; x && i < x->nr_keys; i++) {
        struct key *k = &x->key[i];
        const struct param *e = k->used ? NULL : param_find(p, k->name);
        const char *why = NULL;

        if (k->used) continue;
        if (!e || e->scope != scope) fail(k->line, "unknown key", k->name);
        if (param_set_text(e, p, object, k->value, &why)) fail(k->line, k->name, why);
    }
}

static struct sim_work read_work(struct section *x) {
    static const char *const names[] = {
        "idle", "hog", "duty", "waker", "server", "evader", "self", "yield"
    };
    struct key *k = find(x, "workload");
    struct sim_work w = { .kind = WORK_HOG };
    u64 permille;

    if (k) {
        u32 i = 0;

        while (i < ARRAY_SIZE(names) && strcmp(names[i], k->value)) i++;
        if (i == ARRAY_SIZE(names))
            fail(k->line, "a workload is one of idle hog duty waker server evader self yield, not", k->value);
        w.kind = i;
    }
    k = find(x, "percent");
    if (k && parse_permille(k->value, &permille, NULL)) fail(k->line, "percent", "is a share such as 40%");
    w.percent = k ? (u32)permille / 10 : 50;
    w.period_ns = duration(x, "period", 10 * NS_PER_MS);
    w.work_ns = duration(x, "work", 100 * NS_PER_US);
    w.rate = (u32)number(x, "rate", 100);
    w.margin_ns = duration(x, "margin", 500 * NS_PER_US);
    w.rest_ns = duration(x, "rest", 100 * NS_PER_US);
    w.tick_ns = duration(x, "tick", 10 * NS_PER_MS);
    if (!w.period_ns || !w.work_ns || !w.rate || w.margin_ns >= w.tick_ns)
        fail(x->line, "the workload of", x->name);
    return w;
}

static void make_pools(struct section *hv) {
    struct cpumask rest = sim_cpus(0, sim.opt.cpus - 1);
    const char *sched = word(hv, "sched", "credit");
    struct sched_pool *p;

    for (struct section *x = next_of("pool", NULL); x; x = next_of("pool", x)) {
        struct cpumask m = cpu_list(x, (struct cpumask){ 0 });

        cpumask_for_each(cpu, &m) cpumask_clear(&rest, cpu);
    }
    p = sim_pool("Pool-0", sched, rest);
    number(hv, "seed", 0); /* taken before */
    set_params(hv, p, p, PARAM_POOL);
    for (struct section *x = next_of("pool", NULL); x; x = next_of("pool", x)) {
        p = sim_pool(x->name, word(x, "sched", sched), cpu_list(x, (struct cpumask){ 0 }));
        set_params(x, p, p, PARAM_POOL);
    }
}

static void make_vms(void) {
    for (struct section *x = next_of("vm", NULL); x; x = next_of("vm", x)) {
        struct sched_pool *p = sched_pool_find(word(x, "pool", "Pool-0"));
        struct cpumask m = cpu_list(x, sim_cpus(0, TAKT_MAX_CPUS - 1));
        struct sim_work w = read_work(x);
        u64 vcpus = number(x, "vcpus", 1);
        struct sim_dom *d;

        if (!p) fail(x->line, "no such pool for", x->name);
        if (vcpus < 1 || vcpus > SIM_MAX_VCPUS) fail(x->line, "1 to 64 vCPUs for", x->name);
        struct cpumask allowed = cpumask_and(&m, &p->cpus);

        if (cpumask_empty(&allowed)) fail(x->line, "its pool has none of its CPUs:", x->name);
        d = sim_vm(p, x->name, (u32)vcpus, m, w);
        x->object = d;
        set_params(x, p, &d->d, PARAM_DOM);
    }
}

struct row {
    double share, wait_max_ms, p50_us, p99_us, max_us, switches;
};

static struct row row_of(struct sim_vcpu *v, u64 seconds) {
    struct sched_times t;

    sched_times(&v->s, &t);
    return (struct row){
        .share = 100.0 * (double)sim_ran(v) / (double)(seconds * NS_PER_S),
        .wait_max_ms = (double)sim_waits(v) / 1e6,
        .p50_us = (double)t.wake_p50 / 1e3,
        .p99_us = (double)t.wake_p99 / 1e3,
        .max_us = (double)t.wake_max / 1e3,
        .switches = (double)(t.switches - v->base_switches) / (double)seconds,
    };
}

static void print(bool json, u64 seconds) {
    const char *comma = "";

    if (json)
        printf("{\"seconds\": %lu, \"seed\": %lu, \"trace\": \"%016lx\", \"vcpus\": [",
               (unsigned long)seconds, (unsigned long)sim.opt.seed, (unsigned long)sim.hash);
    else
        printf("%-16s %4s %4s %7s %9s %9s %9s %9s %9s\n", "VM", "vCPU", "pCPU", "CPU %", "wait max",
               "wake p50", "p99", "max", "switches");
    for (struct section *x = next_of("vm", NULL); x; x = next_of("vm", x)) {
        struct sim_dom *d = x->object;

        for (u32 i = 0; i < d->nr_vcpus; i++) {
            struct row r = row_of(d->vcpu[i], seconds);

            if (json)
                printf(
                    "%s\n {\"vm\": \"%s\", \"vcpu\": %u, \"pcpu\": %u, \"cpu_pct\": %.3f, \"wait_max_ms\": "
                    "%.3f, "
                    "\"wake_us\": {\"p50\": %.1f, \"p99\": %.1f, \"max\": %.1f}, \"switches_per_s\": %.1f}",
                    comma, x->name, i, d->vcpu[i]->s.cpu, r.share, r.wait_max_ms, r.p50_us, r.p99_us,
                    r.max_us, r.switches);
            else
                printf("%-16s %4u %4u %7.2f %6.1f ms %6.0f us %6.0f us %6.0f us %7.1f/s\n", x->name, i,
                       d->vcpu[i]->s.cpu, r.share, r.wait_max_ms, r.p50_us, r.p99_us, r.max_us, r.switches);
            comma = ",";
        }
    }
    if (json)
        printf("]}\n");
    else
        printf("seed %lu, trace %016lx, %lu records, %lu s\n", (unsigned long)sim.opt.seed,
               (unsigned long)sim.hash, (unsigned long)sim.records, (unsigned long)seconds);
}

static void write_records(const char *file) {
    FILE *f = fopen(file, "wb");

    if (!f || fwrite(sim.kept, sizeof(*sim.kept), sim.nr_kept, f) != sim.nr_kept || fclose(f)) {
        perror(file);
        exit(2);
    }
}

int scenario_run(const char *file, bool json, const char *record_to) {
    FILE *f = fopen(file, "r");
    struct section *machine, *hv;
    struct sim_options o = { 0 };
    u64 seconds, warm;

    if (!f) {
        perror(file);
        return 2;
    }
    file_name = file;
    read_file(f);
    fclose(f);
    machine = next_of("sim", NULL);
    hv = next_of("hypervisor", NULL);
    o.cpus = (u32)number(machine, "cpus", 1);
    o.seed = number(hv, "seed", 0);
    o.kick_ns = duration(machine, "kick", 2 * NS_PER_US);
    o.switch_ns = duration(machine, "switch", 2 * NS_PER_US);
    o.keep = record_to != NULL;
    seconds = number(machine, "seconds", 10);
    warm = number(machine, "warmup", 2);
    if (o.cpus < 1 || o.cpus > TAKT_MAX_CPUS || seconds < 1)
        fail(machine ? machine->line : 1, "1 to 64 cpus and at least one second", NULL);
    sim_start(&o);
    make_pools(hv);
    make_vms();
    sim_run_until(warm * NS_PER_S);
    for (struct section *x = next_of("vm", NULL); x; x = next_of("vm", x)) sim_mark(x->object);
    sim_run_until((warm + seconds) * NS_PER_S);
    print(json, seconds);
    if (record_to) write_records(record_to);
    sim_stop();
    return 0;
}
