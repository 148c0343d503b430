/* Reads the configuration file, which says which pools of CPUs and which VMs there are. It
 * consists of sections, [hypervisor], [pool NAME], [vm NAME] and [model], with lines `key = value`
 * (docs/config.md has the grammar). Every key is checked by a table (config_keys.c). The boot
 * loader's command line goes through the same table. Reading goes on after an error, so that the
 * operator sees all errors at once, each with its line and column. Nothing here allocates; `struct
 * config` holds copies of all text. */
#include <takt/errno.h>
#include "config_keys.h"
#include "lib/choose.h"
#include "lib/nearest.h"
#include "lib/parse.h"
#include "lib/printf.h"
#include "common/string.h"

#define DEFAULT_VFS 7  /* if any are asked for: the 82576 has one more for its own use */
#define MAX_ERRORS  20 /* then the rest of the file is not looked at */

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

    enum config_section section;
    void *object;             /* the section's structure: struct config, config_pool or config_vm */
    struct config_head *head; /* the part of it that all kinds of sections have */
    u32 seen;   /* a bit for each key that this section has given, in the order of the table */
    bool again; /* the command line or the shell: a value replaces the one before it, where a file
                                 may give a key once only */
};

enum severity { WARNING, ERROR };

/* Reports a sentence about the character `at` of the line. Returns -EINVAL if it is an error, 0 if
 * it is a warning. */
static PRINTF(4, 5) int report(struct reader *r, const char *at, enum severity severity,
                               const char *fmt, ...) {
    u32 column = (u32)(at - r->text) + r->column;
    char text[512];
    va_list ap;
    int n = 0;

    if (r->file) n = hv_snprintf(text, sizeof(text), "%s:%u:%u: ", r->file, r->line, column);
    if (n >= (int)sizeof(text)) n = 0; /* a very long name of a file: the sentence matters more */
    va_start(ap, fmt);
    hv_vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
    va_end(ap);
    if (r->report) r->report(r->ctx, severity == ERROR, text);
    if (severity == WARNING) return 0;
    r->errors++;
    return -EINVAL;
}

/* Reports that the value of a key is not what the key needs. `at` is the character that is
 * wrong. */
static int report_value(struct reader *r, const char *at, const struct config_key *k,
                        const char *value) {
    return report(r, at, ERROR, "%s: expected %s, not \"%s\"", k->name, config_expected(k), value);
}

/* Returns the place of the character `at`, for checks that come after the whole file was read. */
static struct config_place reader_place(const struct reader *r, const char *at) {
    u32 line = r->line, column = 0;

    if (r->again) line = 0; /* the command line, as struct config_place says */
    if (r->text) column = (u32)(at - r->text) + r->column;
    return (struct config_place){ (u16)MIN(line, 0xffffu), (u16)MIN(column, 0xffffu) };
}

/* ---- values ---- */

/* Is it a blank, or the "\r" of a file with DOS line ends? */
static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* Appends a device of the machine to those that the VM asks for. */
static int add_pci(struct reader *r, const struct config_key *k, const char *value, u64 bdf) {
    struct config_vm *vm = r->object;

    if (k->kind == VF && r->c && !r->c->vfs) r->c->vfs = DEFAULT_VFS;
    for (u32 i = 0; i < vm->nr_pci && !(bdf & CONFIG_VF_ANY); i++)
        if (vm->pci[i] == bdf)
            return report(r, value, ERROR, "%s: %s is given twice", k->name, value);
    if (vm->nr_pci == CONFIG_MAX_PCI)
        return report(r, value, ERROR, "%s: %s is one too many: a VM can have %u", k->name, value,
                      CONFIG_MAX_PCI);
    vm->pci[vm->nr_pci++] = bdf;
    return 0;
}

/* Appends a virtio device to those of the VM. The value is the name of the VM that serves it (its
 * back end), a blank, and options for that VM. */
