/* Counts the instructions of a call, one by one: while the trap flag is set the CPU raises
 * SIGTRAP after each of them. */
#ifndef COUNT_H
#define COUNT_H

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <takt/types.h>

#define BOUND 50000u /* instructions of a call (docs/architecture.md) */

static volatile u32 *count_steps;

static inline void count_step(int signal) { ++*count_steps; }

/* Below what a leaf function keeps there without moving the stack pointer. */
#define COUNT_FLAGS(change)                                                                        \
    __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; " change                                     \
                     ", (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::                                  \
                         : "memory", "cc")

static inline void count_nothing(void) {}

/* In a process of its own: what the call changes is lost. */
static inline u32 count_run(void (*call)(void)) {
    u32 n;
    pid_t child;

    count_steps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (count_steps == MAP_FAILED) abort();
    child = fork();
    if (child == 0) {
        signal(SIGTRAP, count_step);
        COUNT_FLAGS("orq $0x100");
        call();
        COUNT_FLAGS("andq $-0x101");
        _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child) abort();
    n = *count_steps;
    munmap((void *)count_steps, 4096);
    return n;
}

static inline u32 instructions(void (*call)(void)) {
    return count_run(call) - count_run(count_nothing);
}

#endif
