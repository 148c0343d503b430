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
/* Begins for disk `index` of the VM, which has `rings` rings. Call it once. `alone`: it connects
 * to the store, looks for the manager, and removes the keys of one that is gone. Otherwise
 * guest/collab.h has begun to do so, and tells sockets_manager(). Returns 0, or a negative
 * errno: there is no store, or no memory. */
int sockets_start(u32 index, u32 rings, bool alone);
/* For collab_on_manager(). */
void sockets_manager(bool there);
/* Returns the vCPU on which a thread belongs. The thread itself goes there, by thread_move(). */
u32 sockets_vcpu(u32 thread);
/* How often threads were given another vCPU. */
u32 sockets_moves(void);

#endif
