/* The devices that every VM has at fixed addresses: the page of its vCPUs' LAPICs (the part of a
 * CPU that receives interrupts), a UART (serial port), and, if the VM file asks for them, debugcon
 * and debug-exit, two ports by which test programs print and end, as in QEMU. Each device has a
 * function of type bus_fn, which the exit of an access calls: `a` says what is accessed, and
 * `*value` is what is written, or becomes what is read. */
#include "image/firmware.h"
#include "vcpu/exits.h"
#include "x86/tsc.h"

/* The bus_fn of the LAPICs' page. Every vCPU finds its own LAPIC at the same address. Accesses of
 * other sizes than 32 bits do nothing. */
static void lapic_access(void *dev, const struct bus_access *a, u64 *value) {
    struct vcpu *v = ((struct vm *)dev)->vcpu[a->vcpu];
    struct vlapic *l = vcpu_lapic(v);
    u32 offset = (u32)(a->addr - TAKT_LAPIC_GPA);

    if (a->size != 4) return;
    if (!a->write) {
        *value = vlapic_read(l, offset, now_ns());
        return;
    }
    vlapic_write(l, offset, (u32)*value, now_ns());
    vcpu_lapic_written(v);
}

/* To be called when the UART may want another level on its interrupt line, because its console has
 * got or taken characters, or the guest has written a register. */
void vm_uart_changed(struct vm *vm) {
    vuart_update(&vm->uart);
    vm_line(vm, PC_UART_PIN, &vm->uart.irq);
}

/* The bus_fn of the UART. Its interrupt goes to the IOAPIC, if the VM has one. */
static void uart_access(void *dev, const struct bus_access *a, u64 *value) {
    struct vm *vm = dev;

    vuart_access(&vm->uart, a, value);
    if (vm->ioapic) vm_uart_changed(vm);
}

/* The bus_fn of debugcon: what is written there is output of the VM's console. */
static void debugcon_access(void *dev, const struct bus_access *a, u64 *value) {
    char c = (char)*value;

    if (a->write)
        vconsole_put(dev, &c, 1);
    else
        *value = TAKT_DEBUGCON_PORT; /* how guests find out that it is there */
}

/* The bus_fn of debug-exit: a write ends the VM with that exit code. */
static void debug_exit_access(void *dev, const struct bus_access *a, u64 *value) {
    if (a->write) vm_shutdown(dev, TAKT_SHUTDOWN_POWEROFF, (int)*value);
}

/* Puts the devices on the VM's buses. The LAPIC is the first on its bus, because it is used most
 * and a bus is searched from the beginning. */
static int board_make(struct vm *vm) {
    vm->uart.console = &vm->console;
    bus_add(&vm->ports, TAKT_UART_PORT, 8, uart_access, vm);
    if (vm->config.debugcon)
        bus_add(&vm->ports, TAKT_DEBUGCON_PORT, 1, debugcon_access, &vm->console);
    if (vm->config.debug_exit) bus_add(&vm->ports, TAKT_DEBUG_EXIT_PORT, 4, debug_exit_access, vm);
    bus_add(&vm->mmio, TAKT_LAPIC_GPA, PAGE_SIZE, lapic_access, vm);
    return apicv_map(vm);
}

const struct vm_part board_part = { "board", board_make, NULL };
