/* Where a CPU is: its socket, its core in the socket, its thread in the core. All of it is in
 * the CPU's APIC id, whose upper bits are the socket, the lowest the thread (SDM 3A 9.9; APM3
 * E.4.7, E.4.24). */
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

/* Asks the CPU that this runs on. */
struct place_bits place_bits_read(void);

struct place place_of(const struct place_bits *b, u32 apic_id);

/* Puts the `nr` ids into the order in which CPUs are numbered: socket by socket, core by core,
 * thread by thread, so that neighbours in number are neighbours in the machine. `first` (the
 * boot CPU) comes first, and with it the threads of its core, then the other cores of its
 * socket. */
void place_sort(const struct place_bits *b, u32 *ids, u32 nr, u32 first);

/* After place_sort(): leaves one id of each core, the first in the order. Returns how many are
 * left. */
u32 place_one_per_core(const struct place_bits *b, u32 *ids, u32 nr);

#endif
