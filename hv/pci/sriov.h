/* Virtual functions: enabled at boot, their BARs placed by Takt. PCI Express SR-IOV 1.1, chapter
 * 3. */
#ifndef HV_PCI_SRIOV_H
#define HV_PCI_SRIOV_H

#include "pci/pci.h"

#define SRIOV_SETTLE_NS (100 * NS_PER_MS) /* until virtual functions answer: 3.3.3.1 */

/* Both once at boot, after pci_enumerate() (tests: again). sriov_enable() enables on each physical
 * function as many virtual ones as it has, but at most `most`, and logs why one gets none. It
 * returns whether any were enabled: then sriov_find(), which adds them to the devices, is to be
 * called SRIOV_SETTLE_NS later. */
bool sriov_enable(u32 most);
void sriov_find(void);
/* For pci_reset(), because a reset of `pf` disables its virtual functions. Returns true if it has
 * just enabled them again; then it is to be called once more in SRIOV_SETTLE_NS. Returns false when
 * they are there and idle, or `lost` together with `pf`. */
bool sriov_restore(struct pci_device *pf);

/* Physical functions of Intel's Ethernet controllers are called igb0, igb1 and so on, in order of
 * bdf. sriov_number() returns the number of `pf`, or -1 if it is none of them; sriov_named() the
 * physical function of that number, or NULL. */
int sriov_number(const struct pci_device *pf);
const struct pci_device *sriov_named(u32 number);

#endif
