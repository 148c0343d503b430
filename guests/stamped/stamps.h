/* Stamps record when a guest passes the borders between layers, for `make bench`. A guest is linked
 * a second time with `ld --wrap=FUNCTION`: calls of FUNCTION from another file then reach a
 * wrapper, which leaves a stamp before and after it. The sources that are measured know nothing of
 * that. All vCPUs of the guest share the stamps. A stamp costs a few instructions; that is measured
 * and printed. */
#ifndef GUESTS_STAMPED_STAMPS_H
#define GUESTS_STAMPED_STAMPS_H

#include <guest/x86.h>

#define STAMPS 32768
/* Copies of this many bytes or more are stamped: those of frames and sectors, not those of headers.
 */
#define STAMP_BYTES 1000

extern u64 stamps[STAMPS]; /* TSC << 8 | letter */
extern u32 nr_stamps;

/* Records a stamp with the time `tsc`. If there is no room, it is dropped. */
static inline void stamp_at(char letter, u64 tsc) {
    u32 i;

    if (nr_stamps >= STAMPS) return;
    i = __atomic_fetch_add(&nr_stamps, 1, __ATOMIC_RELAXED);
    if (i < STAMPS) stamps[i] = tsc << 8 | (u8)letter;
}

static inline void stamp(char letter) { stamp_at(letter, rdtsc()); }

/* Prints all stamps, in the hypervisor's time, and forgets them. */
void stamps_print(void);

#endif
