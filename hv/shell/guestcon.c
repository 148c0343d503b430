/* Guests' consoles. Nothing that a guest prints reaches a terminal unescaped, and a guest that prints without
 * end costs itself lines, not the others time. */
#include "shell/guestcon.h"

#include <takt/errno.h>
#include "lib/string.h"
#include "sched/machine.h"
#include "vm/vm.h"

#define LEAVE       0x1d /* ^], as xl */
#define SLOTS       64
#define LINES_PER_S 100 /* to the log, of one VM */
#define LINE_CHARS  160
#define STEP_BYTES  256u

/* The line that a VM is printing, for the log. */
struct slot {
    u32 vm;
    u32 len, lines, left_out;
    u64 second; /* in which `lines` were counted */
    char text[LINE_CHARS];
};

static struct slot slots[SLOTS];
static bool to_log;
static bool pending;              /* some ring may hold something; atomic */
static struct vconsole *attached; /* written on WORK_CPU, compared anywhere */

/* ---- to the log ---- */

static void end_line(struct slot *s, const char *name, u64 now) {
    if (now / NS_PER_S != s->second) {
        if (s->left_out) log_warn("%s: %u lines were left out", name, s->left_out);
        s->second = now / NS_PER_S;
        s->lines = s->left_out = 0;
    }
    s->text[s->len] = 0;
    s->len = 0;
    if (s->lines++ < LINES_PER_S)
        log_info("%s: %s", name, s->text);
    else
        s->left_out++;
}

static void add(struct slot *s, const char *name, char c, u64 now) {
    bool plain = (unsigned char)c >= ' ' && (unsigned char)c < 127;

    if (c == '\r') return;
    if (c == '\n') {
        end_line(s, name, now);
        return;
    }
    if (s->len + 5 > sizeof(s->text)) end_line(s, name, now);
    s->len += (u32)hv_snprintf(s->text + s->len, sizeof(s->text) - s->len,
                               plain || c == '\t' ? "%c" : "\\x%02x", (unsigned char)c);
}

static unsigned drain(struct vm *vm, u64 now) {
    struct slot *s = &slots[vm->id % SLOTS];
    char chunk[STEP_BYTES];
    unsigned n = ring_get(&vm->console.out, chunk, sizeof(chunk));

    if (n && s->vm != vm->id) *s = (struct slot){ .vm = vm->id };
    for (unsigned i = 0; i < n; i++) add(s, vm->name, chunk[i], now);
    return n;
}

bool guestcon_step(u64 now) {
    unsigned done = 0;
    struct vm *vm;

    if (!to_log || !__atomic_exchange_n(&pending, false, __ATOMIC_ACQ_REL)) return false;
    for (vm = vm_next(NULL); vm; vm = vm_next(vm)) {
        if (&vm->console != attached) done += drain(vm, now);
        if (done >= STEP_BYTES) {
            vm_put(vm);
            break;
        }
    }
    if (done) __atomic_store_n(&pending, true, __ATOMIC_RELEASE);
    return done;
}

/* Last words: what is still in the ring, and a line without an end. */
static void on_stopped(struct vm *vm) {
    struct slot *s = &slots[vm->id % SLOTS];
    u64 now = machine_now();

    if (!to_log || &vm->console == attached) return;
    while (drain(vm, now))
        ;
    if (s->vm == vm->id && s->len) end_line(s, vm->name, now);
}

/* A guest printed. From its exit handler, on any pCPU. */
static void on_output(struct vconsole *c) {
    if (to_log && !__atomic_exchange_n(&pending, true, __ATOMIC_ACQ_REL)) shell_wake();
    if (c == __atomic_load_n(&attached, __ATOMIC_RELAXED)) shell_wake();
}

void guestcon_init(bool log) {
    to_log = log;
    vconsole_more = on_output;
    vm_stopped = on_stopped;
}

/* ---- attached ---- */

static void to_guest(struct shell_call *c, const char *s, unsigned n) {
    for (unsigned i = 0; i < n && !c->stop; i++) {
        if (s[i] == LEAVE)
            c->stop = true;
        else
            ring_put(&c->vm->console.in, s + i, 1);
    }
}

static void detach(struct shell_call *c) {
    out("\nDisconnected from %s.\n", c->vm->name);
    __atomic_store_n(&attached, NULL, __ATOMIC_RELEASE);
}

int cmd_console(struct shell_call *c) {
    char chunk[STEP_BYTES];
    unsigned n;

    if (c->json) return shell_fail(c, -EINVAL, "a console is for a person: there is no JSON of it");
    if (c->step == 0) {
        c->typed = to_guest;
        c->end = detach;
        __atomic_store_n(&attached, &c->vm->console, __ATOMIC_RELEASE);
        out("Connected to %s. ^] leaves.\n", c->vm->name);
    }
    if (c->vm->state == VM_DYING) return 0;
    n = ring_get(&c->vm->console.out, chunk, sizeof(chunk));
    for (unsigned i = 0; i < n; i++) {
        if (chunk[i] != '\r') out_escaped(chunk[i]);
    }
    c->at = n ? 0 : machine_now() + 200 * NS_PER_MS; /* to see the VM go */
    return SHELL_AGAIN;
}
