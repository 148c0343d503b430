/* The back end of a virtio network device: the side that serves the rings of a device whose driver
 * (the front end) is in another VM. The device is a port of the bridge. Frames that the front end
 * sends are read from its own buffers; frames for it are copied into its buffers. If there are
 * none, they are dropped, as a real card would, or wait, as with a card that has flow control. */
#ifndef DRIVERS_BACK_NET_H
#define DRIVERS_BACK_NET_H

#include "drivers/back_dev.h"
#include "drivers/bridge.h"
#include "drivers/options.h"
#include "drivers/virtio.h"

#define BACK_NET_BATCH 64 /* frames that a device may send before others have their turn */
#define BACK_NET_QUEUE 256

struct back_net {
    struct bridge_port port;
    struct back_dev dev;
    struct bridge *bridge;
    struct vring_back rx, tx;
    bool offload; /* large frames are offered to the driver (drivers/gso.h) */
    u64 wait;     /* the time at which the link up can take the next frame, ns; 0: now */
};

/* The options that may follow the name of the back end: `rate=20M delay=5ms jitter=1ms loss=0.1%
 * reorder=1% queue=256 seed=1 pause=20us mac=... offload=yes`. Those that describe the link hold
 * for both directions. */
extern const struct option_kind back_net_options[];

/* Plugs the device into the bridge, and fills in *offer, which is what the front end will see.
 * Returns 0, or an error of bridge_add(). */
int back_net_init(struct back_net *n, struct bridge *b, const struct back_calls *calls,
                  const struct takt_back *info, struct takt_offer *offer);
/* Removes the device from the bridge. Call it after back_net_stop(). */
void back_net_fini(struct back_net *n);
/* Begins to serve. Call it when the driver is there and dev.window is mapped. */
void back_net_start(struct back_net *n, const struct takt_front *f);
/* Ends it. Frames for the device are dropped from now on. */
void back_net_stop(struct back_net *n);
/* Sends frames of the driver on, up to BACK_NET_BATCH. Returns the time (ns) at which it wants to
 * be called again: 0 means at once, ~0 means after the next notification. */
u64 back_net_serve(struct back_net *n, u64 now);
/* Shows the driver what has come for it, and what was sent. Call it at the end of a round over all
 * devices. */
void back_net_flush(struct back_net *n);

#endif
