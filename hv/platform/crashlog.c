/* Keeps the last lines of the log, and the last trace records, in a piece of RAM that survives a
 * reset. So after a crash, the next start can show what happened. A "session" is the time from one
 * start to the next. There are two "banks": this session writes one, while the other one holds what
 * the last session wrote. RAM may have been overwritten meanwhile, so each line, each record and
 * the head of a bank has a checksum, and what does not match it is left out. */
#include "platform/crashlog.h"

#include "lib/printf.h"
#include "common/string.h"
#include "x86/cpu.h"

#define MAGIC        0x6c6b617474616b21ull /* any number that RAM does not hold by chance */
#define BANKS        2u
#define LINE_SLOTS   384u
#define RECORD_SLOTS 480u
#define LINE_SLOT    256u
#define RECORD_SLOT  64u /* bytes: one cache line, so that one write-back saves a record */
#define HEAD_SIZE    256u
#define REPORT_LINES 40u

/* A slot holds one line or one record. Number `n` is in slot n modulo the number of slots. */
struct slot {
    u32 sum; /* checksum of the rest of the slot and of the session's number */
    u32 number;
    u8 body[];
};

struct head {
    u64 magic;
    u32 size;    /* bytes of a bank; a bank with another size has another layout and is not read */
    u32 session; /* the number of the session; it begins with 1 when no record is found */
    u32 end;     /* enum crash_end */
    u32 sum;     /* checksum of the fields above */
};

struct bank {
    union {
        struct head head;
        u8 head_bytes[HEAD_SIZE];
    };
    u8 line[LINE_SLOTS][LINE_SLOT];
    u8 record[RECORD_SLOTS][RECORD_SLOT];
};

_Static_assert(BANKS * sizeof(struct bank) <= CRASHLOG_SIZE, "the banks fit");
_Static_assert(sizeof(struct slot) + CRASHLOG_LINE == LINE_SLOT, "a line fits");
_Static_assert(sizeof(struct slot) + sizeof(struct trace_record) <= RECORD_SLOT, "a record fits");

/* A ring of slots of one size. */
struct ring {
    u8 *slots;
    u32 size, nr;
    u32 end; /* the number that the next line or record will have */
    u32 session;
};

static struct bank *mine, *last; /* NULL: there is none */
static struct ring my_lines, my_records, last_lines, last_records;
static bool keeping; /* lines and records are kept from now on */

/* Returns a checksum of `len` bytes, FNV-1a with 32 bits. It is meant to notice RAM that was
 * overwritten, not to stop an attacker. */
static u32 sum_of(const void *p, u32 len, u32 seed) {
    const u8 *b = p;
    u32 sum = 0x811c9dc5u ^ seed;

    while (len--) sum = (sum ^ *b++) * 0x01000193u;
    return sum;
}

/* ---- the head ---- */

/* Returns the checksum that the head of a bank (what one session has written) has to have. */
static u32 head_sum(const struct head *h) { return sum_of(h, offsetof(struct head, sum), 0); }

/* Is this the head of a bank that a session of the same version has written? */
static bool head_ok(const struct head *h) {
    return h->magic == MAGIC && h->size == sizeof(struct bank) && h->sum == head_sum(h) &&
           h->end > CRASH_NONE && h->end <= CRASH_ORDERLY;
}

/* Notes how this session (the time from one start of the machine to the next) ends, so that the
 * next one can tell. */
void crashlog_end(enum crash_end how) {
    if (!mine) return;
    mine->head.end = how;
    mine->head.sum = head_sum(&mine->head);
    cache_write_back(&mine->head, sizeof(mine->head));
}

/* ---- rings ---- */

/* Returns the slot for number `number` of a ring. */
static struct slot *slot_of(const struct ring *r, u32 number) {
    return (struct slot *)(r->slots + (u64)(number % r->nr) * r->size);
}

/* Returns the checksum of a slot. The number of the session goes into it, so that a line that an
 * older session has left in the same slot does not count as one of this session. */
static u32 slot_sum(const struct ring *r, const struct slot *s) {
    return sum_of(&s->number, r->size - (u32)offsetof(struct slot, number), r->session);
}

/* Is number `number` in its slot, and is its checksum right? */
static bool slot_holds(const struct ring *r, u32 number) {
    const struct slot *s = slot_of(r, number);

    return s->number == number && s->sum == slot_sum(r, s);
}

/* Writes `len` bytes to the next slot of a ring. The number is taken first. So if an NMI handler
 * logs a line while this function runs, it uses the next slot, and neither line is lost. */
static void crashlog_put(struct ring *r, const void *p, u32 len) {
    u32 number = r->end++;
    struct slot *s = slot_of(r, number);
    u32 room = r->size - (u32)sizeof(*s);

    memset(s->body, 0, room);
    memcpy(s->body, p, MIN(len, room));
    s->number = number;
    s->sum = slot_sum(r, s);
    cache_write_back(s, r->size);
}

/* Returns a ring that has its slots at `slots`. Its end is 0 until find_end() looks for it. */
static struct ring ring_of(u8 *slots, u32 size, u32 nr, u32 session) {
    return (struct ring){ .slots = slots, .size = size, .nr = nr, .session = session };
}

/* Finds the end of a ring that an earlier session has written. */
static void find_end(struct ring *r) {
    for (u32 i = 0; i < r->nr; i++) {
        u32 number = ((struct slot *)(r->slots + (u64)i * r->size))->number;

        if (number % r->nr == i && number != ~0u && slot_holds(r, number))
            r->end = MAX(r->end, number + 1);
    }
}

