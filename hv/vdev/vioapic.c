#include <takt/abi.h>
#include "vdev/vioapic.h"

/* Registers of the page, 3.1. All accesses are of 32 bits. */
#define IOREGSEL 0x00u
#define IOWIN    0x10u
#define IOEOI    0x40u

/* Registers behind IOWIN, 3.2 */
#define REG_ID      0x00u
#define REG_VERSION 0x01u
#define REG_ENTRY   0x10u /* two of 32 bits for each pin */

#define ID_SHIFT    24
#define VERSION     0x20u /* with an EOI register */
#define PINS_SHIFT  16    /* of REG_VERSION: the number of the last pin */

/* An entry, 3.2.4. Its low 12 bits mean the same as those of a LAPIC's ICR. */
#define ENTRY_ICR       0xfffull
#define ENTRY_REMOTE    BIT(14) /* level triggered: a LAPIC has accepted it, but made no EOI yet */
#define ENTRY_LEVEL     BIT(15)
#define ENTRY_MASKED    BIT(16)
#define ENTRY_READ_ONLY (BIT(12) | ENTRY_REMOTE)
#define ENTRY_DEST      56

void vioapic_init(struct vioapic *io, struct vlapic *any) {
    *io = (struct vioapic){ .any = any };
    for (u32 i = 0; i < VIOAPIC_PINS; i++) io->entry[i] = ENTRY_MASKED;
}

/* Sends the interrupt of a pin to the LAPICs that its entry names. */
static void send(struct vioapic *io, u32 pin) {
    u64 *e = &io->entry[pin];
    bool level = *e & ENTRY_LEVEL;

    if (*e & ENTRY_MASKED) return;
    if (level) {
        if (*e & ENTRY_REMOTE) return;
        *e |= ENTRY_REMOTE;
    }
    vlapic_message(io->any, (u32)(*e & ENTRY_ICR), (u32)(*e >> ENTRY_DEST), level);
}

/* Sends the interrupt of a pin if it is level triggered and asserted: such a pin interrupts again
 * whenever its mask bit or a missing EOI does not hold it back any more. */
static void send_if_asserted(struct vioapic *io, u32 pin) {
    if (io->lines >> pin & 1 && io->entry[pin] & ENTRY_LEVEL) send(io, pin);
}

void vioapic_line(struct vioapic *io, u32 pin, const u32 *cause) {
    u32 bit = 1u << pin;
    bool rises;

    spin_lock(&io->lock);
    if (__atomic_load_n(cause, __ATOMIC_SEQ_CST)) {
        rises = !(io->lines & bit);
        io->lines |= bit;
        if (rises || io->entry[pin] & ENTRY_LEVEL) send(io, pin);
    } else {
        io->lines &= ~bit;
    }
    spin_unlock(&io->lock);
}

/* Ends the wait for an EOI of all pins with this vector. A pin that is still asserted interrupts
 * again. */
static void eoi_locked(struct vioapic *io, u8 vector) {
    for (u32 pin = 0; pin < VIOAPIC_PINS; pin++) {
        u64 *e = &io->entry[pin];

        if ((u8)*e != vector || !(*e & ENTRY_REMOTE)) continue;
        *e &= ~ENTRY_REMOTE;
        send_if_asserted(io, pin);
    }
}

void vioapic_eoi(struct vioapic *io, u8 vector) {
    spin_lock(&io->lock);
    eoi_locked(io, vector);
    spin_unlock(&io->lock);
}

static u32 window_read(const struct vioapic *io) {
    u32 n = io->select - REG_ENTRY;

    if (io->select == REG_VERSION) return VERSION | (VIOAPIC_PINS - 1) << PINS_SHIFT;
    if (n >= 2 * VIOAPIC_PINS) return 0; /* its id is 0, too */
    return (u32)(io->entry[n / 2] >> (n % 2 * 32));
}

static void window_write(struct vioapic *io, u32 value) {
    u32 n = io->select - REG_ENTRY;
    u64 *e = &io->entry[n / 2];

    if (n >= 2 * VIOAPIC_PINS) return;
    if (n % 2)
        *e = (*e & 0xffffffff) | (u64)value << 32;
    else
        *e = (*e & ~(0xffffffff & ~ENTRY_READ_ONLY)) | (value & ~ENTRY_READ_ONLY);
    /* An edge-triggered pin does not wait for an EOI. */
    if (!(*e & ENTRY_LEVEL)) *e &= ~ENTRY_REMOTE;
    send_if_asserted(io, n / 2);
}

static u32 read_locked(const struct vioapic *io, u32 offset) {
    if (offset == IOREGSEL) return io->select;
    return offset == IOWIN ? window_read(io) : 0;
}

static void write_locked(struct vioapic *io, u32 offset, u32 value) {
    switch (offset) {
    case IOREGSEL: io->select = value & 0xff; break;
    case IOWIN: window_write(io, value); break;
    case IOEOI: eoi_locked(io, (u8)value); break;
    }
}

void vioapic_access(void *dev, const struct bus_access *a, u64 *value) {
    struct vioapic *io = dev;
    u32 offset = (u32)(a->addr - TAKT_IOAPIC_GPA);

    if (a->size != 4) return;
    spin_lock(&io->lock);
    if (a->write)
        write_locked(io, offset, (u32)*value);
    else
        *value = read_locked(io, offset);
    spin_unlock(&io->lock);
}
