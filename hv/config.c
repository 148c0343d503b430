/* The configuration file: sections of `key = value` lines, every key checked by a table (docs/config.md has
 * the grammar). The command line goes through the same table. Nothing here allocates; `struct config` holds
 * copies of all text. */
#include <takt/errno.h>
#include "config.h"
#include "lib/parse.h"
#include "lib/printf.h"
#include "lib/string.h"

#define MAX_ERRORS 20 /* then the rest of the file is not looked at */

enum kind { TEXT, NAME, MEMORY, COUNT, NUMBER, CPUS, BOOL, SHARE, CONSOLE, LOGLVL, ON_CRASH, GUEST_CONSOLE };

struct key {
    const char *name;
    u8 kind;
    u16 offset, size; /* of the field in the section's structure */
};

static const struct {
    const char *expected;       /* for the error */
    const char *const words[5]; /* the values, in the order of their numbers, for kinds that have words */
} kinds[] = {
    [TEXT] = { "text of at most 255 characters" },
    [NAME] = { "a name" },
    [MEMORY] = { "a multiple of 2M such as 16M, from 2M to 1T" },
    [COUNT] = { "a number from 1 to 64" },
    [NUMBER] = { "a number below 2^64" },
    [CPUS] = { "a list of CPUs such as 0-3,^2, or all" },
    [BOOL] = { "yes or no" },
    [SHARE] = { "a share such as 40% or 2.5%" },
    [CONSOLE] = { "com1 to com4, perhaps with a rate, as com1,115200, or none" },
    [LOGLVL] = { "error, warning, info or debug", { "error", "warning", "info", "debug" } },
    [ON_CRASH] = { "destroy, restart or preserve", { "destroy", "restart", "preserve" } },
    [GUEST_CONSOLE] = { "keep or log", { "keep", "log" } },
};

#define KEY(type, key, kind, field)                                                                          \
    { key, kind, offsetof(type, field), sizeof(((type *)0)->field) }

static const struct key hypervisor_keys[] = {
    KEY(struct config, "sched", NAME, sched),
    KEY(struct config, "sched_preset", NAME, preset),
    KEY(struct config, "console", CONSOLE, console),
    KEY(struct config, "trace_console", CONSOLE, trace_console),
    KEY(struct config, "loglvl", LOGLVL, loglvl),
    KEY(struct config, "seed", NUMBER, seed),
    KEY(struct config, "noreboot", BOOL, noreboot),
    KEY(struct config, "guest_console", GUEST_CONSOLE, guest_console_log),
    KEY(struct config, "top", BOOL, top),
    KEY(struct config, "record", BOOL, record),
    KEY(struct config, "script", TEXT, script),
    { 0 },
};

static const struct key pool_keys[] = {
    KEY(struct config_pool, "sched", NAME, sched),
    KEY(struct config_pool, "sched_preset", NAME, preset),
    KEY(struct config_pool, "cpus", CPUS, cpus),
    { 0 },
};

static const struct key vm_keys[] = {
    KEY(struct config_vm, "image", TEXT, image),
    KEY(struct config_vm, "cmdline", TEXT, cmdline),
    KEY(struct config_vm, "memory", MEMORY, memory),
    KEY(struct config_vm, "vcpus", COUNT, vcpus),
    KEY(struct config_vm, "cpus", CPUS, cpus),
    KEY(struct config_vm, "pool", NAME, pool),
    KEY(struct config_vm, "on_crash", ON_CRASH, on_crash),
    KEY(struct config_vm, "debugcon", BOOL, debugcon),
    KEY(struct config_vm, "debug_exit", BOOL, debug_exit),
    KEY(struct config_vm, "start", BOOL, start),
    KEY(struct config_vm, "demand", SHARE, demand_permille),
    { 0 },
};

/* What is being read, and where. */
struct reader {
    struct config *c;
    const char *file;
    u32 line, column; /* of what a report is about */
    config_is_param is_param;
    config_report report;
    void *ctx;
    u32 errors;

