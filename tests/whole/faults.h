/* The host's signals for accesses to memory. This is apart from whole.h, because the C library and
 * hv/virt have the same names for registers. */
#ifndef TESTS_WHOLE_FAULTS_H
#define TESTS_WHOLE_FAULTS_H

#include <takt/types.h>

/* Sets the handler of signals, so that from now on an access of a guest to memory that is not
 * mapped goes to faults_fill(). */
void faults_catch(void);

/* memory.c: maps what the guest that runs has at address `at` of this program. Returns false if it
 * has nothing there, or may not write; *gpa is the guest-physical address. */
bool faults_fill(u64 at, bool write, u64 *gpa);
/* memory.c: returns whether a guest executes. */
bool faults_in_guest(void);
/* cpu.c: the guest goes on here after an access that cannot be. `left` is what its port->left would
 * be now. */
void memory_fault(u64 gpa, bool write, u64 rip, i64 left) __attribute__((noreturn));

#endif
