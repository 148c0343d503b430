/* The file of --trace: all trace records (docs/trace.md) from the boot on, as the stream that an
 * image sends through a serial port. Recording takes no virtual time, so a run with a trace is the
 * same as one without. whole.h has the contracts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/printf.h"
#include "tests/whole/whole.h"
#include "trace/stream.h"
#include "vm/vm.h"

#define RECORDS     65536u /* of a pCPU: more than it can make in DRAIN_NS */
#define DRAIN_NS    NS_PER_MS
#define ALL_CLASSES (TRACE_CLASS_SCHED | TRACE_CLASS_EXIT | TRACE_CLASS_EVENT | TRACE_CLASS_REPLAY)

static FILE *file;
static struct stream frames;
static u64 drain_at, describe_at;
static bool broken;            /* the simulation panics: locks may be held for ever */
static bool told[SCHED_TURBO]; /* by id: the name of this VM is in the file */

static void put(const u8 *frame, unsigned n) {
    if (fwrite(frame, 1, n, file) == n) return;
    fprintf(stderr, "sim-whole: the file of --trace could not be written: %s\n", strerror(errno));
    exit(2);
}

/* The linker puts this in the place of trace_write(). All classes are always on, so that a run with
 * a file takes the same way through the hypervisor as one without. Nothing is charged for it, as in
 * an image whose tracing is off: count.awk leaves out the basic block that calls this function. */
void __real_trace_write(unsigned cpu, u64 ns, u16 event, u32 who, u32 a, u32 b, u32 c, u32 d);
void __wrap_trace_write(unsigned cpu, u64 ns, u16 event, u32 who, u32 a, u32 b, u32 c, u32 d);

void __wrap_trace_write(unsigned cpu, u64 ns, u16 event, u32 who, u32 a, u32 b, u32 c, u32 d) {
    u64 owed = whole_owed();

    __real_trace_write(cpu, ns, event, who, a, b, c, d);
    whole_owe(owed);
}

/* Writes the names of VMs that are not in the file yet; of all VMs if `all`. */
static void put_vms(bool all) {
    u8 frame[STREAM_FRAME_MAX];

    for (struct vm *vm = vm_next(NULL); vm; vm = vm_next(vm)) {
        if (!all && told[vm->id]) continue;
        put(frame, stream_vm(&frames, frame, vm->id, vm->nr_vcpus, vm->name));
        told[vm->id] = vm->state != VM_CREATING; /* before, its vCPUs are not there yet */
    }
}

static void put_records(u32 cpu) {
    struct trace_record r[STREAM_RECORDS];
    u8 frame[STREAM_FRAME_MAX];
    unsigned n;

    while ((n = trace_read(cpu, r, STREAM_RECORDS)))
        put(frame, stream_records(&frames, frame, r, n));
}

/* Empties the rings of all pCPUs into the file. */
static void drain(void) {
    u64 owed = whole_owed();
    u8 frame[STREAM_FRAME_MAX];
    bool describe = whole_now >= describe_at;

    if (describe) {
        describe_at = whole_now + NS_PER_S;
        put(frame, stream_header(&frames, frame, nr_cpus, whole_now));
    }
    if (!broken) put_vms(describe);
    for (u32 cpu = 0; cpu < nr_cpus; cpu++) put_records(cpu);
    drain_at = whole_now + DRAIN_NS;
    whole_owe(owed);
}

/* Switches all classes of trace records on and, unless `path` is NULL, opens the file and makes a
 * ring of records for each pCPU. Ends the program with a sentence if the file cannot be made. That
 * takes no virtual time. */
void whole_trace_begin(const char *path) {
    u64 owed = whole_owed();

    trace_mask = ALL_CLASSES;
    if (!path) return;
    file = fopen(path, "wb");
    if (!file) {
        fprintf(stderr, "sim-whole: the file of --trace, %s, cannot be made: %s\n", path,
                strerror(errno));
        exit(2);
    }
    for (u32 cpu = 0; cpu < nr_cpus; cpu++)
        trace_init(cpu, calloc(RECORDS, sizeof(struct trace_record)), RECORDS);
    whole_owe(owed);
}

void whole_trace_step(void) {
    if (file && whole_now >= drain_at) drain();
}

void whole_trace_end(void) {
    if (!file) return;
    drain();
    if (fclose(file)) {
        fprintf(stderr, "sim-whole: the file of --trace could not be written as a whole\n");
        exit(2);
    }
    file = NULL;
}

void whole_trace_panic(void) {
    broken = true;
    whole_trace_end();
}