    const struct key *keys; /* the section's; NULL before the first, or after a bad heading */
    void *base;             /* the section's structure */
    char scope;             /* of its parameters: 'p' or 'v' */
    struct config_param *param;
    u32 *nr_params;
    bool again; /* what is set is replaced, and an unknown key is an error: not a file's */
    u64 seen;   /* keys given in this section, by index */
    bool hypervisor_seen;
};

static void report(struct reader *r, bool fatal, const char *fmt, ...) PRINTF(3, 4);

static void report(struct reader *r, bool fatal, const char *fmt, ...) {
    char text[512] = "";
    int n = r->file ? hv_snprintf(text, sizeof(text), "%s:%u:%u: ", r->file, r->line, r->column) : 0;
    va_list ap;

    if (n >= (int)sizeof(text)) n = 0;
    va_start(ap, fmt);
    hv_vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
    va_end(ap);
    r->errors += fatal;
    if (r->report) r->report(r->ctx, fatal, text);
}

void config_defaults(struct config *c) {
    memset(c, 0, sizeof(*c));
    memcpy(c->sched, "credit", 7);
    memcpy(c->console, "com1,115200", 12);
    c->loglvl = LOG_INFO;
}

void config_vm_defaults(struct config_vm *v, const char *name) {
    memset(v, 0, sizeof(*v));
    hv_snprintf(v->name, sizeof(v->name), "%s", name);
    v->memory = 16 << 20;
    v->vcpus = 1;
    v->start = true;
    v->demand_permille = 1000;
    cpumask_fill(&v->cpus);
}

/* ---- values ---- */

static int set_word(const struct key *k, u32 *field, const char *value) {
    u32 v = 0;

    ASSERT(k->size == sizeof(v));
    while (v < ARRAY_SIZE(kinds[0].words) && kinds[k->kind].words[v] &&
           strcmp(kinds[k->kind].words[v], value) != 0)
        v++;
    if (k->kind == LOGLVL &&
        (strcmp(value, "none") == 0 || strcmp(value, "all") == 0)) /* Xen's, for the ends */
        v = *value == 'n' ? LOG_ERR : LOG_DEBUG;
    else if (v == ARRAY_SIZE(kinds[0].words) || !kinds[k->kind].words[v])
        return -EINVAL;
    *field = v;
    return 0;
}

static int set_number(u8 kind, void *field, const char *value, const char **bad) {
    u64 v;
    int error = kind == MEMORY ? parse_size(value, &v, bad) : parse_u64(value, &v, bad);

    if (error) return error;
    *bad = value;
    if (kind == MEMORY &&
        (v < 2 << 20 || v > 1ull << 40 || v % (2 << 20))) /* guest RAM is whole 2 MiB chunks */
        return -ERANGE;
    if (kind == COUNT && (v < 1 || v > 64)) return -ERANGE;
    if (kind == COUNT)
        *(u32 *)field = (u32)v;
    else
        *(u64 *)field = v;
    return 0;
}

/* Sets the field of `k` from text. *bad becomes the character in the way. */
static int set_value(const struct key *k, void *base, const char *value, const char **bad) {
    void *field = (char *)base + k->offset;
    struct console_spec console;
    struct cpumask m;
    int error = 0;

    *bad = value;
    switch (k->kind) {
    case COUNT:
    case NUMBER:
    case MEMORY: return set_number(k->kind, field, value, bad);
    case CPUS:
        error = parse_cpus(value, &m, bad);
        if (!error && cpumask_empty(&m)) error = -EINVAL;
        if (!error) *(struct cpumask *)field = m;
        return error;
    case BOOL: return parse_bool(value, field, bad);
    case SHARE: return parse_permille(value, field, bad);
    case CONSOLE: error = parse_console(value, &console, bad); break;
    case NAME: error = valid_name(value) ? 0 : -EINVAL; break;
    case TEXT: break;
    default: return set_word(k, field, value);
    }
    if (!error && strlen(value) >= k->size) error = -ERANGE;
    if (!error) memcpy(field, value, strlen(value) + 1);
    return error;
}

