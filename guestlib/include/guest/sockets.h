/* A guest that is on several sockets (docs/collab.md): spreads its I/O threads over its vCPUs as
 * the manager says that the I/O cores of the sockets can take it, and publishes the weights of its
 * vCPUs. Without a manager the threads stay where they are. */
#ifndef GUEST_SOCKETS_H
#define GUEST_SOCKETS_H

#include <takt/types.h>

#define SOCKETS_THREADS 16

/* Adds an I/O thread of that weight (1 to 1000), which begins on vCPU `vcpu`. Call it for all
 * threads before sockets_start(). Returns the thread's number, or -ENOSPC. */
int sockets_add(u32 weight, u32 vcpu);
/* Begins to follow the manager for disk `index` of the VM, which has `rings` rings. Call it once.
 * If `alone` is true, it also connects to the store, looks for the manager, and removes the keys
 * that were made for a manager that is gone. Otherwise guest/collab.h does that and calls
 * sockets_manager(). Returns 0, or a negative errno if there is no store or no memory. */
int sockets_start(u32 index, u32 rings, bool alone);
/* Notes that there is a manager (true), or that it goes. It is made for collab_on_manager(). */
void sockets_manager(bool there);
/* Returns the vCPU on which a thread belongs. The thread itself goes there, by thread_move(). */
u32 sockets_vcpu(u32 thread);
/* Returns how often threads were given another vCPU. */
u32 sockets_moves(void);

#endif
