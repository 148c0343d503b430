#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "frame_model.h"
#include "mm/guestmem.h"

static void fill(struct guestmem *m, u64 size) {
    assert_int_equal(guestmem_init(m, size), 0);
    while (guestmem_grow(m) == 0)
        ;
    assert_int_equal(m->grown, size / CHUNK_SIZE);
}

static void test_sizes(void **state) {
    struct guestmem m;

    assert_int_equal(guestmem_init(&m, 0), -EINVAL);
    assert_int_equal(guestmem_init(&m, CHUNK_SIZE + 4096), -EINVAL);
    assert_int_equal(guestmem_init(&m, ~0ull << CHUNK_SHIFT), -EINVAL);
    fill(&m, 3 * CHUNK_SIZE);
    assert_int_equal(guestmem_grow(&m), -ENOSPC);
    guestmem_fini(&m);
    guestmem_fini(&m);
    assert_int_equal(model_in_use, 0);
}

/* VMs share a frame for their tables of chunks. A table of more than 64 KiB has its own. */
static void test_tables(void **state) {
    struct guestmem small[3], large;

    for (u32 i = 0; i < ARRAY_SIZE(small); i++)
        assert_int_equal(guestmem_init(&small[i], CHUNK_SIZE), 0);
    assert_int_equal(model_in_use, 1);
    assert_int_equal(guestmem_init(&large, 32ull << 30), 0);
    assert_int_equal(model_in_use, 1 + 32);
    guestmem_fini(&large);
    for (u32 i = 0; i < ARRAY_SIZE(small); i++) guestmem_fini(&small[i]);
    assert_int_equal(model_in_use, 0);
}

static void test_memory_runs_out(void **state) {
    struct guestmem m;

    model_fail_after = 2;
    assert_int_equal(guestmem_init(&m, 3 * CHUNK_SIZE), 0);
    assert_int_equal(guestmem_grow(&m), 0);
    assert_int_equal(guestmem_grow(&m), -ENOMEM);
    guestmem_fini(&m);
    model_fail_after = ~0u;
    assert_int_equal(model_in_use, 0);
}

/* Memory of a guest for devices that know nothing of pages: one piece, below a limit, and no
 * frame of the rest is lost. */
static void test_in_one_piece(void **state) {
    struct guestmem m;

    assert_int_equal(guestmem_init(&m, 3 * CHUNK_SIZE), 0);
    assert_int_equal(guestmem_reserve(&m, 2 * CHUNK_SIZE), -ENOMEM);
    assert_int_equal(guestmem_reserve(&m, 16 * CHUNK_SIZE), 0);
    for (u32 i = 0; i < 3; i++) assert_int_equal(guestmem_grow(&m), 0);
    assert_int_equal(guestmem_grow(&m), -ENOSPC);
    assert_int_equal(m.chunk[1], m.chunk[0] + CHUNK_SIZE);
    assert_int_equal(m.chunk[2], m.chunk[0] + 2 * CHUNK_SIZE);
    assert_int_equal(model_in_use, 3 * 512 + 1);
    guestmem_shrink(&m);
    assert_int_equal(model_in_use, 2 * 512 + 1);
    guestmem_fini(&m);
    assert_int_equal(model_in_use, 0);

    assert_int_equal(guestmem_init(&m, 5 * CHUNK_SIZE), 0); /* not all of it handed out yet */
    assert_int_equal(guestmem_reserve(&m, BIT(32)), 0);
    assert_int_equal(guestmem_grow(&m), 0);
    guestmem_shrink(&m);
    assert_int_equal(model_in_use, 1);
    guestmem_fini(&m);
    assert_int_equal(guestmem_init(&m, 5 * CHUNK_SIZE), 0);
    assert_int_equal(guestmem_reserve(&m, BIT(32)), 0);
    guestmem_fini(&m);
    assert_int_equal(model_in_use, 0);

    assert_int_equal(guestmem_init(&m, 2ull << 30), 0); /* more than a block can be */
    assert_int_equal(guestmem_reserve(&m, BIT(32)), -ENOMEM);
    guestmem_fini(&m);
    assert_int_equal(model_in_use, 0);
}

