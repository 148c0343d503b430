/* The trace as a stream of bytes for a serial line: frames that a reader can find again after a
 * lost byte. docs/trace.md has the format. */
#ifndef HV_TRACE_STREAM_H
#define HV_TRACE_STREAM_H

#include "trace/trace.h"

#define STREAM_OVERHEAD  8
#define STREAM_RECORDS   7 /* at most, in a frame */
#define STREAM_FRAME_MAX (STREAM_OVERHEAD + STREAM_RECORDS * sizeof(struct trace_record))

struct stream {
    u8 seq; /* of the next frame */
};

/* Each of these writes one frame to `out`, which has room for STREAM_FRAME_MAX bytes, and
 * returns its length. A reader needs the header first, and again from time to time, each time
 * followed by one frame for each VM. */
unsigned stream_header(struct stream *s, u8 *out, u32 cpus, u64 now);
unsigned stream_vm(struct stream *s, u8 *out, u32 id, u32 vcpus, const char *name);
unsigned stream_records(struct stream *s, u8 *out, const struct trace_record *r, unsigned n);

#endif
