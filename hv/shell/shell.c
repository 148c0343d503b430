/* The shell's engine: one work item that takes input, runs commands step by step, and types the
 * timed commands of a boot module. The families of commands are in the other files. */
#include "shell/shell.h"

#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/string.h"
#include "platform/console.h"
#include "platform/timer.h"
#include "sched/machine.h"
#include "shell/line.h"
#include "shell/script.h"
#include "vcpu/vcpu.h"

#define IN_SIZE   16384u /* a script that is sent at once, while commands take their time */
#define CTRL_C    3
#define DROP_LINE "\x15" /* ^U */
#define AT_ONCE   64     /* bytes of a line that one step takes */
#define NAME_MAX  32     /* of a name that is cut, with the terminator */

static const struct shell_command *const families[] = {
    host_commands, vm_commands,  sched_commands, trace_commands,
    top_commands,  pci_commands, store_commands, cpu_commands,
};

static struct work work;
static const struct config *config;
static const struct shell_command *running; /* NULL: at the prompt */
static struct shell_call call;
static char words[LINE_MAX], failure[256];
static char *arg[SHELL_ARGS + 1];
static bool answer_begun; /* the JSON envelope's head is out */
static bool line_begun;   /* the last byte put out was not a newline */
static char in_buf[IN_SIZE];
static u32 in_head, in_tail; /* free-running */
static u32 input_lost;       /* bytes that found in_buf full, since the last that was said of it */

static void put(const char *s, size_t n);
static const char *candidate(const char *word, bool first, unsigned n);
static struct line line = { .prompt = "takt> ", .emit = put, .candidate = candidate };

/* ---- output ---- */

static void put(const char *s, size_t n) {
    console_write(s, (unsigned)n);
    if (n) line_begun = s[n - 1] != '\n';
}

static void put_text(const char *s) { put(s, strlen(s)); }

static void put_json_string(const char *s) {
    put_text("\"");
    while (*s) {
        char escaped[8];
        size_t n = 0;

        while (s[n] >= ' ' && s[n] < 127 && s[n] != '"' && s[n] != '\\') n++;
        put(s, n);
        s += n;
        if (!*s) break;
        hv_snprintf(escaped, sizeof(escaped), *s == '"' || *s == '\\' ? "\\%c" : "\\u%04x",
                    (unsigned char)*s);
        s++;
        put_text(escaped);
    }
    put_text("\"");
}

static void answer_begin(int error) {
    if (!call.json || answer_begun) return;
    answer_begun = true;
    put_text("\x1e{\"id\": ");
    put_json_string(call.opt['j'] + (call.opt['j'][0] == '='));
    put_text(", \"command\": ");
    put_json_string(call.argv[0]);
    out(", \"error\": %d, \"%s\": ", error, error ? "message" : "result");
}

void out(const char *fmt, ...) {
    char text[768];
    va_list ap;
    int n;

    answer_begin(0);
    va_start(ap, fmt);
    n = hv_vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    put(text, MIN((size_t)n, sizeof(text) - 1));
}

/* How many bytes of `s` go into a line with `room` columns: up to the last blank that fits. */
static size_t words_that_fit(const char *s, size_t room) {
    size_t n = strlen(s), at;

    if (n <= room) return n;
    for (at = room; at && s[at] != ' ';) at--;
    if (!at) /* not even the first word fits */
        while (s[at] && s[at] != ' ') at++;
    return at;
}

void out_wrapped(const char *text, u32 indent, const char *eol) {
    for (;;) {
        size_t n = words_that_fit(text, SHELL_COLUMNS - indent);

        put(text, n);
        text += n;
        while (*text == ' ') text++;
        if (!*text) return;
        out("%s%*s", eol, (int)indent, "");
    }
}

/* ---- tables ---- */

/* A cell as text; `buf` is for numbers. */
static const char *cell_text(char type, const union cell *v, char buf[24]) {
    switch (type) {
    case 'u': hv_snprintf(buf, 24, "%lu", v->u); break;
    case 'd': hv_snprintf(buf, 24, "%ld", v->d); break;
    case 'f': hv_snprintf(buf, 24, "%lu.%02lu", v->u / 100, v->u % 100); break;
    case 't': hv_snprintf(buf, 24, "%lu.%03lu", v->u / 1000000000, v->u / 1000000 % 1000); break;
    case 'b': return v->u ? "true" : "false";
    default: return v->s;
    }
    return buf;
}

/* Puts a cell of a table, or its head, at column `at` of the terminal. Returns the column behind it. */
static u32 put_cell(const struct shell_call *c, const struct column *col, const char *text, u32 at) {
    u32 width = (u32)(col->width < 0 ? -col->width : col->width), length = (u32)strlen(text);
    char cut[NAME_MAX];

    if (col->type == 'w') {
        out_wrapped(text, at, c->eol);
    } else if (col->type == 'n' && !c->opt['l'] && length > width) {
        hv_snprintf(cut, MIN(width, sizeof(cut)), "%s", text);
        out("%s~", cut);
        length = width;
    } else {
        out("%*s", col->width, text);
    }
    return at + MAX(width, length);
}

