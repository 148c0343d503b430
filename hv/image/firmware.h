/* The ACPI tables of a VM that is a PC (ACPI specification 6.4): RSDP, XSDT, FADT, MADT and DSDT,
 * and the instructions at the reset address. They tell an operating system of its vCPUs, its
 * IOAPIC, its UART, its power button and its virtio devices, and how it resets the VM and switches
 * it off. The
 * machine is "hardware-reduced" (3.11.1): it has neither PIC, PIT, RTC nor a PM timer. */
#ifndef HV_IMAGE_FIRMWARE_H
#define HV_IMAGE_FIRMWARE_H

#include "mm/guestmem.h"

/* What hv/image/dsdt.asl says as well. */
#define PC_STORE_PORT  0x2f8 /* a UART whose other end is the store: 8 ports */
#define PC_STORE_PIN   3
#define PC_UART_PIN    4
#define PC_BUTTON_PIN  5
#define PC_VIRTIO_PIN  16 /* of device 0; those of the others follow */
#define PC_SLEEP_PORT  0x600
#define PC_STATUS_PORT 0x601
#define PC_RESET_PORT  0x604
#define PC_RESET       0x01u /* written to it */
/* The port that says what an NMI is about, as in the IBM PC AT. Its upper two bits are errors of
 * memory and of the bus. Loops that measure time by the PIT wait for bit 5. */
#define PC_NMI_PORT   0x61
#define PC_NMI_REASON 0x20u /* what it reads: no error */
/* The sleep control register (4.8.3.7): SLP_EN, and the type of S5. */
#define PC_SLEEP_S5 (BIT(5) | 5u << 2)

/* Writes them into RAM from LOAD_FIRMWARE on, which the loader has kept free. */
void pc_write_tables(const struct guestmem *mem, u32 nr_vcpus);

#endif
