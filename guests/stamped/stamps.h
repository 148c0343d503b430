/* Clocks at the borders of layers, for make bench: a guest is linked once more with `ld
 * --wrap=FUNCTION`, so that calls of that function from another file come here first and leave a
 * stamp. The sources that are measured know nothing of it. One vCPU; a stamp costs a few
 * instructions, which is measured and printed. */
#ifndef GUESTS_STAMPED_STAMPS_H
#define GUESTS_STAMPED_STAMPS_H

#include <guest/x86.h>

#define STAMPS 32768
/* copies of so many bytes and more are stamped: frames and sectors, not headers */
#define STAMP_BYTES 1000

extern u64 stamps[STAMPS]; /* TSC << 8 | letter */
extern u32 nr_stamps;

static inline void stamp_at(char letter, u64 tsc) {
    if (nr_stamps < STAMPS) stamps[nr_stamps++] = tsc << 8 | (u8)letter;
}

static inline void stamp(char letter) { stamp_at(letter, rdtsc()); }

/* All that there are, in hypervisor's time; forgets them. */
void stamps_print(void);

#endif