/* A line of a table. Without `v`: the heads. */
static void table_line(const struct shell_call *c, const struct column *col, const union cell *v) {
    char buf[24];
    u32 at = 0;

    for (; col->type; col++) {
        const char *text = v ? cell_text(col->type, v++, buf) : col->head;

        if (!col->head || (col->more && !c->opt['l'])) continue;
        if (at) {
            put_text(" ");
            at++;
        }
        at = put_cell(c, col, text, at);
    }
    put_text(c->eol);
}

/* An object. */
static void object(const struct column *col, const union cell *v) {
    const char *before = "{";
    char buf[24];

    answer_begin(0);
    for (; col->type; col++) {
        const char *text = cell_text(col->type, v++, buf);

        if (!col->key && col->type != '}') continue;
        if (col->key) {
            put_text(before);
            put_json_string(col->key);
            put_text(": ");
        }
        if (col->type == 's' || col->type == 'w' || col->type == 'n')
            put_json_string(text);
        else
            put_text(text);
        before = col->type == '{' ? "" : ", ";
    }
    put_text("}");
}

void table_row(struct shell_call *c, const union cell *v) {
    if (c->json)
        out(c->rows ? ", " : "[");
    else if (!c->rows)
        table_line(c, c->columns, NULL);
    c->rows++;
    if (c->json)
        object(c->columns, v);
    else
        table_line(c, c->columns, v);
}

void table_end(struct shell_call *c) {
    if (c->columns && c->json)
        out(c->rows ? "]" : "[]");
    else if (c->columns && !c->rows)
        table_line(c, c->columns, NULL);
    c->columns = NULL;
    c->rows = 0;
}

void record(struct shell_call *c, const struct column *col, const union cell *v) {
    char buf[24];

    if (c->json) {
        object(col, v);
        return;
    }
    for (; col->type; col++, v++)
        if (col->head) out("%-16s: %s\n", col->head, cell_text(col->type, v, buf));
}

/* ---- results ---- */

int shell_fail(int error, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    hv_vsnprintf(failure, sizeof(failure), fmt, ap);
    va_end(ap);
    return error;
}

int shell_usage(void) { return shell_fail(-EINVAL, "usage: %s %s", running->name, running->usage); }

int shell_later(void) {
    call.at = machine_now() + NS_PER_MS;
    return SHELL_AGAIN;
}

int shell_done(int error, const char *kind, const char *name) {
    if (error == -EAGAIN) return shell_later();
    if (!error) return 0;
    return shell_fail(error, "%s %s %s", kind, name,
                      error == -EEXIST   ? "is there already"
                      : error == -EBUSY  ? "is in use"
                      : error == -ENOMEM ? "finds not enough memory"
                      : error == -EINVAL ? "cannot be that"
                      : error == -EROFS  ? "cannot be changed"
                      : error == -E2BIG  ? "is too long"
                                         : "is not there");
}

/* ---- arguments ---- */

int shell_split(char *s, char **argv) {
    int n = 0;

    for (;;) {
        char quote = 0, *to;

        while (*s == ' ' || *s == '\t') s++;
        if (!*s || *s == '#') break;
        if (n == SHELL_ARGS) return -E2BIG;
        argv[n++] = to = s;
        for (; *s && (quote || (*s != ' ' && *s != '\t')); s++) {
            if (quote ? *s == quote : *s == '"' || *s == '\'')
                quote = quote ? 0 : *s;
            else
                *to++ = *s;
        }
        if (quote) return -EINVAL;
        s += *s != 0;
        *to = 0;
    }
    argv[n] = NULL;
    return n;
}

/* --NAME=VALUE, or --NAME and the next word. */
static int take_setting(struct shell_call *c, char *name, int *i) {
    char *value = strchr(name, '=');

    if (value) *value++ = 0;
    for (char *s = name; *s; s++)
        if (*s == '-') *s = '_';
    if (!value) value = c->argv[++*i]; /* argv ends with NULL */
    if (!*name || !value) return shell_fail(-EINVAL, "--%s wants a value", name);
    c->setting[c->nr_settings].name = name;
    c->setting[c->nr_settings++].value = value;
    return 0;
}

/* Takes -j, -j=TAG and the options that `letters` tells into c->opt, and out of argv, wherever they
 * stand. */
