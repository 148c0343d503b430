/* Guests' consoles: what guests print goes to the log or to the operator who has attached one. What
 * a guest prints is escaped before it reaches a terminal, because control sequences could forge the
 * operator's screen. The log takes one line of each VM every 10 ms, or fewer if the console cannot
 * carry them all. So a guest that prints without end fills its own ring, where further lines are
 * lost and counted, and takes no time from the others. */
#include <takt/errno.h>
#include "platform/console.h"
#include "shell/shell.h"
#include "vcpu/vcpu.h"

#define LEAVE      0x1d /* ^], as xl */
#define RS         0x1e /* begins a JSON answer of the shell */
#define ROUND_NS   (10 * NS_PER_MS)
#define LINE_CHARS 160u
#define LAST_LINES 100 /* the most lines that are logged after a VM has stopped */

static bool to_log;
static struct vconsole *attached;

/* Copies `n` characters to `to`, which has room for 4 n + 1. Control characters become \x and two
 * digits; carriage returns are left out. With `raw` nearly all are copied as they are. But a guest
 * must not forge an answer of the shell, and the copy is a string, so RS and 0 are not. */
static void escape(char *to, const char *s, unsigned n, bool raw) {
    for (*to = 0; n; n--, s++) {
        bool plain = (*s >= ' ' && *s < 127) || *s == '\n' || *s == '\t';
        const char *format = "\\x%02x";

        if (raw)
            plain = *s && *s != RS;
        else if (*s == '\r')
            continue;
        if (plain) format = "%c";
        to += hv_snprintf(to, 5, format, (unsigned char)*s);
    }
}

/* ---- to the log ---- */

/* Logs a line that the VM has printed; with `rest` also one that does not end with a newline.
 * Returns false if there is none. */
static bool log_line(struct vm *vm, bool rest) {
    char raw[LINE_CHARS], text[4 * LINE_CHARS + 1];
    unsigned n = ring_get_line(&vm->console.out, raw, sizeof(raw));

    if (!n && rest) n = ring_get(&vm->console.out, raw, sizeof(raw));
    if (!n) return false;
    if (raw[n - 1] == '\n') n--;
    escape(text, raw, n, false);
    log_of_guest("%s: %s", vm->name, text);
    return true;
}

/* Moves what guests have printed to the log, a line at each call. Returns when to call it again
 * (ns). Logs at most one line of one VM. A round goes over all VMs; the next round begins ROUND_NS
 * after it, so that no VM can fill the log. A VM whose console a person has attached is left out:
 * its lines go to that person. */
u64 guestcon_step(u64 now) {
    /* The VM whose line was logged last, with a reference. NULL between two rounds. */
    static struct vm *vm;
    static u64 round; /* when the next round over all VMs may begin */
    static u32 after; /* the round that was broken off goes on behind the VM with this id */

    if (!to_log) return ~0ull;
    if (!vm && now < round) return round;
    if (!log_takes_guests()) {
        /* This may last. Give the reference back, or the VM could not be freed meanwhile. */
        if (vm) {
            after = vm->id;
            vm_put(vm);
        }
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

/* Logs what is left of a VM's output when the VM has stopped, but at most LAST_LINES lines, so that
 * this stays short. */
void guestcon_rest(struct vm *vm) {
    for (u32 i = 0; to_log && &vm->console != attached && i < LAST_LINES && log_line(vm, true);)
        i++;
}

/* Says whether guests' output goes to the log. Once at boot. */
void guestcon_init(bool log) {
    to_log = log;
    vm_stopped = guestcon_rest;
}

/* ---- attached ---- */

/* Called when the command `console` ends: gives the VM's output back to the log. */
static void leave_console(struct shell_call *c) {
    attached = NULL;
    console_raw = false;
    out("Disconnected from %s.\n", c->vm->name);
}

/* Connects the operator to the console of a VM until ^] is typed or the VM goes. Each step passes
 * on what was typed, and then prints what the guest has printed. With -r the operator trusts the
 * guest with the terminal, so that its programs can draw on it. */
int cmd_console(struct shell_call *c) {
    char raw[LINE_CHARS], text[4 * LINE_CHARS + 1];
    unsigned n;

    if (c->json) return shell_fail(-EINVAL, "a console is for a person: there is no JSON of it");
    if (c->step == 0) {
        c->live = true;
        c->end = leave_console;
        attached = &c->vm->console;
        out("Connected to %s. ^] leaves.\n", c->vm->name);
        console_raw = c->opt['r'];
    }
    for (int key; (key = shell_key()) >= 0;) {
        if (key == LEAVE) return 0;
        ring_put(&attached->in, (char[]){ (char)key }, 1);
        if (c->vm->ioapic) vm_uart_changed(c->vm);
    }
    if (c->vm->state == VM_DYING) return 0;
    n = ring_get(&attached->out, raw, sizeof(raw));
    escape(text, raw, n, console_raw);
    out("%s", text);
    if (!n) return shell_later();
    return SHELL_AGAIN;
}
