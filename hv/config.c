/* The configuration file: sections of `key = value` lines, every key checked by a table
 * (docs/config.md has the grammar). The command line goes through the same table. Nothing here
 * allocates; `struct config` holds copies of all text. */
#include <takt/errno.h>
#include "config.h"
#include "lib/choose.h"
#include "lib/nearest.h"
#include "lib/parse.h"
#include "lib/printf.h"
#include "lib/string.h"

#define DEFAULT_VFS 7  /* if any are asked for: the 82576 has one more for its own use */
#define MAX_ERRORS  20 /* then the rest of the file is not looked at */

enum kind {
    TEXT,
    NAME,
    CONSOLE,
    COM,
    MEMORY,
    COUNT,
    NUMBER,
    SECONDS,
    CPUS,
    SHARE,
    BOOL,
    LOGLVL,
    ON_CRASH,
    GUEST_CONSOLE,
    ON_DMA_FAULT,
    BOOT_FAULT,
    PCI, /* these may be repeated */
    VF,
    NET,
    DISK,
};

/* What values there are. Up to COM they are text and kept as such, from PCI on one of several
 * devices; all others are kept as a number. Word n means n % (max + 1). */
static const struct {
    const char *expected; /* for the error */
    u64 min, max;
    const char *words[8];
} kinds[] = {
    [TEXT] = { "text of at most 255 characters" },
    [NAME] = { "a name" },
    [CONSOLE] = { "com1 to com4, a port such as 0x2f8, pci:00:16.3, mmio:0xfe03e000 or mmio32:0xfe03e000, "
                  "each perhaps with a rate, as com1,115200; or auto, or none" },
    [COM] = { "com1 to com4, perhaps with a rate, as com2,115200, or none" },
    [MEMORY] = { "a multiple of 2M such as 16M, from 2M to 1T", 2 << 20, 1ull << 40 },
    [COUNT] = { "a number from 1 to 64", 1, 64 },
    [NUMBER] = { "a number below 2^64", 0, ~0ull },
    [SECONDS] = { "a number of seconds from 0 to 600", 0, 600 },
    [CPUS] = { "a list of CPUs such as 0-3,^2, or all", 1, ~0ull },
    [SHARE] = { "a share such as 40% or 2.5%", 0, 1000 },
    [BOOL] = { "yes or no", 0, 1, { "no", "yes", "off", "on", "false", "true", "0", "1" } },
    /* with Xen's for the ends */
    [LOGLVL] = { "error, warning, info or debug",
                 0,
                 3,
                 { "error", "warning", "info", "debug", "none", [7] = "all" } },
    [ON_CRASH] = { "destroy, restart or preserve", 0, 2, { "destroy", "restart", "preserve" } },
    [GUEST_CONSOLE] = { "keep or log", 0, 1, { "keep", "log" } },
    [ON_DMA_FAULT] = { "stop or log", 0, 1, { "stop", "log" } },
    [BOOT_FAULT] = { "none, tsc or tsc-stuck", 0, 2, { "none", "tsc", "tsc-stuck" } },
    [PCI] = { "a PCI device such as 00:03.0 or 0001:03:00.0", 0, ~0ull },
    [VF] = { "a virtual function such as igb0/any or 01:00.0/2", 0, ~0ull },
    [NET... DISK] = { "the name of the VM that serves it, perhaps with at most 95 characters of options" },
};

enum section { NO_SECTION, BAD_SECTION, HYPERVISOR, POOL, VM };

#define KEY(section, type, name, kind, field)                                                                \
    { name, section, kind, offsetof(struct type, field), sizeof(((struct type *)0)->field) }

