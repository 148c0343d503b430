/* Writes the ACPI tables of a VM that is a PC, by which an operating system such as Linux finds its
 * CPUs, its interrupt controller, and how to switch its machine off. "Hardware-reduced" is ACPI's
 * word for a machine without the old chipset's registers. The tables lie behind each other from
 * LOAD_FIRMWARE on. Numbers in brackets are sections of the ACPI specification 6.4. */
#include <takt/abi.h>
#include "image/firmware.h"
#include "image/image.h"
#include "common/string.h"

/* hv/image/dsdt.asl, compiled: the array dsdt_aml_code. */
#include "dsdt.hex"

struct __attribute__((packed)) acpi_head { /* 5.2.6 */
    char signature[4];
    u32 length;
    u8 revision, checksum;
    char oem[6], oem_table[8];
    u32 oem_revision;
    char creator[4];
    u32 creator_revision;
};

struct __attribute__((packed)) acpi_rsdp { /* 5.2.5.3 */
    char signature[8];
    u8 checksum; /* of the first 20 bytes */
    char oem[6];
    u8 revision;
    u32 rsdt, length;
    u64 xsdt;
    u8 extended_checksum, reserved[3];
};
#define RSDP_V1 20 /* bytes that `checksum` is of */

struct __attribute__((packed)) acpi_gas { /* 5.2.3.2: a register */
    u8 space, bits, offset, access;
    u64 address;
};
#define GAS_IO(port)                                                                               \
    { 1, 8, 0, 1, port }

struct __attribute__((packed)) acpi_fadt { /* 5.2.9 */
    struct acpi_head head;
    u8 legacy[73]; /* addresses of hardware that a hardware-reduced machine does not have */
    u16 boot_arch;
    u8 reserved;
    u32 flags;
    struct acpi_gas reset;
    u8 reset_value;
    u16 arm_boot;
    u8 minor;
    u64 facs, dsdt;
    u8 legacy_x[96]; /* the same in 64 bits */
    struct acpi_gas sleep_control, sleep_status;
    u64 hypervisor;
};
_Static_assert(offsetof(struct acpi_fadt, boot_arch) == 109, "5.2.9");
_Static_assert(offsetof(struct acpi_fadt, sleep_control) == 244, "5.2.9");
_Static_assert(sizeof(struct acpi_fadt) == 276, "5.2.9");

#define FADT_NO_VGA     BIT(2) /* in boot_arch, 5.2.9.3 */
#define FADT_NO_ASPM    BIT(4)
#define FADT_NO_RTC     BIT(5)
#define FADT_WBINVD     BIT(0) /* in flags, 5.2.9: WBINVD works */
#define FADT_NO_BUTTON  (BIT(4) | BIT(5))
#define FADT_RESET      BIT(10)
#define FADT_APIC_PHYS  BIT(19)
#define FADT_HW_REDUCED BIT(20)

struct __attribute__((packed)) madt_lapic { /* 5.2.12.2 */
    u8 type, length, uid, id;
    u32 flags;
};

struct __attribute__((packed)) madt_ioapic { /* 5.2.12.3 */
    u8 type, length, id, reserved;
    u32 address, first_interrupt;
};

struct __attribute__((packed)) acpi_madt { /* 5.2.12 */
    struct acpi_head head;
    u32 lapic, flags;
    struct madt_ioapic ioapic;
    struct madt_lapic cpu[TAKT_MAX_VCPUS];
};

enum { MADT_LAPIC = 0, MADT_IOAPIC = 1, MADT_ENABLED = 1 };

struct __attribute__((packed)) acpi_xsdt { /* 5.2.8 */
    struct acpi_head head;
    u64 table[2];
};

/* Where each table is, relative to LOAD_FIRMWARE. */
#define AT_RSDP  0x000u
#define AT_XSDT  0x040u
#define AT_FADT  0x080u
#define AT_MADT  0x200u
#define AT_DSDT  0x800u
#define AT_PCIM  0x1ff0u  /* the word PCIM of hv/image/dsdt.asl: where the PCI bus begins */
#define AT_RESET 0x1fff0u /* where a CPU begins after a reset that the guest makes by a jump */

_Static_assert(AT_MADT + sizeof(struct acpi_madt) <= AT_DSDT, "a place for each");

/* Returns the value that makes all bytes of a table add up to 0. */
static u8 checksum(const void *table, u32 size) {
    const u8 *b = table;
    u8 sum = 0;

    for (u32 i = 0; i < size; i++) sum += b[i];
    return (u8)-sum;
}

/* Returns the header that all ACPI tables begin with. The checksum is still 0; write_table()
 * computes it. */