static void report_value(struct reader *r, const struct key *k, const char *value, const char *bad) {
    const char *expected = kinds[k->kind].expected;

    r->column += (u32)(bad - value);
    if (!*value)
        report(r, true, "%s has no value: expected %s", k->name, expected);
    else if (*bad && bad != value)
        report(r, true, "%s: expected %s, but \"%s\" goes wrong at \"%s\"", k->name, expected, value, bad);
    else
        report(r, true, "%s: expected %s, not \"%s\"", k->name, expected, value);
}

/* ---- keys ---- */

static struct config_param *find_param(struct reader *r, const char *name) {
    for (u32 i = 0; i < *r->nr_params; i++) {
        if (strcmp(r->param[i].name, name) == 0) return &r->param[i];
    }
    return NULL;
}

/* A setting of the parameter table: kept as text until its object exists. */
static void set_param(struct reader *r, const char *name, const char *value) {
    struct config_param *p = find_param(r, name);

    if (p && !r->again) {
        report(r, true, "%s was already given on line %u", name, p->line);
        return;
    }
    if (!*value || strlen(value) >= sizeof(p->value)) {
        report(r, true, "%s: expected a number or a word, not \"%s\"", name, value);
        return;
    }
    if (!p && *r->nr_params == CONFIG_MAX_PARAMS) {
        report(r, true, "%s is one parameter too many: a section can have %u", name, CONFIG_MAX_PARAMS);
        return;
    }
    if (!p) p = &r->param[(*r->nr_params)++];
    memset(p, 0, sizeof(*p));
    memcpy(p->name, name, strlen(name));
    memcpy(p->value, value, strlen(value));
    p->line = r->again ? 0 : r->line;
    p->column = r->again ? 0 : r->column;
}

static int find_key(const struct key *keys, const char *name) {
    for (int i = 0; keys[i].name; i++) {
        if (strcmp(keys[i].name, name) == 0) return i;
    }
    return -1;
}

static bool is_param(struct reader *r, const char *name) {
    return strlen(name) < CONFIG_NAME && r->is_param && r->is_param(name) == r->scope;
}

static void set_key(struct reader *r, const char *name, u32 name_column, const char *value) {
    int i = find_key(r->keys, name);
    const char *bad;

    if (i < 0 && is_param(r, name)) {
        set_param(r, name, value);
        return;
    }
    if (i < 0) {
        r->column = name_column;
        report(r, r->again, r->again ? "unknown key \"%s\"" : "unknown key \"%s\" is ignored", name);
        return;
    }
    if (r->seen & BIT(i)) {
        r->column = name_column;
        report(r, true, "%s is given twice in this section", name);
        return;
    }
    r->seen |= BIT(i);
    if (set_value(&r->keys[i], r->base, value, &bad))
        report_value(r, &r->keys[i], value, bad);
    else if (r->keys == vm_keys && r->keys[i].kind == CPUS)
        ((struct config_vm *)r->base)->cpus_given = true;
}

/* ---- sections ---- */

static void enter(struct reader *r, const struct key *keys, void *base, char scope,
                  struct config_param *param, u32 *nr_params) {
    r->keys = keys;
    r->base = base;
    r->scope = scope;
    r->param = param;
    r->nr_params = nr_params;
    r->seen = 0;
}

static void enter_hypervisor(struct reader *r) {
    enter(r, hypervisor_keys, r->c, 'p', r->c->param, &r->c->nr_params);
}

const struct config_vm *config_find_vm(const struct config *c, const char *name) {
    for (u32 i = 0; i < c->nr_vms; i++) {
        if (strcmp(c->vm[i].name, name) == 0) return &c->vm[i];
    }
    return NULL;
}

static const struct config_pool *find_pool(const struct config *c, const char *name) {
    for (u32 i = 0; i < c->nr_pools; i++) {
        if (strcmp(c->pool[i].name, name) == 0) return &c->pool[i];
    }
    return NULL;
}

/* Is there room for one more, and is its name new? `line` is where one of this name is described, or 0. */
static bool may_add(struct reader *r, const char *what, const char *name, u32 line, u32 nr, u32 most) {
    if (line)
        report(r, true, "%s %s was already described on line %u", what, name, line);
    else if (nr == most)
        report(r, true, "%s %s is one too many: %u are allowed", what, name, most);
    return !line && nr < most;
}

