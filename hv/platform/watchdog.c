/* The machine's watchdog: a timer in the chipset that resets the machine unless it gets a sign of
 * life in time. So a hypervisor that hangs does not need a person to reset it. ACPI's table WDAT
 * ("Hardware Watchdog Timers Design Specification", Microsoft 2006) describes a watchdog as a list
 * of instructions such as "to start it, write this value to that register". Takt also knows one
 * kind of watchdog without a table, Intel's TCO timer. This file describes that one by the same
 * kind of instructions, so that the rest of the code is the same for both. */
#include "platform/watchdog.h"

#include <takt/errno.h>
#include <takt/io.h>
#include "lib/printf.h"
#include "platform/hostmap.h"
#include "platform/pciport.h"
#include "platform/smp.h"
#include "platform/timer.h"
#include "trace/trace.h"
#include "x86/tsc.h"

/* how often the watchdog got no sign of life because a CPU was silent */
DEFINE_COUNTER(watchdog_withheld);

enum action { /* what an instruction is for; only the actions that Takt executes are here */
              RESET_COUNTDOWN = 0x01,
              GET_COUNTDOWN = 0x05,
              SET_COUNTDOWN = 0x06,
              SET_RUNNING = 0x09,
              SET_STOPPED = 0x0b,
              GET_REBOOT = 0x10,
              SET_REBOOT = 0x11,
              SET_STATUS = 0x21,
};

enum operation { READ_VALUE, READ_COUNTDOWN, WRITE_VALUE, WRITE_COUNTDOWN };
#define PRESERVE      0x80 /* set for a write that must not change the other bits of the register */

#define MAX_ENTRIES   32u
#define SIGNS_OF_LIFE 4u /* how many signs of life we give in the time that the watchdog waits */

/* Offsets in the table, and sizes. */
#define WDAT_PERIOD  48u /* how many ms one count takes; the largest and smallest count follow */
#define WDAT_MOST    52u
#define WDAT_LEAST   56u
#define WDAT_FLAGS   60u
#define WDAT_NR      64u
#define WDAT_ENTRIES 68u
#define WDAT_ENTRY   24u
#define WDAT_ENABLED BIT(0)
/* A watchdog whose shortest time is longer than 49 days is of no use, and in nanoseconds its time
 * might not fit into 64 bits. */
#define LEAST_MOST_MS UINT32_MAX

struct entry {
    u8 action, operation;
    /* ACPI_SPACE_MEMORY or _IO; the register's size; the lowest bit of the field in the register */
    u8 space, bytes, shift;
    u64 addr;          /* physical address or I/O port of the register */
    volatile void *at; /* where a register in memory is mapped */
    u32 value, mask;   /* the value of the field; the bits that belong to it, before the shift */
};

static struct {
    struct entry entry[MAX_ENTRIES];
    u32 nr;
    u32 period_ms, least, most; /* how long one count takes; the smallest and the largest count */
    const char *name;           /* for the log; NULL: no watchdog is running */
} dog;

static struct work sign_of_life;

/* ---- instructions ---- */

/* Reads the register that an instruction names, with an access of the register's size: hardware may
 * ignore any other. */
static u32 dog_read(const struct entry *e) {
    u16 port = (u16)e->addr;

    if (e->space == ACPI_SPACE_MEMORY) {
        if (e->bytes == 1) return *(volatile u8 *)e->at;
        if (e->bytes == 2) return *(volatile u16 *)e->at;
        return *(volatile u32 *)e->at;
    }
    if (e->bytes == 1) return inb(port);
    if (e->bytes == 2) return inw(port);
    return inl(port);
}

/* Writes the register that an instruction names, with an access of its size. */
static void dog_write(const struct entry *e, u32 v) {
    u16 port = (u16)e->addr;

    if (e->space == ACPI_SPACE_MEMORY) {
        if (e->bytes == 1)
            *(volatile u8 *)e->at = (u8)v;
        else if (e->bytes == 2)
            *(volatile u16 *)e->at = (u16)v;
        else
            *(volatile u32 *)e->at = v;
    } else if (e->bytes == 1) {
        outb(port, (u8)v);
    } else if (e->bytes == 2) {
        outw(port, (u16)v);
    } else {
        outl(port, v);
    }
}

