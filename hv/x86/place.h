/* Where a CPU is in the machine: its socket, its core in the socket, its thread in the core. The
 * CPU's APIC id tells this: its upper bits are the socket, and its lowest bits the thread (SDM 3A
 * 9.9; APM3 E.4.7, E.4.24). */
#ifndef HV_X86_PLACE_H
#define HV_X86_PLACE_H

#include <takt/types.h>

/* How the bits of an APIC id are divided; the same for all CPUs of a machine. */
struct place_bits {
    u32 thread; /* how many bits, from bit 0, number the threads of a core */
    u32 socket; /* from which bit on the id is the socket's number */
};

struct place {
    u32 socket, core, thread;
};

/* Asks the CPU on which this function runs how the bits are divided. */
struct place_bits place_bits_read(void);

struct place place_of(const struct place_bits *b, u32 apic_id);

/* Sorts the `nr` ids in the order in which CPUs are numbered: by socket, then by core, then by
 * thread. So CPUs with neighbouring numbers are neighbours in the machine. `first`, the boot CPU,
 * comes first. The other threads of its core follow, and then the other cores of its socket. */
void place_sort(const struct place_bits *b, u32 *ids, u32 nr, u32 first);

/* Keeps only the first id of each core, and returns how many ids are left. The ids must have been
 * sorted by place_sort(). */
u32 place_one_per_core(const struct place_bits *b, u32 *ids, u32 nr);

#endif
