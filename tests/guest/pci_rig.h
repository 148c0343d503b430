/* A device of the machine that was given to this VM, for tests: the first one. Its interrupts
 * are counted. */
#ifndef TESTS_GUEST_PCI_RIG_H
#define TESTS_GUEST_PCI_RIG_H

#include <guest/device.h>
#include <guest/event.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/time.h>
#include <takt/device.h>
#include <takt/io.h>

static struct takt_pci pci;
static u32 pci_interrupts;

/* The device must be of this vendor (low half) and kind. */
static inline void pci_open(u32 id) {
    int err = pci_get(0, &pci);

    if (err) test_fatal("there is no PCI device: %d", err);
    if (pci.id != id) test_fatal("it is a device %x", pci.id);
}

static inline volatile u8 *pci_registers(void) { return (volatile u8 *)pci.bar[0].addr; }

static inline void pci_on_interrupt(u32 port, void *arg) {
    __atomic_fetch_add(&pci_interrupts, 1, __ATOMIC_SEQ_CST);
}

static inline void pci_count(void) { event_set_handler(pci.port, 0, pci_on_interrupt, NULL); }

/* Waits until n interrupts have come since the start. The network card of QEMU begins to receive
 * one second after it was told to. */
static inline bool pci_await(u32 n) {
    u64 end = time_ns() + 4 * NS_PER_S;

    while (__atomic_load_n(&pci_interrupts, __ATOMIC_SEQ_CST) < n && time_ns() < end)
        nap_until(time_ns() + NS_PER_MS);
    return __atomic_load_n(&pci_interrupts, __ATOMIC_SEQ_CST) >= n;
}

#endif
