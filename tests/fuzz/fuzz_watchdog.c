/* The firmware's table WDAT, which describes a watchdog. The input is the table, in memory that
 * ends where the table ends. The registers that it names are modelled here; a port that the
 * hypervisor must not touch ends the run. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/watchdog_rig.h"

static u8 reg[4] __attribute__((aligned(4)));

volatile void *mmio_map(hpa_t pa, u64 len) {
    if (len > sizeof(reg)) return NULL;
    return reg;
}

bool smp_all_alive(void) { return true; }

/* A port that the table must not name ends the run. */
u32 model_in(u16 port, u32 bytes) {
    if (port + bytes > 0x10000u) abort();
    return port ^ 0x5a5a5a5au;
}

void model_out(u16 port, u32 v, u32 bytes) {
    if (port + bytes > 0x10000u) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct acpi_info a = { 0 };
    u8 *copy;

    if (size < WDAT_ENTRIES || size > 4096) return 0;
    copy = malloc(size);
    memcpy(copy, data, size);
    a.wdat = copy;
    a.wdat_len = (u32)size;
    added = NULL;
    memset(&dog, 0, sizeof(dog));
    watchdog_init(&a, 1 + data[0] * 3u);
    if (added && (!sign_every || !added->step(added))) abort();
    watchdog_stop();
    free(copy);
    return 0;
}
