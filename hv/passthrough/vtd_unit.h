/* One unit of VT-d, that is, one IOMMU: its registers, the names of their bits, and its queue of
 * requests. Only the files for VT-d use this header. Section numbers are those of the VT-d
 * architecture specification 4.1. */
#ifndef HV_PASSTHROUGH_VTD_UNIT_H
#define HV_PASSTHROUGH_VTD_UNIT_H

#include <takt/io.h>
#include "lib/spinlock.h"

/* Registers: 11.4. */
enum {
    REG_CAP = 0x08,
    REG_ECAP = 0x10,
    REG_COMMAND = 0x18,
    REG_STATUS = 0x1c,
    REG_ROOT = 0x20,
    REG_FAULTS = 0x34,
    REG_FAULT_CONTROL = 0x38,
    REG_FAULT_DATA = 0x3c,
    REG_FAULT_ADDR = 0x40,
    REG_FAULT_UPPER = 0x44,
    REG_PROTECTED = 0x64,
    REG_QUEUE_TAIL = 0x88,
    REG_QUEUE = 0x90,
    REG_INTERRUPTS = 0xb8,
};

/* Bits of the command register (11.4.4.1). The same bits of the status register change when a
 * command is done. */
#define TRANSLATE      BIT(31)
#define SET_ROOT       BIT(30)
#define QUEUE          BIT(26)
#define REMAP          BIT(25)
#define SET_INTERRUPTS BIT(24)
#define COMPATIBLE     BIT(23) /* interrupts in the old form pass without being remapped */
/* The bits that describe a state. The others start something once, as SET_ROOT does, so they must
 * not be copied from the status register to the command register. */
#define LASTING 0x96ffffffu

/* Capabilities: 11.4.2. */
#define CAP_DOMAINS(cap)       (1u << (4 + 2 * ((cap)&7)))
#define CAP_WRITE_BUFFER       BIT(4)
#define CAP_PROTECTED          (3ull << 5) /* it can protect ranges of memory from all devices */
#define CAP_CACHING            BIT(7)      /* it also caches entries that are not present */
#define CAP_LEVELS_3           BIT(9)
#define CAP_LEVELS_4           BIT(10)
#define CAP_FAULT_RECORDS(cap) ((u32)((cap) >> 24 & 0x3ff) * 16) /* offset of the first one */
#define CAP_2M                 BIT(34)
#define CAP_NR_RECORDS(cap)    ((u32)((cap) >> 40 & 0xff) + 1)

/* Extended capabilities: 11.4.3. */
#define ECAP_COHERENT BIT(0)
#define ECAP_QUEUE    BIT(1)
#define ECAP_REMAPS   BIT(3)
#define ECAP_X2APIC   BIT(4)
#define ECAP_SNOOPS   BIT(7)

/* Faults: 11.4.7.1 to 11.4.7.8. A fault record has 16 bytes. Bits named RECORD_* are bits of its
 * upper half. */
#define FAULTS_LOST         BIT(0)
#define FAULTS_QUEUE        (7u << 4) /* errors of the queue itself */
#define FAULTS_MASKED       BIT(31)   /* of REG_FAULT_CONTROL */
#define RECORD_SIZE         16u
#define RECORD_UPPER        8u
#define RECORD_LAST         12u     /* its last 32 bits, which hold RECORD_VALID */
#define RECORD_VALID        BIT(63) /* writing it as 1 clears the record */
#define RECORD_READ         BIT(62)
#define RECORD_REASON(high) ((u32)((high) >> 32) & 0xffu)
#define RECORD_SOURCE(high) ((u32)(high)&0xffffu)

/* Bit of REG_PROTECTED that says whether the ranges are protected now: 11.4.8.1. */
#define PROTECTED_ON 1u

/* Bits of REG_INTERRUPTS: 11.4.9.1. A size of n means 2^(n + 1) entries. */
#define INTERRUPTS_X2APIC   BIT(11)
#define INTERRUPTS_SIZE_256 7u

