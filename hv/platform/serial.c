/* Finds the serial port for the console, as the operator or the firmware names it: a COM port, any
 * I/O port, registers in memory, or a PCI device. It finds out where the registers are and which
 * interrupt the port has; drivers/uart.c then drives it. AML is ACPI's own language, for which Takt
 * has no interpreter. */
#include "platform/serial.h"

#include <takt/io.h>
#include "lib/printf.h"
#include "platform/hostmap.h"
#include "platform/irq.h"
#include "platform/pciport.h"

#define UART_REGISTERS 8u

#define PCI_ID         0x00
#define PCI_COMMAND    0x04
#define PCI_CLASS      0x08
#define PCI_BAR0       0x10
#define COMMAND_IO     BIT(0)
#define COMMAND_MEM    BIT(1)
#define BAR_IO         BIT(0)
#define BAR_64         BIT(2) /* of a memory BAR: another register has the upper half */
#define CLASS_SERIAL   0x0700 /* class 7, subclass 0 */

/* Notes that the port has registers in memory at `addr`, `stride` bytes apart, and maps them.
 * Returns NULL or what is wrong. */
static const char *serial_registers(u64 addr, u32 stride, struct serial *s) {
    s->uart.regs = mmio_map(addr, (u64)UART_REGISTERS * stride);
    s->uart.stride = (u8)stride;
    if (!s->uart.regs) return "its registers cannot be mapped";
    return NULL;
}

/* Fills in *s for a PCI device. Its registers are where its first BAR says. How its interrupt is
 * wired only AML tells, so it is used without interrupts. Returns NULL or what is wrong. */
static const char *find_pci(u32 bdf, struct serial *s) {
    u32 bar, command, decodes;
    u64 addr;

    hv_snprintf(s->name, sizeof(s->name), "pci:%02x:%02x.%u", bdf >> 8, bdf >> 3 & 31, bdf & 7);
    if (bdf >> 16) return "a PCI device of another segment than 0 cannot be reached so early";
    if (pci_port_read(bdf, PCI_ID) == ~0u) return "there is no such PCI device";
    if (pci_port_read(bdf, PCI_CLASS) >> 16 != CLASS_SERIAL)
        return "that PCI device is no serial port";
    bar = pci_port_read(bdf, PCI_BAR0);
    if (bar & BAR_IO) {
        decodes = COMMAND_IO;
        addr = bar & ~3u;
    } else {
        decodes = COMMAND_MEM;
        addr = bar & ~15u;
        if (bar & BAR_64) addr |= (u64)pci_port_read(bdf, PCI_BAR0 + 4) << 32;
    }
    if (!addr) return "the firmware gave that PCI device no address";
    /* The upper half of this register is STATUS, whose bits are cleared by writing ones to them.
     * Zeros leave it as it is. */
    command = pci_port_read(bdf, PCI_COMMAND) & 0xffff;
    pci_port_write(bdf, PCI_COMMAND, command | decodes);
    s->is_pci = true;
    s->bdf = bdf;
    if (!(bar & BAR_IO)) return serial_registers(addr, 1, s);
    s->uart.port = (u16)addr;
    return NULL;
}

/* ---- the others ---- */

/* Notes that the port has interrupt line `irq` of a PC. Before ACPI has been read (`a` is NULL), we
 * do not know to which pin that line goes. */
static void use_irq(const struct acpi_info *a, u32 irq, struct serial *s) {
    if (!a) return;
    s->has_gsi = true;
    s->gsi = acpi_line(a, irq, &s->irq_flags);
}

/* Fills in *s for a port at an I/O address. If it is one of the four COM ports, its interrupt is
 * known: com1 and com3 have line 4, com2 and com4 line 3. */
static void find_port(u64 port, const struct acpi_info *a, struct serial *s) {
    s->uart.port = (u16)port;
    hv_snprintf(s->name, sizeof(s->name), "port 0x%lx", port);
    for (u32 com = 1; com <= 4; com++) {
        if (uart_port(com) != port) continue;
        hv_snprintf(s->name, sizeof(s->name), "com%u", com);
        if (com == 1 || com == 3)
            use_irq(a, 4, s);
        else
            use_irq(a, 3, s);
    }
}

/* Fills in *s for registers in memory. Returns NULL or what is wrong. */
static const char *find_memory(u64 addr, u32 stride, struct serial *s) {
    const char *kind = "mmio";

    if (stride == 4) kind = "mmio32";
    hv_snprintf(s->name, sizeof(s->name), "%s:0x%lx", kind, addr);
    return serial_registers(addr, stride, s);
}

/* Fills in *s for the port that the firmware's table SPCR names. Returns NULL or what is wrong. */
static const char *find_firmwares(const struct acpi_info *a, struct serial *s) {
    const struct acpi_serial *f = &a->serial;
    const char *why = NULL;
    size_t n;

    s->baud = f->baud;
    if (f->in_memory)
        why = find_memory(f->addr, f->stride, s);
    else
        find_port(f->addr, a, s);
    if (f->has_irq) use_irq(a, f->irq, s);
    if (f->has_gsi && !f->has_irq) {
        s->has_gsi = true;
        s->gsi = f->gsi;
        /* Beyond the 16 lines of ISA there are those of PCI, which are level triggered. */
        if (f->gsi >= 16) s->irq_flags = IRQ_LOW | IRQ_LEVEL;
    }
    n = strlen(s->name);
    hv_snprintf(s->name + n, sizeof(s->name) - n, " (SPCR)");
    return why;
}

/* Fills in *s with the serial port that `want` names. Returns NULL, or the part of a sentence that
 * says why there is no such port. If the firmware does not say which port it uses, com1 is the best
 * guess: most machines have it. */
const char *serial_find(const struct console_spec *want, const struct acpi_info *a,
                        struct serial *s) {
    *s = (struct serial){ .baud = want->baud };
    switch (want->where) {
    case AT_COM: find_port(uart_port(want->com), a, s); return NULL;
    case AT_PORT: find_port(want->addr, a, s); return NULL;
    case AT_PCI: return find_pci((u32)want->addr, s);
    case AT_MEMORY: return find_memory(want->addr, want->stride, s);
    case AT_FIRMWARES:
        if (a && a->serial.there) return find_firmwares(a, s);
        find_port(uart_port(1), a, s);
        s->baud = 115200;
        return NULL;
    default: return "none is wanted";
    }
}
