/* Prints a configuration file as one JSON value, read by the hypervisor's own parser, so that no tool reads
 * the grammar again. cfgdump FILE [COMMAND-LINE]: 0; 1 with errors on standard error; 2 if the file cannot be
 * read. */
#include <stdio.h>
#include <stdlib.h>
#include "config.h"
#include "lib/printf.h"
#include "sched/machine.h"
#include "sched/policy.h"

static struct config cfg;

/* The names of parameters come with the policies, and these want a machine; nothing here is ever called. */
u64 machine_now(void) { abort(); }

u32 machine_cpu(void) { abort(); }

void machine_kick(u32 cpu) { abort(); }

void machine_timer_set(u32 cpu, struct timer *t, u64 when) { abort(); }

void machine_timer_cancel(struct timer *t) { abort(); }

static void hear(void *ctx, bool fatal, const char *text) {
    fprintf(stderr, "%s%s\n", text, fatal ? "" : " (warning)");
}

static void string(const char *key, const char *s) {
    printf("\"%s\": \"", key);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            printf("\\%c", *s);
        else if ((unsigned char)*s < ' ')
            printf("\\u%04x", *s);
        else
            putchar(*s);
    }
    printf("\", ");
}

static void boolean(const char *key, bool v) { printf("\"%s\": %s, ", key, v ? "true" : "false"); }

static void cpus(const struct cpumask *m) {
    const char *comma = "";

    printf("\"cpus\": [");
    cpumask_for_each(cpu, m) {
        printf("%s%u", comma, cpu);
        comma = ", ";
    }
    printf("], ");
}

/* Closes the object: parameters come last. */
static void params(const struct config_head *h) {
    printf("\"params\": {");
    for (u32 i = 0; i < h->nr_params; i++)
        printf("%s\"%s\": \"%s\"", i ? ", " : "", h->param[i].name, h->param[i].value);
    printf("}}");
}

static void devices(const struct config_vm *v) {
    printf("\"devices\": [");
    for (u32 i = 0; i < v->nr_devices; i++) {
        printf("%s{", i ? ", " : "");
        string("type", v->device[i].type == VIRTIO_ID_NET ? "net" : "disk");
        string("options", v->device[i].options);
        printf("\"back\": \"%s\"}", v->device[i].back);
    }
    printf("], ");
}

static void dump_vm(const struct config_vm *v) {
    static const char *const on_crash[] = { "destroy", "restart", "preserve" };

    printf("{");
    string("name", v->head.name);
    string("image", v->image);
    string("cmdline", v->cmdline);
    printf("\"memory\": %llu, \"vcpus\": %u, ", (unsigned long long)v->memory, v->vcpus);
    boolean("turbo", v->turbo);
    boolean("cpus_given", cpumask_weight(&v->cpus) < TAKT_MAX_CPUS);
    cpus(&v->cpus);
    string("pool", v->pool);
    string("on_crash", on_crash[v->on_crash]);
    boolean("debugcon", v->debugcon);
    boolean("debug_exit", v->debug_exit);
    boolean("start", v->start);
    printf("\"demand_permille\": %u, ", v->demand_permille);
    devices(v);
    params(&v->head);
}

static void dump(void) {
    printf("{\"hypervisor\": {");
    string("sched", cfg.pool[0].sched);
    string("sched_preset", cfg.pool[0].preset);
    string("console", cfg.console);
    string("trace_console", cfg.trace_console);
    string("store_console", cfg.store_console);
    string("script", cfg.script);
    string("guest_console", cfg.guest_console_log ? "log" : "keep");
    boolean("noreboot", cfg.noreboot);
    boolean("smt", cfg.smt);
    boolean("top", cfg.top);
    boolean("record", cfg.record);
    printf("\"loglvl\": %u, \"seed\": %llu, ", cfg.loglvl, (unsigned long long)cfg.seed);
    params(&cfg.pool[0].head);
    printf(",\n \"pools\": [");
    for (u32 i = 1; i < cfg.nr_pools; i++) {
        printf("%s{", i > 1 ? ",\n  " : "");
        string("name", cfg.pool[i].head.name);
        string("sched", cfg.pool[i].sched);
        string("sched_preset", cfg.pool[i].preset);
        string("turbo_of", cfg.pool[i].turbo_of);
        printf("\"chosen_cpus\": %u, ", cfg.pool[i].choice.nr);
        cpus(&cfg.pool[i].cpus);
        params(&cfg.pool[i].head);
    }
    printf("],\n \"vms\": [");
    for (u32 i = 0; i < cfg.nr_vms; i++) {
        printf("%s", i ? ",\n  " : "");
        dump_vm(&cfg.vm[i]);
    }
    printf("]}\n");
}

int main(int argc, char **argv) {
    static char text[1 << 20];
    FILE *f = argc >= 2 ? fopen(argv[1], "rb") : NULL;
    size_t n;

    if (!f) {
        fprintf(stderr, "usage: cfgdump FILE [COMMAND-LINE]\n");
        return 2;
    }
    n = fread(text, 1, sizeof(text), f);
    fclose(f);
    config_defaults(&cfg);
    if (config_parse(&cfg, argv[1], text, n, param_kind, hear, NULL)) return 1;
    if (argc > 2 && config_cmdline(&cfg, argv[2], param_kind, hear, NULL)) return 1;
    dump();
    return 0;
}