/* Requests in the queue: 6.5.2. With DRAIN, the unit also waits for reads and writes that are under
 * way. */
#define DRAIN                   (3u << 6)
#define FLUSH_CONTEXTS          (1ull | 1u << 4) /* all of them */
#define FLUSH_ALL               (2ull | 1u << 4 | DRAIN)
#define FLUSH_DOMAIN(id)        (2ull | 2u << 4 | DRAIN | (id) << 16)
#define FLUSH_INTERRUPTS        4ull /* all entries; the next one flushes the entry of one vector */
#define FLUSH_INTERRUPT(vector) (4ull | 1u << 4 | (u64)(vector) << 32)
#define WAIT(serial)            (5ull | 1u << 5 | (u64)(serial) << 32)

/* The tables that the units of a segment share: 9.1 and 9.10. */
struct tables {
    struct tables *next;
    u32 segment;
    u64 (*root)[2];       /* an entry for each bus */
    u64 (*interrupts)[2]; /* an entry for each vector */
};

struct iommu_unit {
    volatile u8 *regs; /* NULL: the unit is of no use */
    u64 base;          /* physical address of the registers */
    const char *why;   /* why it confines no device, as words to follow "as"; NULL: it works */
    bool on;           /* it is switched on and translates */
    u64 cap, ecap;     /* its capabilities */
    struct tables *tables;
    struct spinlock lock; /* protects all fields below; a leaf lock */
    u64 (*queue)[2];      /* the requests; NULL: the unit was never switched on */
    volatile u32 *done;   /* when a wait is over, the unit writes its serial number here */
    u32 tail, serial;     /* the next free entry of the queue; the number of the last wait */
};

/* True if some unit reads memory without looking into the caches. Then each change that a unit has
 * to see must be written back to memory. Set at boot, then constant. */
extern bool vtd_write_back;

static inline u32 vtd_read(const struct iommu_unit *u, u32 reg) {
    return mmio_read32(u->regs + reg);
}

static inline u64 vtd_read64(const struct iommu_unit *u, u32 reg) {
    return vtd_read(u, reg) | (u64)vtd_read(u, reg + 4) << 32;
}

static inline void vtd_write(const struct iommu_unit *u, u32 reg, u32 v) {
    mmio_write32(u->regs + reg, v);
}

static inline void vtd_write64(const struct iommu_unit *u, u32 reg, u64 v) {
    vtd_write(u, reg, (u32)v);
    vtd_write(u, reg + 4, (u32)(v >> 32));
}

/* Waits until the bits `bits` of register `reg` have the value `value`. Returns false if that takes
 * too long. */
bool vtd_becomes(const struct iommu_unit *u, u32 reg, u32 bits, u32 value);
/* Sets or clears one bit of the command register and waits until the unit has obeyed. Only one bit
 * may change at a time (11.4.4.1). Returns false if the unit does not obey. */
bool vtd_command(const struct iommu_unit *u, u32 bit, bool yes);
/* Makes what was written at [p, p + len) visible to all units. */
void vtd_publish(const volatile void *p, u64 len);

/* Asks the unit to forget the cached entries that the request `what` (FLUSH_*) names, and waits
 * until it has. Each request needs a wait of its own, as a unit may handle requests in any order.
 * The IOTLB must be flushed after the contexts. Otherwise the unit could fetch translations by an
 * old context in between, and keep them (6.5.2.8).
 *
 * If a unit times out, we never wait for it again: u->why is set. Its stale entries may live on, so
 * bus mastering of all its devices is cleared, and the VMs that have them are destroyed. From any
 * pCPU; takes the unit's lock, a leaf. */
void vtd_flush(struct iommu_unit *u, u64 what);
/* Flushes what the unit may have cached about a device of this domain whose context entry has
 * changed. From any pCPU. */
void vtd_flush_context(struct iommu_unit *u, u32 domain_id);

#endif
