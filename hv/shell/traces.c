/* The command `trace`: starts and stops the recording of what happens on each pCPU (trace/trace.h),
 * and streams the records through a second serial port, or keeps the last ones over a reset. Both
 * are done by work items, in short steps on the housekeeping pCPU. */
#include <takt/errno.h>
#include "drivers/uart.h"
#include "lib/parse.h"
#include "lib/printf.h"
#include "common/string.h"
#include "mm/frame.h"
#include "platform/console.h"
#include "platform/crashlog.h"
#include "platform/timer.h"
#include "sched/machine.h"
#include "shell/shell.h"
#include "trace/stream.h"
#include "vcpu/vcpu.h"
#include "x86/percpu.h"

#define RING_ORDER   5 /* 2^5 pages for each pCPU */
#define RECORD_ORDER 9 /* for a recording from boot on, of which nothing may be lost */

static struct trace_record *ring[TAKT_MAX_CPUS];

static const struct {
    const char *name;
    u32 mask;
} classes[] = {
    { "sched", TRACE_CLASS_SCHED },
    { "exit", TRACE_CLASS_EXIT },
    { "event", TRACE_CLASS_EVENT },
    { "replay", TRACE_CLASS_REPLAY },
    { "all", TRACE_CLASS_SCHED | TRACE_CLASS_EXIT | TRACE_CLASS_EVENT | TRACE_CLASS_REPLAY },
};

/* ---- the stream: frames of trace/stream.h ---- */

static struct {
    struct work work;
    struct uart uart;
    bool on, queued; /* wanted; the work item is queued, as it is for some time after a stop */
    u32 cpu;         /* modulo nr_cpus: the pCPU whose records are sent next */
    struct stream frames;
    u8 out[4096];
    u32 len, at; /* bytes of `out`, and how many of them are sent */
    u64 sent;    /* records */
    /* When header and VMs are sent again. A reader that came late needs them, too. */
    u64 describe_at;
} stream;

/* Queues the header and the names of the VMs. */
static void stream_describe(u64 now) {
    stream.describe_at = now + NS_PER_S;
    stream.len = stream_header(&stream.frames, stream.out, nr_cpus, now);
    for (struct vm *vm = vm_next(NULL); vm; vm = vm_next(vm)) {
        if (stream.len + STREAM_FRAME_MAX > sizeof(stream.out)) continue;
        stream.len +=
            stream_vm(&stream.frames, stream.out + stream.len, vm->id, vm->nr_vcpus, vm->name);
    }
}

/* Fills `out` with what has to be sent next: once a second the header and the names of the VMs,
 * else some records of one pCPU. The pCPUs take turns, and those without records are passed over.
 * Returns false if there is nothing to send. */
static bool stream_fill(void) {
    struct trace_record r[STREAM_RECORDS];
    u64 now = machine_now();

    stream.at = stream.len = 0;
    if (now >= stream.describe_at) stream_describe(now);
    for (u32 i = 0; i < nr_cpus && !stream.len; i++) {
        u32 cpu = stream.cpu++ % nr_cpus, n = 0;

        if (ring[cpu]) n = trace_read(cpu, r, STREAM_RECORDS);
        if (n) stream.len = stream_records(&stream.frames, stream.out, r, n);
        stream.sent += n;
    }
    return stream.len;
}

#define SEND_NS      NS_PER_MS /* from one step to the next, while there is something to send */
#define IDLE_NS      (10 * NS_PER_MS) /* the same while there is nothing */
#define FILLS_A_STEP 8u

/* One step of the work item that sends the records. It fills and sends at most FILLS_A_STEP times,
 * so that a step is short, and stops when the port takes no more. */
static bool stream_step(struct work *w) {
    unsigned n = 1;
    u64 now = machine_now();

    w->not_before = now + SEND_NS;
    for (u32 i = 0; i < FILLS_A_STEP && n; i++) {
        if (stream.at == stream.len && !stream_fill()) {
            /* After a stop the work item ends only here, because it first sends what the rings
             * hold. */
            w->not_before = now + IDLE_NS;
            stream.queued = stream.on;
            return stream.on;
        }
        n = uart_write(&stream.uart, (const char *)stream.out + stream.at, stream.len - stream.at);
        stream.at += n;
    }
    return true;
}

/* Opens the port and starts the work item. Returns false if nothing answers at the port. */
static bool open_stream(const struct console_spec *port) {
    if (!uart_init(&stream.uart, uart_port(port->com), port->baud)) return false;
    stream.on = true;
    stream.describe_at = 0;
    stream.work.step = stream_step;
    stream.work.not_before = 0;
    if (!stream.queued) work_add(&stream.work);
    stream.queued = true;
    return true;
}

/* ---- keeping: the last records are copied to where the next boot reads them
 * (platform/crashlog.h) ---- */

#define KEPT_A_STEP 32 /* records that one step copies; that takes some 10,000 instructions */

static struct work keeper;
static bool keeping, keeper_queued;

/* The step of the work item that keeps records: copies some of one pCPU to the memory that survives
 * a reset. After the last pCPU there is a pause. It ends after the operator has stopped it. */
static bool keep_step(struct work *w) {
    struct trace_record r[KEPT_A_STEP];
    static u32 cpu;

    if (ring[cpu]) {
        u32 n = trace_read(cpu, r, KEPT_A_STEP);

        crashlog_records(r, n);
    }
    cpu = (cpu + 1) % nr_cpus;
    if (cpu == 0) w->not_before = machine_now() + NS_PER_MS;
    keeper_queued = keeping;
    return keeping;
}

