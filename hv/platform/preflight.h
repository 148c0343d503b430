/* The table of what this machine has and what follows, printed before anything starts. */
#ifndef HV_PLATFORM_PREFLIGHT_H
#define HV_PLATFORM_PREFLIGHT_H

#include "platform/acpi.h"

/* One row. `effect` is what follows, one clause. */
void preflight_row(const char *what, bool found, const char *effect);
/* The rows that the platform knows: APIC, timers, clock, IOMMU, speculation. */
void preflight_platform(const struct acpi_info *a);

#endif
