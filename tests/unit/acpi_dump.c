/* Writes the ACPI tables of a VM with argv[1] vCPUs, each to a file of its own in the directory
 * argv[2]: facp.dat, apic.dat ..., and xsdt.dat. It finds them as a guest does, from the RSDP on.
 * tests/tools/test_acpi_tables.py lets ACPICA judge them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fake_machine.h"
#include "image/firmware.h"
#include "image/image.h"

#define RSDP_XSDT   24
#define TABLE_SIZE  4
#define FADT_DSDT   140
#define XSDT_TABLES 36

static const struct guestmem *mem;

static u64 number(gpa_t at, u32 bytes) {
    u64 n = 0;

    if (guestmem_read(mem, at, &n, bytes)) exit(1);
    return n;
}

static void save(const char *directory, gpa_t table) {
    u32 size = (u32)number(table + TABLE_SIZE, 4);
    char path[256], name[5] = "";
    u8 *data = malloc(size);
    FILE *f;

    if (guestmem_read(mem, table, data, size)) exit(1);
    for (int i = 0; i < 4; i++) name[i] = (char)tolower(data[i]);
    snprintf(path, sizeof(path), "%s/%s.dat", directory, name);
    f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f)) exit(1);
    free(data);
}

int main(int argc, char **argv) {
    struct config_vm c = fake_config("pc", 1);
    struct vm *vm;
    gpa_t xsdt;

    if (argc != 3) return 2;
    fake_machine("null");
    c.vcpus = (u32)atoi(argv[1]);
    strcpy(c.kernel, c.image);
    *c.image = 0;
    vm = fake_vm(&c);
    if (!vm) return 1;
    mem = &vm->mem;
    xsdt = number(LOAD_FIRMWARE + RSDP_XSDT, 8);
    save(argv[2], xsdt);
    for (gpa_t at = xsdt + XSDT_TABLES; at < xsdt + number(xsdt + TABLE_SIZE, 4); at += 8)
        save(argv[2], number(at, 8));
    save(argv[2], number(number(xsdt + XSDT_TABLES, 8) + FADT_DSDT, 8));
    return 0;
}