static void start_pool(struct reader *r, const char *name) {
    struct config *c = r->c;
    const struct config_pool *old = find_pool(c, name);
    struct config_pool *p = &c->pool[c->nr_pools];

    if (strcmp(name, "Pool-0") == 0) {
        report(r, true, "Pool-0 is always there: its settings belong into [hypervisor]");
        return;
    }
    if (!may_add(r, "pool", name, old ? old->line : 0, c->nr_pools, CONFIG_MAX_POOLS)) return;
    c->nr_pools++;
    memset(p, 0, sizeof(*p));
    memcpy(p->name, name, strlen(name));
    p->line = r->line;
    enter(r, pool_keys, p, 'p', p->param, &p->nr_params);
}

static void start_vm(struct reader *r, const char *name) {
    struct config *c = r->c;
    const struct config_vm *old = config_find_vm(c, name);
    struct config_vm *v = &c->vm[c->nr_vms];

    if (!may_add(r, "VM", name, old ? old->line : 0, c->nr_vms, CONFIG_MAX_VMS)) return;
    c->nr_vms++;
    config_vm_defaults(v, name);
    v->line = r->line;
    enter(r, vm_keys, v, 'v', v->param, &v->nr_params);
}

/* `text` is what stands between the brackets. Keys of a section that cannot be entered are skipped, not
 * reported one by one. */
static void start_section(struct reader *r, char *text) {
    char *name = strchr(text, ' ');

    r->keys = NULL;
    if (name) {
        *name++ = 0;
        while (*name == ' ') name++;
    }
    if (strcmp(text, "hypervisor") == 0 && !name) {
        if (r->hypervisor_seen) {
            report(r, true, "[hypervisor] is given twice");
            return;
        }
        r->hypervisor_seen = true;
        enter_hypervisor(r);
        return;
    }
    if ((strcmp(text, "pool") != 0 && strcmp(text, "vm") != 0) || !name) {
        report(r, true, "expected [hypervisor], [pool NAME] or [vm NAME], not \"[%s%s%s]\"", text,
               name ? " " : "", name ? name : "");
        return;
    }
    if (!valid_name(name)) {
        report(r, true,
               "\"%s\" is no name: expected at most %u letters, digits, '-', '_' or '.', and not a number",
               name, CONFIG_NAME - 1);
        return;
    }
    if (text[0] == 'p')
        start_pool(r, name);
    else
        start_vm(r, name);
}

/* ---- lines ---- */

static bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static char *skip_blanks(char *s) {
    while (blank(*s)) s++;
    return s;
}

static void cut_blanks(char *s) {
    size_t n = strlen(s);

    while (n && blank(s[n - 1])) s[--n] = 0;
}

/* A value in quotes, in place: \" and \\ are the characters themselves. Returns what follows, NULL if the end
 * is missing. */
static char *unquote(char *s) {
    char *to = s;

    for (s++; *s && *s != '"'; s++) {
        if (*s == '\\' && (s[1] == '"' || s[1] == '\\')) s++;
        *to++ = *s;
    }
    if (!*s) return NULL;
    *to = 0;
    return s + 1;
}

/* Comments begin with '#' or ';' at the start of a line or after a blank. */
static void cut_comment(char *s) {
    for (char *p = s; *p; p++) {
        if ((*p == '#' || *p == ';') && (p == s || blank(p[-1]))) {
            *p = 0;
            return;
        }
    }
}

static void read_assignment(struct reader *r, char *line, char *key) {
    char *equals = strchr(key, '='), *value;
    u32 key_column = (u32)(key - line) + 1;

    if (!equals) {
        report(r, true, "expected \"key = value\" or a [section], not \"%s\"", key);
        return;
    }
    value = skip_blanks(equals + 1);
    r->column = (u32)(value - line) + 1;
    if (*value == '"') {
        char *rest = unquote(value);

        if (!rest) {
            report(r, true, "the quotation mark is not closed on this line");
            return;
        }
        cut_comment(rest);
        rest = skip_blanks(rest);
        if (*rest) {
            r->column = (u32)(rest - line) + 1;
            report(r, true, "expected the end of the line after the quoted value, not \"%s\"", rest);
            return;
        }
        r->column++;
    } else {
        cut_comment(value);
        cut_blanks(value);
    }
    *equals = 0;
    cut_blanks(key);
    if (!*key) {
        r->column = key_column;
        report(r, true, "expected a key before '='");
        return;
    }
    if (r->keys) set_key(r, key, key_column, value);
}

