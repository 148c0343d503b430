/* The back end of a virtio entropy device (virtio 1.2, 5.4): it fills the buffers of another VM's
 * driver with random bytes. */
#ifndef DRIVERS_BACK_RNG_H
#define DRIVERS_BACK_RNG_H

#include "drivers/back_dev.h"
#include "drivers/options.h"

#define BACK_RNG_BATCH 16 /* buffers that are filled in one turn, before other devices get theirs */
#define BACK_RNG_MOST  256u /* bytes that are written to one buffer; the driver learns how many */
#define BACK_RNG_RETRY NS_PER_MS /* how long to wait if there is no randomness at the moment */

/* Where the bytes come from. */
struct rng_source {
    bool (*word)(struct rng_source *s,
                 u64 *word); /* returns false if there is none at the moment */
    u64 seed;
};

struct back_rng {
    struct back_dev dev;
    struct vring_back ring;
    struct rng_source source;
    u64 buffers, bytes;
};

/* The options that the back end knows: seed=N. */
extern const struct option_kind back_rng_options[];

/* Sets the back end up for the device that `info` describes, and fills in *offer, which is what the
 * front end will see. `hardware` is the CPU's generator; NULL: it has none. With the option `seed`
 * the bytes follow from that seed instead, for runs that can be repeated. Returns 0, or -ENODEV if
 * there is neither. */
int back_rng_init(struct back_rng *b, const struct back_calls *calls, const struct takt_back *info,
                  bool (*hardware)(struct rng_source *s, u64 *word), struct takt_offer *offer);
/* Begins to serve. Call it when the driver is there and dev.window is mapped. */
void back_rng_start(struct back_rng *b, const struct takt_front *f);
void back_rng_stop(struct back_rng *b);
/* Fills buffers. Returns the time (ns) at which it wants to be called again: 0 means at once; ~0
 * means after the next notification. */
u64 back_rng_serve(struct back_rng *b, u64 now);
/* Shows the driver the buffers that were filled. Call it at the end of a round over all devices. */
void back_rng_flush(struct back_rng *b);

#endif
