/* Devices: the interface between front ends, back ends and the hypervisor. docs/devices.md
 * describes how they work together.
 *
 * A device of a VM consists of a page of virtio-mmio registers, version 2 (virtio 1.2, 4.2.2), and
 * two event ports. The hypervisor implements the registers, but not the rings. The VM file names
 * another VM as the device's back end; that VM maps the RAM of the device's VM and serves the
 * rings. The numbers of the hypercalls are in abi.h. */
#ifndef TAKT_DEVICE_H
#define TAKT_DEVICE_H

#include <takt/abi.h>

#define TAKT_MAX_DEVICES 8    /* of a VM; numbered in the order in which its section names them */
#define TAKT_MAX_QUEUES  8    /* of a device */
#define TAKT_MAX_CONFIG  256  /* bytes of a device's configuration space */
#define TAKT_QUEUE_MAX   1024 /* descriptors of a queue */

/* ---- Front end. The registers of device n are at TAKT_VIRTIO_GPA + n * PAGE_SIZE, and have 32
 * bits each. There are always TAKT_MAX_DEVICES such pages. DeviceID is 0 if there is no such device
 * (TAKT_VIRTIO_PORT is 0 as well then), and until a back end has offered the device. An access that
 * the specification does not allow is dropped: a read gives 0, and a write does nothing. ---- */
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
    /* After a driver has written 0, this register reads as VIRTIO_NEEDS_RESET until the back end
     * has let go of the rings. Then it reads as 0, and TAKT_VIRTIO_CONFIG_PORT is raised. If no
     * back end uses the rings, it reads as 0 at once. */
    VIRTIO_STATUS = 0x070,
    VIRTIO_QUEUE_DESC = 0x080,   /* the descriptors; the upper half of the address follows */
    VIRTIO_QUEUE_DRIVER = 0x090, /* the available ring; the upper half of the address follows */
    VIRTIO_QUEUE_DEVICE = 0x0a0, /* the used ring; the upper half of the address follows */
    VIRTIO_SHM_LEN = 0x0b0, /* from here to VIRTIO_SHM_END all ones: there is no shared memory */
    VIRTIO_SHM_END = 0x0c0, /* the first register behind */
    /* The next two registers are not in the specification. They are read-only, and name two ports
     * of this VM, which no VM can bind or close. A driver gives each of them a vCPU (the turbo
     * vCPU, if there is one) and a vector by TAKT_HC_EVTCHN_VECTOR. TAKT_VIRTIO_PORT is raised only
     * when buffers were used, so a driver that has bound both never has to read or acknowledge
     * InterruptStatus. TAKT_VIRTIO_CONFIG_PORT is raised for all other reasons: the device was
     * offered, its configuration has changed, it needs a reset, its back end is gone, or a reset is
     * done. */
    TAKT_VIRTIO_CONFIG_PORT = 0x0f4,
    TAKT_VIRTIO_PORT = 0x0f8,
    VIRTIO_CONFIG_GENERATION = 0x0fc,
    VIRTIO_CONFIG = 0x100, /* reads of 1, 2 or 4 bytes; writes are dropped */
};

#define VIRTIO_MAGIC_VALUE 0x74726976u /* "virt" */
#define VIRTIO_VENDOR_TAKT 0x746b6154u /* "Takt" */

#define VIRTIO_ID_NET      1u
#define VIRTIO_ID_BLOCK    2u
#define VIRTIO_ID_RNG      4u

#define VIRTIO_ACKNOWLEDGE 0x01u /* Status */
#define VIRTIO_DRIVER      0x02u
#define VIRTIO_DRIVER_OK   0x04u
#define VIRTIO_FEATURES_OK 0x08u
#define VIRTIO_NEEDS_RESET 0x40u
#define VIRTIO_FAILED      0x80u

#define VIRTIO_INT_USED    0x1u /* InterruptStatus */
#define VIRTIO_INT_CONFIG  0x2u

#define VIRTIO_F_INDIRECT  28 /* numbers of feature bits that are about the rings */
#define VIRTIO_F_EVENT_IDX 29
#define VIRTIO_F_VERSION_1 32

