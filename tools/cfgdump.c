/* Checks a configuration file and its VMs before anything boots, with the hypervisor's own
 * parser and scheduling policies. So no tool reads the grammar again, and the image refuses
 * nothing that passes.
 *
 *   cfgdump [OPTIONS] FILE [COMMAND-LINE]   prints the configuration as one JSON value
 *     -p CPUS, -m MIB   also checks that a machine with so many CPUs and so much memory can run it
 *     -i DIRECTORY      also checks that the images of VMs and the script exist, beside FILE or
 *                       in DIRECTORY, as NAME or NAME.elf, that the hypervisor can load each
 *                       image into its VM, and that each line of the script has a time and one
 *                       of the shell's commands; prints a line "NAME PATH" for each file instead
 *                       of the JSON
 *     -f NAME           a file that exists elsewhere is not looked for; may be repeated
 *
 * Exit status: 0; 1 with every error on standard error, in the order of the lines; 2 if the file
 * cannot be read or the usage is wrong. */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <dirent.h>
#include "config_keys.h"
#include "image/image.h"
#include "lib/nearest.h"
#include "lib/printf.h"
#include "sched/machine.h"
#include "sched/setup.h"
#include "shell/script.h"

static struct config cfg;
static struct config_vm cfg_vms[CONFIG_MAX_VMS];

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

/* ---- what the loader needs of a VM: here only load_start() is called, which copies nothing
 * ---- */

int guestmem_write(const struct guestmem *m, gpa_t gpa, const void *from, u64 len) {
    return -EFAULT;
}

/* ---- what is wrong with the file: kept, and at the end printed in the order of its lines ---- */

static struct told {
    unsigned long line; /* 0: the command line */
    u32 nr;             /* as they came */
    char *text;
} * told;
static u32 nr_told;

static void hear(void *ctx, bool fatal, const char *text) {
    size_t file = strlen(cfg.file);
    struct told *more = realloc(told, (nr_told + 1) * sizeof(*told)), *t;

    if (!more) abort();
    told = more;
    t = told + nr_told;
    *t = (struct told){ .nr = nr_told++ };
    if (strncmp(text, cfg.file, file) == 0 && text[file] == ':')
        t->line = strtoul(text + file + 1, NULL, 10);
    if (asprintf(&t->text, "%s%s", text, fatal ? "" : " (warning)") < 0) abort();
}

static int by_line(const void *a, const void *b) {
    const struct told *x = a, *y = b;

    if (x->line < y->line) return -1;
    if (x->line > y->line) return 1;
    if (x->nr < y->nr) return -1;
    return 1;
}

static void print_told(void) {
    qsort(told, nr_told, sizeof(*told), by_line);
    for (u32 i = 0; i < nr_told; i++) fprintf(stderr, "%s\n", told[i].text);
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
    for (u32 i = 0; i < h->nr_params; i++) {
        if (i > 0) printf(", ");
        printf("\"%s\": \"%s\"", h->param[i].name, h->param[i].value);
    }
    printf("}}");
}

static const char *type_of(const struct config_device *d) {
    switch (d->type) {
    case VIRTIO_ID_NET: return "net";
    case VIRTIO_ID_RNG: return "rng";
    default: return "disk";
    }
}