static int add_device(struct reader *r, const struct config_key *k, const char *value) {
    struct config_vm *vm = r->object;
    struct config_device d = { .type = VIRTIO_ID_BLOCK };
    const char *options;
    size_t n = 0;

    if (k->kind == NET) d.type = VIRTIO_ID_NET;
    if (k->kind == RNG) d.type = VIRTIO_ID_RNG;
    while (value[n] && !is_blank(value[n])) n++;
    for (options = value + n; is_blank(*options);) options++;
    memcpy(d.back, value, MIN(n, sizeof(d.back) - 1));
    if (n >= sizeof(d.back) || !valid_name(d.back) || strlen(options) >= sizeof(d.options))
        return report_value(r, value, k, value);
    memcpy(d.options, options, strlen(options) + 1);
    if (vm->nr_devices == TAKT_MAX_DEVICES)
        return report(r, value, ERROR, "%s: it is one device too many: a VM can have %u", k->name,
                      TAKT_MAX_DEVICES);
    vm->device[vm->nr_devices++] = d;
    return 0;
}

/* Reads a list of CPUs into `field`. The section of a pool may also say how many CPUs it wants
 * instead of which ones; these are chosen at boot, when it is known which CPUs there are. */
static int set_cpus(struct reader *r, const struct config_key *k, const char *value,
                    struct cpumask *field) {
    struct cpumask cpus = { 0 };
    const char *bad = value;

    if (r->section == POOL) {
        struct config_pool *p = r->object;

        if (!parse_choice(value, &p->choice)) return 0; /* which CPUs is chosen at boot */
    }
    if (config_read_cpus(value, &cpus, &bad)) return report_value(r, bad, k, value);
    *field = cpus;
    return 0;
}

/* Reads the value of a key into the field that the table names, in the way that its kind needs. */
static int set_value(struct reader *r, const struct config_key *k, const char *value) {
    void *field = (char *)r->object + k->offset;
    const char *bad = value;
    u64 v;

    switch (config_storage_of(k)) {
    case AS_VIRTIO_DEVICE: return add_device(r, k, value);
    case AS_CPUS: return set_cpus(r, k, value, field);
    case AS_TEXT:
        if (config_check_text(k, value, &bad)) return report_value(r, bad, k, value);
        memcpy(field, value, strlen(value) + 1);
        return 0;
    case AS_PCI_DEVICE:
        if (config_read_number(k, value, &v, &bad)) return report_value(r, bad, k, value);
        return add_pci(r, k, value, v);
    case AS_NUMBER:
        if (config_read_number(k, value, &v, &bad)) return report_value(r, bad, k, value);
        config_store_number(k, r->object, v);
    }
    return 0;
}

/* ---- keys ---- */

/* Returns the place in the file where a section sets `key`, or the place of the section's heading
 * if it does not. Errors that are found after reading point to this place, so that they look like
 * those of reading. */
struct config_place config_place_of(const struct config_head *h, const char *key) {
    struct config_place at = { 0 };
    const struct config_key *k = NULL;

    if (h->section && key) k = config_find_key(h->section, key);
    if (k) at = h->at[k - config_first_key(h->section)];
    if (at.line || at.column) return at;
    if (!h->line) return at; /* nobody wrote the section either */
    return (struct config_place){ (u16)MIN(h->line, 0xffffu), 1 };
}

/* The name of the next parameter that a section of this kind can set, from number *i of all on; *i
 * becomes the number after it. Returns NULL if none is left. */
static const char *next_param(const struct reader *r, enum config_section section, u32 *i) {
    char wanted = 'p', scope;
    const char *name;

    if (!r->param_at || section == MODEL) return NULL;
    if (section == VM) wanted = 'v';
    do {
        name = r->param_at(*i, &scope);
        ++*i;
    } while (name && scope != wanted);
    return name;
}

/* Is there a scheduling parameter of this name that a section of this kind can set? */
static bool is_param(const struct reader *r, enum config_section section, const char *name) {
    const char *known;
    u32 i = 0;

    while ((known = next_param(r, section, &i)))
        if (strcmp(known, name) == 0) return true;
    return false;
}

