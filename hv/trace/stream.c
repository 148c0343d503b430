#include "lib/string.h"
#include "trace/stream.h"

static u16 fletcher16(const u8 *p, unsigned n) {
    u32 a = 0, b = 0;

    while (n--) {
        a = (a + *p++) % 255;
        b = (b + a) % 255;
    }
    return (u16)(b << 8 | a);
}

static unsigned frame(struct stream *s, u8 *out, enum stream_type type, const void *payload, unsigned n) {
    u16 sum;

    out[0] = STREAM_MARK0;
    out[1] = STREAM_MARK1;
    out[2] = (u8)type;
    out[3] = s->seq++;
    out[4] = (u8)n;
    out[5] = (u8)(n >> 8);
    memcpy(out + 6, payload, n);
    sum = fletcher16(out + 2, n + 4);
    out[6 + n] = (u8)sum;
    out[7 + n] = (u8)(sum >> 8);
    return n + STREAM_OVERHEAD;
}

unsigned stream_header(struct stream *s, u8 *out, u32 cpus, u64 now) {
    struct stream_header h = { .version = STREAM_VERSION, .cpus = cpus, .ns = now };

    memcpy(h.magic, "TAKTRACE", sizeof(h.magic));
    return frame(s, out, STREAM_HEADER, &h, sizeof(h));
}

unsigned stream_vm(struct stream *s, u8 *out, u32 id, u32 vcpus, const char *name) {
    struct stream_vm v = { .id = id, .vcpus = vcpus };

    memcpy(v.name, name, strnlen(name, sizeof(v.name)));
    return frame(s, out, STREAM_VM, &v, sizeof(v));
}

unsigned stream_records(struct stream *s, u8 *out, const struct trace_record *r, unsigned n) {
    return frame(s, out, STREAM_DATA, r, MIN(n, (unsigned)STREAM_RECORDS) * (unsigned)sizeof(*r));
}
