/* The back end of a virtio network device, a port of the bridge. What the front end sends goes on from its
 * own buffers; what comes for it is copied into them, and dropped if there are none: a ring is finite. */
#ifndef DRIVERS_BACK_NET_H
#define DRIVERS_BACK_NET_H

#include "drivers/back_dev.h"
#include "drivers/bridge.h"
#include "drivers/options.h"
#include "drivers/virtio.h"

#define BACK_NET_BATCH 64 /* frames that a device may send before others have their turn */
#define BACK_NET_QUEUE 256

struct back_net {
    struct bridge_port port; /* first: deliver() knows */
    struct back_dev dev;
    struct bridge *bridge;
    struct vring_back rx, tx;
    u64 wait; /* the link up is busy until then; 0: it is not */
};

/* What the words behind the back end's name may be: `rate=20M delay=5ms jitter=1ms loss=0.1% queue=256 seed=1
 * mac=...`, of both directions of the link. */
extern const struct option_kind back_net_options[];

/* Plugs the device into the bridge and fills in what the front end is to see. */
int back_net_init(struct back_net *n, struct bridge *b, const struct back_calls *calls,
                  const struct takt_back *info, struct takt_offer *offer);
void back_net_fini(struct back_net *n);
/* The driver is there, and dev.window is mapped. */
void back_net_start(struct back_net *n, const struct takt_front *f);
void back_net_stop(struct back_net *n);
/* Sends on what the driver wants to send, as long as it is not too much. When to call again: 0 at once, ~0
 * after the next notification. */
u64 back_net_serve(struct back_net *n, u64 now);
/* The end of a round: shows the driver what has come. */
void back_net_flush(struct back_net *n);

#endif
