/* What a VM that is a PC has besides the devices of every VM: an IOAPIC, ACPI tables, and the ports
 * by which an operating system switches its machine off or resets it. */
#include <takt/errno.h>
#include "image/firmware.h"
#include "vcpu/vcpu.h"

static void ioapic_access(void *dev, const struct bus_access *a, u64 *value) {
    vioapic_access(((struct vm *)dev)->ioapic, a, value);
}

/* Sleep control, sleep status and reset (image/firmware.h). A read gives 0. */
static void power_access(void *dev, const struct bus_access *a, u64 *value) {
    if (!a->write || a->size != 1) return;
    if (a->addr == PC_SLEEP_PORT && *value == PC_SLEEP_S5)
        vm_shutdown(dev, TAKT_SHUTDOWN_POWEROFF, 0);
    if (a->addr == PC_RESET_PORT && *value == PC_RESET) vm_shutdown(dev, TAKT_SHUTDOWN_REBOOT, 0);
}

void vm_line(struct vm *vm, u32 pin, const u32 *cause) {
    if (vm->ioapic) vioapic_line(vm->ioapic, pin, cause);
}

static int pc_make(struct vm *vm) {
    if (!*vm->config.kernel) return 0;
    vm->ioapic = heap_alloc(sizeof(*vm->ioapic));
    if (!vm->ioapic) return -ENOMEM;
    vioapic_init(vm->ioapic, &vm->vcpu[0]->lapic);
    bus_add(&vm->mmio, TAKT_IOAPIC_GPA, PAGE_SIZE, ioapic_access, vm);
    bus_add(&vm->ports, PC_SLEEP_PORT, 8, power_access, vm);
    pc_write_tables(&vm->mem, vm->nr_vcpus);
    return 0;
}

static int pc_undo(struct vm *vm) {
    heap_free(vm->ioapic);
    vm->ioapic = NULL;
    return 0;
}

const struct vm_part pc_part = { "PC", pc_make, pc_undo };
