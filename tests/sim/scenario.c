/* Runs the VMs of a file (docs/config.md), which may be the one that the image boots. The image's
 * own parser reads it. In place of each guest there is a model of what the guest does, with the
 * parameters of the guest's command line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "config.h"
#include "lib/parse.h"
#include "sched/setup.h"
#include "sim.h"

#define WAKE_NS   (50 * NS_PER_US) /* how long guests/waker.c computes when it wakes */
#define CLIENT_NS (20 * NS_PER_US) /* the same of guests/client.c */

/* How often the credit of vCPUs is sampled. This is no multiple of a tick (10 ms), so that the
 * samples do not all fall into the same phase of it. */
#define CREDIT_EVERY_NS (7 * NS_PER_MS)

static struct config cfg;
static struct config_vm cfg_vms[CONFIG_MAX_VMS];
static struct report_vm vm[CONFIG_MAX_VMS];
static struct sim_vcpu *server[CONFIG_MAX_VMS + 1]; /* vCPU 0 of a VM, by id */

/* Ends the program with the sentence "what name: more"; `more` may be NULL. */
static __attribute__((noreturn)) void fail(const char *what, const char *name, const char *more) {
    fprintf(stderr, "sim: %s %s", what, name);
    if (more) fprintf(stderr, ": %s", more);
    fprintf(stderr, "\n");
    exit(2);
}

/* ---- what a guest does ---- */

/* Returns what follows `key=` on the guest's command line, or NULL if it has no such word. */
static const char *find(const char *cmdline, const char *key) {
    size_t n = strlen(key);

    for (const char *p = cmdline; (p = strstr(p, key)); p += n)
        if ((p == cmdline || p[-1] == ' ') && p[n] == '=') return p + n + 1;
    return NULL;
}

/* Returns the number behind `key=`, or `otherwise`, as cmdline_u64() of the guest library does. */
static u64 number(const char *cmdline, const char *key, u64 otherwise) {
    const char *value = find(cmdline, key);

    if (!value) return otherwise;
    return strtoull(value, NULL, 0);
}

/* Returns, in ns, the number of microseconds behind `key=`, or `otherwise` microseconds. */
static u64 micro(const char *cmdline, const char *key, u64 otherwise) {
    return number(cmdline, key, otherwise) * NS_PER_US;
}

/* Sets when the vCPUs of a workload begin, as cmdline_phase() of the guest library does. */
static void set_start(struct sim_work *w, const struct config_vm *v, u64 span) {
    w->start_ns = micro(v->cmdline, "phase_us", 0);
    if (!find(v->cmdline, "phase_us")) w->start_span = span;
    w->start_seed = seed_of_vm(cfg.seed, v->head.name);
}

/* Returns whether the word at `text`, which ends at a blank, is `word`. */
static bool is_word(const char *text, const char *word) {
    size_t n = strcspn(text, " ");

    return n == strlen(word) && strncmp(text, word, n) == 0;
}

/* Reads the words that say how a guest divides its time, as cmdline_duty() of the guest library
 * does. In each period the guest computes for `percent` of it and sleeps for the rest; both are
 * made longer or shorter at random, by `jitter_pct` at most. With a closed loop, work that was
 * missed in a period is added to that of the next one; with an open loop it is forgotten. */
static void set_duty(struct sim_work *w, const struct config_vm *v, u64 percent) {
    const char *loop = find(v->cmdline, "loop");

    w->period_ns = MAX(micro(v->cmdline, "period_us", 10000), NS_PER_US);
    w->percent = (u32)number(v->cmdline, "percent", percent);
    w->jitter_pct = MIN(number(v->cmdline, "jitter_pct", DUTY_JITTER), 100ull);
    w->closed = !loop || !is_word(loop, "open");
    if (loop && w->closed && !is_word(loop, "closed"))
        fail("loop must be closed or open in the command line of VM", v->head.name, NULL);
}

/* Returns when the events of VM number `server` are raised. The VM and its client both ask, with
 * their own command lines, so these have to say the same. */
static struct arrivals due(const char *c, u64 server) {
    return arrivals_begin(number(c, "seed", arrivals_seed(cfg.seed, server)),
                          number(c, "rate", 300), number(c, "start_ms", 1000) * NS_PER_MS);
}

/* Returns the model of guests/busy.c. */
static struct sim_work busy(const struct config_vm *v, u32 id) {
    struct sim_work w = { .kind = WORK_DUTY };

    set_duty(&w, v, 40);
    set_start(&w, v, w.period_ns);
    return w;
}

