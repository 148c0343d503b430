/* How a guest finds its virtio devices, which another VM serves, and the PCI devices that it was
 * given. A virtio device is there only when its back end in that other VM has *offered* it.
 * device.h has the contracts. */
#include <guest/device.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <takt/io.h>
#include "drivers/virtio_mmio.h"

#define RELAX_NS (50 * NS_PER_US) /* how long a driver sleeps when it has to wait for its device */

/* Allocates n pages full of zeros for a driver, because a device may read a ring before the driver
 * has written all of it. */
static void *pages(size_t n) {
    void *p = page_alloc(n);

    if (p) memset(p, 0, n * PAGE_SIZE);
    return p;
}

static u64 device_dma_addr(const void *p) { return ptr_to_pa(p); }

/* Lets other VMs run, because the back end may be on the same pCPU. */
static void relax(void) { nap_until(time_ns() + RELAX_NS); }

const struct driver_env guest_env = { pages, page_free, device_dma_addr, relax };

static volatile u8 *regs_of(u32 number) {
    return (volatile u8 *)(TAKT_VIRTIO_GPA + number * PAGE_SIZE);
}

static u32 config_port(volatile u8 *regs) { return mmio_read32(regs + TAKT_VIRTIO_CONFIG_PORT); }

static void on_offer(u32 port, void *arg) { sem_up(arg); }

/* Waits until the device is offered: until then its type reads 0. Returns the type, or 0 if the
 * device was not offered by the deadline. The handler is set before the first look, so that an
 * offer in between is not missed. */
static u32 wait_for_type(volatile u8 *regs, u64 deadline) {
    struct semaphore offered = SEMAPHORE(0);
    u32 port = config_port(regs), type;

    event_set_handler(port, thread_self()->vcpu, on_offer, &offered);
    do type = virtio_mmio_type(regs);
    while (!type && sem_down_until(&offered, deadline));
    event_set_handler(port, thread_self()->vcpu, NULL, NULL);
    return type;
}

/* Waits for device `index` of a type, and opens it. Returns 0, or a negative error. The device is
 * found by counting those of its type. So each device before it must have a back end too, because
 * the type of a device is not known until then. */
int device_open(struct virtio_dev *d, u32 type, u32 index, u64 timeout_ns) {
    u64 deadline = time_ns() + timeout_ns;

    if (!on_takt()) return -ENODEV;
    for (u32 i = 0; i < TAKT_MAX_DEVICES && config_port(regs_of(i)); i++) {
        u32 t = wait_for_type(regs_of(i), deadline);

        if (!t) return -ETIMEDOUT;
        if (t != type || index--) continue;
        virtio_mmio_init(d, &guest_env, regs_of(i));
        return 0;
    }
    return -ENODEV;
}

u32 device_port(const struct virtio_dev *d) { return mmio_read32(d->regs + TAKT_VIRTIO_PORT); }

int device_on_used(struct virtio_dev *d, u32 vcpu, event_handler fn, void *arg) {
    return event_set_handler(device_port(d), vcpu, fn, arg);
}

int device_on_config(struct virtio_dev *d, u32 vcpu, event_handler fn, void *arg) {
    return event_set_handler(config_port(d->regs), vcpu, fn, arg);
}

/* Maps a window, so that the memory of the front end's VM can be used. Returns 0, or -ENOMEM. The
 * window has the same hole below TAKT_HIGH_RAM as the VM's RAM that it shows. */
int window_map(const struct takt_window *w) {
    int error = mem_map(w->base, w->base + w->low);

    if (!error && w->high)
        error = mem_map(w->base + TAKT_HIGH_RAM, w->base + TAKT_HIGH_RAM + w->high);
    return error;
}

/* Finds PCI device `index` of this VM, and maps its BARs. Returns 0, -ENOENT or -ENOMEM. The
 * library maps the first 4 GiB at the start. BARs may be anywhere, so they are mapped here. */
int pci_get(u32 index, struct takt_pci *pci) {
    int error;

    if (!on_takt()) return -ENOENT;
    error = (int)hypercall2(TAKT_HC_PCI_INFO, index, (u64)pci);
    for (u32 i = 0; i < 6 && !error; i++)
        if (pci->bar[i].addr >= TAKT_HIGH_RAM)
            error = mem_map(pci->bar[i].addr, pci->bar[i].addr + pci->bar[i].size);
    return error;
}
