/* What the boot loader says about the machine (Multiboot2): what the parser accepts, and what it
 * refuses with a sentence. Also the set of memory ranges that comes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "platform/firmware.h"

static u64 block[4096];
static u32 used;
static struct boot_info info;
static const char *why;

static void put(const void *p, u32 n) {
    memcpy((char *)block + used, p, n);
    used += n;
}

static void put32(u32 v) { put(&v, 4); }

static void put64(u64 v) { put(&v, 8); }

static void tag(u32 type, u32 size) {
    used = ALIGN_UP(used, 8u);
    put32(type);
    put32(size);
}

static void begin(void) {
    memset(block, 0xee, sizeof(block));
    used = 8;
}

static void end(void) {
    tag(0, 8);
    memcpy(block, &used, 4);
}

static void map_entry(u64 start, u64 len, u32 type) {
    put64(start);
    put64(len);
    put32(type);
    put32(0);
}

static void map_header(u32 entries) {
    tag(6, 16 + 24 * entries);
    put32(24);
    put32(0);
}

static void map_simple(void) {
    map_header(1);
    map_entry(0, 0x8000000, 1);
}

static void module(u32 start, u32 stop, const char *line) {
    tag(3, 16 + (u32)strlen(line) + 1);
    put32(start);
    put32(stop);
    put(line, (u32)strlen(line) + 1);
}

static u64 bytes(const struct memmap *m) {
    u64 sum = 0;

    for (u32 i = 0; i < m->nr; i++) sum += m->range[i].end - m->range[i].start;
    return sum;
}

/* No two ranges overlap or touch. */
static void assert_apart(const struct memmap *m) {
    for (u32 i = 0; i < m->nr; i++) {
        assert_true(m->range[i].start < m->range[i].end);
        for (u32 j = 0; j < i; j++)
            assert_true(m->range[i].end < m->range[j].start || m->range[j].end < m->range[i].start);
    }
}

static int parse(void) {
    /* The copy has a block of exactly its size, so that a sanitizer or valgrind sees a read beyond
     * it. */
    void *copy = malloc(used);

    memcpy(copy, block, used);
    why = bootinfo_parse(copy, used, &info);
    free(copy);
    return why ? -1 : 0;
}

static void test_good(void **state) {
    static const char line[] = "sched=credit noreboot";

    begin();
    tag(1, 8 + sizeof(line));
    put(line, sizeof(line));
    map_simple();
    module(0x100000, 0x101234, "/boot/busy.elf percent=40");
    module(0x200000, 0x200000, "empty");
    end();
    assert_int_equal(parse(), 0);
    assert_string_equal(info.cmdline, line);
    assert_int_equal(info.nr_modules, 2);
    assert_string_equal(info.module[0].name, "busy.elf");
    assert_int_equal(info.module[0].end, 0x101234);
    assert_string_equal(info.module[1].name, "empty");
    assert_int_equal(bytes(&info.ram), 0x8000000);
}

static void test_total_size(void **state) {
    static const u32 sizes[] = { 0, 7, 15, BOOT_MAX_SIZE + 8, 0xffffffff };

    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
        begin();
        map_simple();
        end();
        memcpy(block, &sizes[i], 4);
        assert_true(parse() < 0);
        assert_non_null(strstr(why, "total size"));
    }
    begin();
    map_simple();
    end();
    why = bootinfo_parse((char *)block + 4, used, &info);
    assert_non_null(strstr(why, "aligned"));
}

static void test_tag_size(void **state) {
    static const u32 sizes[] = { 0, 7, 4096, 0xffffffff, 0xfffffff9 };

    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
        begin();
        map_simple();
        tag(1, sizes[i]);
        end();
        assert_true(parse() < 0);
    }
}

static void test_no_end(void **state) {
    begin();
    map_simple();
    memcpy(block, &used, 4);
    assert_true(parse() < 0);
    assert_non_null(strstr(why, "end tag"));
}

static void test_duplicates(void **state) {
    begin();
    map_simple();
    map_header(1);
    map_entry(0x40000000, 0x1000000, 1);
    end();
    assert_int_equal(parse(), 0);
    assert_int_equal(bytes(&info.ram), 0x8000000);
}

static void test_no_map(void **state) {
    begin();
    end();
    assert_true(parse() < 0);
    begin();
    map_header(1);
    map_entry(0, 0x1000000, 2);
    end();
    assert_true(parse() < 0);
    assert_non_null(strstr(why, "memory map"));
}

