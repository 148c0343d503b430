/* The host's signals for accesses to memory. faults.h has the contracts. */
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>
#include "tests/whole/faults.h"

#define WRITE 2 /* in the error code of a page fault: SDM 3A 4.7 */
#define RED_ZONE                                                                                   \
    128 /* bytes below the stack pointer that a function may use: System V psABI 3.2.2 */
#define STACK (64u << 10)

static struct sigaction before[NSIG];

/* Handles the signal of an access to memory that is not mapped in this program. If a guest has made
 * it, its page is mapped and the access repeated. If the guest may not make it, the guest goes on
 * with memory_fault() instead of its instruction. A fault of the simulation itself ends the
 * program, as it would without this handler. */
static void on_fault(int number, siginfo_t *info, void *context) {
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    bool write = r[REG_ERR] & WRITE;
    u64 gpa = ~0ull;

    if (!faults_in_guest()) {
        sigaction(number, &before[number], NULL); /* the default, or that of a sanitizer */
        return;
    }
    if (number == SIGSEGV && faults_fill((u64)info->si_addr, write, &gpa)) return;
    r[REG_RDI] = (greg_t)gpa;
    r[REG_RSI] = write;
    r[REG_RDX] = r[REG_RIP];
    r[REG_RCX] = r[REG_R15];                            /* port->left, while the guest executes */
    r[REG_RSP] = ((r[REG_RSP] - RED_ZONE) & ~15ll) - 8; /* as after a call */
    r[REG_RIP] = (greg_t)memory_fault;
}

/* The signals have a stack of their own, because the guest's stack may be what is not mapped. */
void faults_catch(void) {
    static const int signals[] = { SIGSEGV, SIGBUS, SIGILL };
    struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    stack_t stack = { .ss_size = STACK, .ss_sp = malloc(STACK) };

    sigaltstack(&stack, NULL);
    for (u32 i = 0; i < ARRAY_SIZE(signals); i++) {
        sigaction(signals[i], &action, &before[signals[i]]);
    }
}