static const struct key {
    const char *name;
    u8 section, kind;
    u16 offset, size; /* of the field in the section's structure */
} keys[] = {
    KEY(HYPERVISOR, config, "sched", NAME, pool[0].sched),
    KEY(HYPERVISOR, config, "sched_preset", TEXT, pool[0].preset),
    KEY(HYPERVISOR, config, "console", CONSOLE, console),
    KEY(HYPERVISOR, config, "trace_console", COM, trace_console),
    KEY(HYPERVISOR, config, "store_console", COM, store_console),
    KEY(HYPERVISOR, config, "loglvl", LOGLVL, loglvl),
    KEY(HYPERVISOR, config, "seed", NUMBER, seed),
    KEY(HYPERVISOR, config, "vfs", COUNT, vfs),
    KEY(HYPERVISOR, config, "relax_rmrr", BOOL, relax_rmrr),
    KEY(HYPERVISOR, config, "virtual_irqs", BOOL, virtual_irqs),
    KEY(HYPERVISOR, config, "noreboot", BOOL, noreboot),
    KEY(HYPERVISOR, config, "watchdog", SECONDS, watchdog),
    KEY(HYPERVISOR, config, "smt", BOOL, smt),
    KEY(HYPERVISOR, config, "selftest", BOOL, selftest),
    KEY(HYPERVISOR, config, "probe", BOOL, probe),
    KEY(HYPERVISOR, config, "boot_fault", BOOT_FAULT, boot_fault),
    KEY(HYPERVISOR, config, "guest_console", GUEST_CONSOLE, guest_console_log),
    KEY(HYPERVISOR, config, "top", BOOL, top),
    KEY(HYPERVISOR, config, "record", BOOL, record),
    KEY(HYPERVISOR, config, "script", TEXT, script),
    KEY(POOL, config_pool, "sched", NAME, sched),
    KEY(POOL, config_pool, "sched_preset", TEXT, preset),
    KEY(POOL, config_pool, "cpus", CPUS, cpus),
    KEY(POOL, config_pool, "turbo_of", NAME, turbo_of),
    KEY(VM, config_vm, "image", TEXT, image),
    KEY(VM, config_vm, "cmdline", TEXT, cmdline),
    KEY(VM, config_vm, "memory", MEMORY, memory),
    KEY(VM, config_vm, "vcpus", COUNT, vcpus),
    KEY(VM, config_vm, "turbo", BOOL, turbo),
    KEY(VM, config_vm, "cpus", CPUS, cpus),
    KEY(VM, config_vm, "pool", NAME, pool),
    KEY(VM, config_vm, "net", NET, device),
    KEY(VM, config_vm, "disk", DISK, device),
    KEY(VM, config_vm, "on_crash", ON_CRASH, on_crash),
    KEY(VM, config_vm, "observer", BOOL, observer),
    KEY(VM, config_vm, "debugcon", BOOL, debugcon),
    KEY(VM, config_vm, "debug_exit", BOOL, debug_exit),
    KEY(VM, config_vm, "start", BOOL, start),
    KEY(VM, config_vm, "pci", PCI, pci),
    KEY(VM, config_vm, "vf", VF, pci),
    KEY(VM, config_vm, "unsafe_dma", BOOL, unsafe_dma),
    KEY(VM, config_vm, "on_dma_fault", ON_DMA_FAULT, on_dma_fault),
    KEY(VM, config_vm, "allow_shared_group", BOOL, allow_shared_group),
    KEY(VM, config_vm, "irq_rate", NUMBER, irq_rate),
    KEY(VM, config_vm, "demand", SHARE, demand_permille),
};

/* What is being read, and where. */
struct reader {
    struct config *c;
    const char *file; /* NULL: reports name no place, and an unknown key is an error */
    const char *text; /* the line or word that is looked at */
    u32 line, column; /* where that begins */
    config_param_at param_at;
    config_report report;
    void *ctx;
    u32 errors;

    enum section section;
    struct config_head *head; /* the section's structure begins with it */
    u64 seen;                 /* keys given in this section, by index */
    bool again;               /* what is set is replaced: not a file's */
};

enum severity { WARNING, ERROR };

/* `at`: the character that it is about. Returns 0 or -EINVAL. */
static PRINTF(4, 5) int report(struct reader *r, const char *at, enum severity severity, const char *fmt,
                               ...) {
    u32 column = (u32)(at - r->text) + r->column;
    char text[512];
    int n = r->file ? hv_snprintf(text, sizeof(text), "%s:%u:%u: ", r->file, r->line, column) : 0;
    va_list ap;

    if (n >= (int)sizeof(text)) n = 0;
    va_start(ap, fmt);
    hv_vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
    va_end(ap);
    r->errors += severity == ERROR;
    if (r->report) r->report(r->ctx, severity == ERROR, text);
    return severity == ERROR ? -EINVAL : 0;
}

