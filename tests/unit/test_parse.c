/* How text becomes values: units, shares, lists of CPUs, names of consoles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "lib/choose.h"
#include "common/string.h"

static void numbers(void **state) {
    const char *bad;
    u64 v;

    assert_int_equal(parse_u64("18446744073709551615", &v, NULL), 0);
    assert_true(v == ~0ull);
    assert_int_equal(parse_u64("18446744073709551616", &v, NULL), -ERANGE);
    assert_int_equal(parse_u64("12a", &v, &bad), -EINVAL);
    assert_string_equal(bad, "a");
    assert_int_equal(parse_u64("", &v, NULL), -EINVAL);
    assert_int_equal(parse_u64("0x2a", &v, NULL), -EINVAL);
    assert_int_equal(parse_address("0xffffffffffffffff", &v, NULL), 0);
    assert_int_equal(v, ~0ull);
    assert_int_equal(parse_address("42", &v, NULL), 0);
    assert_int_equal(v, 42);
    assert_int_equal(parse_address("0x10000000000000000", &v, NULL), -ERANGE);
    assert_int_equal(parse_address("0x", &v, NULL), -EINVAL);
    assert_int_equal(parse_address("0x1g", &v, NULL), -EINVAL);
    assert_int_equal(parse_u64("-1", &v, NULL), -EINVAL);
}

static void units(void **state) {
    u64 v;
    u64 share;

    assert_int_equal(parse_size("16M", &v, NULL), 0);
    assert_int_equal(v, 16 << 20);
    assert_int_equal(parse_size("1.5k", &v, NULL), 0);
    assert_int_equal(v, 1536);
    assert_int_equal(parse_size("4096", &v, NULL), 0);
    assert_int_equal(v, 4096);
    assert_int_equal(parse_size("16Q", &v, NULL), -EINVAL);
    assert_int_equal(parse_size("18446744073709551615G", &v, NULL), -ERANGE);
    assert_int_equal(parse_time("10ms", &v, NULL), 0);
    assert_int_equal(v, 10 * NS_PER_MS);
    assert_int_equal(parse_time("1.5s", &v, NULL), 0);
    assert_int_equal(v, 1500 * NS_PER_MS);
    assert_int_equal(parse_time("10", &v, NULL), -EINVAL);
    assert_int_equal(parse_time("1.s", &v, NULL), -EINVAL);
    assert_int_equal(parse_permille("40%", &share, NULL), 0);
    assert_int_equal(share, 400);
    assert_int_equal(parse_permille("12.5%", &share, NULL), 0);
    assert_int_equal(share, 125);
    assert_int_equal(parse_permille("100.1%", &share, NULL), -ERANGE);
    assert_int_equal(parse_permille("40", &share, NULL), -EINVAL);
}

static void cpu_lists(void **state) {
    struct cpumask m;
    char buf[CPUS_TEXT];
    const char *bad;

    assert_int_equal(parse_cpus("0-3,^2,5", &m, NULL), 0);
    assert_int_equal(m.word[0], 0x2b);
    format_cpus(&m, buf);
    assert_string_equal(buf, "0-1,3,5");
    assert_int_equal(parse_cpus("all", &m, NULL), 0);
    assert_int_equal(cpumask_weight(&m), TAKT_MAX_CPUS);
    assert_int_equal(parse_cpus("all,^0", &m, NULL), 0);
    assert_int_equal(cpumask_weight(&m), TAKT_MAX_CPUS - 1);
    assert_int_equal(parse_cpus("^1", &m, NULL), 0);
    assert_false(cpumask_test(&m, 1));
    assert_true(cpumask_test(&m, 0));
    assert_int_equal(parse_cpus("1,^1", &m, NULL), 0);
    assert_true(cpumask_empty(&m));
    assert_int_equal(parse_cpus("3-1", &m, &bad), -EINVAL);
    assert_string_equal(bad, "3-1");
    assert_int_equal(parse_cpus("256", &m, NULL), -ERANGE);
    assert_int_equal(parse_cpus("0-99999999999999999999", &m, NULL), -ERANGE);
    assert_int_equal(parse_cpus("", &m, NULL), -EINVAL);
    assert_int_equal(parse_cpus("1,", &m, NULL), -EINVAL);
    assert_int_equal(parse_cpus("1;2", &m, &bad), -EINVAL);
    assert_string_equal(bad, ";2");
    assert_int_equal(parse_cpus("allx", &m, NULL), -EINVAL);

    cpumask_fill(&m);
    for (u32 cpu = 2; cpu < TAKT_MAX_CPUS; cpu += 3) cpumask_clear(&m, cpu); /* the longest list */
    format_cpus(&m, buf);
    assert_int_equal(strlen(buf), 609);
    assert_string_equal(buf + strlen(buf) - 11, "252-253,255");
    cpumask_zero(&m);
    format_cpus(&m, buf);
    assert_string_equal(buf, "none");
}

