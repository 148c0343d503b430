/* Stamps in the driver domain: the chains that it takes from rings, its copies, and the hypercalls
 * of its loop. They are printed when one of its devices goes. When it offers a device, it prints
 * how much memory is free.
 *
 *   T    a frame of 1,000 bytes or more, or a request, has been taken
 *   t    another chain has been taken
 *   < >  around a copy of 1,000 bytes or more
 *   Q q  around TAKT_HC_BACK_IRQ
 *   Z z  around TAKT_HC_POLL */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include "drivers/vring_back.h"
#include "guests/stamped/stamps.h"

#define SMALL 0x20 /* makes a capital letter of ASCII a small one */

int __wrap_vring_back_take(struct vring_back *r, struct vring_chain *c);
int __real_vring_back_take(struct vring_back *r, struct vring_chain *c);
i64 __wrap_hypercall(u32 number, u64 a, u64 b, u64 c, u64 d);
i64 __real_hypercall(u32 number, u64 a, u64 b, u64 c, u64 d);
int __wrap_event_close(u32 port);
int __real_event_close(u32 port);

/* Takes a chain as vring_back_take() does, and stamps it. A chain with 1,000 bytes or more to read,
 * or with bytes both to read and to write (a disk request), counts as a frame or request that is
 * measured. The time is that before the call. */
int __wrap_vring_back_take(struct vring_back *r, struct vring_chain *c) {
    u64 t = rdtsc();
    int taken = __real_vring_back_take(r, c);
    char letter = 't';

    if (taken <= 0) return taken;
    if (c->out_len >= STAMP_BYTES || (c->out_len && c->in_len)) letter = 'T';
    stamp_at(letter, t);
    return taken;
}

/* Takes the place of hypercall() in the driver domain that is measured: makes the call, and returns
 * what it returns. The two calls that belong to a round of the driver domain (raise an interrupt,
 * poll) are stamped with a capital letter before and the small letter after. */
i64 __wrap_hypercall(u32 number, u64 a, u64 b, u64 c, u64 d) {
    char letter = 0;
    i64 result;

    if (number == TAKT_HC_BACK_IRQ) letter = 'Q';
    if (number == TAKT_HC_POLL) letter = 'Z';
    if (number == TAKT_HC_BACK_OFFER)
        printf("BENCH back_free %lu\n", (unsigned long)(page_count_free() * PAGE_SIZE));
    if (!letter) return __real_hypercall(number, a, b, c, d);
    stamp(letter);
    result = __real_hypercall(number, a, b, c, d);
    stamp((char)(letter | SMALL));
    return result;
}

/* Takes the place of event_close(), which is called when a device goes: prints the stamps first. */
int __wrap_event_close(u32 port) {
    stamps_print();
    return __real_event_close(port);
}
