/* PCI configuration space of segment 0 by its two ports (PCI 3.0, 3.2.2.3.2). It is for code that
 * runs before hv/pci has enumerated the devices, or when everything else has stopped. There is no
 * lock, so nobody else may use the ports between the two accesses: call these at boot, or with the
 * other CPUs stopped. */
#ifndef HV_PLATFORM_PCIPORT_H
#define HV_PLATFORM_PCIPORT_H

#include <takt/io.h>

#define PCI_PORT_ADDRESS 0xcf8
#define PCI_PORT_DATA    0xcfc
#define PCI_PORT_ENABLE  0x80000000u

/* Selects the aligned register that holds byte `reg` of the function; returns the port of that
 * byte. */
static inline u16 pci_port_select(u32 bdf, u32 reg) {
    outl(PCI_PORT_ADDRESS, PCI_PORT_ENABLE | bdf << 8 | (reg & 0xfc));
    return (u16)(PCI_PORT_DATA + (reg & 3));
}

static inline u32 pci_port_read(u32 bdf, u32 reg) { return inl(pci_port_select(bdf, reg)); }

static inline void pci_port_write(u32 bdf, u32 reg, u32 v) { outl(pci_port_select(bdf, reg), v); }

#endif
