/* Reads raw trace records from standard input and writes the stream that Takt would send: for
 * tests/tools/test_trace.py. */
#include <stdio.h>
#include "trace/stream.h"

int main(void) {
    static const char *const names[] = { "busy", "waker", "web" };
    struct stream s = { .seq = 250 };
    struct trace_record r[STREAM_RECORDS];
    u8 out[STREAM_FRAME_MAX];
    size_t n;

    fwrite(out, 1, stream_header(&s, out, 2, 123), stdout);
    for (u32 i = 0; i < 3; i++)
        fwrite(out, 1, stream_vm(&s, out, i + 1, i == 2 ? 2 : 1, names[i]), stdout);
    while ((n = fread(r, sizeof(r[0]), STREAM_RECORDS, stdin)) > 0)
        fwrite(out, 1, stream_records(&s, out, r, (unsigned)n), stdout);
    return 0;
}
