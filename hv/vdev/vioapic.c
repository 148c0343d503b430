/* The IOAPIC of a VM that is a PC: an emulated chip with pins for interrupt wires. Each pin has an
 * entry that says which interrupt it sends to which LAPICs (the parts of vCPUs that receive
 * interrupts). An edge-triggered pin interrupts when its level rises; a level-triggered one
 * interrupts as long as it is asserted, but waits after each interrupt until the guest has made an
 * EOI, which says that its handler is done. Section numbers are of Intel's 82093AA data sheet. */
#include <takt/abi.h>
#include "vdev/vioapic.h"

/* Registers of the page, 3.1. All accesses are of 32 bits. */
#define IOREGSEL 0x00u
#define IOWIN    0x10u
#define IOEOI    0x40u

/* Registers behind IOWIN, 3.2 */
#define REG_ID      0x00u
#define REG_VERSION 0x01u
#define REG_ARBITER 0x02u /* read-only; it follows the id */
#define REG_ENTRY   0x10u /* two of 32 bits for each pin */

#define ID_BITS     (0xfu << 24) /* of REG_ID: those that can be written */
#define VERSION     0x20u        /* with an EOI register */
#define PINS_SHIFT  16           /* of REG_VERSION: the number of the last pin */

/* An entry, 3.2.4. Its low 12 bits mean the same as those of a LAPIC's ICR. */
#define ENTRY_ICR       0xfffull
#define ENTRY_REMOTE    BIT(14) /* level triggered: a LAPIC has accepted it, but made no EOI yet */
#define ENTRY_LEVEL     BIT(15)
#define ENTRY_MASKED    BIT(16)
#define ENTRY_READ_ONLY (BIT(12) | ENTRY_REMOTE)
#define ENTRY_DEST      56

/* Gives the IOAPIC the state after a reset: all pins are masked. `any` is a LAPIC of the VM, by
 * which interrupts find all others. */
void vioapic_init(struct vioapic *io, struct vlapic *any) {
    *io = (struct vioapic){ .any = any };
    for (u32 i = 0; i < VIOAPIC_PINS; i++) io->entry[i] = ENTRY_MASKED;
}

/* Sends the interrupt of a pin to the LAPICs that its entry names. */
static void ioapic_send(struct vioapic *io, u32 pin) {
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
    if (io->lines >> pin & 1 && io->entry[pin] & ENTRY_LEVEL) ioapic_send(io, pin);
}

/* Sets the level of a pin of the VM's IOAPIC: asserted while *cause is not 0, which is read under
 * the lock, so that of two calls at a time the later one counts. A level-triggered pin is asserted
 * as long as the device wants something, so ioapic_send() is called even if the level did not
 * change. It does nothing while an EOI is awaited. */
void vioapic_line(struct vioapic *io, u32 pin, const u32 *cause) {
    u32 bit = 1u << pin;
    bool rises;

    spin_lock(&io->lock);
    if (__atomic_load_n(cause, __ATOMIC_SEQ_CST)) {
        rises = !(io->lines & bit);
        io->lines |= bit;
        if (rises || io->entry[pin] & ENTRY_LEVEL) ioapic_send(io, pin);
    } else {
        io->lines &= ~bit;
    }
    spin_unlock(&io->lock);
}

/* Raises a pin for a moment, as a button does. Returns whether the guest has unmasked the pin, so
 * that it hears of it. */
bool vioapic_pulse(struct vioapic *io, u32 pin) {
    bool heard;

    spin_lock(&io->lock);
    heard = !(io->entry[pin] & ENTRY_MASKED);
    ioapic_send(io, pin);
    spin_unlock(&io->lock);
    return heard;
}

/* Ends the wait for an EOI of all pins with this vector. A pin that is still asserted interrupts
 * again. */
static void eoi_locked(struct vioapic *io, u8 vector) {
    ASSERT_HELD(&io->lock);
    for (u32 pin = 0; pin < VIOAPIC_PINS; pin++) {
        u64 *e = &io->entry[pin];

        if ((u8)*e != vector || !(*e & ENTRY_REMOTE)) continue;
        *e &= ~ENTRY_REMOTE;
        send_if_asserted(io, pin);
    }
}

/* A LAPIC has got an EOI for a level-triggered interrupt with this vector. */
void vioapic_eoi(struct vioapic *io, u8 vector) {
    spin_lock(&io->lock);
    eoi_locked(io, vector);
    spin_unlock(&io->lock);
}

/* Reads the register that the guest has selected. */
static u32 window_read(const struct vioapic *io) {
    u32 n = io->select - REG_ENTRY;

    if (io->select == REG_VERSION) return VERSION | (VIOAPIC_PINS - 1) << PINS_SHIFT;
    if (io->select == REG_ID || io->select == REG_ARBITER) return io->id;
    if (n >= 2 * VIOAPIC_PINS) return 0;
    return (u32)(io->entry[n / 2] >> (n % 2 * 32));
}

/* Writes the register that the guest has selected: the id, or half an entry. The bits that only the
 * chip sets stay as they are. */
static void window_write(struct vioapic *io, u32 value) {
    u32 n = io->select - REG_ENTRY;
    u64 *e;

    if (io->select == REG_ID) io->id = value & ID_BITS;
    if (n >= 2 * VIOAPIC_PINS) return;
    e = &io->entry[n / 2];
    if (n % 2)
        *e = (*e & 0xffffffff) | (u64)value << 32;
    else
        *e = (*e & ~(0xffffffff & ~ENTRY_READ_ONLY)) | (value & ~ENTRY_READ_ONLY);
    /* An edge-triggered pin does not wait for an EOI. */
    if (!(*e & ENTRY_LEVEL)) *e &= ~ENTRY_REMOTE;
    send_if_asserted(io, n / 2);
}

/* Reads a register of the page. */
static u32 read_locked(const struct vioapic *io, u32 offset) {
    ASSERT_HELD(&io->lock);
    if (offset == IOREGSEL) return io->select;
    return offset == IOWIN ? window_read(io) : 0;
}

/* Writes a register of the page: selects one of the registers behind it, writes that one, or makes
 * an EOI. */
static void ioapic_write_locked(struct vioapic *io, u32 offset, u32 value) {
    ASSERT_HELD(&io->lock);
    switch (offset) {
    case IOREGSEL: io->select = value & 0xff; break;
    case IOWIN: window_write(io, value); break;
    case IOEOI: eoi_locked(io, (u8)value); break;
    }
}

/* Carries out a guest's access to its IOAPIC. The guest selects a register by one address and reads
 * or writes it by another one, so all accesses need the lock. */
void vioapic_access(void *dev, const struct bus_access *a, u64 *value) {
    struct vioapic *io = dev;
    u32 offset = (u32)(a->addr - TAKT_IOAPIC_GPA);

    if (a->size != 4) return;
    spin_lock(&io->lock);
    if (a->write)
        ioapic_write_locked(io, offset, (u32)*value);
    else
        *value = read_locked(io, offset);
    spin_unlock(&io->lock);
}