/* Returns the model of guests/waker.c. */
static struct sim_work waker(const struct config_vm *v, u32 id) {
    struct sim_work w = { .kind = WORK_WAKER,
                          .period_ns = micro(v->cmdline, "period_us", 10000),
                          .work_ns = WAKE_NS };

    set_start(&w, v, w.period_ns);
    return w;
}

/* Returns the model of guests/evader.c, which runs for nothing because it never runs when the
 * scheduler's tick charges the vCPU that is running. It goes to sleep `lead` before each tick, for
 * `nap`. */
static struct sim_work evader(const struct config_vm *v, u32 id) {
    u64 lead = micro(v->cmdline, "lead_us", 200), nap = micro(v->cmdline, "nap_us", 600);
    struct sim_work w = { .kind = WORK_EVADER,
                          .tick_ns = micro(v->cmdline, "tick_us", 10000),
                          .margin_ns = lead };

    if (nap > lead) w.rest_ns = nap - lead;
    set_start(&w, v, w.tick_ns);
    return w;
}

/* Returns the model of guests/hostile.c in the two modes that concern the scheduler. In all others
 * the guest keeps its CPU. */
static struct sim_work hostile(const struct config_vm *v, u32 id) {
    const char *mode = find(v->cmdline, "mode");

    struct sim_work selfwake = { .kind = WORK_SELF,
                                 .work_ns = 10 * NS_PER_US,
                                 .rest_ns = NS_PER_US };

    if (mode && strncmp(mode, "selfwake", 8) == 0) return selfwake;
    if (mode && strncmp(mode, "yield", 5) == 0)
        return (struct sim_work){ .kind = WORK_YIELD, .work_ns = 5 * NS_PER_US };
    return (struct sim_work){ .kind = WORK_HOG };
}

/* Returns the model of guests/mixed.c. */
static struct sim_work mixed(const struct config_vm *v, u32 id) {
    struct sim_work w = { .kind = WORK_MIXED,
                          .work_ns = micro(v->cmdline, "work_us", 50),
                          .due = due(v->cmdline, id) };

    set_duty(&w, v, 100);
    set_start(&w, v, w.period_ns);
    return w;
}

/* Returns the model of guests/client.c. */
static struct sim_work client(const struct config_vm *v, u32 id) {
    u64 to = number(v->cmdline, "server", 1);

    if (to > CONFIG_MAX_VMS) fail("there is no VM", v->cmdline, NULL);
    return (struct sim_work){
        .kind = WORK_CLIENT, .work_ns = CLIENT_NS, .due = due(v->cmdline, to), .server = &server[to]
    };
}

/* Returns the model of guests/spin.c. */
static struct sim_work spin(const struct config_vm *v, u32 id) {
    struct sim_work w = { .kind = WORK_HOG };

    set_start(&w, v, PHASE_SPAN);
    return w;
}

/* Returns the model of guests/hello.c, which prints a line and is done. */
static struct sim_work hello(const struct config_vm *v, u32 id) {
    return (struct sim_work){ .kind = WORK_IDLE };
}

static const struct {
    const char *image;
    struct sim_work (*work)(const struct config_vm *v, u32 id);
} models[] = {
    { "spin", spin },       { "busy", busy },   { "waker", waker },   { "evader", evader },
    { "hostile", hostile }, { "mixed", mixed }, { "client", client }, { "hello", hello },
};

const char *scenario_image(u32 i) {
    if (i >= ARRAY_SIZE(models)) return NULL;
    return models[i].image;
}

/* Returns what a VM does. `id` is its number in the file, from 1. */
static struct sim_work work_of(const struct config_vm *v, u32 id) {
    for (u32 i = 0; i < ARRAY_SIZE(models); i++)
        if (strcmp(models[i].image, v->image) == 0) return models[i].work(v, id);
    abort(); /* check_image() has refused the file */
}

/* ---- pools and VMs, made as hv/main.c and hv/vm do it ---- */

/* Sets the parameters of a section of the file. */
static void set_params(const struct config_head *h, struct sched_pool *p, void *object) {
    char why[PARAM_WHY];

    for (const struct config_param *s = h->param; s < h->param + h->nr_params; s++)
        if (param_set_text(param_find(p, s->name), p, object, s->value, why))
            fail("VM", h->name, why);
}

/* Each complaint about the file, even a warning, ends the run before it begins: an experiment with
 * a file that was not understood would measure something else. */
static bool complained;
static bool an_error; /* one of the complaints was not just a warning */

