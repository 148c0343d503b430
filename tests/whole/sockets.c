/* Machines with several sockets. A VM's memory is on the socket of the pCPU on which the VM ran
 * first. On other sockets memcpy() is `remote` times as slow for it.
 *
 * Molka, Hackenberg, Schoene and Mueller, Memory Performance and Cache Coherency Effects on an
 * Intel Nehalem Multiprocessor System (PACT 2009), measured what such accesses cost on one machine.
 * whole.h has the contracts. */
#include "tests/whole/whole.h"

static u64 remote;         /* thousandths */
static u32 per_socket;     /* pCPUs; 0: the model is off */
static u32 home[PORT_VMS]; /* number of the socket + 1; 0: the VM has not run */

void sockets_start(const struct config_model *m) {
    per_socket = m->socket;
    remote = m->remote;
}

u32 sockets_of(u32 cpu) {
    if (!per_socket) return 0;
    return cpu / per_socket;
}

u64 sockets_element(u32 vm, u32 cpu) {
    u32 socket;

    if (!per_socket) return whole_costs.element;
    socket = sockets_of(cpu) + 1;
    if (!home[vm]) home[vm] = socket;
    if (home[vm] == socket) return whole_costs.element;
    return whole_costs.element * remote / 1000;
}

void sockets_forget(u32 vm) { home[vm] = 0; }
