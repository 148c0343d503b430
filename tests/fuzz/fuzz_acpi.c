/* The parser of ACPI tables. The input is the physical memory from 0xe0000 on, where firmware
 * leaves its tables. A table may lie about its length and about where others are: the parser may
 * read no byte that it did not map, and its results must stay within their arrays. */
#include <stdlib.h>
#include <string.h>

#include "platform/firmware.h"

#define BASE 0xe0000u

static const u8 *memory;
static size_t memory_size;
static void *mapped[4096];
static unsigned nr_mapped;

/* Each mapping is a copy of exactly that length, so that the sanitizer finds a read behind it. */
const void *acpi_map(u64 pa, u64 len) {
    /* When the parser looks for the RSDP, it maps more than there is. Zeros are behind the
     * input. */
    bool scan = pa == BASE && len == 0x20000;
    u64 off = pa - BASE, there = len;
    u8 *p;

    if (nr_mapped == ARRAY_SIZE(mapped)) return NULL;
    if (!scan && (pa < BASE || off > memory_size || len > memory_size - off)) return NULL;
    p = calloc(1, len);
    mapped[nr_mapped++] = p;
    if (scan) there = memory_size;
    memcpy(p, memory + off, there);
    return p;
}

/* Sets p[at] so that the sum of all `len` bytes is 0. */
static void fix_sum(u8 *p, u32 len, u32 at) {
    u8 sum = 0;

    p[at] = 0;
    for (u32 i = 0; i < len; i++) sum = (u8)(sum + p[i]);
    p[at] = (u8)-sum;
}

/* Makes checksums right, because the parser looks at nothing with a wrong one. */
static void repair(u8 *p, size_t size) {
    for (size_t at = 36; at + 36 <= size; at += 4) {
        u32 len;

        memcpy(&len, p + at + 4, 4);
        if (memcmp(p + at, "APIC", 4) && memcmp(p + at, "FACP", 4) && memcmp(p + at, "XSDT", 4) &&
            memcmp(p + at, "RSDT", 4) && memcmp(p + at, "DSDT", 4) && memcmp(p + at, "HPET", 4) &&
            memcmp(p + at, "SSDT", 4))
            continue;
        if (len < 36 || len > size - at) continue;
        fix_sum(p + at, len, 9);
    }
    memcpy(p, "RSD PTR ", 8);
    fix_sum(p, 20, 8);
    fix_sum(p, 36, 32);
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
    acpi_parse(&info, data, (u32)MIN(size, (size_t)36));
    while (nr_mapped) free(mapped[--nr_mapped]);
    free(copy);
    return 0;
}