/* Writes `v` to the field that an instruction names. */
static void write_bits(const struct entry *e, u32 v) {
    u32 bits = (v & e->mask) << e->shift;

    if (e->operation & PRESERVE) bits |= dog_read(e) & ~(e->mask << e->shift);
    dog_write(e, bits);
}

/* Is there an instruction for this action? Some actions are not there on all watchdogs. */
static bool dog_has(enum action action) {
    for (u32 i = 0; i < dog.nr; i++)
        if (dog.entry[i].action == action) return true;
    return false;
}

/* Executes the instructions of an action in their order. An instruction that sets the countdown
 * sets it to `count`. Returns what the last instruction that reads has found: the count, or, if the
 * instruction asks whether a register has a certain value, 1 or 0. */
static u32 dog_act(enum action action, u32 count) {
    u32 result = 0;

    for (u32 i = 0; i < dog.nr; i++) {
        const struct entry *e = &dog.entry[i];

        if (e->action != action) continue;
        switch (e->operation & ~PRESERVE) {
        case READ_VALUE: result = (dog_read(e) >> e->shift & e->mask) == e->value; break;
        case READ_COUNTDOWN: result = dog_read(e) >> e->shift & e->mask; break;
        case WRITE_VALUE: write_bits(e, e->value); break;
        case WRITE_COUNTDOWN: write_bits(e, count); break;
        }
    }
    return result;
}

/* Adds an instruction. Returns false if we do not know its operation, if the register cannot be
 * reached, or if there are too many instructions. */
static bool dog_add(struct entry e) {
    if (dog.nr == MAX_ENTRIES || e.space > ACPI_SPACE_IO || e.shift > 31) return false;
    if ((e.operation & ~PRESERVE) > WRITE_COUNTDOWN) return false;
    if (e.bytes != 1 && e.bytes != 2 && e.bytes != 4) return false;
    if (e.space == ACPI_SPACE_IO && e.addr > 0x10000u - e.bytes) return false;
    if (e.space == ACPI_SPACE_MEMORY) {
        if (e.addr % e.bytes) return false;
        e.at = mmio_map(e.addr, e.bytes);
        if (!e.at) return false;
    }
    dog.entry[dog.nr++] = e;
    return true;
}

/* ---- the firmware's table ---- */

/* Returns the size of a register in bytes. `access` and `width` are fields of its generic address
 * (ACPI 6.5, 5.2.3.2). The access size counts; if it is not given, the width in bits counts. */
static u8 register_bytes(u8 access, u8 width) {
    if (access >= 1 && access <= 3) return (u8)(1u << (access - 1));
    return width / 8;
}

/* Is this one of the actions that Takt executes? */
static bool dog_uses(u8 action) {
    switch (action) {
    case RESET_COUNTDOWN:
    case GET_COUNTDOWN:
    case SET_COUNTDOWN:
    case SET_RUNNING:
    case SET_STOPPED:
    case GET_REBOOT:
    case SET_REBOOT:
    case SET_STATUS: return true;
    default: return false;
    }
}

/* Reads the table WDAT. Returns false if it cannot be used. Each entry for an action that Takt
 * executes has to be good: a watchdog for which only half of the instructions can be executed may
 * reset a machine that is alive. Entries for other actions are skipped, so errors in them do no
 * harm. */
