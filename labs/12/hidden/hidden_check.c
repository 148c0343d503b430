/* Tests of lab 12 that students do not have. */
#include "rig.h"

static void no_memory(void) {
    for (unsigned n = 0; n < 4; n++) {
        struct domain d;

        begin();
        domain_init(&d, 3);
        model_fail_after = n;
        expect_result("domain_map or iommu_attach without memory",
                      domain_map(&d, 0x5000, 0x9000, PAGE_SIZE, 3) |
                          iommu_attach(&unit, 0x0100, &d),
                      -ENOMEM);
        model_fail_after = ~0u;
        expect_result("domain_map with memory", domain_map(&d, 0x5000, 0x9000, PAGE_SIZE, 3), 0);
        expect_result("iommu_attach with memory", iommu_attach(&unit, 0x0100, &d), 0);
        goes("a device reads", 0x0100, 0x5000, DMA_READ, 0x9000);
        iommu_detach(&unit, 0x0100);
    }
}

static void many(void) {
    static struct domain d[8];

    begin();
    for (u32 i = 0; i < 8; i++) {
        domain_init(&d[i], (u16)(i + 1));
        domain_map(&d[i], 0, i * 16 * PAGE_SIZE, 16 * PAGE_SIZE, 3);
        iommu_attach(&unit, (u16)(i * 0x1021), &d[i]);
    }
    for (u32 round = 0; round < 4; round++)
        for (u32 i = 0; i < 8; i++)
            for (u64 page = 0; page < 17; page++) {
                hpa_t expected = (i * 16 + page) * PAGE_SIZE;

                if (page >= 16 - round) expected = HPA_NONE;
                if (page == 15 - round) domain_unmap(&d[i], page * PAGE_SIZE, PAGE_SIZE);
                if (page == 15 - round) expected = HPA_NONE;
                goes("one of eight devices reads", (u16)(i * 0x1021), page * PAGE_SIZE, DMA_READ,
                     expected);
            }
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        { "no_memory", no_memory },
        { "many", many },
        { NULL, NULL },
    };

    return run_tests(tests, argc, argv);
}