/* Where the character is, for those who check the value later. */
static struct config_place place(const struct reader *r, const char *at) {
    u32 line = r->again ? 0 : r->line;
    u32 column = r->text ? (u32)(at - r->text) + r->column : 0;

    return (struct config_place){ (u16)MIN(line, 0xffffu), (u16)MIN(column, 0xffffu) };
}

/* ---- values ---- */

static bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static int read_word(enum kind kind, const char *value, u64 *v) {
    const char *const *words = kinds[kind].words;
    u64 n = 0;

    while (n < ARRAY_SIZE(kinds[0].words) && !(words[n] && strcmp(words[n], value) == 0)) n++;
    *v = n % (kinds[kind].max + 1);
    return n < ARRAY_SIZE(kinds[0].words) ? 0 : -EINVAL;
}

int config_vf(const char *s, u64 *request) {
    const char *slash = strchr(s, '/'), *at = strchr(s, '@'), *end = at ? at : s + strlen(s);
    bool named = strncmp(s, "igb", 3) == 0, any;
    char text[32] = "";
    u64 n, vf = 0, rate = 0;

    if (!slash || slash > end || end - s >= (i64)sizeof(text)) return -EINVAL;
    memcpy(text, s, (size_t)(end - s));
    text[slash - s] = 0;
    slash = text + (slash - s) + 1;
    any = strcmp(slash, "any") == 0;
    if (named ? parse_u64(text + 3, &n, NULL) : parse_pci(text, &n, NULL)) return -EINVAL;
    if ((!any && parse_u64(slash, &vf, NULL)) || n > (named ? 0xffff : UINT32_MAX) || vf > 0xff)
        return -EINVAL;
    if (at && (parse_u64(at + 1, &rate, NULL) || rate < 1000 || rate >= 32000)) return -EINVAL;
    *request = CONFIG_VF | (named ? CONFIG_VF_NAMED : 0) | (any ? CONFIG_VF_ANY : 0) | rate / 1000 << 40 |
               vf << 32 | n;
    return 0;
}

/* *bad becomes the character in the way. */
static int read_number(enum kind kind, const char *value, u64 *v, const char **bad) {
    struct cpumask cpus = { 0 };
    int error;

    switch (kind) {
    case MEMORY: error = parse_size(value, v, bad); break;
    case COUNT:
    case SECONDS:
    case NUMBER: error = parse_u64(value, v, bad); break;
    case CPUS:
        error = parse_cpus(value, &cpus, bad);
        *v = cpus.bits;
        break;
    case SHARE: error = parse_permille(value, v, bad); break;
    case PCI: error = parse_pci(value, v, bad); break;
    case VF: error = config_vf(value, v); break;
    default: error = read_word(kind, value, v);
    }
    if (error) return error;
    *bad = value;
    if (kind == MEMORY && *v % (2 << 20)) return -ERANGE; /* guest RAM is whole 2 MiB chunks */
    return *v < kinds[kind].min || *v > kinds[kind].max ? -ERANGE : 0;
}

static int check_text(const struct key *k, const char *value, const char **bad) {
    struct console_spec console;

    if (strlen(value) >= k->size) return -ERANGE;
    if (k->kind == CONSOLE || k->kind == COM) {
        int error = parse_console(value, &console, bad);

        if (!error && k->kind == COM && console.where != AT_COM && console.where != AT_NOTHING)
            return -EINVAL;
        return error;
    }
    return k->kind == NAME && !valid_name(value) ? -EINVAL : 0;
}

/* One device of the machine more. */
static int add_pci(struct reader *r, const struct key *k, const char *value, u64 bdf) {
    struct config_vm *vm = (struct config_vm *)r->head;

    if (k->kind == VF && r->c && !r->c->vfs) r->c->vfs = DEFAULT_VFS;
    for (u32 i = 0; i < vm->nr_pci && !(bdf & CONFIG_VF_ANY); i++)
        if (vm->pci[i] == bdf) return report(r, value, ERROR, "%s: %s is given twice", k->name, value);
    if (vm->nr_pci == CONFIG_MAX_PCI)
        return report(r, value, ERROR, "%s: %s is one too many: a VM can have %u", k->name, value,
                      CONFIG_MAX_PCI);
    vm->pci[vm->nr_pci++] = bdf;
    return 0;
}

