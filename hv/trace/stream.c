/* Puts trace records into frames that are sent over a serial port. A frame begins with two fixed
 * bytes, by which a reader finds the next one after bytes were lost. tools/tracestream.py reads
 * them. */
#include "common/string.h"
#include "trace/stream.h"

struct stream_header {
    char magic[8];
    u32 version, cpus;
    u64 ns; /* now */
};

struct stream_vm {
    u32 id, vcpus;
    char name[32];
};

/* Writes a frame to `out`: a head, which begins with two bytes by which the reader finds it, `n`
 * bytes of `payload`, and a checksum. The sequence number and the checksum let the reader notice
 * lost and damaged bytes, which a serial port does not report. Returns the length of the frame. */
static unsigned stream_frame(struct stream *s, u8 *out, char type, const void *payload,
                             unsigned n) {
    const u8 head[] = { 0xa5, 0x54, (u8)type, s->seq++, (u8)n, (u8)(n >> 8) };
    u32 a = 0, b = 0;

    memcpy(out, head, sizeof(head));
    memcpy(out + sizeof(head), payload, n);
    for (unsigned i = 2; i < sizeof(head) + n; i++) { /* Fletcher-16 */
        a = (a + out[i]) % 255;
        b = (b + a) % 255;
    }
    out[sizeof(head) + n] = (u8)a;
    out[sizeof(head) + n + 1] = (u8)b;
    return n + STREAM_OVERHEAD;
}

/* Writes a frame of kind 'H', which says which machine sends, and the time. Returns its length. */
unsigned stream_header(struct stream *s, u8 *out, u32 cpus, u64 now) {
    const struct stream_header h = { "TAKTRACE", 1, cpus, now };

    return stream_frame(s, out, 'H', &h, sizeof(h));
}

/* Writes a frame of kind 'V' with the name of a VM, because records only have its id. Returns its
 * length. */
unsigned stream_vm(struct stream *s, u8 *out, u32 id, u32 vcpus, const char *name) {
    struct stream_vm v = { id, vcpus, "" };

    memcpy(v.name, name, strnlen(name, sizeof(v.name)));
    return stream_frame(s, out, 'V', &v, sizeof(v));
}

/* Writes a frame of kind 'R' with records, as they are in memory. Returns its length. */
unsigned stream_records(struct stream *s, u8 *out, const struct trace_record *r, unsigned n) {
    return stream_frame(s, out, 'R', r, MIN(n, (unsigned)STREAM_RECORDS) * (unsigned)sizeof(*r));
}
