/* The shell's engine: one work item that takes input, runs commands step by step and sends their output;
 * timed commands from a boot module. The families of commands are in the other files. */
#include "shell/shell.h"

#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/string.h"
#include "platform/console.h"
#include "platform/timer.h"
#include "sched/machine.h"
#include "shell/guestcon.h"
#include "shell/line.h"
#include "vm/vm.h"

#define OUT_SIZE 8192u
#define IN_SIZE  512u
#define CTRL_C   3

static const struct shell_command *const families[] = {
    host_commands, vm_commands, sched_commands, pool_commands, trace_commands, top_commands,
};

static struct work work;
static bool queued;           /* the work item is in the platform's hands */
static struct timer deadline; /* of the next thing that waits for a time */
static struct timer alarm;    /* brings shell_wake from another pCPU here */
static bool woken;            /* atomic */

static char in_buf[IN_SIZE];
static u32 in_head, in_tail; /* free-running */
static char out_buf[OUT_SIZE];
static u32 out_head, out_tail;
static bool line_begun; /* the last byte put out was not a newline */

static struct line line;
static const struct config *config;
static void (*at_end)(void);
static const struct shell_command *running; /* NULL: at the prompt */
static struct shell_call call;
static char words[LINE_MAX], json_id[16], failure[160];
static char *arg[SHELL_ARGS + 1];
static bool json_begun;

static struct {
    const char *text, *end; /* what is left of the module */
    char command[LINE_MAX]; /* the next one; empty: none */
    u64 when;
    u32 line;
    u64 start; /* time 0 of its '@' */
} script;

/* ---- output ---- */

static void put(const char *s, size_t n) {
    for (; n && out_head - out_tail < OUT_SIZE; n--, s++) out_buf[out_head++ % OUT_SIZE] = *s;
}

static void put_counted(void *ctx, const char *s, size_t n) {
    put(s, n);
    if (n) line_begun = s[n - 1] != '\n';
}

static void put_text(const char *s) { put(s, strlen(s)); }

static u32 out_room(void) { return OUT_SIZE - (out_head - out_tail); }

/* Sends what the console takes. True if some is left. */
static bool flush(void) {
    char chunk[256];
    u32 n = 0, room = console_room() / 2; /* a newline may become two bytes */

    while (n < sizeof(chunk) && n < room && out_tail + n != out_head) {
        chunk[n] = out_buf[(out_tail + n) % OUT_SIZE];
        n++;
    }
    if (n) out_tail += console_write(chunk, n);
    return out_tail != out_head;
}

static void out_json_string(const char *s) {
    put("\"", 1);
    while (*s) {
        size_t n = 0;

        while ((unsigned char)s[n] >= ' ' && (unsigned char)s[n] < 127 && s[n] != '"' && s[n] != '\\') n++;
        put(s, n);
        s += n;
        if (*s == '"' || *s == '\\')
            out("\\%c", *s++);
        else if (*s)
            out("\\u%04x", (unsigned char)*s++);
    }
    put("\"", 1);
}

static void json_begin(int error) {
    char head[128];
    int n = hv_snprintf(head, sizeof(head), "\x1e{\"id\": \"%s\", \"command\": ", json_id);

    json_begun = true;
    put(head, (size_t)n);
    out_json_string(call.argv[0]);
    n = hv_snprintf(head, sizeof(head), ", \"error\": %d, \"%s\": ", error, error ? "message" : "result");
    put(head, (size_t)n);
}

static void answer_begin(void) {
    if (call.json && running && !json_begun) json_begin(0);
}

void out(const char *fmt, ...) {
    char text[512];
    va_list ap;
    int n;

    answer_begin();
    va_start(ap, fmt);
    n = hv_vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    n = MIN(n, (int)sizeof(text) - 1);
    for (int i = 0; i < n && call.json; i++)
        text[i] = text[i] == '\n' ? ' ' : text[i]; /* one line, whatever a command thinks */
    put_counted(NULL, text, (size_t)n);
}

void out_escaped(char c) {
    if (((unsigned char)c >= ' ' && (unsigned char)c < 127) || c == '\n' || c == '\t')
        put_counted(NULL, &c, 1);
    else
        out("\\x%02x", (unsigned char)c);
}

/* ---- lists ---- */