/* One virtio device more. */
static int add_device(struct reader *r, const struct key *k, const char *value) {
    struct config_vm *vm = (struct config_vm *)r->head;
    struct config_device d = { .type = k->kind == NET ? VIRTIO_ID_NET : VIRTIO_ID_BLOCK };
    const char *options;
    size_t n = 0;

    while (value[n] && !blank(value[n])) n++;
    for (options = value + n; blank(*options);) options++;
    memcpy(d.back, value, MIN(n, sizeof(d.back) - 1));
    if (n >= sizeof(d.back) || !valid_name(d.back) || strlen(options) >= sizeof(d.options))
        return report(r, value, ERROR, "%s: expected %s, not \"%s\"", k->name, kinds[k->kind].expected,
                      value);
    memcpy(d.options, options, strlen(options) + 1);
    if (vm->nr_devices == TAKT_MAX_DEVICES)
        return report(r, value, ERROR, "%s: it is one device too many: a VM can have %u", k->name,
                      TAKT_MAX_DEVICES);
    vm->device[vm->nr_devices++] = d;
    return 0;
}

static int set_value(struct reader *r, const struct key *k, const char *value) {
    const char *bad = value;
    bool is_text = k->kind <= COM;
    u64 v;

    if (k->kind >= NET) return add_device(r, k, value);
    if (r->section == POOL && k->kind == CPUS) {
        struct config_pool *p = (struct config_pool *)r->head;

        if (!parse_choice(value, &p->choice)) return 0;
    }
    if (is_text ? check_text(k, value, &bad) : read_number(k->kind, value, &v, &bad))
        return report(r, bad, ERROR, "%s: expected %s, not \"%s\"", k->name, kinds[k->kind].expected, value);
    if (k->kind >= PCI) return add_pci(r, k, value, v);
    memcpy((char *)r->head + k->offset, is_text ? value : (char *)&v, is_text ? strlen(value) + 1 : k->size);
    return 0;
}

/* ---- keys ---- */

/* NULL: the section has no such key. */
static const struct key *find_key(enum section section, const char *name) {
    for (const struct key *k = keys; k < keys + ARRAY_SIZE(keys); k++)
        if (k->section == section && strcmp(k->name, name) == 0) return k;
    return NULL;
}

static const struct key *first_key(enum section section) {
    const struct key *k = keys;

    while (k->section != section) k++;
    return k;
}

struct config_place config_place_of(const struct config_head *h, const char *key) {
    const struct key *k = h->section && key ? find_key(h->section, key) : NULL;
    struct config_place at = { 0 };

    if (k) at = h->at[k - first_key(h->section)];
    if (at.line || at.column) return at;
    return (struct config_place){ (u16)MIN(h->line, 0xffffu), h->line ? 1 : 0 };
}

/* The parameters that a section of this kind can set; NULL after the last. */
static const char *next_param(const struct reader *r, enum section section, u32 *i) {
    const char *name;
    char scope;

    if (!r->param_at) return NULL;
    while ((name = r->param_at((*i)++, &scope)) && scope != (section == VM ? 'v' : 'p')) {
    }
    return name;
}

static bool is_param(const struct reader *r, enum section section, const char *name) {
    const char *known;
    u32 i = 0;

    while ((known = next_param(r, section, &i)))
        if (strcmp(known, name) == 0) return true;
    return false;
}

/* What may have been meant by a key that this section does not have. */
static int unknown_key(struct reader *r, const char *name) {
    static const char *const headings[] = {
        [HYPERVISOR] = "[hypervisor]", [POOL] = "[pool NAME]", [VM] = "[vm NAME]"
    };
    const char *ignored = r->file ? " is ignored" : "", *known;
    enum severity severity = r->file ? WARNING : ERROR;
    struct nearest nearest = { .wanted = name };
    u32 i = 0;

    for (const struct key *k = keys; k < keys + ARRAY_SIZE(keys); k++)
        if (k->section == r->section) nearest_offer(&nearest, k->name);
    while ((known = next_param(r, r->section, &i))) nearest_offer(&nearest, known);
    if (is_param(r, POOL, name))
        return report(r, name, severity, "unknown key \"%s\"%s: it belongs into [hypervisor] or [pool NAME]",
                      name, ignored);
    for (enum section s = HYPERVISOR; s <= VM; s++)
        if (find_key(s, name) || is_param(r, s, name))
            return report(r, name, severity, "unknown key \"%s\"%s: it belongs into %s", name, ignored,
                          headings[s]);
    if (nearest.best)
        return report(r, name, severity, "unknown key \"%s\"%s: is it %s?", name, ignored, nearest.best);
    return report(r, name, severity, "unknown key \"%s\"%s", name, ignored);
}