static int take_options(struct shell_call *c, const char *letters) {
    int n = 1;

    for (int i = 1; i < c->argc; i++) {
        char *a = c->argv[i], letter = a[0] == '-' ? a[1] : 0;
        const char *l = letter && letter != ':' ? strchr(letters, letter) : NULL;
        bool json = letter == 'j' && (!a[2] || a[2] == '='), value = l && l[1] == ':';

        if (!letter) {
            c->argv[n++] = a;
            continue;
        }
        if (l && letter == '-') {
            int error = take_setting(c, a + 2, &i);

            if (error) return error;
            continue;
        }
        if (!json && (!l || (a[2] && !value))) return shell_usage();
        c->json |= json;
        c->opt[(u8)letter] = value && !a[2] ? c->argv[++i] : a + 2; /* argv ends with NULL */
        if (!c->opt[(u8)letter]) return shell_fail(-EINVAL, "-%c wants a value", letter);
    }
    c->argc = n;
    c->argv[n] = NULL;
    return 0;
}

static int take_operands(struct shell_call *c, const char *kinds) {
    size_t most = strlen(kinds) - (strchr(kinds, '?') != NULL);
    bool optional = false;
    int i = 1;

    if ((size_t)c->argc - 1 > most && !strchr(kinds, '*')) return shell_usage();
    for (; *kinds && *kinds != '*'; kinds++) {
        const char *a = c->argv[i];

        optional |= *kinds == '?';
        if (*kinds == '?') continue;
        if (!a) return optional ? 0 : shell_usage();
        if (*kinds == 'V' && !(c->vm = shell_vm(a))) return -ENOENT;
        if (*kinds == 'P' && !(c->pool = shell_pool(a))) return -ENOENT;
        if (*kinds == 'C' && (parse_cpus(a, &c->cpus, NULL) || cpumask_empty(&c->cpus)))
            return shell_fail(-EINVAL, "expected a list of CPUs such as 0-3,^2, or all, not %s", a);
        i++;
    }
    return 0;
}

/* ---- commands ---- */

const struct shell_command *shell_command_at(u32 index) {
    for (u32 f = 0; f < ARRAY_SIZE(families); f++) {
        for (const struct shell_command *c = families[f]; c->name; c++)
            if (index-- == 0) return c;
    }
    return NULL;
}

const struct shell_command *shell_command_find(const char *name) {
    const struct shell_command *c;
    u32 i = 0;

    while ((c = shell_command_at(i)) && strcmp(c->name, name) != 0) i++;
    return c;
}

static void finish(int error) {
    void (*end)(struct shell_call * c) = call.end;

    bool empty;

    /* Rows that were printed before an error are a table too, so its bracket is closed. */
    if (!error || call.rows) table_end(&call);
    if (error && !call.json) out("%s: %s\n", call.argv[0], failure);
    if (call.json) {
        empty = !answer_begun;
        answer_begin(error);
        if (error) {
            if (!empty) put_text(", \"message\": ");
            put_json_string(failure);
        } else if (empty) {
            put_text("null");
        }
        put_text("}\n");
    }
    if (line_begun) put_text("\n");
    running = NULL;
    if (end) end(&call);
    if (call.vm) vm_put(call.vm);
    line_start(&line);
}

/* Starts the command in `text`. */
static void start(const char *text) {
    static const struct shell_command unknown = { "?", "", "", NULL, "*", "" };
    static char nothing[] = "?";
    const struct shell_command *command;
    int n, error;

    hv_snprintf(words, sizeof(words), "%s", text);
    n = shell_split(words, arg);
    if (n == 0) {
        line_start(&line);
        return;
    }
    if (n < 0) arg[0] = nothing;
    call = (struct shell_call){ .argv = arg, .argc = MAX(n, 1), .eol = "\n" };
    answer_begun = false;
    command = shell_command_find(arg[0]);
    running = command ? command : &unknown;
    error = take_options(&call, running->options);
    if (n < 0)
        error = shell_fail(n, n == -E2BIG ? "too many words" : "a quotation mark is not closed");
    else if (!command)
        error = shell_fail(-ENOENT, "there is no such command; help lists them all");
    else if (!error)
        error = take_operands(&call, running->operands);
    call.only = call.vm;
    if (error) finish(error);
}

static void call_command(void) {
    int result;

    call.at = 0;
    result = running->fn(&call);
    call.step++;
    if (result <= 0) finish(result);
}

const struct config *shell_config(void) { return config; }

/* ---- input ---- */

static const char *vm_name_at(const char *word, unsigned n) {
    static char name[VM_NAME];
    size_t len = strlen(word);

    for (struct vm *vm = vm_next(NULL); vm; vm = vm_next(vm)) {
        if (strncmp(vm->name, word, len) != 0 || n--) continue;
        memcpy(name, vm->name, sizeof(name));
        vm_put(vm);
        return name;
    }
    return NULL;
}

