/* The NVMe controller that was given to a driver domain. Its disk is divided into ranges, which the
 * driver domain serves to VMs as disks (drivers/disk_nvme.h). There is at most one controller. The
 * word nvme=bw=200M,queue=32 of the command line says how many bytes a second it moves, and with
 * how many requests it counts as full (docs/collab.md). All functions are called on vCPU 0, from
 * the loop that serves the devices. */
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
/* Returns whether there is a controller. If there is none, of the other functions only
 * controller_open() may be called. */
bool controller_present(void);
/* Returns how much work the controller has, for the manager (guest/manager.h), which knows it under
 * the name CONTROLLER_NAME. */
const struct disk_load *controller_load(void);
/* Returns the range of the controller's disk that info->options ask for. `info` must live until
 * nvme_store_close(). Returns NULL if the range cannot be had; then the console says why. */
struct disk *controller_open(const struct takt_back *info);
/* Takes the controller's interrupt, and ends the commands that the controller is done with. Returns
 * whether there were any. If so, look at all disks: a command may belong to any of them, and its
 * end may make room for another one. */
bool controller_run(u64 now);
/* Shows the controller what was submitted in this turn. Returns when controller_run() is due, ns;
 * ~0: after the next interrupt. */
u64 controller_kick(void);

#endif
