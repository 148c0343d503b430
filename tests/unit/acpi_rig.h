/* A physical memory with tables of firmware that the test makes up. Each test that includes this
 * is one program. */
#ifndef TESTS_ACPI_RIG_H
#define TESTS_ACPI_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <takt/errno.h>

#include "platform/firmware.h"

#define MEM  0x100000u
#define RSDP 0xe0000u
#define ROOT 0x1000u

static u8 *mem;
static struct acpi_info info;

const void *acpi_map(u64 pa, u64 len) {
    if (pa >= MEM || len > MEM - pa) return NULL;
    return mem + pa;
}

static inline void put(u32 at, u64 v, unsigned bytes) { memcpy(mem + at, &v, bytes); }

static inline void seal(u32 at, u32 len, u32 sum_at) {
    u8 sum = 0;

    mem[at + sum_at] = 0;
    for (u32 i = 0; i < len; i++) sum = (u8)(sum + mem[at + i]);
    mem[at + sum_at] = (u8)-sum;
}

static inline void table(u32 at, const char *signature, u32 len) {
    memcpy(mem + at, signature, 4);
    put(at + 4, len, 4);
    seal(at, len, 9);
}

static inline void rsdp(u8 revision) {
    memcpy(mem + RSDP, "RSD PTR ", 8);
    mem[RSDP + 15] = revision;
    put(RSDP + 16, ROOT, 4);
    put(RSDP + 20, 36, 4);
    put(RSDP + 24, ROOT, 8);
    seal(RSDP, 20, 8);
    seal(RSDP, 36, 32);
}

static inline int setup(void **state) {
    free(mem);
    mem = calloc(1, MEM);
    return 0;
}

/* A root table that has the addresses of `n` other tables: an XSDT, or an RSDT with shorter
 * entries. */
static inline void root(bool xsdt, unsigned n, const u32 *at) {
    const char *signature = "RSDT";
    u32 bytes = 4;

    if (xsdt) {
        signature = "XSDT";
        bytes = 8;
    }
    for (unsigned i = 0; i < n; i++) put(ROOT + 36 + i * bytes, at[i], bytes);
    table(ROOT, signature, 36 + bytes * n);
}

static inline int parse(void) { return acpi_parse(&info, mem, 0); }

#endif