static bool read_table(const u8 *t, u32 len) {
    u32 nr = (u32)table_get(t + WDAT_NR, 4);

    if (!(t[WDAT_FLAGS] & WDAT_ENABLED)) return false;
    dog.period_ms = (u32)table_get(t + WDAT_PERIOD, 4);
    dog.most = (u32)table_get(t + WDAT_MOST, 4);
    dog.least = (u32)table_get(t + WDAT_LEAST, 4);
    if (!dog.period_ms || !dog.most || dog.least > dog.most) return false;
    if ((u64)dog.least * dog.period_ms > LEAST_MOST_MS) return false;
    for (u32 at = WDAT_ENTRIES; nr && len - at >= WDAT_ENTRY; at += WDAT_ENTRY, nr--) {
        const u8 *p = t + at;

        if (!dog_uses(p[0])) continue;
        if (!dog_add((struct entry){ .action = p[0],
                                     .operation = p[1],
                                     .space = p[4],
                                     .bytes = register_bytes(p[7], p[5]),
                                     .shift = p[6],
                                     .addr = table_get(p + 8, 8),
                                     .value = (u32)table_get(p + 16, 4),
                                     .mask = (u32)table_get(p + 20, 4) }))
            return false;
    }
    return nr == 0 && dog_has(RESET_COUNTDOWN) && dog_has(SET_RUNNING);
}

/* ---- Intel's TCO timer: "Intel I/O Controller Hub 9 Family Datasheet" (316972), 13.9 ---- */

#define LPC           (31u << 3) /* 00:1f.0, the bridge to the chipset's own devices */
#define PCI_ID        0x00
#define PCI_CLASS     0x08
#define INTEL         0x8086
#define CLASS_ISA     0x0601
#define LPC_PMBASE    0x40 /* 13.1.13: base of the power management ports; bit 0 is always set */
#define PMBASE_PORT   0xff80u
#define LPC_ACPI_CNTL 0x44 /* 13.1.14 */
#define ACPI_EN       BIT(7)
/* 13.1.35: base of the chipset's own registers, and a bit that says whether they are on */
#define LPC_RCBA      0xf0
#define RCBA_EN       BIT(0)
#define RCBA_ADDRESS  0xffffc000u
#define RCBA_GCS      0x3410 /* 10.1.75 */
#define GCS_NO_REBOOT BIT(5)
#define TCO           0x60 /* from PMBASE on */
#define TCO_RLD       0x00
#define TCO1_STS      0x04
#define STS_TIMEOUT   BIT(3)
#define TCO2_STS      0x06
#define STS_SECOND    BIT(1)
#define TCO1_CNT      0x08
#define CNT_TMR_HLT   BIT(11)
#define TCO_TMR       0x12
#define TMR_MOST      0x3ffu
#define TMR_LEAST     4u
#define TICK_MS       600u

/* Adds an instruction on a 16-bit I/O port, as all of the TCO timer's are. */
static bool dog_add_port(enum action action, u8 operation, u32 addr, u32 value, u32 mask) {
    return dog_add(
        (struct entry){ (u8)action, operation, ACPI_SPACE_IO, 2, 0, addr, NULL, value, mask });
}

/* Looks for Intel's TCO timer and adds the instructions for it. Returns false if there is none. The
 * timer resets the machine only when it has run down twice, so we say that one count takes two of
 * its ticks. Later chipsets do not have these two base registers; their firmware describes the
 * timer in WDAT. */
static bool find_tco(void) {
    u32 pm, rcba;
    u64 gcs;
    u32 tco;

    if ((pci_port_read(LPC, PCI_ID) & 0xffff) != INTEL ||
        pci_port_read(LPC, PCI_CLASS) >> 16 != CLASS_ISA)
        return false;
    pm = pci_port_read(LPC, LPC_PMBASE);
    rcba = pci_port_read(LPC, LPC_RCBA);
    if (!(pm & 1) || !(pm & PMBASE_PORT) || !(rcba & RCBA_EN) ||
        !(pci_port_read(LPC, LPC_ACPI_CNTL) & ACPI_EN))
        return false;
    tco = (pm & PMBASE_PORT) + TCO;
    gcs = (rcba & RCBA_ADDRESS) + RCBA_GCS;
    dog.period_ms = 2 * TICK_MS;
    dog.most = TMR_MOST;
    dog.least = TMR_LEAST;
    return dog_add_port(RESET_COUNTDOWN, WRITE_VALUE, tco + TCO_RLD, 1, 0xffff) &&
           dog_add_port(SET_COUNTDOWN, WRITE_COUNTDOWN | PRESERVE, tco + TCO_TMR, 0, TMR_MOST) &&
           dog_add_port(GET_COUNTDOWN, READ_COUNTDOWN, tco + TCO_TMR, 0, TMR_MOST) &&
           dog_add_port(SET_RUNNING, WRITE_VALUE | PRESERVE, tco + TCO1_CNT, 0, CNT_TMR_HLT) &&
           dog_add_port(SET_STOPPED, WRITE_VALUE | PRESERVE, tco + TCO1_CNT, CNT_TMR_HLT,
                        CNT_TMR_HLT) &&
           dog_add_port(SET_STATUS, WRITE_VALUE, tco + TCO1_STS, STS_TIMEOUT, STS_TIMEOUT) &&
           dog_add_port(SET_STATUS, WRITE_VALUE, tco + TCO2_STS, STS_SECOND, STS_SECOND) &&
           dog_add((struct entry){ SET_REBOOT, WRITE_VALUE | PRESERVE, ACPI_SPACE_MEMORY, 4, 0, gcs,
                                   NULL, 0, GCS_NO_REBOOT }) &&
           dog_add((struct entry){ GET_REBOOT, READ_VALUE, ACPI_SPACE_MEMORY, 4, 0, gcs, NULL, 0,
                                   GCS_NO_REBOOT });
}

