/* Switches the machine off and resets it by the registers that ACPI's tables name. "PM1" is the
 * control register of the chipset's power management; some machines have two, called a and b. S5 is
 * ACPI's name for "off". SLP_TYP, the "type", is the number of the state to enter, and SLP_EN makes
 * the chipset enter it. */
#include "platform/acpi_power.h"

#include <takt/io.h>
#include "platform/clock.h"
#include "platform/hostmap.h"
#include "platform/pciport.h"
#include "platform/timer.h"

/* The PM1 control register: ACPI 6.5, 4.8.3.2.1. Two of its bits keep what they have: SCI_EN says
 * that the firmware has handed ACPI over, and BM_RLD belongs to the power states of CPUs. */
#define PM1_SCI_EN        BIT(0)
#define PM1_BM_RLD        BIT(1)
#define PM1_SLP_TYP(type) ((u32)(type) << 10)
#define PM1_SLP_EN        BIT(13)

#define HANDOVER_POLLS    300 /* 3 s in all, as long as Linux waits */
#define HANDOVER_POLL_NS  (10 * NS_PER_MS)
#define OFF_NS            NS_PER_S
#define RESET_NS          (100 * NS_PER_MS)

static struct acpi_power acpi;
static volatile void *reset_register; /* NULL: it is not in memory, or cannot be mapped */

/* Keeps what ACPI says about power, and maps the reset register if it lies in memory. */
void acpi_power_init(const struct acpi_power *p) {
    acpi = *p;
    reset_register = NULL;
    if (acpi.can_reset && acpi.reset_space == ACPI_SPACE_MEMORY)
        reset_register = mmio_map(acpi.reset_address, 1);
}

/* Asks the firmware to hand power management over. The chipset obeys the PM1 registers only after
 * that; until then acpi_off() would write to them in vain. The firmware may take seconds. */
static void acpi_take_over(void) {
    if (!acpi.smi_command || !acpi.acpi_enable || (inw(acpi.pm1a) & PM1_SCI_EN)) return;
    outb(acpi.smi_command, acpi.acpi_enable);
    for (u32 i = 0; i < HANDOVER_POLLS && !(inw(acpi.pm1a) & PM1_SCI_EN); i++)
        delay_ns(HANDOVER_POLL_NS);
}

/* Returns what to write to the PM1 register at `port` so that its type becomes `type`, while the
 * two bits that are not ours stay as they are. */
static u16 with_type(u16 port, u8 type) {
    return (u16)((inw(port) & (PM1_SCI_EN | PM1_BM_RLD)) | PM1_SLP_TYP(type));
}

/* Switches the machine off by ACPI; a return means that this did not work. SLP_TYP, the type of the
 * sleep state, is written to both PM1 registers before SLP_EN, which starts the change, is written
 * to either (ACPI 6.5, 16.1.7): SLP_EN in the first one may switch the machine off before the
 * second one knows the type. The delay gives the machine time to go off. */
void acpi_off(void) {
    u16 a, b = 0;

    if (!acpi.s5_known || !acpi.pm1a) return;
    acpi_take_over();
    a = with_type(acpi.pm1a, acpi.type_a);
    outw(acpi.pm1a, a);
    if (acpi.pm1b) {
        b = with_type(acpi.pm1b, acpi.type_b);
        outw(acpi.pm1b, b);
    }
    outw(acpi.pm1a, (u16)(a | PM1_SLP_EN));
    if (acpi.pm1b) outw(acpi.pm1b, (u16)(b | PM1_SLP_EN));
    delay_ns(OFF_NS);
}

/* Writes a reset register that lies in PCI's configuration space. It is always a register of bus 0.
 * Its address `at` holds the device in bits 47:32, the function in 31:16 and the offset in 15:0
 * (ACPI 6.5, 5.2.3.2). */
static void reset_by_pci(u64 at) {
    u32 device = at >> 32 & 0x1f, function = at >> 16 & 7;

    outb(pci_port_select(device << 3 | function, at & 0xff), acpi.reset_value);
}

/* Resets the machine by the register that ACPI names; a return means that this did not work. The
 * register may be an I/O port, a register of PCI or a byte in memory. If it is in memory and could
 * not be mapped at boot, nothing is written. */
void acpi_reset(void) {
    if (!acpi.can_reset) return;
    if (acpi.reset_space == ACPI_SPACE_IO)
        outb((u16)acpi.reset_address, acpi.reset_value);
    else if (acpi.reset_space == ACPI_SPACE_PCI)
        reset_by_pci(acpi.reset_address);
    else if (reset_register)
        mmio_write8(reset_register, acpi.reset_value);
    delay_ns(RESET_NS);
}
