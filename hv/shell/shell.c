/* The shell's engine: one work item that takes input, runs commands step by step, and types the
 * timed commands of a boot module. A work item is a function that does a short step and is called
 * again; a long command would otherwise keep the guests of this pCPU waiting. So a command, too, is
 * a function that is called again as long as it returns SHELL_AGAIN. Its answer is text for a
 * person, or one JSON object for a program (option -j). The families of commands are in the other
 * files. */
#include "shell/shell.h"

#include <takt/errno.h>
#include "lib/parse.h"
#include "common/string.h"
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
    host_commands, vm_commands,    sched_commands, trace_commands, top_commands,
    pci_commands,  store_commands, cpu_commands,   debug_commands,
};

static struct work work;
static const struct config *config;
static const struct shell_command *running; /* NULL at the prompt */
static struct shell_call call;
static char words[LINE_MAX], failure[256];
static char *arg[SHELL_ARGS + 1];
static bool answer_begun; /* the JSON envelope's head is out */
static bool line_begun;   /* the last byte put out was not a newline */
static char in_buf[IN_SIZE];
static u32 in_head, in_tail; /* free-running */
static u32 input_lost;       /* bytes that found in_buf full and were not yet reported */

static void put_bytes(const char *s, size_t n);
static const char *completion(const char *word, bool first, unsigned n);
static struct line line = { .prompt = "takt> ", .emit = put_bytes, .candidate = completion };

/* ---- output ---- */

/* Prints text, and remembers whether a line was begun. */
static void put_bytes(const char *s, size_t n) {
    console_write(s, (unsigned)n);
    if (n) line_begun = s[n - 1] != '\n';
}

/* Prints a text. */
static void shell_put_text(const char *s) { put_bytes(s, strlen(s)); }

/* Puts a string in quotes. Characters that JSON does not allow in a string, and all bytes that are
 * not ASCII, are escaped. */
static void put_json_string(const char *s) {
    shell_put_text("\"");
    while (*s) {
        char escaped[8];
        size_t n = 0;
        u8 c;

        while (s[n] >= ' ' && s[n] < 127 && s[n] != '"' && s[n] != '\\') n++;
        put_bytes(s, n);
        s += n;
        c = (u8)*s;
        if (!c) break;
        if (c == '"' || c == '\\')
            hv_snprintf(escaped, sizeof(escaped), "\\%c", c);
        else
            hv_snprintf(escaped, sizeof(escaped), "\\u%04x", c);
        s++;
        shell_put_text(escaped);
    }
    shell_put_text("\"");
}

/* Puts the head of the JSON envelope, unless that was done or the answer is for a person. */
static void answer_begin(int error) {
    const char *tag = call.opt['j'], *content = "result";

    if (!call.json || answer_begun) return;
    answer_begun = true;
    if (*tag == '=') tag++;
    if (error) content = "message";
    shell_put_text("\x1e{\"id\": ");
    put_json_string(tag);
    shell_put_text(", \"command\": ");
    put_json_string(call.argv[0]);
    out(", \"error\": %d, \"%s\": ", error, content);
}

/* Prints formatted text as a part of the command's answer. All that a command prints goes through
 * here, so that the head of a JSON answer comes before it. */
void out(const char *fmt, ...) {
    char text[768];
    va_list ap;
    int n;

    answer_begin(0);
    va_start(ap, fmt);
    n = hv_vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    put_bytes(text, MIN((size_t)n, sizeof(text) - 1));
}

/* Returns how many bytes of `s` go into a line with `room` columns: up to the last blank that fits,
 * or the whole first word if that is too long. */
static size_t words_that_fit(const char *s, size_t room) {
    size_t n = strlen(s), at;

    if (n <= room) return n;
    for (at = room; at && s[at] != ' ';) at--;
    if (!at) /* Not even the first word fits. */
        while (s[at] && s[at] != ' ') at++;
    return at;
}

/* Prints text, broken between words into lines. Each further line begins with `indent` blanks. The
 * blanks at which the text is broken are left out. */
void out_wrapped(const char *text, u32 indent, const char *eol) {
    for (;;) {
        size_t n = words_that_fit(text, SHELL_COLUMNS - indent);

        put_bytes(text, n);
        text += n;
        while (*text == ' ') text++;
        if (!*text) return;
        out("%s%*s", eol, (int)indent, "");
    }
}

/* ---- tables ---- */