static void test_every_byte_is_checked(void **state) {
    struct guestmem m;
    u8 buf[64];
    const u64 end = 2 * CHUNK_SIZE;

    fill(&m, end);
    assert_int_equal(guestmem_write(&m, end - 1, "x", 1), 0);
    assert_int_equal(guestmem_write(&m, end - 1, "xy", 2), -EFAULT);
    assert_int_equal(guestmem_write(&m, end, "x", 1), -EFAULT);
    assert_int_equal(guestmem_write(&m, ~0ull, "xy", 2), -EFAULT);
    assert_int_equal(guestmem_read(&m, 16, buf, ~0ull), -EFAULT);
    assert_int_equal(guestmem_read(&m, TAKT_HIGH_RAM, buf, 1), -EFAULT);
    assert_int_equal(guestmem_read(&m, ~0ull, buf, 0), 0);
    assert_int_equal(guestmem_read(&m, end - 1, buf, 1), 0);
    assert_int_equal(buf[0], 'x');
    guestmem_fini(&m);
}

/* Chunks need not be neighbours in host memory: a copy across the border has to look up both. */
static void test_across_chunks(void **state) {
    struct guestmem m;
    char buf[10] = "";
    u64 room;
    hpa_t first;

    fill(&m, 2 * CHUNK_SIZE);
    first = m.chunk[0];
    m.chunk[0] = m.chunk[1];
    m.chunk[1] = first;
    assert_int_equal(guestmem_write(&m, CHUNK_SIZE - 4, "seventeen", 9), 0);
    assert_int_equal(guestmem_read(&m, CHUNK_SIZE - 4, buf, 9), 0);
    assert_string_equal(buf, "seventeen");
    assert_memory_equal(guestmem_at(&m, CHUNK_SIZE, &room), "nteen", 5);
    assert_int_equal(room, CHUNK_SIZE);
    assert_ptr_equal(guestmem_at(&m, CHUNK_SIZE - 1, &room),
                     (u8 *)hpa_to_va(m.chunk[0]) + CHUNK_SIZE - 1);
    assert_int_equal(room, 1);
    guestmem_fini(&m);
}

/* RAM beyond 3 GiB goes on at 4 GiB. The chunks all stand for the same frame here. */
static void test_hole_below_4g(void **state) {
    struct guestmem m;
    u64 room;
    u8 b[2];

    assert_int_equal(guestmem_init(&m, TAKT_LOW_RAM_MAX + 2 * CHUNK_SIZE), 0);
    for (u64 i = 0; i < m.size / CHUNK_SIZE; i++) m.chunk[i] = 0;
    assert_int_equal(guestmem_chunk_gpa(&m, 1535), TAKT_LOW_RAM_MAX - CHUNK_SIZE);
    assert_int_equal(guestmem_chunk_gpa(&m, 1536), TAKT_HIGH_RAM);
    assert_non_null(guestmem_at(&m, TAKT_LOW_RAM_MAX - 1, &room));
    assert_null(guestmem_at(&m, TAKT_LOW_RAM_MAX, &room));
    assert_null(guestmem_at(&m, TAKT_HIGH_RAM - 1, &room));
    assert_non_null(guestmem_at(&m, TAKT_HIGH_RAM + 2 * CHUNK_SIZE - 1, &room));
    assert_null(guestmem_at(&m, TAKT_HIGH_RAM + 2 * CHUNK_SIZE, &room));
    assert_int_equal(guestmem_read(&m, TAKT_LOW_RAM_MAX - 1, b, 2), -EFAULT);
    assert_int_equal(guestmem_read(&m, TAKT_HIGH_RAM + 2 * CHUNK_SIZE - 2, b, 2), 0);
    assert_int_equal(guestmem_read(&m, TAKT_HIGH_RAM + 2 * CHUNK_SIZE - 1, b, 2), -EFAULT);
    guestmem_fini(&m);
    assert_int_equal(model_in_use, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_memory_runs_out),
        cmocka_unit_test(test_in_one_piece),
        cmocka_unit_test(test_every_byte_is_checked),
        cmocka_unit_test(test_across_chunks),
        cmocka_unit_test(test_hole_below_4g),
    };

    model_setup();
    return cmocka_run_group_tests_name("guestmem", tests, NULL, NULL);
}
