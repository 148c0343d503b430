/* The guest's side of co-scheduling (IOrchestra, section 3.3): how a guest on several sockets
 * spreads its I/O threads, when the manager has said how much of its I/O belongs on each socket. */
#ifndef DRIVERS_COLLAB_PLACE_H
#define DRIVERS_COLLAB_PLACE_H

#include "drivers/collab/coschedule.h"

/* Chooses a vCPU for each of `n` threads, and stores it in vcpu[i]. The weights of the threads on
 * the sockets are then in the ratio of `socket`, as far as whole threads allow, and those on the
 * vCPUs of one socket are nearly equal. The heaviest thread is placed first. If several sockets are
 * equally good, the lowest number wins, so the same input gives the same places. nr_vcpus is at
 * least socket->nr, and n at most COSCHEDULE_VCPUS. */
void place_threads(const u32 *weight, u32 n, const struct coschedule_list *socket, u32 nr_vcpus,
                   u32 *vcpu);

#endif