/* ---- life ---- */

static u64 sign_every; /* ns */

/* The step of a work item: gives a sign of life at regular times. Once a CPU has been silent for so
 * long that its state was dumped, no more signs are given, so that the watchdog resets the
 * machine. */
static bool give_sign(struct work *w) {
    if (!dog.name) return false;
    if (smp_all_alive())
        dog_act(RESET_COUNTDOWN, 0);
    else
        counter_inc(&watchdog_withheld, WORK_CPU);
    w->not_before = now_ns() + sign_every;
    return true;
}

/* Stops the watchdog, if one is running: the machine is about to end, and nobody gives signs of
 * life any more. */
void watchdog_stop(void) {
    if (dog.name) dog_act(SET_STOPPED, 0);
    dog.name = NULL;
}

/* Sets the watchdog to `count` and starts it. Returns NULL, or why it cannot be used. */
static const char *dog_start(u32 count) {
    dog_act(SET_REBOOT, 0);
    if (dog_has(GET_REBOOT) && !dog_act(GET_REBOOT, 0))
        return "it is wired not to reset the machine";
    dog_act(SET_COUNTDOWN, count);
    if (dog_has(GET_COUNTDOWN) && dog_act(GET_COUNTDOWN, 0) != count)
        return "it does not keep its time";
    dog_act(SET_STATUS, 0);
    dog_act(SET_RUNNING, 0);
    dog_act(RESET_COUNTDOWN, 0);
    return NULL;
}

/* Starts the machine's watchdog, if it has one that Takt knows: a timer that resets the machine
 * unless it gets a sign of life at least every `seconds`. The firmware's table is preferred, as it
 * fits the machine. The time is rounded up to whole counts and kept within what the hardware
 * can. */
void watchdog_init(const struct acpi_info *a, u32 seconds) {
    const char *name = NULL, *why;
    u64 count;

    if (!seconds) return;
    if (a->wdat && read_table(a->wdat, a->wdat_len)) name = "the firmware's table WDAT";
    if (!name) {
        dog.nr = 0;
        if (find_tco()) name = "the chipset's TCO timer";
    }
    if (!name) {
        log_warn("watchdog = %u: Takt knows no watchdog of this machine", seconds);
        return;
    }
    count = ((u64)seconds * 1000 + dog.period_ms - 1) / dog.period_ms;
    count = MAX(MIN(count, dog.most), dog.least);
    why = dog_start((u32)count);
    if (why) {
        log_warn("watchdog = %u: %s: %s", seconds, name, why);
        return;
    }
    dog.name = name;
    sign_every = count * dog.period_ms * NS_PER_MS / SIGNS_OF_LIFE;
    log_info("watchdog: %s, %lu ms", name, count * dog.period_ms);
    sign_of_life.step = give_sign;
    sign_of_life.not_before = 0;
    work_add(&sign_of_life);
}