static void read_section(struct reader *r, char *line, char *s) {
    char *end = strchr(s, ']');

    if (!end) {
        report(r, true, "expected ']' at the end of the section's heading");
        r->keys = NULL;
        return;
    }
    *end = 0;
    cut_comment(end + 1);
    end = skip_blanks(end + 1);
    if (*end) {
        r->column = (u32)(end - line) + 1;
        report(r, true, "expected the end of the line after ']', not \"%s\"", end);
    }
    cut_blanks(s + 1);
    start_section(r, skip_blanks(s + 1));
}

static void read_line(struct reader *r, char *line, bool *in_section) {
    char *s = skip_blanks(line);

    r->column = (u32)(s - line) + 1;
    if (!*s || *s == '#' || *s == ';') return;
    if (*s == '[') {
        *in_section = true;
        read_section(r, line, s);
        return;
    }
    if (!*in_section) {
        report(r, true, "expected a [section] before the first key");
        *in_section = true; /* once is enough */
    }
    read_assignment(r, line, s);
}

/* ---- what only the whole file can tell ---- */

static void check_pools(struct reader *r) {
    struct config *c = r->c;
    struct cpumask taken;

    cpumask_zero(&taken);
    for (u32 i = 0; i < c->nr_pools; i++) {
        struct config_pool *p = &c->pool[i];
        struct cpumask both = cpumask_and(&taken, &p->cpus);

        r->line = p->line;
        if (!*p->sched) memcpy(p->sched, c->sched, sizeof(p->sched)); /* as xl: by default that of Pool-0 */
        if (cpumask_test(&p->cpus, 0))
            report(r, true, "pool %s cannot have CPU 0, which always belongs to Pool-0", p->name);
        if (!cpumask_empty(&both))
            report(r, true, "CPU %u is in pool %s and in one before it", cpumask_next(&both, 0), p->name);
        if (cpumask_empty(&p->cpus))
            report(r, false, "pool %s has no CPUs: no VM can run there until it gets one", p->name);
        taken.bits |= p->cpus.bits;
    }
}

static void check_vm(struct reader *r, struct config_vm *v) {
    const struct config_pool *pool = find_pool(r->c, v->pool);
    struct cpumask cpus = v->cpus;

    r->line = v->line;
    if (!*v->image) report(r, true, "VM %s has no image: expected image = NAME of a boot module", v->name);
    if (strcmp(v->pool, "Pool-0") == 0) v->pool[0] = 0;
    if (*v->pool && !pool) {
        report(r, true, "VM %s wants pool %s, which this file does not describe", v->name, v->pool);
        return;
    }
    if (pool) {
        cpus = cpumask_and(&cpus, &pool->cpus);
    } else {
        for (u32 i = 0; !*v->pool && i < r->c->nr_pools; i++)
            cpus = cpumask_minus(&cpus, &r->c->pool[i].cpus);
    }
    if (cpumask_empty(&cpus))
        report(r, true, "VM %s may run on none of the CPUs of pool %s", v->name,
               *v->pool ? v->pool : "Pool-0");
}

static void check(struct reader *r) {
    r->column = 1;
    check_pools(r);
    for (u32 i = 0; i < r->c->nr_vms; i++) check_vm(r, &r->c->vm[i]);
}

/* ---- entry points ---- */

/* Copies the next line into `buf`, terminated. Returns where the one after it begins; *ok is false if the
 * line is too long or holds a character that text does not have. */