/* Returns the first slot of the last session from number *at on whose checksum is right, and moves
 * *at beyond it; NULL if there is none. */
static const struct slot *ring_next(const struct ring *r, u32 *at) {
    if (!last) return NULL;
    if (r->end > r->nr) *at = MAX(*at, r->end - r->nr);
    while (*at < r->end) {
        u32 number = (*at)++;

        if (slot_holds(r, number)) return slot_of(r, number);
    }
    return NULL;
}

/* ---- this session ---- */

/* Finds the record of the last session, and begins the record of this one. Takes the bank with the
 * highest session number as the one to show, and the other one for this session. It notes the end
 * of this session as "silent" at once. If the machine is reset from outside, nobody gets to write
 * anything later, and this is what the next session finds. */
void crashlog_open(void *at) {
    struct bank *bank = at;
    u32 session = 1;

    for (u32 i = 0; i < BANKS; i++)
        if (head_ok(&bank[i].head) && (!last || bank[i].head.session > last->head.session))
            last = &bank[i];
    if (last) {
        last_lines = ring_of(last->line[0], LINE_SLOT, LINE_SLOTS, last->head.session);
        last_records = ring_of(last->record[0], RECORD_SLOT, RECORD_SLOTS, last->head.session);
        find_end(&last_lines);
        find_end(&last_records);
        session = last->head.session + 1;
    }
    mine = &bank[0];
    if (last == mine) mine = &bank[1]; /* keep what the last session wrote */
    memset(mine, 0, sizeof(*mine));
    my_lines = ring_of(mine->line[0], LINE_SLOT, LINE_SLOTS, session);
    my_records = ring_of(mine->record[0], RECORD_SLOT, RECORD_SLOTS, session);
    mine->head = (struct head){ .magic = MAGIC, .size = sizeof(*mine), .session = session };
    crashlog_end(CRASH_SILENT); /* until something else is known */
}

/* Keeps a line of the log for the next session. */
void crashlog_line(const char *text) {
    u32 len = 0;

    if (!keeping) return;
    while (len < CRASHLOG_LINE - 1 && text[len] && text[len] != '\n') len++;
    crashlog_put(&my_lines, text, len);
}

/* Keeps trace records for the next session. */
void crashlog_records(const struct trace_record *r, u32 n) {
    for (u32 i = 0; keeping && i < n; i++) crashlog_put(&my_records, &r[i], sizeof(r[i]));
}

/* Keeps the trace records that nobody has read, in the order of time, for the next session. Merges
 * the rings: it takes the oldest of the CPUs' next records, over and over, until all rings are
 * empty. `next_of` is static because the stack of a CPU that panics may be nearly full. */
void crashlog_drain_trace(void) {
    /* the oldest unread record of each CPU's ring; event 0: that ring is empty */
    static struct trace_record next_of[TAKT_MAX_CPUS];
    u32 oldest = 0;

    for (u32 cpu = 0; cpu < TAKT_MAX_CPUS; cpu++)
        if (!trace_read(cpu, &next_of[cpu], 1)) next_of[cpu].event = 0;
    for (;;) {
        for (u32 cpu = 0; cpu < TAKT_MAX_CPUS; cpu++) {
            if (!next_of[cpu].event) continue;
            if (!next_of[oldest].event || next_of[cpu].ns < next_of[oldest].ns) oldest = cpu;
        }
        if (!next_of[oldest].event) return;
        crashlog_records(&next_of[oldest], 1);
        if (!trace_read(oldest, &next_of[oldest], 1)) next_of[oldest].event = 0;
    }
}

/* ---- the last session ---- */

/* Returns how the last session ended; CRASH_NONE if nothing is known of one. */
enum crash_end crashlog_last(void) {
    if (!last) return CRASH_NONE;
    return (enum crash_end)last->head.end;
}

/* Finds the next line of the last session from number *at on. Returns false if there is none. */
bool crashlog_last_line(u32 *at, const char **text) {
    const struct slot *s = ring_next(&last_lines, at);

    if (!s || s->body[CRASHLOG_LINE - 1]) return false;
    *text = (const char *)s->body;
    return true;
}

/* Finds the next trace record of the last session from number *at on. Returns false if there is
 * none. */
bool crashlog_last_record(u32 *at, struct trace_record *out) {
    const struct slot *s = ring_next(&last_records, at);

    if (s) memcpy(out, s->body, sizeof(*out));
    return s;
}

/* Logs how the last session ended, and its last lines, unless it ended in order. Only the last
 * REPORT_LINES lines are logged; the others can be read by the shell. Lines are kept from now on
 * and not before. Otherwise those of the last session would be kept as lines of this one. */
void crashlog_report(void) {
    enum crash_end how = crashlog_last();
    u32 at = MAX(last_lines.end, REPORT_LINES) - REPORT_LINES;
    const char *text;

    if (how == CRASH_STOPPED || how == CRASH_SILENT) {
        if (how == CRASH_STOPPED)
            log_warn("The last session could not go on. These were its last lines:");
        else
            log_warn(
                "The last session was reset while it ran: did it hang? These were its last lines:");
        while (crashlog_last_line(&at, &text)) log_warn("| %s", text);
        log_warn("That was the last session. The command `crash` shows all that is kept of it.");
    }
    keeping = mine;
}