/* A cell as text; `buf` is for numbers. */
static const char *cell_text(char type, const union cell *v, char buf[24]) {
    switch (type) {
    case 's': return v->s;
    case 'b': return v->u ? "true" : "false";
    case 'd': hv_snprintf(buf, 24, "%ld", v->d); break;
    case 'f': hv_snprintf(buf, 24, "%lu.%02lu", v->u / 100, v->u % 100); break;
    case 't': hv_snprintf(buf, 24, "%lu.%03lu", v->u / 1000000000, v->u / 1000000 % 1000); break;
    default: hv_snprintf(buf, 24, "%lu", v->u);
    }
    return buf;
}

/* Without out(): formatting is most of what a row costs, and a step has to be short. */
static void json_object(const struct column *col, const union cell *v) {
    const char *before = "{\"";
    char buf[24];

    answer_begin();
    for (; col->type; col++) {
        if (col->type == '}') put_text("}");
        if (col->key) {
            put_text(before);
            put_text(col->key);
            put_text("\": ");
            before = col->type == '{' ? "{\"" : ", \"";
            if (col->type == 's')
                out_json_string(v->s);
            else if (col->type != '{')
                put_text(cell_text(col->type, v, buf));
        }
        v += col->type != '{' && col->type != '}';
    }
    put_text("}");
}

static void table_begin(struct shell_call *c) {
    const char *gap = "";

    if (c->json) {
        out("[");
        return;
    }
    for (const struct column *col = c->columns; col->type; col++) {
        if (!col->head) continue;
        out("%s%*s", gap, col->width, col->head);
        gap = " ";
    }
    out("%s", c->eol);
}

void table_row(struct shell_call *c, const union cell *v) {
    const struct column *col = c->columns;
    const char *gap = "";
    char buf[24];

    if (!c->rows++) table_begin(c);
    if (c->json) {
        out(c->rows > 1 ? ", " : "");
        json_object(col, v);
        return;
    }
    for (; col->type; col++) {
        if (col->head) {
            out("%s%*s", gap, col->width, cell_text(col->type, v, buf));
            gap = " ";
        }
        v += col->type != '{' && col->type != '}';
    }
    out("%s", c->eol);
}

void table_end(struct shell_call *c) {
    if (!c->columns) return;
    if (!c->rows) table_begin(c);
    if (c->json) out("]");
    c->columns = NULL;
    c->rows = 0;
}

void record(struct shell_call *c, const struct column *col, const union cell *v) {
    char buf[24];

    if (c->json) json_object(col, v);
    for (; !c->json && col->type; col++, v++) {
        if (col->head) out("%-16s: %s\n", col->head, cell_text(col->type, v, buf));
    }
}

int shell_fail(struct shell_call *c, int error, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    hv_vsnprintf(failure, sizeof(failure), fmt, ap);
    va_end(ap);
    return error;
}

