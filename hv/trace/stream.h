/* The trace as a stream of bytes for a serial line: frames that a reader can find again after a lost byte.
 * The format, for those who write a reader, is in docs/trace.md.
 *
 * A frame is two marks, type, sequence number, length of the payload (16 bits), the payload, and Fletcher-16
 * of everything between marks and sum. All little-endian.
 */
#ifndef HV_TRACE_STREAM_H
#define HV_TRACE_STREAM_H

#include "trace/trace.h"

#define STREAM_VERSION   1
#define STREAM_MARK0     0xa5
#define STREAM_MARK1     0x54
#define STREAM_OVERHEAD  8
#define STREAM_RECORDS   7 /* at most, in a frame */
#define STREAM_NAME      32
#define STREAM_FRAME_MAX (STREAM_OVERHEAD + STREAM_RECORDS * sizeof(struct trace_record))

enum stream_type { STREAM_HEADER = 'H', STREAM_VM = 'V', STREAM_DATA = 'R' };

struct stream_header { /* the first frame, and now and then again */
    char magic[8];     /* "TAKTRACE" */
    u32 version;
    u32 cpus;
    u64 ns; /* now */
};

struct stream_vm { /* one a VM, after each header */
    u32 id;
    u32 vcpus;
    char name[STREAM_NAME];
};

struct stream {
    u8 seq; /* of the next frame */
};

/* Each writes one frame to `out`, which has room for STREAM_FRAME_MAX bytes, and returns its length. */
unsigned stream_header(struct stream *s, u8 *out, u32 cpus, u64 now);
unsigned stream_vm(struct stream *s, u8 *out, u32 id, u32 vcpus, const char *name);
unsigned stream_records(struct stream *s, u8 *out, const struct trace_record *r, unsigned n);

#endif
