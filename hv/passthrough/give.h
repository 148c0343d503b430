/* Giving a device of the machine to a VM, and taking it back. */
#ifndef HV_PASSTHROUGH_GIVE_H
#define HV_PASSTHROUGH_GIVE_H

#include "passthrough/pci.h"

/* Once at boot, after pci_enumerate(). Device registers lie above the RAM of this machine: `low_ram` is
 * the end of what is below 4 GiB, `high_ram` that of all. */
void give_init(const struct acpi_info *a, hpa_t low_ram, hpa_t high_ram);
/* Why it can be given to nobody, one sentence; NULL: it can. */
const char *give_refused(const struct pci_device *d);
/* How it interrupts, or would: the pin's GSI and IRQ_* flags. NULL: it cannot; else where that is told. */
const char *give_line(const struct pci_device *d, u32 *gsi, u32 *flags);

#endif
