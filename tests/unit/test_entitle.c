/* The share of a pCPU to which a vCPU is entitled, as the command top shows it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "shell/entitle.h"

static void entitled(const char *text, u32 n, const u32 *weight, const u32 *limit, const u64 *cpus,
                     const u32 *expected) {
    struct claim c[8];

    for (u32 i = 0; i < n; i++)
        c[i] = (struct claim){ .cpus = { { cpus[i] } },
                               .weight = weight[i] * 4096,
                               .limit = limit[i] };
    while (entitle_step(c, n))
        ;
    for (u32 i = 0; i < n; i++) {
        if (c[i].share + 2 < expected[i] || c[i].share > expected[i] + 2)
            fail_msg("%s: claim %u got %u, not %u", text, i, c[i].share, expected[i]);
    }
}

static void entitlement(void **state) {
    entitled("by weight", 2, (u32[]){ 256, 768 }, (u32[]){ 1000000, 1000000 }, (u64[]){ 1, 1 },
             (u32[]){ 250000, 750000 });
    entitled("what a cap leaves", 2, (u32[]){ 768, 256 }, (u32[]){ 600000, 1000000 },
             (u64[]){ 1, 1 }, (u32[]){ 600000, 400000 });
    entitled("the demonstration", 4, (u32[]){ 128, 128, 256, 256 },
             (u32[]){ 1000000, 1000000, 400000, 5000 }, (u64[]){ 2, 2, 2, 2 },
             (u32[]){ 297500, 297500, 400000, 5000 });
    entitled("all content", 2, (u32[]){ 1, 65535 }, (u32[]){ 300000, 200000 }, (u64[]){ 1, 1 },
             (u32[]){ 300000, 200000 });
    entitled("two groups", 3, (u32[]){ 1, 1, 1 }, (u32[]){ 1000000, 1000000, 1000000 },
             (u64[]){ 1, 2, 2 }, (u32[]){ 1000000, 500000, 500000 });
    entitled("three on two", 3, (u32[]){ 1, 1, 1 }, (u32[]){ 1000000, 1000000, 1000000 },
             (u64[]){ 3, 3, 3 }, (u32[]){ 666666, 666666, 666666 });
    entitled("nowhere", 2, (u32[]){ 1, 1 }, (u32[]){ 1000000, 1000000 }, (u64[]){ 0, 1 },
             (u32[]){ 0, 1000000 });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entitlement),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