/* ---- Back end. It names a device by a handle: the id of the front VM * TAKT_MAX_DEVICES + the
 * number of the device ---- */

struct takt_back {
    u32 handle, vm, type /* VIRTIO_ID_* */, number;
    u64 ram;          /* bytes of the front VM */
    char name[32];    /* of the front VM; ends with 0, as the next */
    char options[96]; /* what follows the back end's name in the VM file */
};

/* What the front end will see of the device. Features must contain VIRTIO_F_VERSION_1. Of the bits
 * 33 to 40 only ACCESS_PLATFORM (33), IN_ORDER (35) and ORDER_PLATFORM (36) are allowed, because
 * the others change registers or the form of the rings. */
struct takt_offer {
    u64 features;
    u32 nr_queues;  /* 1 to TAKT_MAX_QUEUES */
    u32 queue_max;  /* a power of two, at most TAKT_QUEUE_MAX */
    u32 config_len; /* at most TAKT_MAX_CONFIG */
    u32 reserved;   /* 0 */
    u8 config[TAKT_MAX_CONFIG];
};

/* A queue. The addresses are guest-physical addresses of the front VM. If a queue is ready, the
 * hypervisor has checked that `size` is a power of two and at most queue_max, and that the three
 * parts of the split ring are aligned and lie wholly in that VM's RAM. It has checked nothing
 * else. */
struct takt_queue {
    u32 size, ready;
    u64 desc, avail, used;
};

/* Bits of takt_front.flags. The driver of an operating system cannot begin again with a device that
 * needs a reset. So when the back end of such a driver ends, the device stays, with its rings as
 * they are, and the next back end goes on with them.
 *
 * ORDERED: a back end that comes later may have to go on. So buffers have to be given back in the
 *          order in which they were made available. The index of the used ring then says where to
 *          go on. A buffer that was taken and not given back is taken again.
 * RESUMED: an earlier back end has served these rings. */
#define TAKT_FRONT_ORDERED 0x1u
#define TAKT_FRONT_RESUMED 0x2u

struct takt_front {
    /* the back end must not touch the rings with VIRTIO_NEEDS_RESET, or without VIRTIO_DRIVER_OK */
    u32 status;
    u32 resets;   /* how many resets the driver has made since the device was offered */
    u64 features; /* the features that the driver has accepted */
    u32 nr_queues;
    u32 flags; /* TAKT_FRONT_* */
    struct takt_queue queue[TAKT_MAX_QUEUES];
};

/* The window: where the back end sees the front VM's RAM in its own guest-physical space, above
 * TAKT_FOREIGN_GPA. Address x of the front VM is at base + x, for x < low and for TAKT_HIGH_RAM <=
 * x < TAKT_HIGH_RAM + high. It is not executable. After the front VM has ended, reads return any
 * values and writes are lost, but no access faults until TAKT_HC_BACK_UNMAP. */
struct takt_window {
    u64 base, low, high;
};

#define TAKT_FOREIGN_GPA 0x4000000000ull /* 256 GiB */

/* ---- A PCI device that was given to this VM ---- */

/* The VM sees a BAR at the address that it has in the machine. If the VM has RAM or something else
 * of its own there, and the BAR has 64 bits, it is between this address and TAKT_FOREIGN_GPA. */
#define TAKT_BAR_GPA 0x3800000000ull /* 224 GiB */

struct takt_pci {
    u32 bdf;        /* segment << 16 | bus << 8 | device << 3 | function */
    u32 id;         /* vendor | device << 16 */
    u32 class_rev;  /* class and revision: the register at offset 8 of configuration space */
    u32 port;       /* the event port by which it interrupts; 0: it cannot interrupt */
    u64 dma_offset; /* for DMA the device needs the guest-physical address + dma_offset */
    struct {
        u64 addr, size; /* memory: guest-physical, mapped uncached; size 0: no such BAR, or I/O */
        u32 io;         /* first port; 0: memory or none */
        u32 io_size;
    } bar[6];
};

#endif