/* Reports a key that this section does not have, and says what may have been meant. */
static int unknown_key(struct reader *r, const char *name) {
    static const char *const headings[] = { [HYPERVISOR] = "[hypervisor]",
                                            [POOL] = "[pool NAME]",
                                            [VM] = "[vm NAME]",
                                            [MODEL] = "[model]" };
    const char *ignored = "", *known;
    enum severity severity = ERROR;
    struct nearest nearest = { .wanted = name };
    u32 i = 0;

    if (r->file) { /* it may be meant for a later version of Takt */
        severity = WARNING;
        ignored = " is ignored";
    }
    for (const struct config_key *k; (k = config_key_at(i)); i++)
        if (k->section == r->section) nearest_offer(&nearest, k->name);
    i = 0;
    while ((known = next_param(r, r->section, &i))) nearest_offer(&nearest, known);
    if (is_param(r, POOL, name))
        return report(r, name, severity,
                      "unknown key \"%s\"%s: it belongs into [hypervisor] or [pool NAME]", name,
                      ignored);
    for (enum config_section s = HYPERVISOR; s <= MODEL; s++)
        if (config_find_key(s, name) || is_param(r, s, name))
            return report(r, name, severity, "unknown key \"%s\"%s: it belongs into %s", name,
                          ignored, headings[s]);
    if (nearest.best)
        return report(r, name, severity, "unknown key \"%s\"%s: is it %s?", name, ignored,
                      nearest.best);
    return report(r, name, severity, "unknown key \"%s\"%s", name, ignored);
}

/* Keeps a setting of the policies' parameter table as text. It is read when the VM or the pool
 * exists, because only the policy knows what values there are. */
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
    if (p == end) r->head->nr_params++;
    memcpy(p->name, name, strlen(name) + 1);
    memcpy(p->value, value, strlen(value) + 1);
    p->at = reader_place(r, at);
    return 0;
}

/* May a section give this key more than once? Only keys that add a device may. */
static bool may_be_repeated(const struct config_key *k) {
    enum config_storage storage = config_storage_of(k);

    return storage == AS_PCI_DEVICE || storage == AS_VIRTIO_DEVICE;
}

/* Sets a key of the section, or a parameter of the scheduling policies, which have a table of their
 * own. A key that is given twice in a file is an error, because one of the two is a mistake. */
static int set_key(struct reader *r, const char *name, const char *value) {
    const struct config_key *k = config_find_key(r->section, name);

    _Static_assert(CONFIG_MAX_KEYS <= 32, "each key of a section has a bit in `seen`");
    if (k) {
        u32 n = (u32)(k - config_first_key(r->section)), bit = 1u << n;

        ASSERT(n < CONFIG_MAX_KEYS);
        if (r->seen & bit && !r->again && !may_be_repeated(k))
            return report(r, name, ERROR, "%s is given twice in this section", name);
        r->seen |= bit;
        r->head->at[n] = reader_place(r, value);
        return set_value(r, k, value);
    }
    if (is_param(r, r->section, name)) return set_param(r, name, value, value);
    return unknown_key(r, name);
}

/* ---- sections ---- */

/* Copies a name that is known to fit. */
static void set_name(char *field, const char *name) { hv_snprintf(field, CONFIG_NAME, "%s", name); }

/* Fills in *c as for a VM file that says nothing: Pool-0 alone, and no VM. */
void config_defaults(struct config *c, struct config_vm *vm, u32 max) {
    memset(c, 0, sizeof(*c));
    c->vm = vm;
    c->max_vms = max;
    set_name(c->pool[0].head.name, "Pool-0");
    set_name(c->pool[0].sched, "credit");
    cpumask_fill(&c->pool[0].cpus);
    c->nr_pools = 1;
    set_name(c->console, "auto");
    c->loglvl = LOG_INFO;
    c->smt = true;
    c->max_cpus = TAKT_MAX_CPUS;
}

