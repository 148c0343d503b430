/* The NVMe controller that was given to a driver domain, whose disk its VMs have ranges of
 * (drivers/disk_nvme.h). There is at most one. The word nvme=bw=200M,queue=32 of the command line
 * says how many bytes a second it moves, and with how many requests it counts as full
 * (docs/collab.md). All functions are called on vCPU 0, from the loop that serves the devices. */
#ifndef GUEST_CONTROLLER_H
#define GUEST_CONTROLLER_H

#include <takt/device.h>
#include "drivers/disk_nvme.h"

#define CONTROLLER_NAME "nvme" /* also the word of the command line that describes it */

/* How the console names a PCI device. */
#define BDF       "%02x:%02x.%x"
#define BDF_OF(p) (p)->bdf >> 8, (p)->bdf >> 3 & 31, (p)->bdf & 7

/* Sets up the index-th device of TAKT_HC_PCI_*, which is an NVMe controller, and says on the
 * console what came of it. */
void controller_add(const struct takt_pci *pci, u32 index);
/* Whether there is one. The other functions may be called only then, but for controller_open(). */
bool controller_present(void);
/* What the controller has to do, as the manager sees it, under the name CONTROLLER_NAME. */
const struct disk_load *controller_load(void);
/* Returns the range of its disk that info->options ask for. `info` must live until
 * nvme_store_close(). NULL: it cannot be had, and the console says why. */
struct disk *controller_open(const struct takt_back *info);
/* Takes the controller's interrupt and what has ended. Returns whether anything has; then it may
 * belong to any disk, or make room for it. */
bool controller_run(u64 now);
/* Shows the controller what was submitted in this turn. Returns when controller_run() is due, ns;
 * ~0: after the next interrupt. */
u64 controller_kick(void);

#endif