/* A setting of the parameter table: kept as text until its object exists. */
static int set_param(struct reader *r, const char *name, const char *value, const char *at) {
    struct config_param *p = r->head->param, *end = p + r->head->nr_params;

    while (p < end && strcmp(p->name, name) != 0) p++;
    if (p < end && !r->again)
        return report(r, at, ERROR, "%s was already given on line %u", name, p->at.line);
    if (!*value || strlen(value) >= sizeof(p->value))
        return report(r, at, ERROR, "%s: expected a number or a word, not \"%s\"", name, value);
    if (p == r->head->param + CONFIG_MAX_PARAMS)
        return report(r, at, ERROR, "%s is one parameter too many: a section can have %u", name,
                      CONFIG_MAX_PARAMS);
    r->head->nr_params += p == end;
    memcpy(p->name, name, strlen(name) + 1);
    memcpy(p->value, value, strlen(value) + 1);
    p->at = place(r, at);
    return 0;
}

static int set_key(struct reader *r, const char *name, const char *value) {
    const struct key *k = find_key(r->section, name);

    _Static_assert(ARRAY_SIZE(keys) <= 64, "each key has a bit in `seen`");
    if (k) {
        ASSERT(k - first_key(r->section) < CONFIG_MAX_KEYS);
        if (r->seen & BIT(k - keys) && !r->again && k->kind < PCI)
            return report(r, name, ERROR, "%s is given twice in this section", name);
        r->seen |= BIT(k - keys);
        r->head->at[k - first_key(r->section)] = place(r, value);
        return set_value(r, k, value);
    }
    if (is_param(r, r->section, name)) return set_param(r, name, value, value);
    return unknown_key(r, name);
}

/* ---- sections ---- */

static void set_name(char *field, const char *name) { hv_snprintf(field, CONFIG_NAME, "%s", name); }

void config_defaults(struct config *c) {
    memset(c, 0, sizeof(*c));
    set_name(c->pool[0].head.name, "Pool-0");
    set_name(c->pool[0].sched, "credit");
    cpumask_fill(&c->pool[0].cpus);
    c->nr_pools = 1;
    set_name(c->console, "auto");
    c->loglvl = LOG_INFO;
    c->smt = true;
}

void config_vm_defaults(struct config_vm *v, const char *name) {
    memset(v, 0, sizeof(*v));
    set_name(v->head.name, name);
    set_name(v->pool, "Pool-0");
    v->memory = 16 << 20;
    v->vcpus = 1;
    v->start = true;
    v->demand_permille = 1000;
    cpumask_fill(&v->cpus);
}

const struct config_vm *config_find_vm(const struct config *c, const char *name) {
    for (const struct config_vm *v = c->vm; v < c->vm + c->nr_vms; v++)
        if (strcmp(v->head.name, name) == 0) return v;
    return NULL;
}

const struct config_pool *config_find_pool(const struct config *c, const char *name) {
    for (const struct config_pool *p = c->pool; p < c->pool + c->nr_pools; p++)
        if (strcmp(p->head.name, name) == 0) return p;
    return NULL;
}

static int enter(struct reader *r, enum section section, struct config_head *head) {
    r->section = section;
    r->head = head;
    r->seen = 0;
    if (!r->again) head->line = r->line;
    head->section = section;
    return 0;
}