/* Returns for how many VMs there has to be room. Each line that begins with '[' counts. */
u32 config_room(const char *text, size_t len) {
    bool begins = true; /* nothing but blanks was on this line so far */
    u32 n = 0;

    for (size_t i = 0; i < len; i++) {
        if (begins && text[i] == '[') n++;
        begins = text[i] == '\n' || (begins && is_blank(text[i]));
    }
    return MIN(n, CONFIG_MAX_VMS);
}

/* Gives a VM the values that hold where its section says nothing. */
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

/* Returns the VM of that name, or NULL. */
const struct config_vm *config_find_vm(const struct config *c, const char *name) {
    for (const struct config_vm *v = c->vm; v < c->vm + c->nr_vms; v++)
        if (strcmp(v->head.name, name) == 0) return v;
    return NULL;
}

/* Returns the pool of that name, or NULL. */
const struct config_pool *config_find_pool(const struct config *c, const char *name) {
    for (const struct config_pool *p = c->pool; p < c->pool + c->nr_pools; p++)
        if (strcmp(p->head.name, name) == 0) return p;
    return NULL;
}

/* A section begins: the keys that follow are for `object`, of which `head` is a part. */
static void enter_section(struct reader *r, enum config_section section, void *object,
                          struct config_head *head) {
    r->section = section;
    r->object = object;
    r->head = head;
    r->seen = 0;
    if (!r->again) head->line = r->line;
    head->section = section;
}

/* Begins the section of a pool. Returns 0, or -EINVAL after an error was reported. */
static int start_pool(struct reader *r, const char *at, const char *name) {
    struct config *c = r->c;
    struct config_pool *p = &c->pool[c->nr_pools];
    const struct config_pool *old = config_find_pool(c, name);

    if (old == &c->pool[0])
        return report(r, at, ERROR,
                      "Pool-0 is always there: its settings belong into [hypervisor]");
    if (old)
        return report(r, at, ERROR, "pool %s was already described on line %u", name,
                      old->head.line);
    if (c->nr_pools == CONFIG_MAX_POOLS)
        return report(r, at, ERROR, "pool %s is one too many: %u are allowed", name,
                      CONFIG_MAX_POOLS);
    c->nr_pools++;
    set_name(p->head.name, name);
    enter_section(r, POOL, p, &p->head);
    return 0;
}

/* Begins the section of a VM, which has the default values at first. Returns 0, or -EINVAL after an
 * error was reported. */
static int start_vm(struct reader *r, const char *at, const char *name) {
    struct config *c = r->c;
    struct config_vm *v = &c->vm[c->nr_vms];
    const struct config_vm *old = config_find_vm(c, name);

    if (old)
        return report(r, at, ERROR, "VM %s was already described on line %u", name, old->head.line);
    if (c->nr_vms == c->max_vms)
        return report(r, at, ERROR, "VM %s is one too many: %u are allowed", name, c->max_vms);
    c->nr_vms++;
    config_vm_defaults(v, name);
    enter_section(r, VM, v, &v->head);
    return 0;
}

/* ---- lines ---- */

/* Cuts the blanks at both ends off, in place. Returns the first character that is left. */
static char *trim(char *s) {
    size_t n;

    while (is_blank(*s)) s++;
    for (n = strlen(s); n && is_blank(s[n - 1]); n--) s[n - 1] = 0;
    return s;
}

/* Cuts off the comment as well, which begins with '#' or ';' at the start or after a blank. */
static char *trim_comment(char *s) {
    for (char *p = s; *p; p++)
        if ((*p == '#' || *p == ';') && (p == s || is_blank(p[-1]))) *p = 0;
    return trim(s);
}

/* Reads a quoted value in place. `s` is what follows the opening quotation mark; \" and \\ stand
 * for the second character. Returns what follows the closing mark, or NULL if there is none. */
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

/* Reads a line `key = value`. A value in quotation marks may contain a '#', which otherwise begins
 * a comment. Returns 0, or -EINVAL after an error was reported. */