static struct acpi_head head(const char *signature, u8 revision, u64 length) {
    struct acpi_head h = { .length = (u32)length,
                           .revision = revision,
                           .oem = "TAKT  ",
                           .oem_table = "TAKTPC  ",
                           .oem_revision = 1,
                           .creator = "TAKT",
                           .creator_revision = 1 };

    memcpy(h.signature, signature, sizeof(h.signature));
    return h;
}

/* Completes a table's checksum and copies it to its place in the VM's RAM. */
static void write_table(const struct guestmem *mem, u32 at, struct acpi_head *table) {
    table->checksum = checksum(table, table->length);
    guestmem_write(mem, LOAD_FIRMWARE + at, table, table->length);
}

/* Writes the RSDP, by which a guest finds all other tables. It has two checksums: one for the part
 * that ACPI 1.0 has, and one for the whole. */
static void write_rsdp(const struct guestmem *mem) {
    struct acpi_rsdp r = { .signature = "RSD PTR ",
                           .oem = "TAKT  ",
                           .revision = 2,
                           .length = sizeof(r),
                           .xsdt = LOAD_FIRMWARE + AT_XSDT };

    r.checksum = checksum(&r, RSDP_V1);
    r.extended_checksum = checksum(&r, sizeof(r));
    guestmem_write(mem, LOAD_FIRMWARE + AT_RSDP, &r, sizeof(r));
}

/* Writes the FADT, which tells the guest that this is a hardware-reduced machine, and how to switch
 * it off and how to reset it. */
static void write_fadt(const struct guestmem *mem) {
    struct acpi_fadt f = { .head = head("FACP", 6, sizeof(f)),
                           .boot_arch = FADT_NO_VGA | FADT_NO_ASPM | FADT_NO_RTC,
                           .flags = FADT_WBINVD | FADT_NO_BUTTON | FADT_RESET | FADT_APIC_PHYS |
                                    FADT_HW_REDUCED,
                           .reset = GAS_IO(PC_RESET_PORT),
                           .reset_value = PC_RESET,
                           .minor = 4,
                           .dsdt = LOAD_FIRMWARE + AT_DSDT,
                           .sleep_control = GAS_IO(PC_SLEEP_PORT),
                           .sleep_status = GAS_IO(PC_STATUS_PORT) };

    write_table(mem, AT_FADT, &f.head);
}

/* Writes the MADT, which lists the local APICs (one for each vCPU) and the I/O APIC. */
static void write_madt(const struct guestmem *mem, u32 nr_vcpus) {
    u64 size = offsetof(struct acpi_madt, cpu) + nr_vcpus * sizeof(struct madt_lapic);
    struct acpi_madt m = { .head = head("APIC", 5, size),
                           .lapic = TAKT_LAPIC_GPA,
                           .ioapic = { .type = MADT_IOAPIC,
                                       .length = sizeof(struct madt_ioapic),
                                       .address = TAKT_IOAPIC_GPA } };

    for (u32 i = 0; i < nr_vcpus; i++)
        m.cpu[i] = (struct madt_lapic){ .type = MADT_LAPIC,
                                        .length = sizeof(struct madt_lapic),
                                        .uid = (u8)i,
                                        .id = (u8)i,
                                        .flags = MADT_ENABLED };
    write_table(mem, AT_MADT, &m.head);
}

/* Writes the instructions at the reset address. Linux ends a hardware-reduced machine by a jump
 * there, in real mode, if it does not use the reset register. They are: mov dx, PC_RESET_PORT; mov
 * al, PC_RESET; out dx, al; hlt. */
static void write_reset(const struct guestmem *mem) {
    static const u8 code[] = { 0xba, PC_RESET_PORT & 0xff, PC_RESET_PORT >> 8, 0xb0, PC_RESET, 0xee,
                               0xf4 };

    guestmem_write(mem, LOAD_FIRMWARE + AT_RESET, code, sizeof(code));
}

/* Writes the ACPI tables of a VM that is a PC into its RAM. The XSDT lists the other tables. The
 * DSDT is the only one with code (AML): it describes the devices. */
void pc_write_tables(const struct guestmem *mem, u32 nr_vcpus) {
    struct acpi_xsdt x = { .head = head("XSDT", 1, sizeof(x)),
                           .table = { LOAD_FIRMWARE + AT_FADT, LOAD_FIRMWARE + AT_MADT } };
    u32 pci_from = (u32)mem->low_size;

    write_rsdp(mem);
    write_table(mem, AT_XSDT, &x.head);
    write_fadt(mem);
    write_madt(mem, nr_vcpus);
    guestmem_write(mem, LOAD_FIRMWARE + AT_DSDT, dsdt_aml_code, sizeof(dsdt_aml_code));
    guestmem_write(mem, LOAD_FIRMWARE + AT_PCIM, &pci_from, sizeof(pci_from));
    write_reset(mem);
}
