/* Stops for a debugger at a virtual time (docs/simulation.md, "A debugger"). A stop changes nothing
 * that happens later: a guest that is stopped in the middle of its stay has the rest of its time
 * afterwards. whole.h has the contracts; tests/whole/gdb.py is the debugger's side, and reads
 * whole_places and whole_stop. */
#include <stdio.h>
#include <string.h>
#include "tests/whole/whole.h"
#include "vcpu/vcpu.h"

struct whole_stop whole_stop = { .at = ~0ull };

/* Which image is at which place among PORT_VMS, for its symbols. */
struct whole_place {
    char image[CONFIG_VALUE];
} whole_places[PORT_VMS];

/* What else the debugger needs to find the images and the VMs' RAM. */
const char *whole_guests;
const u64 whole_base = PORT_BASE, whole_span = PORT_SPAN;

/* The debugger has a breakpoint here. */
void whole_stopped(const char *in, u64 ps);
__attribute__((noinline)) void whole_stopped(const char *in, u64 ps) {
    __asm__ volatile("" : : "r"(in), "r"(ps) : "memory");
}

static const struct vm *vm_of(const struct virt_vm *v) { return container_of(v, struct vm, virt); }

void debug_place(u32 place, const struct virt_vm *vm) {
    struct whole_place *p = &whole_places[place];

    snprintf(p->image, sizeof(p->image), "%s", config_vm_image(&vm_of(vm)->config));
}

static bool wanted(const char *in) { return !whole_stop.in[0] || !strcmp(whole_stop.in, in); }

u64 debug_after(const struct virt_vm *vm, u64 limit) {
    if (whole_stop.at >= limit || !wanted(vm_of(vm)->name)) return 0;
    return limit - MAX(whole_stop.at, whole_now);
}

void debug_stop(const char *in, u64 ps) {
    if (!wanted(in)) return;
    whole_stop.at = ~0ull;
    whole_stopped(in, ps);
}
