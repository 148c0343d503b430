/* The PCI bus of a VM that is a PC (vm/vm.h). It has a host bridge and the devices of the machine
 * that the VM was given. The VM reaches their configuration space as on any PC: it writes an
 * address to port 0xcf8, and reads and writes the register at port 0xcfc (PCI 3.0, 3.2.2.3.2). */
#ifndef HV_PASSTHROUGH_PCBUS_H
#define HV_PASSTHROUGH_PCBUS_H

#include "vm/vm.h"

/* Puts the two ports on the VM's bus. For a VM that is no PC there is nothing to do. */
extern const struct vm_part pcbus_part;

/* The bus_fn (vdev/bus.h) of the eight ports from PCBUS_PORT on; `dev` is the VM. From any pCPU.
 * Takes the lock of the assignment that is accessed. */
void pcbus_access(void *dev, const struct bus_access *access, u64 *value);
#define PCBUS_PORT 0xcf8u

#endif