static const char *candidate(const char *word, bool first, unsigned n) {
    const struct shell_command *c;

    if (!first) return vm_name_at(word, n);
    for (u32 i = 0; (c = shell_command_at(i)); i++)
        if (strncmp(c->name, word, strlen(word)) == 0 && n-- == 0) return c->name;
    return NULL;
}

static void heard(const char *s, unsigned n) {
    for (; n; n--, s++) {
        if (in_head - in_tail == IN_SIZE && *s == CTRL_C)
            in_tail = in_head; /* it ends what was typed before */
        if (in_head - in_tail < IN_SIZE)
            in_buf[in_head++ % IN_SIZE] = *s;
        else
            input_lost++;
    }
    if (work.not_before <= machine_now()) return;
    work.not_before = 0;
    work_add(&work);
}

int shell_key(void) { return in_tail == in_head ? -1 : (unsigned char)in_buf[in_tail++ % IN_SIZE]; }

/* ^C, and what was typed before it, are taken out. */
static bool interrupted(void) {
    for (u32 i = in_tail; i != in_head; i++) {
        if (in_buf[i % IN_SIZE] != CTRL_C) continue;
        in_tail = i + 1;
        return true;
    }
    return false;
}

static void edit(void) {
    for (u32 i = 0; i < AT_ONCE && !running && in_tail != in_head; i++) {
        enum line_event e;

        if (console_room() < SHELL_STEP_ROOM) return;
        e = line_feed(&line, (char)shell_key());
        if (e == LINE_DONE)
            start(line.text);
        else if (e == LINE_CANCEL)
            line_start(&line);
    }
}

/* Lines of the log are about to go out: the line that is being edited makes room for them. */
static bool redraw(void) {
    if (running) return false;
    line_show(&line);
    return true;
}

/* ---- timed commands: lines "@1500ms pause vm2", since the start, or "+10ms list", since the one
 * before was due ---- */

static struct {
    const char *text, *end; /* what is left of the module */
    const char *command;    /* the next one */
    unsigned length;        /* of it; 0: there is none */
    u64 start, when;        /* time 0 of '@'; when the command is due */
    u32 line;               /* of `text`, from 0 */
} script;

/* Reads lines of the module until there is a command. */
static void script_next(void) {
    for (script.length = 0; !script.length && script.text < script.end; script.line++) {
        const char *s = script.text, *end;
        struct script_line line;

        for (end = s; end < script.end && *end != '\n';) end++;
        script.text = end + 1;
        switch (script_line_read(s, end, &line)) {
        case SCRIPT_NOTHING: break;
        case SCRIPT_WRONG: log_warn("script:%u: " SCRIPT_EXPECTED, script.line + 1); break;
        case SCRIPT_COMMAND:
            script.when = (line.since_before ? script.when : script.start) + line.ns;
            script.command = line.command;
            script.length = (unsigned)MIN(line.length, LINE_MAX);
            break;
        }
    }
}

static void script_start(const char *name) {
    const struct module *m = module_find(name);

    if (!m) {
        log_warn("there is no boot module %s with timed commands", name);
        return;
    }
    script.text = m->data;
    script.end = script.text + m->size;
    script.start = script.when = machine_now();
    script_next();
}

/* Types the command that is due, as a person would. A live table or an attached console gives way
 * to it, and so does a line that somebody has begun. */
static void script_type(u64 now) {
    if (!script.length || script.when > now || (running ? !call.live : in_tail != in_head)) return;
    if (running) finish(0);
    in_tail = in_head;
    heard(DROP_LINE, 1);
    heard(script.command, script.length);
    heard("\r", 1);
    script_next();
}

/* ---- the work item ---- */

static bool step(struct work *w) {
    u64 now = machine_now(), next = guestcon_step(now);

    w->not_before = now + NS_PER_MS;
    if (console_room() < SHELL_STEP_ROOM) return true;
    if (input_lost && in_tail == in_head) {
        log_warn("%u byte%s typed too early: lost. The shell keeps %u until it comes to them", input_lost,
                 plural(input_lost), IN_SIZE);
        input_lost = 0;
    }
    script_type(now);
    if (!running)
        edit();
    else if (!call.live && interrupted())
        finish(0);
    else if (call.at <= now || (call.live && in_tail != in_head))
        call_command();
    console_hold(running && line_begun && !call.live);
    if (running) next = MIN(next, call.at);
    if (!running || call.live) {
        if (in_tail != in_head) next = 0;
        if (script.length) next = MIN(next, script.when);
    }
    w->not_before = next;
    return true;
}

void shell_init(const struct config *c) {
    config = c;
    guestcon_init(c->guest_console_log);
    store_host_init(c);
    if (*c->script) script_start(c->script);
    console_input = heard;
    console_redraw = redraw;
    heard(DROP_LINE "top\r", c->top ? 5 : 1); /* which draws the prompt */
    work.step = step;
    work_add(&work);
}