static void devices(const struct config_vm *v) {
    printf("\"devices\": [");
    for (u32 i = 0; i < v->nr_devices; i++) {
        if (i > 0) printf(", ");
        putchar('{');
        string("type", type_of(&v->device[i]));
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
    string("kernel", v->kernel);
    string("ramdisk", v->ramdisk);
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

/* The keys that the file gives, in the units of struct config_model. null: there is no such
 * section. */
static void dump_model(const struct config_model *m) {
    const char *comma = "";

    printf(",\n \"model\": ");
    if (!m->head.line) {
        printf("null");
        return;
    }
    putchar('{');
    for (u32 i = 0; config_key_at(i); i++) {
        const struct config_key *k = config_key_at(i);

        if (k->section != MODEL || !config_load_number(k, m)) continue;
        printf("%s\"%s\": %llu", comma, k->name, (unsigned long long)config_load_number(k, m));
        comma = ", ";
    }
    putchar('}');
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
    printf("\"max_cpus\": %u, ", cfg.max_cpus);
    boolean("selftest", cfg.selftest);
    boolean("probe", cfg.probe);
    boolean("top", cfg.top);
    boolean("record", cfg.record);
    printf("\"loglvl\": %u, \"seed\": %llu, ", cfg.loglvl, (unsigned long long)cfg.seed);
    params(&cfg.pool[0].head);
    printf(",\n \"pools\": [");
    for (u32 i = 1; i < cfg.nr_pools; i++) {
        if (i > 1) printf(",\n  ");
        putchar('{');
        string("name", cfg.pool[i].head.name);
        string("sched", cfg.pool[i].sched);
        string("sched_preset", cfg.pool[i].preset);
        string("turbo_of", cfg.pool[i].turbo_of);
        printf("\"chosen_cpus\": %s, ", cfg.pool[i].choice.how == CHOOSE_NONE ? "false" : "true");
        cpus(&cfg.pool[i].cpus);
        params(&cfg.pool[i].head);
    }
    printf("],\n \"vms\": [");
    for (u32 i = 0; i < cfg.nr_vms; i++) {
        if (i > 0) printf(",\n  ");
        dump_vm(&cfg.vm[i]);
    }
    printf("]");
    dump_model(&cfg.model);
    printf("}\n");
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
    struct stat st;

    snprintf(path, sizeof(path), "%.*s/%s%s", (int)n, directory, name, suffix);
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return NULL;
    return path;
}

static const char *find_file(const char *file, const char *name) {
    const char *slash = strrchr(file, '/'), *path;

    if (slash)
        path = look(file, (size_t)(slash - file), name, "");
    else
        path = look(".", 1, name, "");
    if (!path) path = look(images, strlen(images), name, "");
    if (!path) path = look(images, strlen(images), name, ".elf");
    return path;
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

static int complain(const struct config_head *h, const char *key, const char *name,
                    const char *what) {
    return config_complain(&cfg, config_place_of(h, key), true, hear, NULL, "%s: %s: %s", key, name,
                           what);
}

/* The whole file, of *size bytes, to be freed; NULL: it cannot be read, errno says why. */
static void *contents(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    char *data;

    if (!f) return NULL;
    if (fstat(fileno(f), &st)) {
        fclose(f);
        return NULL;
    }
    *size = (size_t)st.st_size;
    data = malloc(*size + 1);
    if (data && fread(data, 1, *size, f) != *size) {
        free(data);
        data = NULL;
    }
    fclose(f);
    return data;
}

#define BZIMAGE_MAGIC 0x202 /* where it is in the file */

/* Returns whether this is a Linux kernel as distributions ship it. tools/mkiso.sh takes the ELF
 * file out of it later. */
static bool is_packed(const struct module *m) {
    return m->size > BZIMAGE_MAGIC + 4 &&
           memcmp((const char *)m->data + BZIMAGE_MAGIC, "HdrS", 4) == 0;
}

/* Looks at the image of VM `v`, which `key` names, as the hypervisor will before it copies it into
 * the memory of the VM; then once more, with the ramdisk. `ramdisk` is NULL if there is none. */
static int check_image(const struct config_vm *v, const char *key, const char *path,
                       const struct module *ramdisk) {
    struct guestmem mem = { .size = v->memory, .low_size = MIN(v->memory, TAKT_LOW_RAM_MAX) };
    struct module m = { .name = v->image };
    struct load_order order = { .mem = &mem, .image = &m, .cmdline = v->cmdline, .pc = *v->kernel };
    const char *why = NULL, *why_ramdisk = NULL;
    struct loader l;

    m.data = contents(path, &m.size);
    if (!m.data) return complain(&v->head, key, path, strerror(errno));
    if (!is_packed(&m)) {
        why = load_start(&l, &order);
        order.ramdisk = ramdisk;
        if (!why) why_ramdisk = load_start(&l, &order);
    } else if (ramdisk && ramdisk->size >= mem.low_size) {
        why_ramdisk = "the ramdisk is larger than the VM's memory";
    }
    free((void *)m.data);
    if (why) return complain(&v->head, key, path, why);
    if (why_ramdisk) return complain(&v->head, "ramdisk", v->ramdisk, why_ramdisk);
    return 0;
}

static const char *const commands[] = {
#include "commands.inc"
};

/* Tells what is wrong with line `number` of the script: it has no time, or no command of the
 * shell. What the command's arguments are worth is only known when it runs. */
static bool script_line_is_good(const char *path, u32 number, const char *s, const char *end) {
    struct nearest nearest;
    struct script_line line;
    char name[32], text[4608], guess[64] = "";
    size_t n = 0;

    switch (script_line_read(s, end, &line)) {
    case SCRIPT_NOTHING: return true;
    case SCRIPT_WRONG:
        snprintf(text, sizeof(text), "%s:%u: %s", path, number, SCRIPT_EXPECTED);
        hear(NULL, true, text);
        return false;
    case SCRIPT_COMMAND: break;
    }
    while (n < line.length && n < sizeof(name) - 1 && !strchr(" \t\r", line.command[n])) n++;
    memcpy(name, line.command, n);
    name[n] = 0;
    if (!n || *name == '#' || is_in(name, commands, ARRAY_SIZE(commands))) return true;
    nearest = (struct nearest){ .wanted = name };
    for (u32 i = 0; i < ARRAY_SIZE(commands); i++) nearest_offer(&nearest, commands[i]);
    if (nearest.best) snprintf(guess, sizeof(guess), ": is it %s?", nearest.best);
    snprintf(text, sizeof(text), "%s:%u: the shell has no command %s%s", path, number, name, guess);
    hear(NULL, true, text);
    return false;
}

static int check_script(const char *path) {
    size_t size;
    char *data = contents(path, &size), *end;
    u32 number = 0;
    int error = 0;

    if (!data) return complain(&cfg.pool[0].head, "script", path, strerror(errno));
    for (char *s = data; s < data + size; s = end + 1) {
        for (end = s; end < data + size && *end != '\n';) end++;
        if (!script_line_is_good(path, ++number, s, end)) error = -1;
    }
    free(data);
    return error;
}

/* Finds the file that `key` of section `h` names, and prints its line unless another section has
 * had it printed. Stores its path in *path, or NULL if there is nothing to look at: no name, or a
 * file that exists elsewhere. Returns -EINVAL if there is no such file. `v` is the VM of an image,
 * or NULL. */
static int need_file(const char *file, const struct config_head *h, const char *key,
                     const char *name, const struct config_vm *v, const char **path) {
    const char *guess = NULL;
    char question[64] = "";

    *path = NULL;
    if (!*name || is_in(name, elsewhere, nr_elsewhere)) return 0;
    if (strpbrk(name, "/ \t"))
        return complain(
            h, key, name,
            "expected the name alone of a file beside the configuration file or of a guest, "
            "without '/' and blanks");
    *path = find_file(file, name);
    if (*path) {
        if (!is_in(name, printed, nr_printed)) {
            printf("%s %s\n", name, *path);
            printed[nr_printed++] = name;
        }
        return 0;
    }
    if (v) guess = like(name);
    if (guess) snprintf(question, sizeof(question), ": is it %s?", guess);
    return config_complain(
        &cfg, config_place_of(h, key), true, hear, NULL,
        "%s: there is no file %s beside the configuration file and no guest %s in %s%s", key, name,
        name, images, question);
}

/* The loader does not look into a ramdisk, so its size is enough. */
static int need_vm_files(const char *file, const struct config_vm *v) {
    struct module m = { .name = v->ramdisk }, *ramdisk = NULL;
    const char *path, *key = "image";
    struct stat st;
    int error = need_file(file, &v->head, "ramdisk", v->ramdisk, v, &path);

    if (path && stat(path, &st) == 0) {
        m.size = (size_t)st.st_size;
        ramdisk = &m;
    }
    if (*v->kernel) key = "kernel";
    error |= need_file(file, &v->head, key, config_vm_image(v), v, &path);
    if (path) error |= check_image(v, key, path, ramdisk);
    return error;
}

static int need_script(const char *file) {
    const char *path;
    int error = need_file(file, &cfg.pool[0].head, "script", cfg.script, NULL, &path);

    if (path) error = check_script(path);
    return error;
}

static int need_files(const char *file) {
    int error = 0;

    if (need_script(file)) error = -1;
    for (u32 i = 0; i < cfg.nr_vms; i++)
        if (need_vm_files(file, &cfg.vm[i])) error = -1;
    if (cfg.nr_vms == 0 && !cfg.selftest && !cfg.probe)
        fprintf(stderr, "%s: there is no [vm NAME] in this file: Takt will run no VM (warning)\n",
                file);
    return error;
}

/* ---- main ---- */

static bool machine_is_small; /* for what the file wants */

static int check(const char *file, u32 cpus, u32 mib) {
    struct sched_pool *pool;
    u64 memory = (u64)mib << 20;
    u32 most = cpus;
    int error = 0;

    /* What is not told is no limit. */
    if (!most) most = TAKT_MAX_CPUS;
    if (!memory) memory = ~0ull;
    sched_init();
    for (u32 i = 0; i < cfg.nr_pools; i++) error |= setup_pool(&cfg, i, &pool, hear, NULL);
    error |= setup_check_vms(&cfg, hear, NULL);
    if ((cpus || mib) && config_check_machine(&cfg, most, memory, hear, NULL)) {
        machine_is_small = true;
        error = -1;
    }
    if (images && need_files(file)) error = -1;
    return error;
}

static int usage(void) {
    fprintf(stderr,
            "usage: cfgdump [-p CPUS] [-m MIB] [-i DIRECTORY] [-f NAME]... FILE [COMMAND-LINE]\n");
    return 2;
}

int main(int argc, char **argv) {
    static char text[1 << 20];
    u32 cpus = 0, mib = 0;
    int error;
    const char *file;
    FILE *f;
    size_t n = 0;

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
    if (f) n = fread(text, 1, sizeof(text), f);
    if (!f || ferror(f)) {
        fprintf(stderr, "cfgdump: %s cannot be read: %s\n", file, strerror(errno));
        return 2;
    }
    fclose(f);
    config_defaults(&cfg, cfg_vms, CONFIG_MAX_VMS);
    error = config_parse(&cfg, file, text, n, param_name_at, hear, NULL);
    if (argc - optind > 1)
        error |= config_cmdline(&cfg, argv[optind + 1], param_name_at, hear, NULL);
    if (cfg.lines_are_good) error |= check(file, cpus, mib);
    print_told();
    if (machine_is_small)
        fprintf(stderr, "The machine is to have %u CPUs (CPUS=) and %u MiB of memory (MEMORY=).\n",
                cpus, mib);
    if (error) return 1;
    if (!images) dump();
    return 0;
}