static int start_section(struct reader *r, const char *at, enum section section, const char *name) {
    bool is_vm = section == VM;
    struct config *c = r->c;
    struct config_head *head = is_vm ? &c->vm[c->nr_vms].head : &c->pool[c->nr_pools].head;
    const struct config_head *old = is_vm ? (const void *)config_find_vm(c, name) : config_find_pool(c, name);
    const char *what = is_vm ? "VM" : "pool";
    u32 *nr = is_vm ? &c->nr_vms : &c->nr_pools, most = is_vm ? CONFIG_MAX_VMS : CONFIG_MAX_POOLS;

    if (old == &c->pool[0].head)
        return report(r, at, ERROR, "Pool-0 is always there: its settings belong into [hypervisor]");
    if (old) return report(r, at, ERROR, "%s %s was already described on line %u", what, name, old->line);
    if (*nr == most) return report(r, at, ERROR, "%s %s is one too many: %u are allowed", what, name, most);
    ++*nr;
    if (is_vm) config_vm_defaults((struct config_vm *)head, name);
    set_name(head->name, name);
    return enter(r, section, head);
}

/* ---- lines ---- */

/* Without the blanks at both ends, in place. */
static char *trim(char *s) {
    size_t n;

    while (blank(*s)) s++;
    for (n = strlen(s); n && blank(s[n - 1]); n--) s[n - 1] = 0;
    return s;
}

/* Without the comment either, which begins with '#' or ';' at the start or after a blank. */
static char *trim_comment(char *s) {
    for (char *p = s; *p; p++)
        if ((*p == '#' || *p == ';') && (p == s || blank(p[-1]))) *p = 0;
    return trim(s);
}

/* The value behind a quotation mark, in place: \" and \\ are the characters themselves. Returns
 * what follows, NULL if the end is missing. */
static char *unquote(char *s) {
    char *to = s;

    for (; *s && *s != '"'; s++) {
        if (*s == '\\' && (s[1] == '"' || s[1] == '\\')) s++;
        *to++ = *s;
    }
    if (!*s) return NULL;
    *to = 0;
    return s + 1;
}

static int read_assignment(struct reader *r, char *key) {
    char *value = strchr(key, '='), *rest;

    if (!value) return report(r, key, ERROR, "expected \"key = value\" or a [section], not \"%s\"", key);
    *value = 0;
    value = trim(value + 1);
    if (*value == '"') {
        rest = unquote(++value);
        if (!rest) return report(r, value - 1, ERROR, "the quotation mark is not closed on this line");
        rest = trim_comment(rest);
        if (*rest)
            return report(r, rest, ERROR, "expected the end of the line after the quoted value, not \"%s\"",
                          rest);
    } else {
        value = trim_comment(value);
    }
    key = trim(key);
    if (!*key) return report(r, key, ERROR, "expected a key before '='");
    return r->section == BAD_SECTION ? 0 : set_key(r, key, value);
}

/* Keys of a section that cannot be entered are skipped, not reported one by one. */
static int read_heading(struct reader *r, char *s) {
    char *end = strchr(s, ']'), *text, *name;

    r->section = BAD_SECTION;
    if (!end) return report(r, s, ERROR, "expected ']' at the end of the section's heading");
    *end = 0;
    end = trim_comment(end + 1);
    if (*end) return report(r, end, ERROR, "expected the end of the line after ']', not \"%s\"", end);
    text = trim(s + 1);
    if (strcmp(text, "hypervisor") == 0 && r->c->pool[0].head.line)
        return report(r, s, ERROR, "[hypervisor] is given twice");
    if (strcmp(text, "hypervisor") == 0) return enter(r, HYPERVISOR, &r->c->pool[0].head);
    name = strchr(text, ' ');
    if (!name || (strncmp(text, "pool ", 5) != 0 && strncmp(text, "vm ", 3) != 0))
        return report(r, s, ERROR, "expected [hypervisor], [pool NAME] or [vm NAME], not \"[%s]\"", text);
    name = trim(name);
    if (!valid_name(name))
        return report(
            r, s, ERROR,
            "\"%s\" is no name: expected at most %u letters, digits, '-', '_' or '.', and not a number", name,
            CONFIG_NAME - 1);
    return start_section(r, s, *text == 'p' ? POOL : VM, name);
}