static void test_odd_maps(void **state) {
    begin();
    map_header(8);
    map_entry(0x3000000, 0x1000000, 1); /* unsorted */
    map_entry(0x100000, 0x1f00000, 1);
    map_entry(0x1000000, 0x1000000, 1);  /* overlaps */
    map_entry(0x1800000, 0x100001, 2);   /* reserved inside RAM, with a ragged end */
    map_entry(0x5000000, 0, 1);          /* empty */
    map_entry(~0ull - 0xfff, 0x2000, 1); /* wraps */
    map_entry(BOOT_RAM_LIMIT - 0x1000, 0x3000, 1);
    map_entry(0x9000001, 0x1ffe, 1); /* one whole page at most: none */
    end();
    assert_int_equal(parse(), 0);
    assert_int_equal(info.ram.nr, 4);
    assert_apart(&info.ram);
    assert_true(memmap_contains(&info.ram, 0x100000, 0x1800000));
    assert_false(memmap_contains(&info.ram, 0x1800000, 0x1801000));
    assert_true(memmap_contains(&info.ram, 0x1901000, 0x2000000));
    assert_false(memmap_contains(&info.ram, 0x1900000, 0x1901000));
    assert_true(memmap_contains(&info.ram, BOOT_RAM_LIMIT - 0x1000, BOOT_RAM_LIMIT));
    assert_int_equal(bytes(&info.ram), 0x2f00000 - 0x101000 + 0x1000);
}

/* A reserved range that reaches beyond the end of all addresses is reserved up to that end. RAM
 * that claims to reach so far is not believed. */
static void test_wrapping(void **state) {
    begin();
    map_header(4);
    map_entry(0x100000, 0x4000000, 1);
    map_entry(0x2000000, ~0ull, 2);
    map_entry(0x10000000, ~0ull, 1);
    map_entry(~0ull - 5, 3, 1);
    end();
    assert_int_equal(parse(), 0);
    assert_int_equal(info.ram.nr, 1);
    assert_int_equal(bytes(&info.ram), 0x1f00000);
}

static void test_modules_overlap(void **state) {
    begin();
    map_simple();
    module(0x100000, 0x200000, "a");
    module(0x1ff000, 0x300000, "b");
    end();
    assert_true(parse() < 0);
    assert_non_null(strstr(why, "overlap"));
    begin();
    map_simple();
    module(0x200000, 0x100000, "backwards");
    end();
    assert_true(parse() < 0);
}

static void test_too_many_modules(void **state) {
    begin();
    map_simple();
    for (u32 i = 0; i <= BOOT_MAX_MODULES; i++) module(i << 12, (i + 1) << 12, "m");
    end();
    assert_true(parse() < 0);
    assert_non_null(strstr(why, "too many"));
}

/* Compares the set of ranges with a bitmap, over many seeds. */
static void test_memmap_model(void **state) {
    for (unsigned seed = 0; seed < 300; seed++) {
        struct memmap m = { 0 };
        bool model[256] = { false };

        srand(seed);
        for (int step = 0; step < 60; step++) {
            u64 a = (u64)rand() % 256, b = (u64)rand() % 257;
            bool add = rand() % 3 != 0;

            if (add)
                memmap_add(&m, a, b);
            else
                memmap_remove(&m, a, b);
            for (u64 i = a; i < b; i++) model[i] = add;
            for (u64 i = 0; i < 256; i++) assert_int_equal(memmap_contains(&m, i, i + 1), model[i]);
            assert_apart(&m);
        }
    }
}

static void test_memmap_full(void **state) {
    struct memmap m = { 0 };

    for (u64 i = 0; i < BOOT_MAX_RANGES + 5; i++) memmap_add(&m, i * 10, i * 10 + 5);
    assert_int_equal(m.nr, BOOT_MAX_RANGES);
    memmap_remove(&m, 2, 3);
    assert_int_equal(m.nr, BOOT_MAX_RANGES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_total_size),
        cmocka_unit_test(test_tag_size),
        cmocka_unit_test(test_no_end),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_no_map),
        cmocka_unit_test(test_odd_maps),
        cmocka_unit_test(test_wrapping),
        cmocka_unit_test(test_modules_overlap),
        cmocka_unit_test(test_too_many_modules),
        cmocka_unit_test(test_memmap_model),
        cmocka_unit_test(test_memmap_full),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