static int read_assignment(struct reader *r, char *key) {
    char *value = strchr(key, '='), *rest;

    if (!value)
        return report(r, key, ERROR, "expected \"key = value\" or a [section], not \"%s\"", key);
    *value = 0;
    value = trim(value + 1);
    if (*value == '"') {
        rest = unquote(++value);
        if (!rest)
            return report(r, value - 1, ERROR, "the quotation mark is not closed on this line");
        rest = trim_comment(rest);
        if (*rest)
            return report(r, rest, ERROR,
                          "expected the end of the line after the quoted value, not \"%s\"", rest);
    } else {
        value = trim_comment(value);
    }
    key = trim(key);
    if (!*key) return report(r, key, ERROR, "expected a key before '='");
    if (r->section == BAD_SECTION) return 0; /* its heading was reported: one error is enough */
    return set_key(r, key, value);
}

/* Reads the heading of a section, such as [vm web], and begins the section. The keys of a section
 * with a bad heading are skipped, not reported one by one. Returns 0, or -EINVAL after an error was
 * reported. */
static int read_heading(struct reader *r, char *s) {
    char *end = strchr(s, ']'), *text, *name;
    bool is_pool;

    r->section = BAD_SECTION;
    if (!end) return report(r, s, ERROR, "expected ']' at the end of the section's heading");
    *end = 0;
    end = trim_comment(end + 1);
    if (*end)
        return report(r, end, ERROR, "expected the end of the line after ']', not \"%s\"", end);
    text = trim(s + 1);
    if (strcmp(text, "hypervisor") == 0) {
        if (r->c->pool[0].head.line) return report(r, s, ERROR, "[hypervisor] is given twice");
        enter_section(r, HYPERVISOR, r->c, &r->c->pool[0].head);
        return 0;
    }
    if (strcmp(text, "model") == 0) {
        if (r->c->model.head.line) return report(r, s, ERROR, "[model] is given twice");
        enter_section(r, MODEL, &r->c->model, &r->c->model.head);
        return 0;
    }
    name = strchr(text, ' ');
    is_pool = strncmp(text, "pool ", 5) == 0;
    if (!name || (!is_pool && strncmp(text, "vm ", 3) != 0))
        return report(r, s, ERROR,
                      "expected [hypervisor], [pool NAME], [vm NAME] or [model], not \"[%s]\"",
                      text);
    name = trim(name);
    if (!valid_name(name))
        return report(r, s, ERROR,
                      "\"%s\" is no name: expected at most %u letters, digits, '-', '_' or '.', "
                      "and not a number",
                      name, CONFIG_NAME - 1);
    if (is_pool) return start_pool(r, s, name);
    return start_vm(r, s, name);
}

/* Reads a line of `n` characters, which is copied first, because it is cut into pieces. Returns 0,
 * or -EINVAL after an error was reported. */
static int read_line(struct reader *r, const char *text, size_t n) {
    char line[512], *s;

    r->text = line;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];

        if (i + 1 == sizeof(line))
            return report(r, line + i, ERROR, "expected a line of at most %u characters",
                          (u32)sizeof(line) - 1);
        if ((c < ' ' && !is_blank(text[i])) || c == 127)
            return report(r, line + i, ERROR, "expected text, not a control character");
        line[i] = text[i];
    }
    line[n] = 0;
    s = trim(line);
    if (!*s || *s == '#' || *s == ';') return 0;
    if (*s == '[') return read_heading(r, s);
    if (r->section != NO_SECTION) return read_assignment(r, s);
    r->section = BAD_SECTION; /* so that the next key is not reported as well */
    return report(r, s, ERROR, "expected a [section] before the first key");
}

/* ---- entry points ---- */

/* Reads the VM file `text` of `len` bytes into *c. Returns 0, or -EINVAL after at least one error
 * was reported. After MAX_ERRORS errors the rest of the file is not read, because further errors
 * are mostly consequences of the first ones. The policies' parameters are keys, too; `param_at`
 * names them one by one. If all lines were good and only config_check() fails, c->lines_are_good
 * says so. */
