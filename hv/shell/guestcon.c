/* Guests' consoles. Nothing that a guest prints reaches a terminal unescaped. A guest that prints
 * without end loses lines itself and costs the others no time: the log takes a line of each VM
 * every 10 ms, and fewer if the console cannot carry them all. What finds the VM's ring full is
 * lost and counted there. */
#include <takt/errno.h>
#include "platform/console.h"
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
    if (n) log_of_guest("%s: %s", vm->name, text);
    return n;
}

u64 guestcon_step(u64 now) {
    static struct vm *vm;
    static u64 round;
    static u32 after; /* of the round that was broken off: the id of the VM that was the last */

    if (!to_log) return ~0ull;
    if (!vm && now < round) return round;
    if (!log_takes_guests()) { /* meanwhile no VM is kept from being freed */
        if (vm) after = vm->id;
        if (vm) vm_put(vm);
        vm = NULL;
        return now + NS_PER_MS;
    }
    if (!vm) round = now + ROUND_NS;
    vm = vm_next(vm);
    while (vm && vm->id <= after) vm = vm_next(vm);
    if (!vm) {
        after = 0;
        return round;
    }
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
