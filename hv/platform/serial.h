/* Finds out where the console's serial port is. */
#ifndef HV_PLATFORM_SERIAL_H
#define HV_PLATFORM_SERIAL_H

#include "drivers/uart.h"
#include "lib/parse.h"
#include "platform/firmware.h"

struct serial {
    struct uart uart;
    u32 baud;      /* the rate to set; 0: it stays as it is */
    char name[40]; /* the name for messages: "com1", "mmio:0xfe03e000 (SPCR)" */
    bool has_gsi;  /* `gsi` is valid; otherwise Takt does not know how the port interrupts */
    u32 gsi;       /* a pin of the IOAPICs */
    u32 irq_flags; /* how the pin signals: IRQ_* */
    bool is_pci;   /* the port is a PCI device */
    u32 bdf;       /* which one */
};

/* Fills in *s with the port that `want` names on this machine. If the port is a PCI device, makes
 * it decode its addresses; if its registers are in memory, maps them. Does not try whether
 * something answers there. `a` is what ACPI says, or NULL if ACPI has not been read yet: then
 * "auto" means com1, and no interrupt is known. Returns NULL, or the part of a sentence that says
 * why there is no such port. On the boot CPU; for registers in memory, after memory has been set
 * up. */
const char *serial_find(const struct console_spec *want, const struct acpi_info *a,
                        struct serial *s);

#endif
