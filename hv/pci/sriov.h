/* Virtual functions: enabled at boot, their BARs placed by Takt. PCI Express SR-IOV 1.1, chapter 3. */
#ifndef HV_PCI_SRIOV_H
#define HV_PCI_SRIOV_H

#include "pci/pci.h"

#define SRIOV_SETTLE_NS (100 * NS_PER_MS) /* until virtual functions answer: 3.3.3.1 */

/* After pci_enumerate(): of each physical function as many as it has, but at most `most`. Why one has none is
 * in the log. True: sriov_find(), which makes them devices, is to be called SRIOV_SETTLE_NS later. */
bool sriov_enable(u32 most);
void sriov_find(void);
/* Around a reset of the physical function, which takes its virtual ones away. Before it: those that VMs have
 * are not masters of the bus any more, and their VMs are told. After it: false, they are there, and those
 * that were held may go on; or it is lost, and they are, too. True: they will be in SRIOV_SETTLE_NS: call
 * again. */
void sriov_hold(struct pci_device *pf);
bool sriov_again(struct pci_device *pf);

/* What a VM file's `vf =` asks for (CONFIG_VF): that one, or one that nobody has. NULL: there is none. */
struct pci_device *sriov_asked(u64 request);
/* Of the physical functions that are Intel's Ethernet controllers, and as such called igb0, igb1 ...: which;
 * -1: none of them. */
int sriov_number(const struct pci_device *pf);

#endif