static size_t next_line(const char *text, size_t len, size_t at, char *buf, size_t size, u32 *column,
                        bool *ok) {
    size_t n = 0;

    *ok = true;
    for (; at < len && text[at] != '\n'; at++, n++) {
        unsigned char c = (unsigned char)text[at];

        if (!*ok) continue;
        if (n + 1 >= size || (c < ' ' && c != '\t' && c != '\r') || c == 127) {
            *column = (u32)n + 1;
            *ok = false;
            continue;
        }
        buf[n] = text[at];
    }
    buf[*ok ? n : 0] = 0;
    return at + 1;
}

int config_parse(struct config *c, const char *file, const char *text, size_t len, config_is_param is_param,
                 config_report report_fn, void *ctx) {
    struct reader r = { .c = c, .file = file, .is_param = is_param, .report = report_fn, .ctx = ctx };
    char line[512];
    bool in_section = false, ok;

    for (size_t at = 0; at < len && r.errors < MAX_ERRORS;) {
        r.line++;
        r.column = 1;
        at = next_line(text, len, at, line, sizeof(line), &r.column, &ok);
        if (ok)
            read_line(&r, line, &in_section);
        else if (r.column >= sizeof(line))
            report(&r, true, "expected a line of at most %u characters", (u32)sizeof(line) - 1);
        else
            report(&r, true, "expected text, not a control character");
    }
    if (!r.errors) check(&r);
    return r.errors ? -EINVAL : 0;
}

/* Xen's words that are not keys of ours. */
static bool xen_word(struct reader *r, const char *key, const char *value) {
    char us[CONFIG_NAME];
    const char *bad;
    u64 v;

    if (strcmp(key, "sched_credit_tslice_ms") == 0) {
        if (parse_u64(value, &v, &bad) || v > 1000000) {
            report(r, true, "%s: expected a number of milliseconds, not \"%s\"", key, value);
            return true;
        }
        hv_snprintf(us, sizeof(us), "%llu", (unsigned long long)v * 1000);
        set_param(r, "tslice_us", us);
        return true;
    }
    if (strncmp(key, "sched_", 6) == 0 && is_param(r, key + 6)) {
        set_param(r, key + 6, value);
        return true;
    }
    return false;
}

static void read_word(struct reader *r, char *word) {
    char *equals = strchr(word, '=');
    const char *value = "yes", *bad;
    int i;

    if (equals) {
        *equals = 0;
        value = equals + 1;
    }
    i = find_key(hypervisor_keys, word);
    if (i >= 0) {
        r->column += equals ? (u32)(value - word) : 0;
        if (set_value(&hypervisor_keys[i], r->c, value, &bad))
            report_value(r, &hypervisor_keys[i], value, equals ? bad : value);
        return;
    }
    if (!xen_word(r, word, value)) report(r, false, "unknown word \"%s\" is ignored", word);
}

int config_cmdline(struct config *c, const char *cmdline, config_is_param is_param, config_report report_fn,
                   void *ctx) {
    struct reader r = { .c = c,
                        .file = "command line",
                        .line = 1,
                        .again = true,
                        .is_param = is_param,
                        .report = report_fn,
                        .ctx = ctx };
    char word[CONFIG_VALUE];
    const char *s = cmdline;

    enter_hypervisor(&r);
    for (;;) {
        size_t n = 0;

        while (*s == ' ' || *s == '\t') s++;
        if (!*s) break;
        r.column = (u32)(s - cmdline) + 1;
        while (s[n] && s[n] != ' ' && s[n] != '\t') n++;
        if (n < sizeof(word)) {
            memcpy(word, s, n);
            word[n] = 0;
            read_word(&r, word);
        } else {
            report(&r, true, "expected words of at most %u characters", CONFIG_VALUE - 1);
        }
        s += n;
    }
    return r.errors ? -EINVAL : 0;
}

int config_vm_set(struct config_vm *v, const char *key, const char *value, config_is_param param_of,
                  config_report report_fn, void *ctx) {
    struct reader r = { .again = true, .is_param = param_of, .report = report_fn, .ctx = ctx };

    enter(&r, vm_keys, v, 'v', v->param, &v->nr_params);
    set_key(&r, key, 0, value);
    return r.errors ? -EINVAL : 0;
}
