/* Where the console's serial port is. */
#ifndef HV_PLATFORM_SERIAL_H
#define HV_PLATFORM_SERIAL_H

#include "drivers/uart.h"
#include "lib/parse.h"
#include "platform/firmware.h"

struct serial {
    struct uart uart;
    u32 baud;      /* to set; 0: as it is */
    char name[40]; /* for people: "com1", "mmio:0xfe03e000 (SPCR)" */
    bool has_gsi;  /* else nobody knows how it interrupts */
    u32 gsi;       /* a pin of the IOAPICs */
    u32 irq_flags; /* IRQ_* */
    bool is_pci;
    u32 bdf; /* of the PCI device that it is */
};

/* Works out what `want` means on this machine: switches a PCI device's decoding on, maps registers
 * in memory. `a` is what ACPI says, NULL as long as it has not been read: then "auto" is com1, and
 * no interrupt is known. Whether something answers there is not tried. Returns NULL, or why there
 * is no such port, as the rest of a sentence. On the boot CPU, after memory has been set up if
 * registers are in memory. */
const char *serial_find(const struct console_spec *want, const struct acpi_info *a,
                        struct serial *s);

#endif