/* Prints a complaint about the file; only errors end the run. */
static void hear_errors(void *ctx, bool fatal, const char *text) {
    fprintf(stderr, "%s", text);
    if (!fatal) fprintf(stderr, " (warning)");
    fprintf(stderr, "\n");
    complained |= fatal;
    an_error |= fatal;
}

/* Prints a complaint about the file; warnings end the run, too. */
static void hear(void *ctx, bool fatal, const char *text) {
    hear_errors(ctx, fatal, text);
    complained = true;
}

static void end_if_complained(const struct scenario *sc) {
    if (!complained) return;
    fprintf(stderr, "sim: %s cannot be used: see above", sc->file);
    if (!an_error) fprintf(stderr, ". A simulation takes this warning for an error");
    fprintf(stderr, "\n");
    exit(2);
}

/* In this machine four pCPUs share a cache. */
static u32 cache_of(u32 cpu) { return cpu / 4; }
/* All memory is equally near to all pCPUs. */
static u32 node_of(u32 cpu) { return 0; }

/* Makes pool number i of the file with those of its CPUs that the machine has. */
static void make_pool(u32 i) {
    struct cpumask here = sim_cpus(0, sim.opt.cpus - 1),
                   cpus = cpumask_and(&cfg.pool[i].cpus, &here);
    struct sched_pool *p;

    if (setup_pool(&cfg, i, &p, hear, NULL)) return;
    if (complained) return; /* such as that two pools want the same CPU */
    cpumask_for_each(cpu, &cpus) {
        if (sched_pool_add_cpu(p, cpu)) fail("a CPU cannot be added to pool", p->name, NULL);
    }
}

/* Makes VM number i of the file, with its turbo vCPU if it has one, and starts it. */
static void make_vm(u32 i) {
    const struct config_vm *c = &cfg.vm[i];
    struct sched_pool *p = sched_pool_find(c->pool);
    struct cpumask allowed = cpumask_and(&c->cpus, &p->cpus);
    struct sim_work w = work_of(c, i + 1), serve = w;
    struct sim_vm *d;

    vm[i].config = c;
    if (!c->start) return;
    if (cpumask_empty(&allowed)) fail("its pool has none of its CPUs:", c->head.name, NULL);
    if (c->turbo && w.kind == WORK_MIXED) { /* vCPU 0 only serves, the others only compute */
        serve.percent = 0;
        w.kind = WORK_DUTY;
    } else if (w.kind != WORK_HOG && w.kind != WORK_DUTY) {
        /* These guests do the same on each vCPU, and have nothing for a turbo vCPU. */
        serve.kind = WORK_IDLE;
    }
    if (c->turbo) w.start_first = 1; /* the guest's vCPU 0 is the turbo one */
    d = vm[i].d = sim_vm(p, c->head.name, c->vcpus, c->cpus, w);
    if (c->turbo && !p->turbo) fail(c->head.name, "its pool has no turbo pool", NULL);
    if (c->turbo) vm[i].turbo = sim_turbo(d, serve);
    set_params(&c->head, p, &d->d);
    if (c->turbo)
        server[i + 1] = vm[i].turbo->vcpu[0];
    else
        server[i + 1] = d->vcpu[0];
}

/* Counts how often the I/O monitor has changed the label of a VM. It is the scheduler's param_hook,
 * which is called when a parameter changes. */
static void hear_labels(struct sched_pool *p, struct sched_vm *d, const char *name) {
    if (!d || !name || strcmp(name, "class") != 0) return;
    for (u32 i = 0; i < cfg.nr_vms; i++) {
        if (!vm[i].d || &vm[i].d->d != d) continue;
        vm[i].label_changes++;
        vm[i].label_changed = sim.now;
    }
}

/* Calls fn for each VM, and for each turbo vCPU, which is a VM of its own for the scheduler. */
static void for_each_vm(void (*fn)(struct sim_vm *d)) {
    for (u32 i = 0; i < cfg.nr_vms; i++) {
        if (vm[i].d) fn(vm[i].d);
        if (vm[i].turbo) fn(vm[i].turbo);
    }
}

/* Runs until `end`, and samples the credit of all vCPUs now and then. */
static void run_sampled(u64 end) {
    while (sim.now < end) {
        sim_run_until(MIN(sim.now + CREDIT_EVERY_NS, end));
        for_each_vm(sim_sample_credit);
    }
}

/* Does nothing but mark the end of the warm-up. This is a function of its own, so that callgrind
 * can begin to count here (docs/scheduler.md). */