static int read_line(struct reader *r, const char *text, size_t n) {
    char line[512], *s;

    r->text = line;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];

        if (i + 1 == sizeof(line))
            return report(r, line + i, ERROR, "expected a line of at most %u characters",
                          (u32)sizeof(line) - 1);
        if ((c < ' ' && !blank(text[i])) || c == 127)
            return report(r, line + i, ERROR, "expected text, not a control character");
        line[i] = text[i];
    }
    line[n] = 0;
    s = trim(line);
    if (!*s || *s == '#' || *s == ';') return 0;
    if (*s == '[') return read_heading(r, s);
    if (r->section != NO_SECTION) return read_assignment(r, s);
    r->section = BAD_SECTION; /* once is enough */
    return report(r, s, ERROR, "expected a [section] before the first key");
}

/* ---- entry points ---- */

int config_parse(struct config *c, const char *file, const char *text, size_t len, config_param_at param_at,
                 config_report report_fn, void *ctx) {
    struct reader r = {
        .c = c, .file = file, .column = 1, .param_at = param_at, .report = report_fn, .ctx = ctx
    };

    c->file = file;
    for (size_t at = 0, n; at < len && r.errors < MAX_ERRORS; at += n + 1) {
        for (n = 0; at + n < len && text[at + n] != '\n';) n++;
        r.line++;
        read_line(&r, text + at, n);
    }
    c->lines_are_good = !r.errors;
    return r.errors ? -EINVAL : config_check(c, report_fn, ctx);
}

/* A key of [hypervisor], or one of Xen's or ours that sets a parameter of Pool-0. */
static int read_cmdline_word(struct reader *r, const char *s, size_t n) {
    char word[CONFIG_VALUE + 4], us[CONFIG_NAME], *value;
    const char *bad;
    u64 v;

    r->text = word;
    if (n >= CONFIG_VALUE)
        return report(r, word, ERROR, "expected words of at most %u characters", CONFIG_VALUE - 1);
    memcpy(word, s, n);
    word[n] = 0;
    value = strchr(word, '=');
    if (value)
        *value++ = 0;
    else
        value = memcpy(word + n + 1, "yes", 4);
    if (strncmp(word, "sched_", 6) == 0 && is_param(r, HYPERVISOR, word + 6))
        return set_param(r, word + 6, value, value);
    if (strcmp(word, "sched_credit_tslice_ms") != 0) return set_key(r, word, value);
    if (parse_u64(value, &v, &bad) || v > 1000000)
        return report(r, word, ERROR, "%s: expected a number of milliseconds, not \"%s\"", word, value);
    hv_snprintf(us, sizeof(us), "%lu", v * 1000);
    return set_param(r, "tslice_us", us, value);
}

int config_cmdline(struct config *c, const char *cmdline, config_param_at param_at, config_report report_fn,
                   void *ctx) {
    struct reader r = { .c = c,
                        .file = "command line",
                        .line = 1,
                        .again = true,
                        .param_at = param_at,
                        .report = report_fn,
                        .ctx = ctx };

    enter(&r, HYPERVISOR, &c->pool[0].head);
    for (size_t at = 0, n; cmdline[at]; at += n ? n : 1) {
        for (n = 0; cmdline[at + n] && !blank(cmdline[at + n]);) n++;
        r.column = (u32)at + 1;
        if (n) read_cmdline_word(&r, cmdline + at, n);
    }
    return r.errors ? -EINVAL : 0;
}

int config_vm_set(struct config_vm *v, const char *key, const char *value, config_param_at param_at,
                  config_report report_fn, void *ctx) {
    struct reader r = { .again = true, .param_at = param_at, .report = report_fn, .ctx = ctx };

    enter(&r, VM, &v->head);
    return set_key(&r, key, value);
}

void config_choose_cpus(struct config *c, const struct cpumask *there, u32 (*cache_of)(u32 cpu)) {
    struct cpumask left = cpumask_and(&c->pool[0].cpus, there);

    cpumask_clear(&left, 0);
    for (u32 i = 1; i < c->nr_pools; i++) {
        struct config_pool *p = &c->pool[i];

        if (!p->choice.nr) continue;
        p->cpus = cpus_choose(&p->choice, &left, c->seed + i, cache_of);
        left = cpumask_minus(&left, &p->cpus);
        c->pool[0].cpus = cpumask_minus(&c->pool[0].cpus, &p->cpus);
    }
}