/* Starts the copying of records to the memory that survives a reset. The ring has one reader, so
 * this excludes the stream. */
static int start_keeping(void) {
    if (stream.queued)
        return shell_fail(-EBUSY, "the records are being sent: trace stop ends that");
    keeping = true;
    keeper.step = keep_step;
    keeper.not_before = 0;
    if (!keeper_queued) work_add(&keeper);
    keeper_queued = true;
    return 0;
}

/* ---- subcommands ---- */

/* Starts to send the records through the port `where`. The console's own port is refused, because
 * the records would destroy its text. */
static int start_stream(const char *where) {
    struct console_spec port;

    if (parse_console(where, &port, NULL) || !port.com)
        return shell_fail(-EINVAL, "expected com1 to com4, perhaps with a rate, not %s", where);
    if (keeper_queued)
        return shell_fail(-EBUSY, "the records are being kept: trace stop ends that");
    if (console_is_port(uart_port(port.com)))
        return shell_fail(-EBUSY, "com%u is the console's port", port.com);
    if (!open_stream(&port)) return shell_fail(-ENODEV, "nothing answers at com%u", port.com);
    return 0;
}

/* Allocates the ring of a pCPU, unless it has one. That is done at the first use, because it takes
 * a while to fill the ring with zeros. Returns false if there is no memory. */
static bool add_ring(u32 cpu, unsigned order) {
    hpa_t pa;

    if (ring[cpu]) return true;
    pa = frame_alloc_zeroed(order);
    if (pa == HPA_NONE) return false;
    ring[cpu] = hpa_to_va(pa);
    return trace_init(cpu, ring[cpu],
                      (u32)(PAGE_SIZE << order) / (u32)sizeof(struct trace_record)) == 0;
}

/* Starts the recording of the scheduler at boot. All rings are allocated first: a recording that
 * lacks a pCPU could not be replayed. */
void traces_record(const struct config *c) {
    struct console_spec port;

    for (u32 cpu = 0; cpu < nr_cpus; cpu++) {
        if (!add_ring(cpu, RECORD_ORDER)) {
            log_warn("no recording: there is no memory for it");
            return;
        }
    }
    trace_mask = TRACE_CLASS_REPLAY;
    if (parse_console(c->trace_console, &port, NULL) || !port.com || !open_stream(&port))
        log_warn("the recording stays in memory: no port at trace_console = %s", c->trace_console);
}

/* Allocates the ring of one pCPU at each step, and then starts the recording of the classes of
 * events that the words name, or of all but those for a replay. */
static int verb_start(struct shell_call *c) {
    u32 mask = 0;

    for (int i = 2; i < c->argc; i++) {
        u32 k = 0;

        while (k < ARRAY_SIZE(classes) && strcmp(classes[k].name, c->argv[i]) != 0) k++;
        if (k == ARRAY_SIZE(classes))
            return shell_fail(-EINVAL, "expected sched, exit, event, replay or all, not %s",
                              c->argv[i]);
        mask |= classes[k].mask;
    }
    if (!add_ring(c->step, RING_ORDER))
        return shell_fail(-ENOMEM, "there is no memory for the trace of pCPU %u", c->step);
    if (c->step + 1 < nr_cpus) return SHELL_AGAIN;
    if (!mask) mask = TRACE_CLASS_SCHED | TRACE_CLASS_EXIT | TRACE_CLASS_EVENT;
    trace_mask = mask;
    return 0;
}

/* Ends recording. What the rings still hold is sent or kept first. */
static int verb_stop(void) {
    trace_mask = 0;
    stream.on = false;
    keeping = false;
    return 0;
}

/* Shows the mask of what is recorded, whether records are sent, how many were sent, and how many
 * were lost. */
static int verb_status(struct shell_call *c) {
    COLUMNS(columns, COL("mask", "mask", 'u', 0), COL("streaming", "streaming", 'b', 0),
            COL("streamed", "streamed", 'u', 0), COL("lost", "lost", 'u', 0));
    u64 lost = 0;

    for (u32 cpu = 0; cpu < nr_cpus; cpu++)
        if (ring[cpu]) lost += trace_lost(cpu);
    record(c, columns, CELLS(U(trace_mask), U(stream.queued), U(stream.sent), U(lost)));
    return 0;
}

/* Finds the subcommand; without one, shows the status. */
static int cmd_trace(struct shell_call *c) {
    const char *what = "status", *port = shell_config()->trace_console;

    if (c->argc > 1) what = c->argv[1];
    if (c->argc > 2) port = c->argv[2];
    if (strcmp(what, "start") == 0) return verb_start(c);
    if (strcmp(what, "stop") == 0) return verb_stop();
    if (strcmp(what, "status") == 0) return verb_status(c);
    if (strcmp(what, "stream") == 0) return start_stream(port);
    if (strcmp(what, "keep") == 0) return start_keeping();
    return shell_usage();
}

const struct shell_command trace_commands[] = {
    { "trace", "start [sched|exit|event|replay|all...] | stop | status | stream [COM] | keep",
      "records what happens (docs/trace.md)\n"
      "start   records until the rings are full, which keeps the oldest records:\n"
      "        type `trace keep` beside it (or `trace stream`) to have the newest\n"
      "stream  sends the records through a second serial port as they are made\n"
      "keep    keeps the last ones over a reset, for crash -t\n"
      "stop    ends recording, sending and keeping\n"
      "status  shows how many records were sent, and lost as a ring was full",
      cmd_trace, "*", "" },
    { 0 },
};
