/* Checks a configuration file and its VMs before anything boots, with the hypervisor's own parser and
 * scheduling policies. So no tool reads the grammar again, and the image refuses nothing that passes.
 *
 *   cfgdump [OPTIONS] FILE [COMMAND-LINE]   prints the configuration as one JSON value
 *     -p CPUS, -m MIB   also checks that a machine with so many CPUs and so much memory can run it
 *     -i DIRECTORY      also checks that the images of VMs and the script exist, beside FILE or in DIRECTORY,
 *                       as NAME or NAME.elf, and prints a line "NAME PATH" for each instead of the JSON
 *     -f NAME           a file that exists elsewhere is not looked for; may be repeated
 *
 * Exit status: 0; 1 with every error on standard error; 2 if the file cannot be read or the usage is
 * wrong. */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <dirent.h>
#include "config.h"
#include "lib/nearest.h"
#include "lib/printf.h"
#include "sched/machine.h"
#include "sched/setup.h"

static struct config cfg;

/* ---- what the policies need of a machine: here nothing ever runs ---- */

u32 trace_mask;

void trace_write(unsigned cpu, u64 ns, u16 event, u32 who, u32 a, u32 b, u32 c, u32 d) {}

u64 machine_now(void) { return 0; }

u32 machine_cpu(void) { return 0; }

void machine_kick(u32 cpu) {}

void machine_timer_set(u32 cpu, struct timer *t, u64 when) {}

void machine_timer_cancel(struct timer *t) {}

void log_at(enum log_level level, const char *fmt, ...) {}

void panic(const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    abort();
}

static void hear(void *ctx, bool fatal, const char *text) {
    fprintf(stderr, "%s%s\n", text, fatal ? "" : " (warning)");
}

/* ---- the configuration as JSON ---- */

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
    boolean("selftest", cfg.selftest);
    boolean("probe", cfg.probe);
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

/* ---- the files that the boot needs ---- */

static const char *images;         /* -i; NULL: nobody asked */
static const char *elsewhere[256]; /* -f */
static u32 nr_elsewhere;
static const char *printed[CONFIG_MAX_VMS + 1]; /* names that have had their line */
static u32 nr_printed;

static bool is_in(const char *name, const char *const *list, u32 nr) {
    for (u32 i = 0; i < nr; i++)
        if (strcmp(list[i], name) == 0) return true;
    return false;
}

/* The path of a file, in a buffer that the next call uses again; NULL: there is none. */
static const char *look(const char *directory, size_t n, const char *name, const char *suffix) {
    static char path[4096];

    snprintf(path, sizeof(path), "%.*s/%s%s", (int)n, directory, name, suffix);
    return access(path, R_OK) ? NULL : path;
}

static const char *find_file(const char *file, const char *name) {
    const char *slash = strrchr(file, '/'), *path;

    path = slash ? look(file, (size_t)(slash - file), name, "") : look(".", 1, name, "");
    if (!path) path = look(images, strlen(images), name, "");
    return path ? path : look(images, strlen(images), name, ".elf");
}

/* The guest in the directory of images whose name is most like this one; NULL: none is. */
static const char *like(const char *name) {
    static char best[CONFIG_VALUE];
    struct nearest nearest = { .wanted = name };
    DIR *d = opendir(images);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char *dot = strrchr(e->d_name, '.');

        if (!dot || strcmp(dot, ".elf") != 0 || dot - e->d_name >= (int)sizeof(best)) continue;
        *dot = 0;
        nearest_offer(&nearest, e->d_name);
        if (nearest.best == e->d_name) nearest.best = strcpy(best, e->d_name);
    }
    if (d) closedir(d);
    return nearest.best;
}

/* `key` of section `h` names a file. Returns -EINVAL if it does not exist. */
static int need_file(const char *file, const struct config_head *h, const char *key, const char *name) {
    const char *path, *guess;

    if (is_in(name, elsewhere, nr_elsewhere) || is_in(name, printed, nr_printed)) return 0;
    path = find_file(file, name);
    if (path) {
        printf("%s %s\n", name, path);
        printed[nr_printed++] = name;
        return 0;
    }
    guess = strcmp(key, "image") == 0 ? like(name) : NULL;
    return config_complain(
        &cfg, config_place_of(h, key), true, hear, NULL,
        "%s: there is no file %s beside the configuration file and no guest %s in %s%s%s%s", key, name, name,
        images, guess ? ": is it " : "", guess ? guess : "", guess ? "?" : "");
}

static int need_files(const char *file) {
    int error = *cfg.script ? need_file(file, &cfg.pool[0].head, "script", cfg.script) : 0;

    for (u32 i = 0; i < cfg.nr_vms; i++)
        if (need_file(file, &cfg.vm[i].head, "image", cfg.vm[i].image)) error = -1;
    return error;
}

/* ---- main ---- */

static int check(const char *file, u32 cpus, u32 mib) {
    struct sched_pool *pool;
    int error = 0;

    sched_init();
    for (u32 i = 0; i < cfg.nr_pools; i++) error |= setup_pool(&cfg, i, &pool, hear, NULL);
    error |= setup_check_vms(&cfg, hear, NULL);
    if ((cpus || mib) &&
        config_check_machine(&cfg, cpus ? cpus : TAKT_MAX_CPUS, mib ? (u64)mib << 20 : ~0ull, hear, NULL)) {
        fprintf(stderr, "The machine is to have %u CPUs (CPUS=) and %u MiB of memory (MEMORY=).\n", cpus,
                mib);
        error = -1;
    }
    if (images && need_files(file)) error = -1;
    return error;
}

static int usage(void) {
    fprintf(stderr, "usage: cfgdump [-p CPUS] [-m MIB] [-i DIRECTORY] [-f NAME]... FILE [COMMAND-LINE]\n");
    return 2;
}

int main(int argc, char **argv) {
    static char text[1 << 20];
    u32 cpus = 0, mib = 0;
    const char *file;
    FILE *f;
    size_t n;

    for (int o; (o = getopt(argc, argv, "p:m:i:f:")) != -1;) {
        switch (o) {
        case 'p': cpus = (u32)strtoul(optarg, NULL, 10); break;
        case 'm': mib = (u32)strtoul(optarg, NULL, 10); break;
        case 'i': images = optarg; break;
        case 'f':
            if (nr_elsewhere < ARRAY_SIZE(elsewhere)) elsewhere[nr_elsewhere++] = optarg;
            break;
        default: return usage();
        }
    }
    if (optind >= argc || argc - optind > 2) return usage();
    file = argv[optind];
    f = fopen(file, "rb");
    n = f ? fread(text, 1, sizeof(text), f) : 0;
    if (!f || ferror(f)) {
        fprintf(stderr, "cfgdump: %s cannot be read: %s\n", file, strerror(errno));
        return 2;
    }
    fclose(f);
    config_defaults(&cfg);
    if (config_parse(&cfg, file, text, n, param_name_at, hear, NULL)) return 1;
    if (argc - optind > 1 && config_cmdline(&cfg, argv[optind + 1], param_name_at, hear, NULL)) return 1;
    if (check(file, cpus, mib)) return 1;
    if (!images) dump();
    return 0;
}