static void consoles(void **state) {
    struct console_spec c;

    assert_int_equal(parse_console("com2", &c, NULL), 0);
    assert_int_equal(c.com, 2);
    assert_int_equal(c.baud, 115200);
    assert_int_equal(parse_console("com4,9600,8n1", &c, NULL), 0);
    assert_int_equal(c.com, 4);
    assert_int_equal(c.baud, 9600);
    assert_int_equal(parse_console("none", &c, NULL), 0);
    assert_int_equal(c.com, 0);
    assert_int_equal(c.where, AT_NOTHING);
    assert_int_equal(parse_console("auto", &c, NULL), 0);
    assert_int_equal(c.where, AT_FIRMWARES);
    assert_int_equal(parse_console("0x2f8,9600", &c, NULL), 0);
    assert_int_equal(c.where, AT_PORT);
    assert_int_equal(c.addr, 0x2f8);
    assert_int_equal(c.baud, 9600);
    assert_int_equal(c.com, 0);
    assert_int_equal(parse_console("pci:00:16.3", &c, NULL), 0);
    assert_int_equal(c.where, AT_PCI);
    assert_int_equal(c.addr, 0xb3);
    assert_int_equal(c.baud, 0);
    assert_int_equal(parse_console("pci:0000:02:00.1,115200,8n1", &c, NULL), 0);
    assert_int_equal(c.addr, 0x201);
    assert_int_equal(c.baud, 115200);
    assert_int_equal(parse_console("mmio:0xFE03e000", &c, NULL), 0);
    assert_int_equal(c.where, AT_MEMORY);
    assert_int_equal(c.addr, 0xfe03e000);
    assert_int_equal(c.stride, 1);
    assert_int_equal(parse_console("mmio32:0x1000000000,57600", &c, NULL), 0);
    assert_int_equal(c.addr, 0x1000000000);
    assert_int_equal(c.stride, 4);
    assert_int_equal(parse_console("0x", &c, NULL), -EINVAL);
    assert_int_equal(parse_console("0x60", &c, NULL), -ERANGE);
    assert_int_equal(parse_console("0x10000", &c, NULL), -ERANGE);
    assert_int_equal(parse_console("mmio:0x11112222333344445", &c, NULL), -ERANGE);
    assert_int_equal(parse_console("mmio:fe03e000", &c, NULL), -EINVAL);
    assert_int_equal(parse_console("pci:00:20.0", &c, NULL), -EINVAL);
    assert_int_equal(parse_console("pci:00000000000000000:16.3", &c, NULL), -EINVAL);
    assert_int_equal(parse_console("auto,9600", &c, NULL), -EINVAL);
    assert_int_equal(parse_console("com5", &c, NULL), -EINVAL);
    assert_int_equal(parse_console("com1,0", &c, NULL), -ERANGE);
    assert_int_equal(parse_console("com1,115200,7e1", &c, NULL), -EINVAL);
    assert_int_equal(parse_console("vga", &c, NULL), -EINVAL);
}

/* Two caches: pCPUs 0 to 3, and 4 and 5. */
static u32 two_caches(u32 cpu) { return cpu / 4; }
/* Two nodes: the pCPUs with even numbers, and the others. */
static u32 two_nodes(u32 cpu) { return cpu % 2; }

static u64 chosen(const char *how, u64 from, u64 seed) {
    const struct cpu_places places = { two_caches, two_nodes };
    struct cpu_choice c;

    assert_int_equal(parse_choice(how, &c), 0);
    return cpus_choose(&c, &(struct cpumask){ { from } }, seed, &places).word[0];
}

static void choices(void **state) {
    static const char *const bad[] = { "random:0", "random:257", "cache:", "cache:1x", "cache",
                                       "3",        "random:-1",  "node:",  "node:257" };
    u64 seen = 0;
    struct cpu_choice c;

    for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_not_equal(parse_choice(bad[i], &c), 0);
        assert_int_equal(c.nr, 0);
        assert_int_equal(c.how, CHOOSE_NONE);
    }
    assert_int_equal(chosen("cache:1", 0x3f, 0), 0x08); /* the larger one */
    /* In the first cache three CPUs are left and one is chosen. In the second cache two are left
     * and none is chosen, so the next one is from there. */
    assert_int_equal(chosen("cache:2", 0x3f, 0), 0x28);
    assert_int_equal(chosen("cache:3", 0x3f, 0), 0x2c);
    assert_int_equal(chosen("cache:9", 0x36, 0), 0x36); /* all there are */
    for (u64 seed = 0; seed < 64; seed++) {
        u64 one = chosen("random:1", 0x3e, seed), two = chosen("random:2", 0x3e, seed);

        assert_int_equal(__builtin_popcountll(one), 1);
        assert_int_equal(__builtin_popcountll(two), 2);
        assert_int_equal((one | two) & ~0x3eull, 0);
        assert_int_equal(two, chosen("random:2", 0x3e, seed)); /* the same for the same seed */
        seen |= one;
    }
    assert_int_equal(seen, 0x3e); /* each at some time */
    assert_int_equal(chosen("node:0", 0x3f, 0), 0x15);
    assert_int_equal(chosen("node:1", 0x0e, 0), 0x0a);
    assert_int_equal(chosen("node:2", 0x3f, 0), 0);
}

static void names(void **state) {
    assert_true(valid_name("vm-1.a_B"));
    assert_false(valid_name(""));
    assert_false(valid_name("17"));
    assert_false(valid_name("a b"));
    assert_false(valid_name("-d"));
    assert_true(valid_name("abcdefghijklmnopqrstuvwxyzabcde"));
    assert_false(valid_name("abcdefghijklmnopqrstuvwxyzabcdef"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),  cmocka_unit_test(units), cmocka_unit_test(cpu_lists),
        cmocka_unit_test(consoles), cmocka_unit_test(names), cmocka_unit_test(choices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
