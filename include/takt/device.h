/* Devices: what front ends, back ends and the hypervisor agree on. docs/devices.md tells how
 * they meet.
 *
 * A device of a VM is a page of virtio-mmio registers, version 2 (virtio 1.2, 4.2.2), and two
 * event ports. The hypervisor answers for the registers and knows nothing of the rings; the VM
 * that the VM file names as its back end maps the front end's RAM and serves them. Numbers of
 * the hypercalls are in abi.h. */
#ifndef TAKT_DEVICE_H
#define TAKT_DEVICE_H

#include <takt/abi.h>

#define TAKT_MAX_DEVICES 8    /* a VM; numbered in the order of its section */
#define TAKT_MAX_QUEUES  8    /* a device */
#define TAKT_MAX_CONFIG  256  /* bytes of a device's configuration space */
#define TAKT_QUEUE_MAX   1024 /* descriptors of a queue */

/* ---- Front end: registers of device n at TAKT_VIRTIO_GPA + PAGE_SIZE n, 32 bits each. All
 * TAKT_MAX_DEVICES pages are there. DeviceID is 0 where there is no device (TAKT_VIRTIO_PORT is
 * 0 then), and until a back end has offered it. What the specification does not allow is
 * dropped: reads give 0, writes do nothing. ---- */
enum takt_virtio_reg {
    VIRTIO_MAGIC = 0x000,   /* VIRTIO_MAGIC_VALUE */
    VIRTIO_VERSION = 0x004, /* 2 */
    VIRTIO_DEVICE_ID = 0x008,
    VIRTIO_VENDOR_ID = 0x00c,
    VIRTIO_DEVICE_FEATURES = 0x010,
    VIRTIO_DEVICE_FEATURES_SEL = 0x014,
    VIRTIO_DRIVER_FEATURES = 0x020,
    VIRTIO_DRIVER_FEATURES_SEL = 0x024,
    VIRTIO_QUEUE_SEL = 0x030,
    VIRTIO_QUEUE_NUM_MAX = 0x034,
    VIRTIO_QUEUE_NUM = 0x038,
    VIRTIO_QUEUE_READY = 0x044,
    VIRTIO_QUEUE_NOTIFY = 0x050, /* raises the back end's port */
    VIRTIO_INTERRUPT_STATUS = 0x060,
    VIRTIO_INTERRUPT_ACK = 0x064,
    /* After 0 was written it reads VIRTIO_NEEDS_RESET until the back end has let go of the
     * rings; then it reads 0, and TAKT_VIRTIO_CONFIG_PORT is raised. At once when nobody serves
     * the device. */
    VIRTIO_STATUS = 0x070,
    VIRTIO_QUEUE_DESC = 0x080,   /* and the upper half */
    VIRTIO_QUEUE_DRIVER = 0x090, /* the available ring; and the upper half */
    VIRTIO_QUEUE_DEVICE = 0x0a0, /* the used ring; and the upper half */
    VIRTIO_SHM_LEN = 0x0b0,      /* no shared memory: all ones, from here ... */
    VIRTIO_SHM_END = 0x0c0,      /* ... to here */
    /* Beyond the specification, read-only: two ports of this VM that no one else can bind and
     * that it cannot close. Give each a vCPU (the turbo vCPU, where there is one) and a vector
     * by TAKT_HC_EVTCHN_VECTOR. The first means used buffers and nothing else, so who binds both
     * need never read or acknowledge InterruptStatus. The second means all else: offered,
     * configuration changed, needs reset, back end gone, reset done. */
    TAKT_VIRTIO_CONFIG_PORT = 0x0f4,
    TAKT_VIRTIO_PORT = 0x0f8,
    VIRTIO_CONFIG_GENERATION = 0x0fc,
    VIRTIO_CONFIG = 0x100, /* reads of 1, 2 or 4 bytes; writes are dropped */
};

#define VIRTIO_MAGIC_VALUE 0x74726976u /* "virt" */
#define VIRTIO_VENDOR_TAKT 0x746b6154u /* "Takt" */

