/* The last parts of making a VM: loads its image into RAM, and starts its first vCPU. */
#include <takt/errno.h>
#include "vcpu/vcpu.h"

/* Says that the VM cannot be made because a boot module is missing. The name is at the end of the
 * sentence: if it is too long, only its own end is lost. */
static int module_missing(struct vm *vm, const char *what, const char *name) {
    hv_snprintf(vm->why, sizeof(vm->why), "its %s is not among the boot modules: %s", what, name);
    return vm_part_failed(vm, -ENOENT, vm->why);
}

/* Finds the image that the VM file names among the boot modules, and begins to load it. Returns 1:
 * there is more to do. */
static int image_begin(struct vm *vm) {
    const char *image = config_vm_image(&vm->config), *why;
    struct load_order order = { .mem = &vm->mem,
                                .image = module_find(image),
                                .cmdline = vm->config.cmdline };

    if (!order.image) return module_missing(vm, "image", image);
    if (*vm->config.ramdisk) {
        order.ramdisk = module_find(vm->config.ramdisk);
        if (!order.ramdisk) return module_missing(vm, "ramdisk", vm->config.ramdisk);
    }
    order.pc = vm_is_pc(vm);
    order.turbo = vm->config.turbo;
    why = load_start(&vm->job.loader, &order);
    if (!why) return 1;
    hv_snprintf(vm->why, sizeof(vm->why), "%s: %s", why, image);
    return vm_part_failed(vm, -EINVAL, vm->why);
}

/* A part of making a VM: its first call begins to load the image, the next ones load a piece
 * each. */
static int image_make(struct vm *vm) {
    if (vm->job.at++ == 0) return image_begin(vm);
    if (load_step(&vm->job.loader)) return 1;
    vcpu_start_state(vm->vcpu[0], &vm->job.loader.start);
    return 0;
}

const struct vm_part image_part = { "image", image_make, NULL };

/* Makes vCPU 0 runnable. A VM is paused while it is being made, so the vCPU runs when the pause
 * ends. */
static int run_make(struct vm *vm) {
    sched_wake(&vm->vcpu[0]->sched);
    return 0;
}

/* Waits until all vCPUs have left their pCPUs. They were told to when the VM's state changed. */
static int run_undo(struct vm *vm) {
    if (!sched_vm_stopped(&vm->sched)) return 1;
    if (vm->turbo.pool && !sched_vm_stopped(&vm->turbo)) return 1;
    if (vm_stopped) vm_stopped(vm);
    return 0;
}

const struct vm_part run_part = { "run", run_make, run_undo };
