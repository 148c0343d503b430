/* One unit of VT-d: its registers, its queue of requests, and the names of its bits. For vtd.c
 * alone. Sections are those of the VT-d architecture specification 4.1. */
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

/* Bits of the command register (11.4.4.1), and of the status register when a command is done. */
#define TRANSLATE      BIT(31)
#define SET_ROOT       BIT(30)
#define QUEUE          BIT(26)
#define REMAP          BIT(25)
#define SET_INTERRUPTS BIT(24)
#define COMPATIBLE     BIT(23) /* interrupts of the old form pass, without being remapped */
/* All but the bits for commands that are given once, such as SET_ROOT. */
#define LASTING 0x96ffffffu

/* Capabilities: 11.4.2. */
#define CAP_DOMAINS(cap)       (1u << (4 + 2 * ((cap)&7)))
#define CAP_WRITE_BUFFER       BIT(4)
#define CAP_PROTECTED          (3ull << 5) /* it has ranges of memory that no device reaches */
#define CAP_CACHING            BIT(7)      /* it caches entries that are not present, too */
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

/* Faults: 11.4.7.1 to 11.4.7.8. A record has 16 bytes; the bits are those of its upper half. */
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

#define PROTECTED_ON        1u /* of REG_PROTECTED, which is written and read back: 11.4.8.1 */

/* Of REG_INTERRUPTS: 11.4.9.1. The size is 2^(n + 1) entries. */
#define INTERRUPTS_X2APIC   BIT(11)
#define INTERRUPTS_SIZE_256 7u

/* Requests in the queue: 6.5.2. DRAIN waits for reads and writes that are under way. */
#define DRAIN                   (3u << 6)
#define FLUSH_CONTEXTS          (1ull | 1u << 4) /* all of them */
#define FLUSH_ALL               (2ull | 1u << 4 | DRAIN)
#define FLUSH_DOMAIN(id)        (2ull | 2u << 4 | DRAIN | (id) << 16)
#define FLUSH_INTERRUPTS        4ull /* all of them; and that of one vector */
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
    const char *why;   /* why it confines nobody, as it follows "as"; NULL: it does */
    bool on;           /* it translates */
    u64 cap, ecap;     /* its capabilities */
    struct tables *tables;
    struct spinlock lock; /* of the queue and all below; a leaf */
    u64 (*queue)[2];      /* NULL: it is not on */
    volatile u32 *done;   /* the unit writes the serial number of a wait here when that is over */
    u32 tail, serial;
};

/* Some unit reads memory past the caches, so what it is to read must be written back. */
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

/* Waits until these bits of a register have this value. False: they do not in reasonable time. */
bool vtd_becomes(const struct iommu_unit *u, u32 reg, u32 bits, u32 value);
/* Gives a command, one bit at a time (11.4.4.1), and waits until it is done. False: it never is. */
bool vtd_command(const struct iommu_unit *u, u32 bit, bool yes);
/* Makes what was written at [p, p + len) visible to all units. */
void vtd_publish(const volatile void *p, u64 len);

/* Asks the unit to forget what request `what` names, and waits until it has. There is one wait for
 * each request. Without it the unit may handle requests in any order; but the IOTLB must be flushed
 * after the contexts are, or translations that it fetches by an old context meanwhile stay in it
 * (6.5.2.8).
 *
 * If a unit times out, we never wait for it again: u->why is set. Its stale entries may live on, so
 * bus mastering of all its devices is cleared, and the VMs that have them are destroyed. From any
 * pCPU. */
void vtd_flush(struct iommu_unit *u, u64 what);
/* The same after the context entry of a device in this domain has changed. */
void vtd_flush_context(struct iommu_unit *u, u32 domain_id);

#endif
