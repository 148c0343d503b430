/* ACPI tables, as any bytes: the input is the physical memory from 0xe0000 on, with lengths
 * mapped exactly. */
#include <stdlib.h>
#include <string.h>

#include "platform/firmware.h"

#define BASE 0xe0000u

static const u8 *memory;
static size_t memory_size;
static void *mapped[4096];
static unsigned nr_mapped;

/* A copy of its own for each mapping: a read beyond it is found. */
const void *acpi_map(u64 pa, u64 len) {
    /* the one that looks for the RSDP: zeros behind the input */
    bool scan = pa == BASE && len == 0x20000;
    u64 off = pa - BASE;
    u8 *p;

    if (nr_mapped == ARRAY_SIZE(mapped)) return NULL;
    if (!scan && (pa < BASE || off > memory_size || len > memory_size - off)) return NULL;
    p = calloc(1, len);
    mapped[nr_mapped++] = p;
    memcpy(p, memory + off, scan ? memory_size : len);
    return p;
}

/* Puts checksums right, so that what lies behind them is reached. */
static void repair(u8 *p, size_t size) {
    for (size_t at = 36; at + 36 <= size; at += 4) {
        u32 len;
        u8 sum = 0;

        memcpy(&len, p + at + 4, 4);
        if (memcmp(p + at, "APIC", 4) && memcmp(p + at, "FACP", 4) && memcmp(p + at, "XSDT", 4) &&
            memcmp(p + at, "RSDT", 4) && memcmp(p + at, "DSDT", 4) && memcmp(p + at, "HPET", 4) &&
            memcmp(p + at, "SSDT", 4))
            continue;
        if (len < 36 || len > size - at) continue;
        p[at + 9] = 0;
        for (u32 i = 0; i < len; i++) sum = (u8)(sum + p[at + i]);
        p[at + 9] = (u8)-sum;
    }
    memcpy(p, "RSD PTR ", 8);
    p[8] = 0;
    for (int i = 0; i < 20; i++) p[8] = (u8)(p[8] - (i == 8 ? 0 : p[i]));
    p[32] = 0;
    for (int i = 0; i < 36; i++) p[32] = (u8)(p[32] - (i == 32 ? 0 : p[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct acpi_info info;
    u8 *copy;

    if (size < 64 || size > 16384) return 0;
    copy = malloc(size);
    memcpy(copy, data, size);
    repair(copy, size);
    memory = copy;
    memory_size = size;
    acpi_parse(&info, data, 0);
    if (info.nr_cpus > ACPI_MAX_CPUS || info.nr_ioapics > ACPI_MAX_IOAPICS ||
        info.nr_overrides > ACPI_MAX_OVERRIDES || info.power.type_a > ACPI_MAX_SLEEP_TYPE ||
        info.power.type_b > ACPI_MAX_SLEEP_TYPE)
        abort();
    acpi_parse(&info, data, (u32)(size < 36 ? size : 36));
    while (nr_mapped) free(mapped[--nr_mapped]);
    free(copy);
    return 0;
}