int shell_usage(struct shell_call *c) {
    return shell_fail(c, -EINVAL, "usage: %s %s", running->name, running->usage);
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

/* Takes the options that `letters` tells into c->opt, and out of argv. */
static int take_options(struct shell_call *c, const char *letters) {
    int at = 1, n = 1;

    for (const char *a; at < c->argc && (a = c->argv[at])[0] == '-' && a[1]; at++) {
        const char *l = letters ? strchr(letters, a[1]) : NULL;

        if (!l || a[1] == ':' || (a[2] && l[1] != ':')) return shell_usage(c);
        if (l[1] == ':' && !a[2] && ++at == c->argc) return shell_fail(c, -EINVAL, "-%c wants a value", a[1]);
        c->opt[(u8)*l] = l[1] == ':' && !a[2] ? c->argv[at] : a + 2;
    }
    while (at < c->argc) c->argv[n++] = c->argv[at++];
    c->argc = n;
    return 0;
}

/* Takes -j and -j=TAG out of argv. */
static void take_json(void) {
    int n = 1;

    json_id[0] = 0;
    for (int i = 1; i < call.argc; i++) {
        const char *a = call.argv[i];

        if (strcmp(a, "-j") != 0 && strncmp(a, "-j=", 3) != 0) {
            call.argv[n++] = call.argv[i];
            continue;
        }
        call.json = true;
        for (u32 k = 0; a[2] && a[3 + k] && k + 1 < sizeof(json_id); k++) {
            char ch = a[3 + k];
            bool plain = (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');

            json_id[k] = plain ? ch : '_';
            json_id[k + 1] = 0;
        }
    }
    call.argc = n;
    call.argv[n] = NULL;
}

/* ---- commands ---- */

const struct shell_command *shell_command_at(u32 index) {
    for (u32 f = 0; f < ARRAY_SIZE(families); f++) {
        for (const struct shell_command *c = families[f]; c->name; c++) {
            if (index-- == 0) return c;
        }
    }
    return NULL;
}

static const struct shell_command *command_find(const char *name) {
    const struct shell_command *c;

    for (u32 i = 0; (c = shell_command_at(i)); i++) {
        if (strcmp(c->name, name) == 0) break;
    }
    return c;
}

static void finish(int error) {
    if (call.end) call.end(&call);
    if (!error) table_end(&call);
    if (call.json && error) {
        if (!json_begun) {
            json_begin(error);
            out_json_string(failure);
        }
    } else if (call.json && !json_begun) {
        json_begin(0);
        put("null", 4);
    } else if (error) {
        out("%s: %s\n", call.argv[0], failure);
    }
    if (call.json)
        put_counted(NULL, "}\n", 2);
    else if (line_begun)
        put_counted(NULL, "\n", 1);
    if (call.vm) vm_put(call.vm);
    running = NULL;
    line_start(&line);
}

/* What the command's table entry asks for. */
static int prepare(struct shell_call *c) {
    int error = take_options(c, running->options);

    if (error) return error;
    if (c->argc - 1 < running->least || c->argc - 1 > running->most) return shell_usage(c);
    if (c->argc == 1 || running->first == TAKES_WORDS) return 0;
    if (running->first == TAKES_POOL) {
        c->pool = shell_pool(c, c->argv[1]);
        return c->pool ? 0 : -ENOENT;
    }
    c->vm = shell_vm(c, c->argv[1]);
    c->only = true;
    return c->vm ? 0 : -ENOENT;
}

/* Starts the command in `text`. */
static void start(const char *text) {
    static const struct shell_command none = { .name = "?" };
    static char nothing[] = "?";
    const struct shell_command *found;
    int n, error;

    hv_snprintf(words, sizeof(words), "%s", text);
    memset(&call, 0, sizeof(call));
    failure[0] = 0;
    json_begun = false;
    call.argv = arg;
    call.eol = "\n";
    n = shell_split(words, arg);
    if (n == 0) {
        line_start(&line);
        return;
    }
    running = &none;
    if (n < 0) {
        arg[0] = nothing;
        error = shell_fail(&call, n, n == -E2BIG ? "too many words" : "a quotation mark is not closed");
    } else {
        call.argc = n;
        take_json();
        found = command_find(call.argv[0]);
        if (found) running = found;
        error = found ? prepare(&call)
                      : shell_fail(&call, -ENOENT, "there is no such command; help lists them all");
    }
    if (error) finish(error);
}

static void call_command(void) {
    int result;

    call.at = 0;
    result = running->fn(&call);
    call.step++;
    if (result <= 0)
        finish(result);
    else if (result == SHELL_WAIT && !call.at)
        call.at = ~0ull;
}

const struct config *shell_config(void) { return config; }

void shell_at_end(void (*fn)(void)) { at_end = fn; }

/* ---- completion ---- */

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

static const char *candidate(void *ctx, const char *word, bool first, unsigned n) {
    const struct shell_command *c;

    if (!first) return vm_name_at(word, n);
    for (u32 i = 0; (c = shell_command_at(i)); i++) {
        if (strncmp(c->name, word, strlen(word)) == 0 && n-- == 0) return c->name;
    }
    return NULL;
}

/* ---- timed commands ---- */

/* Splits "@1500ms pause vm2" (since the start) or "+10ms list" (since the command before). */
static int script_parse(char *s) {
    char *time = s + 1, *rest = strchr(s, ' ');
    u64 ns;

    if ((*s != '@' && *s != '+') || !rest) return -EINVAL;
    while (*rest == ' ') *rest++ = 0;
    if (parse_time(time, &ns, NULL)) return -EINVAL;
    script.when = (*s == '@' ? script.start : script.when) + ns;
    hv_snprintf(script.command, sizeof(script.command), "%s", rest);
    return 0;
}

/* Reads lines of the module until there is a command. */
static void script_next(void) {
    char text[LINE_MAX];

    script.command[0] = 0;
    while (script.text < script.end && !script.command[0]) {
        u32 n = 0;

        for (; script.text < script.end && *script.text != '\n'; script.text++) {
            if (n + 1 < sizeof(text) && *script.text != '\r') text[n++] = *script.text;
        }
        text[n] = 0;
        script.text++;
        script.line++;
        if (n && text[0] != '#' && script_parse(text))
            log_warn("script:%u: expected @TIME COMMAND or +TIME COMMAND, as in @1500ms pause vm2",
                     script.line);
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

static bool script_due(u64 now) { return script.command[0] && script.when <= now; }

/* Types the due command, as a person would. */
static void script_run(void) {
    char text[LINE_MAX];

    memcpy(text, script.command, sizeof(text));
    script_next();
    line_hide(&line);
    put_counted(NULL, line.prompt, strlen(line.prompt));
    put_counted(NULL, text, strlen(text));
    put_counted(NULL, "\n", 1);
    start(text);
}

/* ---- the work item ---- */

static void kick(void) {
    if (queued) return;
    queued = true;
    work_add(&work);
}

static void on_timer(struct timer *t, u64 now) { kick(); }

void shell_wake(void) {
    if (!__atomic_exchange_n(&woken, true, __ATOMIC_ACQ_REL)) timer_set(WORK_CPU, &alarm, machine_now());
}

static void heard(const char *s, unsigned n) {
    for (; n && in_head - in_tail < IN_SIZE; n--, s++) in_buf[in_head++ % IN_SIZE] = *s;
    kick();
}

/* What is typed while a command runs: the command's, or kept for the prompt, but ^C drops it and stops the
 * command. */
static bool pass_input(void) {
    char chunk[64];
    unsigned n = 0;

    if (!call.typed) {
        for (u32 i = in_tail; i != in_head; i++) {
            if (in_buf[i % IN_SIZE] == CTRL_C) {
                in_tail = i + 1;
                call.stop = true;
            }
        }
        return false;
    }
    while (n < sizeof(chunk) && in_tail != in_head) chunk[n++] = in_buf[in_tail++ % IN_SIZE];
    if (n) call.typed(&call, chunk, n);
    return n;
}

static void take_byte(void) {
    switch (line_feed(&line, in_buf[in_tail++ % IN_SIZE])) {
    case LINE_DONE: start(line.text); break;
    case LINE_CANCEL: line_start(&line); break;
    case LINE_MORE: break;
    }
}

/* Does one thing. False if there is nothing to do now. */
static bool do_one(u64 now) {
    if (running && pass_input()) return true;
    if (running && script_due(now) && call.typed) /* a live table or an attached console gives way */
        call.stop = true;
    if (running && call.stop) {
        finish(0);
        return true;
    }
    if (running) {
        if (call.at > now) return false;
        call_command();
        return true;
    }
    if (script_due(now)) {
        script_run();
        return true;
    }
    if (in_tail == in_head) return false;
    take_byte();
    return true;
}

static void sleep_until_next(void) {
    u64 when = ~0ull;

    if (running) when = call.at;
    if (script.command[0] && (!running || call.typed)) when = MIN(when, script.when);
    if (when != ~0ull) timer_set(WORK_CPU, &deadline, when);
}

static bool step(struct work *w) {
    u64 now = machine_now();
    bool more;

    w->not_before = 0;
    if (__atomic_exchange_n(&woken, false, __ATOMIC_ACQ_REL)) call.at = 0;
    if (flush()) {
        w->not_before = console_room() < 512 ? now + NS_PER_MS : 0;
        if (out_room() < SHELL_STEP_ROOM) return true;
    }
    more = do_one(now);
    more |= guestcon_step(now);
    console_hold(out_tail != out_head || (running && line_begun && !call.typed));
    if (more || out_tail != out_head) return true;
    queued = false;
    sleep_until_next();
    if (at_end) at_end();
    return false;
}

/* Lines of the log go to the console between two of ours; a line that is being edited makes room for them. */
static void around_log(bool after) {
    static const char clear[] = "\r\x1b[K";

    if (running) return;
    if (!after) {
        console_write(clear, sizeof(clear) - 1);
        return;
    }
    line_show(&line);
    kick();
}

void shell_init(const struct config *c) {
    config = c;
    work.step = step;
    timer_init(&deadline, on_timer);
    timer_init(&alarm, on_timer);
    line.prompt = "takt> ";
    line.emit = put_counted;
    line.candidate = candidate;
    guestcon_init(c->guest_console_log);
    if (*c->script) script_start(c->script);
    if (c->top)
        start("top");
    else
        line_start(&line);
    console_input = heard;
    console_log_line = around_log;
    kick();
}
