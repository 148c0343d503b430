/* A serial port by which an operating system reaches the store. A PC has it as COM2, beside its
 * console. Its other end is not a person but the VM's client of the store: the bytes are packets of
 * the store's protocol (include/takt/store_wire.h), in both directions. So a program in the VM can
 * use the store without a driver of Takt's; Linux offers the port as /dev/ttyS1.
 *
 * The line DTR says whether a program has the port open. When it changes, the connection begins
 * anew: watches, transactions and packets that are not complete are dropped. */
#include <takt/errno.h>
#include "image/firmware.h"
#include "nodes/node.h"
#include "vcpu/vcpu.h"

#define GIVE 512u /* bytes at most that one call hands over, so that it stays short */

/* A guest that has connected a page of its own (TAKT_HC_STORE_CONNECT) uses that instead. */
struct storeline {
    struct vm *vm;
    struct vconsole rings; /* out: requests; in: replies and events */
    struct vuart uart;
    bool reset; /* the connection has to begin anew. Under the lock of the store */
    u32 full;   /* replies wait until the guest has read some bytes. Changed under that lock */
};

/* Returns how many bytes wait in a ring. */
static u32 line_waiting(const struct console_ring *r) {
    return __atomic_load_n(&r->head, __ATOMIC_RELAXED) -
           __atomic_load_n(&r->tail, __ATOMIC_RELAXED);
}

/* Passes what the guest has sent to the store: at most one request, because one request may take
 * as long as a part may be. */
static void line_take(struct storeline *l, struct store_client *c) {
    char byte;

    store_feed(c, NULL, 0); /* a request for which the store was busy is tried again */
    while (!c->out_len && !store_waits(c) && ring_get(&l->rings.out, &byte, 1))
        if (!c->bad) store_feed(c, &byte, 1);
}

/* Passes replies and events to the guest. Returns how many bytes. */
static u32 line_give(struct storeline *l, struct store_client *c) {
    u32 room = CONSOLE_RING - line_waiting(&l->rings.in), n;
    char bytes[GIVE];

    n = store_drain(c, bytes, MIN(room, GIVE));
    ring_put(&l->rings.in, bytes, n);
    __atomic_store_n(&l->full, n == room, __ATOMIC_RELAXED);
    return n;
}

/* Moves bytes between the VM's serial port and the store. Returns STORE_* bits as store_pump()
 * does. */
unsigned storeline_pump(struct storeline *l, struct store_client *c, bool asks) {
    unsigned result = 0;
    u32 given;

    if (l->reset) {
        if (store_reset(c)) return STORE_MORE;
        store_fresh(c);
        l->reset = false;
    }
    if (asks) line_take(l, c);
    given = line_give(l, c);
    if (given) result |= STORE_TELL;
    if (given == GIVE && !l->full) result |= STORE_MORE;
    if (!c->out_len && (store_waits(c) || line_waiting(&l->rings.out))) result |= STORE_MORE;
    return result;
}

/* Sets the port's interrupt line, after bytes have come or were read. */
void storeline_tell(struct storeline *l) {
    vuart_update(&l->uart);
    vm_line(l->vm, PC_STORE_PIN, &l->uart.irq);
}

/* Forgets all bytes in a ring. */
static void line_empty(struct console_ring *r) {
    char bytes[GIVE];

    while (ring_get(r, bytes, GIVE)) {
    }
}

/* Has the store look at the line. `changed`: a program has opened or closed the port. Both rings
 * are emptied at once. The store itself may be busy, and forgets the old connection later. */
static void line_serve(struct storeline *l, bool changed) {
    struct storelink *s = &l->vm->store;

    storelink_enter();
    if (changed) {
        line_empty(&l->rings.out);
        line_empty(&l->rings.in);
        l->reset = true;
    }
    if (!s->gone && !s->client.page) storelink_pump(s, true);
    storelink_leave();
}

/* Carries out a guest's access to a register of the port: the function that its bus calls
 * (bus_fn). */
static void line_access(void *dev, const struct bus_access *a, u64 *value) {
    struct storeline *l = dev;
    bool was_open = vuart_is_open(&l->uart), changed;

    vuart_access(&l->uart, a, value);
    changed = vuart_is_open(&l->uart) != was_open;
    if (changed || line_waiting(&l->rings.out) || __atomic_load_n(&l->full, __ATOMIC_RELAXED))
        line_serve(l, changed);
    storeline_tell(l);
}

/* Makes the serial port by which a PC reaches the store. Returns 0 or -ENOMEM. */
int storeline_make(struct vm *vm) {
    struct storeline *l;

    if (!*vm->config.kernel || vm->store.line) return 0;
    l = heap_alloc(sizeof(*l));
    if (!l) return -ENOMEM;
    l->vm = vm;
    l->uart.console = &l->rings;
    l->uart.waits = true;
    vm->store.line = l;
    bus_add(&vm->ports, PC_STORE_PORT, 8, line_access, l);
    return 0;
}

/* Takes the serial port to the store away again, if the VM has one. */
void storeline_undo(struct vm *vm) {
    if (!vm->store.line) return;
    bus_remove(&vm->ports, vm->store.line);
    heap_free(vm->store.line);
    vm->store.line = NULL;
}
