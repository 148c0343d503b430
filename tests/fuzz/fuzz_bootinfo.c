/* The parser of what the boot loader says about the machine (Multiboot2). A loader that is broken
 * may say anything. The parser must not read behind it, and the ranges of RAM that it reports must
 * be sorted out: not empty, and none touching another one. */
#include <stdlib.h>
#include <string.h>

#include "platform/firmware.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct boot_info info;
    u8 *copy = aligned_alloc(8, ALIGN_UP(size + 8, 8u));
    u32 total = (u32)size + 8;

    /* The total size is mostly right, so that the parser goes on to the tags. */
    memset(copy, 0, ALIGN_UP(size + 8, 8u));
    memcpy(copy + 8, data, size);
    if (size > 8 && data[0] == 0xff) memcpy(&total, data + 1, 4);
    memcpy(copy, &total, 4);
    if (!bootinfo_parse(copy, size + 8, &info)) {
        for (u32 i = 0; i < info.ram.nr; i++) {
            if (info.ram.range[i].start >= info.ram.range[i].end) abort();
            for (u32 j = 0; j < i; j++)
                if (info.ram.range[i].end >= info.ram.range[j].start &&
                    info.ram.range[j].end >= info.ram.range[i].start)
                    abort();
        }
        if (strlen(info.cmdline) >= sizeof(info.cmdline)) abort();
    }
    free(copy);
    return 0;
}
