/* The parser of the DMAR table, with which firmware describes IOMMUs. The input is what is behind
 * the checksum. All counts and indexes in the result must fit into their arrays. */
#include <stdlib.h>
#include <string.h>

#include "platform/firmware.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct dmar_info info;
    u8 *exact;

    if (size > 65536) return 0;
    exact = malloc(MAX(size, (size_t)1));
    memcpy(exact, data, size);
    dmar_parse(&info, exact, (u32)size);
    free(exact);
    if (info.nr_units > DMAR_MAX_UNITS || info.nr_regions > DMAR_MAX_REGIONS) abort();

    if (info.nr_scopes > DMAR_MAX_SCOPES) abort();
    for (const struct dmar_scope *s = info.scope; s < info.scope + info.nr_scopes; s++) {
        u32 owners = info.nr_units;

        if (s->of_region) owners = info.nr_regions;
        if (!s->hops || s->hops > DMAR_MAX_HOPS || s->of >= owners) abort();
    }
    for (u32 i = 0; i < info.nr_regions; i++)
        if (!info.region[i].odd && info.region[i].first >= info.region[i].last) abort();
    return 0;
}