#define VIRTIO_ID_NET      1u
#define VIRTIO_ID_BLOCK    2u

#define VIRTIO_ACKNOWLEDGE 0x01u /* Status */
#define VIRTIO_DRIVER      0x02u
#define VIRTIO_DRIVER_OK   0x04u
#define VIRTIO_FEATURES_OK 0x08u
#define VIRTIO_NEEDS_RESET 0x40u
#define VIRTIO_FAILED      0x80u

#define VIRTIO_INT_USED    0x1u /* InterruptStatus */
#define VIRTIO_INT_CONFIG  0x2u

#define VIRTIO_F_INDIRECT  28 /* bits of features that are the rings' */
#define VIRTIO_F_EVENT_IDX 29
#define VIRTIO_F_VERSION_1 32

/* ---- Back end. A device is known by its handle: id of the front VM * TAKT_MAX_DEVICES +
 * number. ---- */

struct takt_back {
    u32 handle, vm, type /* VIRTIO_ID_* */, number;
    u64 ram;          /* bytes of the front VM */
    char name[32];    /* of the front VM; ends with 0, as the next */
    char options[96]; /* what follows the back end's name in the VM file */
};

/* What the front end is to see. Features must have VIRTIO_F_VERSION_1 and of the bits 33 to 40
 * none but ACCESS_PLATFORM (33), IN_ORDER (35) and ORDER_PLATFORM (36): the others change
 * registers or the shape of rings. */
struct takt_offer {
    u64 features;
    u32 nr_queues;  /* 1 to TAKT_MAX_QUEUES */
    u32 queue_max;  /* a power of two, at most TAKT_QUEUE_MAX */
    u32 config_len; /* at most TAKT_MAX_CONFIG */
    u32 reserved;   /* 0 */
    u8 config[TAKT_MAX_CONFIG];
};

/* Addresses are guest-physical of the front VM. A queue that is ready is a split ring of `size`
 * (a power of two, at most queue_max), its three parts aligned and wholly in that VM's RAM: that
 * is all that has been checked. */
struct takt_queue {
    u32 size, ready;
    u64 desc, avail, used;
};

struct takt_front {
    /* with VIRTIO_NEEDS_RESET, or without VIRTIO_DRIVER_OK, the rings are to be left alone */
    u32 status;
    u32 resets;   /* how many the driver has made since the device was offered */
    u64 features; /* taken */
    u32 nr_queues, reserved;
    struct takt_queue queue[TAKT_MAX_QUEUES];
};

/* The front VM's RAM, not executable, in the back end's guest-physical space from
 * TAKT_FOREIGN_GPA on: address x of the front VM is at base + x, for x < low and for
 * TAKT_HIGH_RAM <= x < TAKT_HIGH_RAM + high. When the front VM goes, what is written there is
 * lost, and what is read is anything; no access faults until TAKT_HC_BACK_UNMAP. */
struct takt_window {
    u64 base, low, high;
};

#define TAKT_FOREIGN_GPA 0x4000000000ull /* 256 GiB */

/* ---- A PCI device that was given to this VM ---- */

/* A BAR is where it is in the machine. If it cannot be there, as the VM has RAM or something of
 * its own at these addresses, and it has 64 bits, it is between here and TAKT_FOREIGN_GPA. */
#define TAKT_BAR_GPA 0x3800000000ull /* 224 GiB */

struct takt_pci {
    u32 bdf;        /* segment << 16 | bus << 8 | device << 3 | function */
    u32 id;         /* vendor | device << 16 */
    u32 class_rev;  /* as config space has it at 8 */
    u32 port;       /* the event port by which it interrupts; 0: it cannot */
    u64 dma_offset; /* what it has to be told as an address: guest-physical + dma_offset */
    struct {
        u64 addr, size; /* memory: guest-physical, mapped uncached; size 0: no such BAR, or I/O */
        u32 io;         /* first port; 0: memory or none */
        u32 io_size;
    } bar[6];
};

#endif