__attribute__((noinline)) void sim_measurement_begins(void) {
    sim.marked_decisions = sim.decisions;
    sim.marked_inputs = sim.inputs;
    for_each_vm(sim_mark);
}

/* Runs the warm-up and both halves of the measurement, and prints the result. */
static void measure(const struct scenario *sc) {
    sim_run_until(sc->warm_up_ns);
    sim_measurement_begins();
    run_sampled(sc->warm_up_ns + sc->run_ns / 2);
    for_each_vm(sim_halfway);
    run_sampled(sc->warm_up_ns + sc->run_ns);
    report(sc, vm, cfg.nr_vms);
}

/* Complains if the simulation has no model of the VM's guest, and names those that it has. */
static void check_image(const struct config_vm *v) {
    char names[128] = "";

    for (u32 i = 0; i < ARRAY_SIZE(models); i++) {
        if (!*v->image || strcmp(models[i].image, v->image) == 0) return;
        if (i > 0) strcat(names, ", ");
        strcat(names, models[i].image);
    }
    config_complain(&cfg, config_place_of(&v->head, "image"), true, hear, NULL,
                    "image: the simulation has no model of the guest \"%s\", only of %s", v->image,
                    names);
}

/* Reads the file and the command line with the hypervisor's own parser, and ends with sentences if
 * it cannot be used. */
static void read_config(const struct scenario *sc) {
    static char text[1 << 20];
    FILE *f = fopen(sc->file, "rb");
    size_t n;

    if (!f) fail("cannot read", sc->file, strerror(errno));
    n = fread(text, 1, sizeof(text), f);
    if (ferror(f)) fail("cannot read", sc->file, strerror(errno)); /* as of a directory */
    fclose(f);
    config_defaults(&cfg, cfg_vms, CONFIG_MAX_VMS);
    config_parse(&cfg, sc->file, text, n, param_name_at, hear, NULL);
    if (sc->cmdline) config_cmdline(&cfg, sc->cmdline, param_name_at, hear, NULL);
    if (!cfg.lines_are_good) end_if_complained(sc);
    if (cfg.model.head.line)
        fprintf(stderr, "sim: %s:%u: [model] is for build/sim-whole, and is ignored here\n",
                sc->file, cfg.model.head.line);
    for (u32 i = 0; i < cfg.nr_vms; i++) check_image(&cfg.vm[i]);
    if (config_check_machine(&cfg, sc->cpus, ~0ull, hear_errors, NULL))
        fprintf(stderr, "sim: the machine has %u CPUs; -p N (make sim CPUS=N) gives it others\n",
                sc->cpus);
}

/* Writes the recording. */
static void write_records(const char *file) {
    FILE *f = fopen(file, "wb");

    if (!f || fwrite(sim.kept, sizeof(*sim.kept), sim.nr_kept, f) != sim.nr_kept || fclose(f)) {
        perror(file);
        exit(2);
    }
}

/* Runs the VMs of a file and prints what they have done. Returns the exit status. Everything in the
 * file is set before anything runs, so that a mistake in its last line is found at once. */
int scenario_run(const struct scenario *sc) {
    struct cpumask here = sim_cpus(0, sc->cpus - 1);
    int status = 0;

    read_config(sc);
    sim_start(&(struct sim_options){ .cpus = sc->cpus,
                                     .seed = cfg.seed,
                                     .quiet = sc->quiet,
                                     .governed = true,
                                     .kick_ns = sc->kick_ns,
                                     .switch_ns = sc->switch_ns,
                                     .rules = sc->rules,
                                     .keep = sc->record_to != NULL });
    if (sc->rules) rules_start();
    param_hook = hear_labels;
    config_choose_cpus(&cfg, &here, &(struct cpu_places){ cache_of, node_of });
    for (u32 i = 0; i < cfg.nr_pools; i++) make_pool(i);
    setup_check_vms(&cfg, hear, NULL);
    end_if_complained(sc);
    if (cfg.nr_vms == 0) fail("there is no [vm NAME] in", sc->file, NULL);
    for (u32 i = 0; i < cfg.nr_vms; i++) make_vm(i);
    if (!sc->check) {
        if (sc->timeline_to) timeline_start(sc->timeline_to, vm, cfg.nr_vms);
        measure(sc);
        if (sc->timeline_to) timeline_end();
        if (sc->record_to) write_records(sc->record_to);
        if (sc->rules) status = rules_end();
    }
    sim_stop();
    return status;
}
