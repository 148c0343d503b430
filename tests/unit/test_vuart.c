/* The console ring and the 16550 in front of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <takt/abi.h>
#include "vdev/vuart.h"

static struct vconsole con;
static struct vuart uart;
static unsigned mores, edges;
static bool level;

static void more(struct vconsole *c) { mores++; }

static void irq(void *ctx, bool l) {
    assert_ptr_equal(ctx, &con);
    level = l;
    edges++;
}

static int setup(void **state) {
    vconsole_init(&con);
    con.more = more;
    mores = edges = 0;
    level = false;
    vuart_init(&uart, &con, irq, &con);
    return 0;
}

static u64 in(unsigned reg, u8 size) {
    u64 v = 0;

    vuart_access(&uart, &(struct bus_access){ .addr = TAKT_UART_PORT + reg, .size = size }, &v);
    return v;
}

static void outp(unsigned reg, u8 size, u64 v) {
    vuart_access(&uart, &(struct bus_access){ .addr = TAKT_UART_PORT + reg, .size = size, .write = true },
                 &v);
}

static void test_ring(void **state) {
    static char big[CONSOLE_RING + 100], back[CONSOLE_RING];

    for (unsigned i = 0; i < sizeof(big); i++) big[i] = (char)(i * 7);
    assert_int_equal(vconsole_put(&con, big, 100), 100);
    assert_int_equal(vconsole_take(&con, back, 60), 60);
    assert_int_equal(vconsole_put(&con, big, sizeof(big)), CONSOLE_RING - 40);
    assert_int_equal(con.dropped, 140);
    assert_int_equal(vconsole_put(&con, big, 1), 0);
    assert_int_equal(con.dropped, 141);
    assert_int_equal(mores, 2);
    assert_int_equal(vconsole_take(&con, back, 40), 40);
    assert_memory_equal(back, big + 60, 40);
    assert_int_equal(vconsole_take(&con, back, sizeof(back)), CONSOLE_RING - 40);
    assert_memory_equal(back, big, CONSOLE_RING - 40);
    assert_int_equal(vconsole_take(&con, back, 1), 0);
    /* The counters run past 2^32. */
    con.out_head = con.out_tail = con.in_head = con.in_tail = 0xfffffffe;
    assert_int_equal(vconsole_put(&con, "abcde", 5), 5);
    assert_int_equal(vconsole_take(&con, back, 9), 5);
    assert_memory_equal(back, "abcde", 5);
    assert_int_equal(vconsole_type(&con, big, 300), 256);
    assert_true(vconsole_typed(&con));
    assert_int_equal(vconsole_get(&con, back, 300), 256);
    assert_memory_equal(back, big, 256);
    assert_false(vconsole_typed(&con));
}

static void test_output(void **state) {
    char back[8];

    assert_int_equal(in(5, 1), 0x60);
    outp(0, 1, 'h');
    outp(0, 1, 'i');
    assert_int_equal(in(5, 1), 0x60);
    assert_int_equal(vconsole_take(&con, back, 8), 2);
    assert_memory_equal(back, "hi", 2);
}

static void test_registers(void **state) {
    outp(7, 1, 0x5a);
    assert_int_equal(in(7, 1), 0x5a);
    outp(3, 1, 0x83);
    outp(0, 1, 0x0c);
    outp(1, 1, 0x01);
    assert_int_equal(in(0, 1), 0x0c);
    assert_int_equal(in(1, 1), 0x01);
    assert_int_equal(in(3, 1), 0x83);
    outp(3, 1, 3);
    assert_int_equal(con.out_head, 0); /* none of it was sent */
    assert_int_equal(in(1, 1), 0);
    outp(1, 1, 0xff);
    assert_int_equal(in(1, 1), 0xf);
    assert_int_equal(in(6, 1), 0xb0);
    assert_int_equal(in(2, 1) & 0xc0, 0);
    outp(2, 1, 1);
    assert_int_equal(in(2, 1) & 0xc0, 0xc0); /* how drivers tell a 16550A */
}

static void test_loopback(void **state) {
    outp(4, 1, 0x1a); /* as Linux does to see whether it is there */
    assert_int_equal(in(6, 1), 0x90);
    outp(4, 1, 0x15);
    assert_int_equal(in(6, 1), 0x60);
    outp(0, 1, 'x');
    assert_int_equal(in(5, 1), 0x61);
    assert_int_equal(in(0, 1), 'x');
    assert_int_equal(con.out_head, 0);
}

static void test_input_interrupt(void **state) {
    outp(4, 1, 8);
    outp(1, 1, 1);
    assert_int_equal(in(2, 1), 1);
    vconsole_type(&con, "ab", 2);
    vuart_input(&uart);
    assert_true(level);
    assert_int_equal(in(2, 1), 4);
    assert_int_equal(in(5, 1), 0x61);
    assert_int_equal(in(0, 1), 'a');
    assert_true(level);
    assert_int_equal(in(0, 1), 'b');
    assert_false(level);
    assert_int_equal(in(0, 1), 0);
    assert_int_equal(in(5, 1), 0x60);
    assert_int_equal(edges, 2);
    vconsole_type(&con, "junk", 4);
    outp(2, 1, 3);
    assert_int_equal(in(5, 1), 0x60);
}

static void test_output_interrupt(void **state) {
    outp(4, 1, 8);
    outp(1, 1, 2);
    assert_true(level); /* the transmitter is empty */
    assert_int_equal(in(2, 1), 2);
    assert_false(level); /* reading IIR is enough */
    assert_int_equal(in(2, 1), 1);
    outp(0, 1, 'a');
    assert_true(level);
    outp(4, 1, 0); /* OUT2 off: the line is cut */
    assert_false(level);
    outp(4, 1, 8);
    outp(1, 1, 0);
    assert_false(level);
}

static void test_wide(void **state) {
    outp(4, 4, 0x5a000000 | 0x03); /* MCR .. SCR */
    assert_int_equal(in(7, 1), 0x5a);
    assert_int_equal(in(4, 1), 0x03);
    assert_int_equal(in(4, 4), 0x5ab06003);
}

#define T(f) cmocka_unit_test_setup(f, setup)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_ring),     T(test_output),          T(test_registers),
        T(test_loopback), T(test_input_interrupt), T(test_output_interrupt),
        T(test_wide),
    };

    return cmocka_run_group_tests_name("vuart", tests, NULL, NULL);
}