/* Returns a cell as text. `buf` holds the text of a number. */
static const char *cell_text(char type, const union cell *v, char buf[24]) {
    switch (type) {
    case 'u': hv_snprintf(buf, 24, "%lu", v->u); break;
    case 'd': hv_snprintf(buf, 24, "%ld", v->d); break;
    case 'f': hv_snprintf(buf, 24, "%lu.%02lu", v->u / 100, v->u % 100); break;
    case 't': hv_snprintf(buf, 24, "%lu.%03lu", v->u / 1000000000, v->u / 1000000 % 1000); break;
    case 'b':
        if (v->u) return "true";
        return "false";
    default: return v->s;
    }
    return buf;
}

/* Puts the text of a cell, or of a column's head, at column `at` of the terminal. Returns the
 * column of the terminal that follows it. */
static u32 put_cell(const struct shell_call *c, const struct column *col, const char *text,
                    u32 at) {
    u32 width = (u32)MAX(col->width, -col->width), length = (u32)strlen(text);
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

/* Puts a line of a table: the cells `v`, or the heads of the columns if `v` is NULL. */
static void table_line(const struct shell_call *c, const struct column *col, const union cell *v) {
    char buf[24];
    u32 at = 0;

    for (; col->type; col++) {
        const char *text = col->head;

        if (v) text = cell_text(col->type, v++, buf);
        if (!col->head || (col->more && !c->opt['l'])) continue;
        if (at) {
            shell_put_text(" ");
            at++;
        }
        at = put_cell(c, col, text, at);
    }
    shell_put_text(c->eol);
}

/* Puts the cells `v` as a JSON object. The texts of '{' and '}' cells are the braces themselves. */
static void put_object(const struct column *col, const union cell *v) {
    const char *before = "{"; /* what stands before the next key */
    char buf[24];

    answer_begin(0);
    for (; col->type; col++) {
        const char *text = cell_text(col->type, v++, buf);

        if (!col->key && col->type != '}') continue;
        if (col->key) {
            shell_put_text(before);
            put_json_string(col->key);
            shell_put_text(": ");
        }
        if (col->type == 's' || col->type == 'w' || col->type == 'n')
            put_json_string(text);
        else
            shell_put_text(text);
        before = ", ";
        if (col->type == '{') before = "";
    }
    shell_put_text("}");
}

/* Puts what comes before the first row: the heads of the columns, or the array's opening
 * bracket. */
static void table_begin(struct shell_call *c) {
    if (c->json)
        out("[");
    else
        table_line(c, c->columns, NULL);
}

/* Prints one row of a table, in the form that the reader wants. The first row brings the heads of
 * the columns, or the bracket of a JSON array, before it. */
void table_row(struct shell_call *c, const union cell *v) {
    if (!c->rows)
        table_begin(c);
    else if (c->json)
        out(", ");
    c->rows++;
    if (c->json)
        put_object(c->columns, v);
    else
        table_line(c, c->columns, v);
}

/* Ends the table, also one without rows, and does nothing if none was begun. */
void table_end(struct shell_call *c) {
    if (c->columns && !c->rows) table_begin(c);
    if (c->columns && c->json) out("]");
    c->columns = NULL;
    c->rows = 0;
}

/* Prints one object: a line for each column that has a head for a person, or one JSON object for a
 * program. */
void record(struct shell_call *c, const struct column *col, const union cell *v) {
    char buf[24];

    if (c->json) {
        put_object(col, v);
        return;
    }
    for (; col->type; col++, v++)
        if (col->head) out("%-16s: %s\n", col->head, cell_text(col->type, v, buf));
}

/* ---- results ---- */

/* Keeps the formatted sentence as the reason for which the command fails, and returns `error`. The
 * sentence is shown when the command ends, because in JSON it belongs to the head of the answer. */
int shell_fail(int error, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    hv_vsnprintf(failure, sizeof(failure), fmt, ap);
    va_end(ap);
    return error;
}

/* Makes the command fail with its usage. Returns -EINVAL. */
int shell_usage(void) { return shell_fail(-EINVAL, "usage: %s %s", running->name, running->usage); }

/* Has the command called again in a millisecond. Returns SHELL_AGAIN. */
int shell_later(void) {
    call.at = machine_now() + NS_PER_MS;
    return SHELL_AGAIN;
}

/* Returns the end of a sentence about the object for which an operation failed. */
static const char *error_text(int error) {
    switch (error) {
    case -EEXIST: return "is there already";
    case -EBUSY: return "is in use";
    case -ENOMEM: return "finds not enough memory";
    case -EINVAL: return "cannot be that";
    case -EROFS: return "cannot be changed";
    case -E2BIG: return "is too long";
    default: return "is not there";
    }
}

/* Turns the result of an operation on an object into that of the command. An error becomes a
 * sentence that names the object, and -EAGAIN a further call. */
int shell_done(int error, const char *kind, const char *name) {
    if (error == -EAGAIN) return shell_later();
    if (!error) return 0;
    return shell_fail(error, "%s %s %s", kind, name, error_text(error));
}

/* ---- arguments ---- */

/* Splits a line into words, in place. Returns their number, -E2BIG or -EINVAL. The words stay in
 * `s`. They only get shorter, because quotes are taken out, so there is always room. */
int shell_split(char *s, char **argv) {
    int n = 0;

    for (;;) {
        char quote = 0, *to;

        while (*s == ' ' || *s == '\t') s++;
        if (!*s || *s == '#') break;
        if (n == SHELL_ARGS) return -E2BIG;
        argv[n++] = to = s;
        for (; *s && (quote || (*s != ' ' && *s != '\t')); s++) {
            if (quote && *s == quote)
                quote = 0;
            else if (!quote && (*s == '"' || *s == '\''))
                quote = *s;
            else
                *to++ = *s;
        }
        if (quote) return -EINVAL;
        if (*s) s++;
        *to = 0; /* last, because without quotes *to is the blank that ended the word */
    }
    argv[n] = NULL;
    return n;
}

/* Takes --NAME=VALUE, or --NAME and the next word, which then moves *i on. */
static int take_setting(struct shell_call *c, char *name, int *i) {
    char *value = strchr(name, '=');

    if (value) *value++ = 0;
    for (char *s = name; *s; s++)
        if (*s == '-') *s = '_';
    if (!value) value = c->argv[++*i]; /* argv ends with NULL */
    if (!*name || !value) return shell_fail(-EINVAL, "--%s needs a value", name);
    c->setting[c->nr_settings].name = name;
    c->setting[c->nr_settings++].value = value;
    return 0;
}

/* Takes one option, argv[*i]: "-l", "-d 5", "-d5", "--NAME VALUE", "-j" or "-j=TAG". `letters` says
 * which ones the command has. *i moves on if the value is the next word. */
static int take_option(struct shell_call *c, const char *letters, int *i) {
    char *rest = c->argv[*i] + 2, letter = c->argv[*i][1];
    const char *l = NULL;
    bool json = letter == 'j' && (!*rest || *rest == '=');

    if (letter != ':') l = strchr(letters, letter);
    if (l && letter == '-') return take_setting(c, rest, i);
    if (json)
        c->json = true;
    else if (!l)
        return shell_usage();
    else if (l[1] == ':' && !*rest)
        rest = c->argv[++*i]; /* NULL if there is no next word */
    else if (l[1] != ':' && *rest)
        return shell_usage(); /* "-lx": -l takes no value */
    if (!rest) return shell_fail(-EINVAL, "-%c needs a value", letter);
    c->opt[(u8)letter] = rest;
    return 0;
}

/* Takes all options out of argv, wherever they stand, into c->opt, c->json and c->setting. */
static int take_options(struct shell_call *c, const char *letters) {
    int n = 1;

    for (int i = 1; i < c->argc; i++) {
        int error;

        if (c->argv[i][0] != '-' || !c->argv[i][1]) {
            c->argv[n++] = c->argv[i];
            continue;
        }
        error = take_option(c, letters, &i);
        if (error) return error;
    }
    c->argc = n;
    c->argv[n] = NULL;
    return 0;
}

/* Takes the operand `text`, which is of that kind: struct shell_command says what kinds there
 * are. */
static int take_operand(struct shell_call *c, char kind, const char *text) {
    switch (kind) {
    case 'V':
        c->vm = shell_vm(text);
        if (!c->vm) return -ENOENT;
        return 0;
    case 'P':
        c->pool = shell_pool(text);
        if (!c->pool) return -ENOENT;
        return 0;
    case 'C':
        if (parse_cpus(text, &c->cpus, NULL) || cpumask_empty(&c->cpus))
            return shell_fail(-EINVAL, "expected a list of CPUs such as 0-3,^2, or all, not %s",
                              text);
        return 0;
    default: return 0;
    }
}

/* Returns how many operands there may be at most: one for each letter of `kinds`. */
static int most_operands(const char *kinds) {
    int n = 0;

    for (; *kinds; kinds++) {
        if (*kinds == '*') return SHELL_ARGS;
        if (*kinds != '?') n++;
    }
    return n;
}

/* Takes the operands of a command, the words that are no options, as `kinds` says: a letter for
 * each, a '?' before the first one that may be missing, and at the end a '*' if any others may
 * follow, which the command reads by itself. The options are gone from argv already. Returns 0, or
 * an error after shell_fail(). */
static int take_operands(struct shell_call *c, const char *kinds) {
    bool optional = false;
    int i = 1, error;

    if (c->argc - 1 > most_operands(kinds)) return shell_usage();
    for (; *kinds && *kinds != '*'; kinds++) {
        if (*kinds == '?') {
            optional = true;
            continue;
        }
        if (!c->argv[i]) { /* argv ends with NULL */
            if (optional) return 0;
            return shell_usage();
        }
        error = take_operand(c, *kinds, c->argv[i]);
        if (error) return error;
        i++;
    }
    return 0;
}

/* ---- commands ---- */

/* Returns command number `index` of all, or NULL at the end. */
const struct shell_command *shell_command_at(u32 index) {
    for (u32 f = 0; f < ARRAY_SIZE(families); f++) {
        for (const struct shell_command *c = families[f]; c->name; c++)
            if (index-- == 0) return c;
    }
    return NULL;
}

/* Returns the command of that name, or NULL. */
const struct shell_command *shell_command_find(const char *name) {
    const struct shell_command *c;
    u32 i = 0;

    while ((c = shell_command_at(i)) && strcmp(c->name, name) != 0) i++;
    return c;
}

/* Ends the command that runs: prints the end of its answer or why it failed, and draws the
 * prompt. */
static void end_command(int error) {
    void (*end)(struct shell_call * c) = call.end;
    bool empty;

    /* Rows that were printed before an error are a table too, so its bracket is closed. */
    if (!error || call.rows) table_end(&call);
    if (error && !call.json) out("%s: %s\n", call.argv[0], failure);
    if (call.json) {
        empty = !answer_begun;
        answer_begin(error);
        if (error) {
            if (!empty) shell_put_text(", \"message\": ");
            put_json_string(failure);
        } else if (empty) {
            shell_put_text("null");
        }
        shell_put_text("}\n");
    }
    if (line_begun) shell_put_text("\n");
    running = NULL;
    if (end) end(&call);
    if (call.vm) vm_put(call.vm);
    line_start(&line);
}

/* Starts the command in `text`: splits it into words, finds the command, and checks its options and
 * operands. The steps of the shell's work item then carry it out. An error of the words themselves
 * is shown as one of the command. */
static void start_command(const char *text) {
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
    running = &unknown;
    if (command) running = command;
    /* The options come first in any case, because the error may have to be shown in JSON. */
    error = take_options(&call, running->options);
    if (n == -E2BIG)
        error = shell_fail(n, "the command has too many words");
    else if (n < 0)
        error = shell_fail(n, "a quotation mark is not closed");
    else if (!command)
        error = shell_fail(-ENOENT, "there is no such command; help lists them all");
    else if (!error)
        error = take_operands(&call, running->operands);
    call.only = call.vm;
    if (error) end_command(error);
}

/* Calls the command once. A command that returns SHELL_AGAIN is called again later; anything else
 * is its result. */
static void call_command(void) {
    int result;

    call.at = 0;
    result = running->fn(&call);
    call.step++;
    if (result <= 0) end_command(result);
}

/* Returns the configuration with which the machine was booted. */
const struct config *shell_config(void) { return config; }

/* ---- input ---- */

/* Returns the n-th name of a VM that begins with `word`, counted from 0. Returns NULL if there are
 * not so many. */
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

/* Returns the n-th word that could complete `word`, counted from 0: a command if it is the first
 * word of the line, else the name of a VM. Returns NULL if there are not so many. */
static const char *completion(const char *word, bool first, unsigned n) {
    const struct shell_command *c;

    if (!first) return vm_name_at(word, n);
    for (u32 i = 0; (c = shell_command_at(i)); i++)
        if (strncmp(c->name, word, strlen(word)) == 0 && n-- == 0) return c->name;
    return NULL;
}

/* Takes bytes that were typed: keeps them for the shell's work item, and wakes it. The console
 * calls this, also in an interrupt handler. */
static void shell_heard(const char *s, unsigned n) {
    for (; n; n--, s++) {
        /* ^C cancels what was typed before, so it must not be lost because of that. */
        if (in_head - in_tail == IN_SIZE && *s == CTRL_C) in_tail = in_head;
        if (in_head - in_tail < IN_SIZE)
            in_buf[in_head++ % IN_SIZE] = *s;
        else
            input_lost++;
    }
    if (work.not_before <= machine_now()) return;
    work.not_before = 0;
    work_add(&work);
}

/* Returns the next byte that was typed, or -1 if there is none. */
int shell_key(void) {
    if (in_tail == in_head) return -1;
    return (unsigned char)in_buf[in_tail++ % IN_SIZE];
}

/* Returns whether ^C was typed. Takes it, and what was typed before it, out of the input. */
static bool interrupted(void) {
    for (u32 i = in_tail; i != in_head; i++) {
        if (in_buf[i % IN_SIZE] != CTRL_C) continue;
        in_tail = i + 1;
        return true;
    }
    return false;
}

/* Gives the line editor what was typed, until a command starts. Takes at most AT_ONCE bytes, so
 * that a step is short, and none while the console has no room for what a step may print. */
static void edit_line(void) {
    for (u32 i = 0; i < AT_ONCE && !running && in_tail != in_head; i++) {
        enum line_event e;

        if (console_room() < SHELL_STEP_ROOM) return;
        e = line_feed(&line, (char)shell_key());
        if (e == LINE_DONE)
            start_command(line.text);
        else if (e == LINE_CANCEL)
            line_start(&line);
    }
}

/* Draws the line that is being edited again, behind the lines of the log that are about to go out:
 * console_redraw has more. Returns false if there is no such line because a command runs. */
static bool redraw_line(void) {
    if (running) return false;
    line_show(&line);
    return true;
}

/* ---- timed commands. A line such as "@1500ms pause vm2" is due at that time after the start of
 * the shell. A line such as "+10ms list" is due that long after the command before it. ---- */

static struct {
    const char *text, *end; /* what is left of the module */
    const char *command;    /* the next one */
    unsigned length;        /* its characters; 0: there is no command left */
    u64 start, when;        /* the time from which '@' counts; when the command is due */
    u32 line;               /* which line of the module `text` begins, from 0 */
} script;

/* Reads lines of the module until there is a command, and computes when it is due. */
static void script_next(void) {
    for (script.length = 0; !script.length && script.text < script.end; script.line++) {
        const char *s = script.text, *end = s;
        struct script_line line;

        while (end < script.end && *end != '\n') end++;
        script.text = end + 1;
        switch (script_line_read(s, end, &line)) {
        case SCRIPT_NOTHING: break;
        case SCRIPT_WRONG: log_warn("script:%u: " SCRIPT_EXPECTED, script.line + 1); break;
        case SCRIPT_COMMAND:
            if (!line.since_before) script.when = script.start;
            script.when += line.ns;
            script.command = line.command;
            script.length = (unsigned)MIN(line.length, LINE_MAX);
            break;
        }
    }
}

/* Begins with the timed commands of the boot module `name`, a file that the boot loader has put
 * into memory. The times in it count from now on. */
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
    if (!script.length || script.when > now) return;
    if (running && !call.live) return;          /* it will end by itself */
    if (!running && in_tail != in_head) return; /* what was typed before comes first */
    if (running) end_command(0);
    in_tail = in_head;
    shell_heard(DROP_LINE, 1);
    shell_heard(script.command, script.length);
    shell_heard("\r", 1);
    script_next();
}

