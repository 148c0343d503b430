/* What a VM that is a PC has besides the devices of every VM: an IOAPIC (a chip that turns
 * interrupt wires into messages to LAPICs), ACPI tables, and the ports by which an operating system
 * switches its machine off or resets it. A VM is a PC if its VM file names a `kernel`, such as
 * Linux. */
#include <takt/errno.h>
#include "image/firmware.h"
#include "vcpu/vcpu.h"

/* The bus_fn of the IOAPIC (vdev/bus.h): carries out a guest's access to its registers. */
static void ioapic_access(void *dev, const struct bus_access *a, u64 *value) {
    vioapic_access(((struct vm *)dev)->ioapic, a, value);
}

/* Carries out a guest's access to the power registers of a PC: sleep control, sleep status and
 * reset (image/firmware.h). A write may switch the VM off or reset it. A read gives 0. The port for
 * the reason of an NMI is here, too. */
static void power_access(void *dev, const struct bus_access *a, u64 *value) {
    if (a->addr == PC_NMI_PORT && !a->write) *value = PC_NMI_REASON;
    if (!a->write || a->size != 1) return;
    if (a->addr == PC_SLEEP_PORT && *value == PC_SLEEP_S5)
        vm_shutdown(dev, TAKT_SHUTDOWN_POWEROFF, 0);
    if (a->addr == PC_RESET_PORT && *value == PC_RESET) vm_shutdown(dev, TAKT_SHUTDOWN_REBOOT, 0);
}

/* The level of a device's interrupt line may have changed: `*cause` is not 0 while the device wants
 * an interrupt. Does nothing in a VM without an IOAPIC. */
void vm_line(struct vm *vm, u32 pin, const u32 *cause) {
    if (vm->ioapic) vioapic_line(vm->ioapic, pin, cause);
}

/* ---- interrupt messages of devices: SDM 3A 11.11 ---- */

#define MESSAGE_PLACE   0xfee00000u /* the upper 12 bits of the address */
#define MESSAGE_DEST(a) ((u32)(a) >> 12 & 0xff)
#define MESSAGE_LOGICAL BIT(2)
#define MESSAGE_ICR     0x7ffu  /* vector and delivery mode, as in a LAPIC's ICR */
#define ICR_LOGICAL     BIT(11) /* in ICR: 11.6.1 */

/* Carries out a message by which a device interrupts: a write of `data` to an address of which the
 * upper 12 bits say that it is a message, and the others which LAPIC is meant. */
void vm_message(struct vm *vm, u64 address, u32 data) {
    u32 icr = data & MESSAGE_ICR;

    if ((address & ~0xfffffull) != MESSAGE_PLACE) return;
    if (address & MESSAGE_LOGICAL) icr |= ICR_LOGICAL;
    sched_io_events(&vm->sched, 1);
    vlapic_message(&vm->vcpu[0]->lapic, icr, MESSAGE_DEST(address), false);
}

/* Returns the number of the vCPU that messages to `address` interrupt. A logical destination is
 * taken for a set of vCPUs, as it is in the flat model. That may be wrong, but it only decides on
 * which pCPU the device interrupts. */
u32 vm_message_vcpu(const struct vm *vm, u64 address) {
    u32 id = MESSAGE_DEST(address);

    if (address & MESSAGE_LOGICAL && id) id = (u32)__builtin_ctz(id);
    if (id >= vm->nr_vcpus) return 0;
    return id;
}

/* ---- making it ---- */

/* Presses the power button of a VM that is a PC. On the housekeeping pCPU the IOAPIC stays, because
 * the job that destroys a VM runs there, too. */
int vm_press_power(struct vm *vm) {
    if (!vm_is_pc(vm)) return -ENODEV;
    if (vm->state != VM_RUNNING) return -EINVAL;
    if (!vioapic_pulse(vm->ioapic, PC_BUTTON_PIN)) return -EAGAIN;
    return 0;
}

/* A part of making a VM: puts these devices on its buses and the tables into its RAM. */
static int pc_make(struct vm *vm) {
    if (!vm_is_pc(vm)) return 0;
    vm->ioapic = heap_alloc(sizeof(*vm->ioapic));
    if (!vm->ioapic) return -ENOMEM;
    vioapic_init(vm->ioapic, &vm->vcpu[0]->lapic);
    bus_add(&vm->mmio, TAKT_IOAPIC_GPA, PAGE_SIZE, ioapic_access, vm);
    bus_add(&vm->ports, PC_SLEEP_PORT, 8, power_access, vm);
    bus_add(&vm->ports, PC_NMI_PORT, 1, power_access, vm);
    pc_write_tables(&vm->mem, vm->nr_vcpus);
    return 0;
}

/* Frees the IOAPIC. */
static int pc_undo(struct vm *vm) {
    heap_free(vm->ioapic);
    vm->ioapic = NULL;
    return 0;
}

const struct vm_part pc_part = { "PC", pc_make, pc_undo };
