/* A load beside what a guest does, for experiments in which each VM is kept busy, as lookbusy does
 * it. The command line says how much:
 *
 *   busy     a thread computes all the time
 *   busy=P   a thread computes until the vCPU has run for P percent of the time, with all that its
 *            other threads do; guest/duty.h has more words
 *   busy_vcpus=N (1)   how many vCPUs have such a thread: the last N. A VM with a turbo vCPU, which
 *            is vCPU 0, can so leave that one free
 *
 * Threads that have something to do take turns with it. */
#ifndef GUEST_BACKGROUND_H
#define GUEST_BACKGROUND_H

#include <takt/types.h>

/* Starts the threads on vCPUs up to `last`, if the command line asks for them. Panics if there is
 * no memory, or no such vCPU. */
void background_start(u32 last);

#endif