/* ---- the work item ---- */

/* One step of the shell's work item. Each step does one short thing, because guests on this pCPU
 * wait meanwhile: it reads input, or calls the command that runs once. Always returns true: the
 * shell never ends. */
static bool shell_step(struct work *w) {
    u64 now = machine_now(), next = guestcon_step(now);

    w->not_before = now + NS_PER_MS;
    if (console_room() < SHELL_STEP_ROOM) return true;
    if (input_lost && in_tail == in_head) {
        log_warn("%u byte%s came too early and got lost: the shell keeps %u until it reads them",
                 input_lost, plural(input_lost), IN_SIZE);
        input_lost = 0;
    }
    script_type(now);
    if (!running)
        edit_line();
    else if (!call.live && interrupted())
        end_command(0);
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

/* Starts the shell on the console. `c` is kept. Commands that the configuration asks for, such as
 * `top`, are typed as a person would type them. The first ^U draws the prompt. */
void shell_init(const struct config *c) {
    config = c;
    guestcon_init(c->guest_console_log);
    store_host_init(c);
    if (*c->script) script_start(c->script);
    console_input = shell_heard;
    console_redraw = redraw_line;
    shell_heard(DROP_LINE, 1); /* draws the prompt */
    if (c->top) shell_heard("top\r", 4);
    work.step = shell_step;
    work_add(&work);
}
