/* Guests' consoles. Nothing that a guest prints reaches a terminal unescaped. A guest that prints without end
 * costs itself lines, not the others time: the log takes a line of each VM every 10 ms, and what finds the
 * VM's ring full is counted there. */
#include <takt/errno.h>
#include "shell/shell.h"
#include "vm/vm.h"

#define LEAVE      0x1d /* ^], as xl */
#define ROUND_NS   (10 * NS_PER_MS)
#define LINE_CHARS 160u
#define LAST_LINES 100 /* that a VM may leave behind */

static bool to_log;
static struct vconsole *attached;

static void escape(char *to, const char *s, unsigned n) {
    for (*to = 0; n; n--, s++) {
        bool plain = (*s >= ' ' && *s < 127) || *s == '\n' || *s == '\t';

        if (*s != '\r') to += hv_snprintf(to, 5, plain ? "%c" : "\\x%02x", (unsigned char)*s);
    }
}

/* ---- to the log ---- */

/* With `rest` also what has no end. */
static bool log_line(struct vm *vm, bool rest) {
    char raw[LINE_CHARS], text[4 * LINE_CHARS + 1];
    unsigned n = ring_get_line(&vm->console.out, raw, sizeof(raw));

    if (!n && rest) n = ring_get(&vm->console.out, raw, sizeof(raw));
    escape(text, raw, n - (n && raw[n - 1] == '\n'));
    if (n) log_info("%s: %s", vm->name, text);
    return n;
}

u64 guestcon_step(u64 now) {
    static struct vm *vm;
    static u64 round;

    if (!to_log || (!vm && now < round)) return to_log ? round : ~0ull;
    if (!vm) round = now + ROUND_NS;
    vm = vm_next(vm);
    if (!vm) return round;
    if (&vm->console != attached) log_line(vm, false);
    return 0;
}

void guestcon_rest(struct vm *vm) {
    for (u32 i = 0; to_log && &vm->console != attached && i < LAST_LINES && log_line(vm, true);) i++;
}

void guestcon_init(bool log) {
    to_log = log;
    vm_stopped = guestcon_rest;
}

/* ---- attached ---- */

static void detach(struct shell_call *c) {
    attached = NULL;
    out("Disconnected from %s.\n", c->vm->name);
}

int cmd_console(struct shell_call *c) {
    char raw[LINE_CHARS], text[4 * LINE_CHARS + 1];
    unsigned n;

    if (c->json) return shell_fail(-EINVAL, "a console is for a person: there is no JSON of it");
    if (c->step == 0) {
        c->live = true;
        c->end = detach;
        attached = &c->vm->console;
        out("Connected to %s. ^] leaves.\n", c->vm->name);
    }
    for (int key; (key = shell_key()) >= 0;) {
        if (key == LEAVE) return 0;
        ring_put(&attached->in, (char[]){ (char)key }, 1);
    }
    if (c->vm->state == VM_DYING) return 0;
    n = ring_get(&attached->out, raw, sizeof(raw));
    escape(text, raw, n);
    out("%s", text);
    return n ? SHELL_AGAIN : shell_later();
}
