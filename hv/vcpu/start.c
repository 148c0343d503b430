/* The last parts of a VM: its image in RAM, and its first vCPU on the way. */
#include <takt/errno.h>
#include "vcpu/vcpu.h"

static int image_begin(struct vm *vm) {
    const struct module *m = module_find(vm->config.image);
    const char *why;

    if (!m) {
        hv_snprintf(vm->why, sizeof(vm->why), "its image is not among the boot modules: %s",
                    vm->config.image);
        return vm_part_failed(vm, -ENOENT, vm->why);
    }
    why = load_start(&vm->job.loader, &vm->mem, vm->config.cmdline, m);
    if (!why) return 1;
    /* The name comes last: if it is very long its end is lost, and the sentence is still whole. */
    hv_snprintf(vm->why, sizeof(vm->why), "%s: %s", why, m->name);
    return vm_part_failed(vm, -EINVAL, vm->why);
}

static int image_make(struct vm *vm) {
    if (vm->job.at++ == 0) return image_begin(vm);
    if (load_step(&vm->job.loader)) return 1;
    vcpu_start_state(vm->vcpu[0], &vm->job.loader.start);
    return 0;
}

const struct vm_part image_part = { "image", image_make, NULL };

/* vCPU 0 runs as soon as the VM, which is paused while it is being made, is unpaused. */
static int run_make(struct vm *vm) {
    sched_wake(&vm->vcpu[0]->sched);
    return 0;
}

/* Waits until all vCPUs have left their pCPUs. They were told to when the VM's state changed. */
static int run_undo(struct vm *vm) {
    if (!sched_dom_stopped(&vm->sched)) return 1;
    if (vm->turbo.pool && !sched_dom_stopped(&vm->turbo)) return 1;
    if (vm_stopped) vm_stopped(vm);
    return 0;
}

const struct vm_part run_part = { "run", run_make, run_undo };
