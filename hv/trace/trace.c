/* Trace rings: what happened on each pCPU, such as each switch between vCPUs, in short records.
 * Each pCPU has a ring, a queue of fixed size. If nobody reads it in time, new records are lost and
 * counted.
 *
 * A writer reserves a slot by moving `head` with one compare-and-swap, fills it, and then publishes
 * it by storing the event number, which is 0 while the slot is empty or half-written. So an NMI
 * handler may write in the middle of another write, and so may a pCPU on behalf of another one;
 * neither waits. The reader empties a slot before it gives it back by moving `tail`. */
#include <takt/errno.h>
#include "trace/trace.h"

struct trace_ring {
    struct trace_record *slot;
    u32 size;       /* a power of two; 0 if there is no ring */
    u32 head, tail; /* free-running; head: writers, tail: the reader */
    u32 unreported; /* lost since the last TRC_LOST record */
    u64 lost;       /* ever */
    u64 last_ns;    /* the reader's: time of the last record that it gave out */
} __attribute__((aligned(64)));

static struct trace_ring rings[TAKT_MAX_CPUS];
u32 trace_mask;

/* Returns the name of an event, or "?" if there is no such event. A new event needs a line here, or
 * tables show it as "?". */
const char *trace_event_name(u16 event) {
    static const struct {
        u16 event;
        const char *name;
    } names[] = {
        { TRC_LOST, "lost" },
        { TRC_RUNSTATE, "runstate" },
        { TRC_SWITCH, "switch" },
        { TRC_WAKE, "wake" },
        { TRC_BLOCK, "block" },
        { TRC_YIELD, "yield" },
        { TRC_BOOST, "boost" },
        { TRC_KICK, "kick" },
        { TRC_MIGRATE, "migrate" },
        { TRC_PARK, "park" },
        { TRC_ACCOUNT, "account" },
        { TRC_MICRO, "micro" },
        { TRC_SHARE, "share" },
        { TRC_TURBO, "turbo" },
        { TRC_LABEL, "label" },
        { TRC_EXIT, "exit" },
        { TRC_ENTRY, "entry" },
        { TRC_INJECT, "inject" },
        { TRC_HYPERCALL, "hypercall" },
        { TRC_EVTCHN_SEND, "event send" },
        { TRC_EVTCHN_TAKE, "event take" },
        { TRC_SCHED_INPUT, "sched input" },
        { TRC_SCHED_DECISION, "sched decision" },
    };

    for (u32 i = 0; i < ARRAY_SIZE(names); i++)
        if (names[i].event == event) return names[i].name;
    return "?";
}

/* Gives a pCPU a ring for its records. Returns 0 or -EINVAL. `size` is stored last, because from
 * then on other pCPUs may write records. */
int trace_init(unsigned cpu, struct trace_record *ring, u32 records) {
    struct trace_ring *r = &rings[cpu];

    if (records == 0 || (records & (records - 1))) return -EINVAL;
    *r = (struct trace_ring){ .slot = ring };
    for (u32 i = 0; i < records; i++) ring[i].event = 0;
    __atomic_store_n(&r->size, records, __ATOMIC_RELEASE);
    return 0;
}

/* Returns the record that says that `lost` records are missing here. */
static struct trace_record lost_record(unsigned cpu, u64 ns, u32 lost) {
    return (struct trace_record){ ns, 0, (u16)cpu, TRACE_NOBODY, { lost } };
}

/* Returns a slot to fill, or NULL if there is no room. */
static struct trace_record *slot_reserve(struct trace_ring *r) {
    u32 head = __atomic_load_n(&r->head, __ATOMIC_RELAXED);

    do {
        if (head - __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE) >= r->size) return NULL;
    } while (!__atomic_compare_exchange_n(&r->head, &head, head + 1, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return &r->slot[head & (r->size - 1)];
}

/* Makes a slot that has been filled visible to the reader. */
static void slot_publish(struct trace_record *t, u16 event) {
    __atomic_store_n(&t->event, event, __ATOMIC_RELEASE);
}

/* Writes a record to the ring of a pCPU, whatever the mask of recorded events says. If records were
 * lost before, a TRC_LOST record with their number comes first, so that the reader knows that there
 * is a gap. */
void trace_write(unsigned cpu, u64 ns, u16 event, u32 who, u32 a, u32 b, u32 c, u32 d) {
    struct trace_ring *r = &rings[cpu];
    struct trace_record *t = slot_reserve(r);

    if (t && __builtin_expect(__atomic_load_n(&r->unreported, __ATOMIC_RELAXED) != 0, 0)) {
        *t = lost_record(cpu, ns, __atomic_exchange_n(&r->unreported, 0, __ATOMIC_RELAXED));
        slot_publish(t, TRC_LOST);
        t = slot_reserve(r);
    }
    if (t == NULL) {
        __atomic_fetch_add(&r->unreported, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&r->lost, 1, __ATOMIC_RELAXED);
        return;
    }
    *t = (struct trace_record){ ns, 0, (u16)cpu, who, { a, b, c, d } };
    slot_publish(t, event);
}

/* Copies at most `max` records of a pCPU to `out`, the oldest first, and returns how many. The
 * event is read first, with acquire: 0 means that the writer has not finished, and then the rest of
 * the record is not valid yet. */
unsigned trace_read(unsigned cpu, struct trace_record *out, unsigned max) {
    struct trace_ring *r = &rings[cpu];
    unsigned n = 0;
    u32 lost;

    for (; n < max && r->size; n++) {
        struct trace_record *t = &r->slot[r->tail & (r->size - 1)];
        u16 event = __atomic_load_n(&t->event, __ATOMIC_ACQUIRE);

        if (event == 0) break;
        out[n] = *t;
        out[n].event = event;
        r->last_ns = t->ns;
        __atomic_store_n(&t->event, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&r->tail, r->tail + 1, __ATOMIC_RELEASE);
    }
    /* Records were lost after the last one that is here, so no later record can report that. */
    if (n == max || !r->size || r->tail != __atomic_load_n(&r->head, __ATOMIC_RELAXED)) return n;
    lost = __atomic_exchange_n(&r->unreported, 0, __ATOMIC_RELAXED);
    if (lost == 0) return n;
    out[n] = lost_record(cpu, r->last_ns, lost);
    out[n].event = TRC_LOST;
    return n + 1;
}

/* Returns how many records of a pCPU were lost since the boot. */
u64 trace_lost(unsigned cpu) { return __atomic_load_n(&rings[cpu].lost, __ATOMIC_RELAXED); }