int config_parse(struct config *c, const char *file, const char *text, size_t len,
                 config_param_at param_at, config_report report_fn, void *ctx) {
    struct reader r = {
        .c = c, .file = file, .column = 1, .param_at = param_at, .report = report_fn, .ctx = ctx
    };

    c->file = file;
    for (size_t at = 0, n; at < len && r.errors < MAX_ERRORS; at += n + 1) {
        n = 0;
        while (at + n < len && text[at + n] != '\n') n++;
        r.line++;
        read_line(&r, text + at, n);
    }
    c->lines_are_good = !r.errors;
    if (r.errors) return -EINVAL;
    return config_check(c, report_fn, ctx);
}

/* Reads a word of the command line: a key of [hypervisor], sched_X for parameter X of Pool-0, or a
 * word that Xen has for one of these. A word without '=' means "yes". */
static int read_cmdline_word(struct reader *r, const char *s, size_t n) {
    char word[CONFIG_VALUE + sizeof("yes")], us[CONFIG_NAME], *value;
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
        value = memcpy(word + n + 1, "yes",
                       sizeof("yes")); /* behind the word: report() counts columns from it */
    if (strncmp(word, "sched_", 6) == 0 && is_param(r, HYPERVISOR, word + 6))
        return set_param(r, word + 6, value, value);
    if (strcmp(word, "sched_credit_tslice_ms") != 0) return set_key(r, word, value);
    if (parse_u64(value, &v, &bad) || v > 1000000)
        return report(r, word, ERROR, "%s: expected a number of milliseconds, not \"%s\"", word,
                      value);
    hv_snprintf(us, sizeof(us), "%lu", v * 1000);
    return set_param(r, "tslice_us", us, value);
}

/* Applies the boot loader's command line to *c, after the file was read. Returns 0, or -EINVAL
 * after an error was reported. `again` lets a word replace the value that the file gives. */
int config_cmdline(struct config *c, const char *cmdline, config_param_at param_at,
                   config_report report_fn, void *ctx) {
    struct reader r = { .c = c,
                        .file = "command line",
                        .line = 1,
                        .again = true,
                        .param_at = param_at,
                        .report = report_fn,
                        .ctx = ctx };

    enter_section(&r, HYPERVISOR, c, &c->pool[0].head);
    for (size_t at = 0, n; cmdline[at]; at += n) {
        n = 0;
        while (is_blank(cmdline[at])) at++;
        while (cmdline[at + n] && !is_blank(cmdline[at + n])) n++;
        r.column = (u32)at + 1;
        if (n) read_cmdline_word(&r, cmdline + at, n);
    }
    if (r.errors) return -EINVAL;
    return 0;
}

/* Sets one key of a VM's section, for a command of the shell. Returns 0 or -EINVAL. */
int config_vm_set(struct config_vm *v, const char *key, const char *value, config_param_at param_at,
                  config_report report_fn, void *ctx) {
    struct reader r = { .again = true, .param_at = param_at, .report = report_fn, .ctx = ctx };

    enter_section(&r, VM, v, &v->head);
    return set_key(&r, key, value);
}

/* Gives the pool CPUs of `left`, which loses them as Pool-0 does. */
static void choose_cpus(struct config *c, struct config_pool *p, struct cpumask *left,
                        const struct cpu_places *places) {
    p->cpus = cpus_choose(&p->choice, left, c->seed + (u64)(p - c->pool), places);
    *left = cpumask_minus(left, &p->cpus);
    c->pool[0].cpus = cpumask_minus(&c->pool[0].cpus, &p->cpus);
}

/* Gives CPUs to the pools that do not name theirs. Pools that want a node come first, because the
 * others would take CPUs out of it without need. */
void config_choose_cpus(struct config *c, const struct cpumask *there,
                        const struct cpu_places *places) {
    struct cpumask left = cpumask_and(&c->pool[0].cpus, there);
    struct config_pool *p, *end = c->pool + c->nr_pools;

    cpumask_clear(&left, 0);
    for (p = c->pool + 1; p < end; p++)
        if (p->choice.how == CHOOSE_NODE) choose_cpus(c, p, &left, places);
    for (p = c->pool + 1; p < end; p++)
        if (p->choice.nr) choose_cpus(c, p, &left, places);
}
