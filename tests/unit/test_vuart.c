/* The ring of a console, and the virtual 16550 in front of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <takt/abi.h>
#include "fake_machine.h"
#include "trace/trace.h"
#include "vdev/vuart.h"

extern const struct counter console_bytes_dropped;

static struct vconsole con;
static struct vuart uart;

static int setup(void **state) {
    memset(&con, 0, sizeof(con));
    uart = (struct vuart){ .console = &con };
    return 0;
}

static u64 dropped(void) {
    u64 n = console_bytes_dropped.value[0];

    console_bytes_dropped.value[0] = 0;
    return n;
}

static u64 in(unsigned reg, u8 size) {
    u64 v = 0;

    vuart_access(&uart, &(struct bus_access){ .addr = TAKT_UART_PORT + reg, .size = size }, &v);
    return v;
}

static void outp(unsigned reg, u8 size, u64 v) {
    vuart_access(&uart,
                 &(struct bus_access){ .addr = TAKT_UART_PORT + reg, .size = size, .write = true },
                 &v);
}

static void test_ring(void **state) {
    static char big[CONSOLE_RING + 100], back[CONSOLE_RING];

    for (unsigned i = 0; i < sizeof(big); i++) big[i] = (char)(i * 7);
    assert_int_equal(vconsole_put(&con, big, 100), 100);
    assert_int_equal(ring_get(&con.out, back, 60), 60);
    assert_int_equal(vconsole_put(&con, big, sizeof(big)), CONSOLE_RING - 40);
    assert_int_equal(dropped(), 140);
    assert_int_equal(vconsole_put(&con, big, 1), 0);
    assert_int_equal(dropped(), 1);
    assert_int_equal(ring_get(&con.out, back, 40), 40);
    assert_memory_equal(back, big + 60, 40);
    assert_int_equal(ring_get(&con.out, back, sizeof(back)), CONSOLE_RING - 40);
    assert_memory_equal(back, big, CONSOLE_RING - 40);
    assert_int_equal(ring_get(&con.out, back, 1), 0);
    vconsole_put(&con, "one\ntwo", 7);
    assert_int_equal(ring_get_line(&con.out, back, 9), 4);
    assert_int_equal(ring_get_line(&con.out, back, 9), 0); /* not whole yet */
    assert_int_equal(ring_get_line(&con.out, back, 2), 2);
    vconsole_put(&con, "\n", 1);
    assert_int_equal(ring_get_line(&con.out, back, 9), 2);
    assert_memory_equal(back, "o\n", 2);
    /* From here the counters run past 2^32. */
    con.out.head = con.out.tail = con.in.head = con.in.tail = 0xfffffffe;
    assert_int_equal(vconsole_put(&con, "abcde", 5), 5);
    assert_int_equal(ring_get(&con.out, back, 9), 5);
    assert_memory_equal(back, "abcde", 5);
    assert_int_equal(ring_put(&con.in, big, sizeof(big)), CONSOLE_RING);
    assert_int_equal(ring_get(&con.in, back, sizeof(back)), CONSOLE_RING);
    assert_memory_equal(back, big, CONSOLE_RING);
    assert_int_equal(ring_get(&con.in, back, 1), 0);
}

static void test_output(void **state) {
    char back[8];

    assert_int_equal(in(5, 1), 0x60);
    outp(0, 1, 'h');
    outp(0, 1, 'i');
    assert_int_equal(in(5, 1), 0x60);
    assert_int_equal(ring_get(&con.out, back, 8), 2);
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
    assert_int_equal(con.out.head, 0); /* none of it was sent */
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
    assert_int_equal(con.out.head, 0);
}

/* There is no interrupt line, but a driver that polls finds the causes in IIR. */
static void test_causes(void **state) {
    assert_int_equal(in(2, 1), 1);
    ring_put(&con.in, "ab", 2);
    assert_int_equal(in(2, 1), 1); /* not enabled */
    outp(1, 1, 3);
    assert_int_equal(in(2, 1), 4);
    assert_int_equal(in(5, 1), 0x61);
    assert_int_equal(in(0, 1), 'a');
    assert_int_equal(in(2, 1), 4);
    assert_int_equal(in(0, 1), 'b');
    assert_int_equal(in(0, 1), 0);
    assert_int_equal(in(5, 1), 0x60);
    assert_int_equal(in(2, 1), 2); /* the transmitter is empty; reading that is enough */
    assert_int_equal(in(2, 1), 1);
    outp(0, 1, 'a');
    assert_int_equal(in(2, 1), 2);
    ring_put(&con.in, "junk", 4);
    outp(2, 1, 3);
    assert_int_equal(in(5, 1), 0x60);
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
        T(test_ring),     T(test_output), T(test_registers),
        T(test_loopback), T(test_causes), T(test_wide),
    };

    fake_machine("null");
    return cmocka_run_group_tests_name("vuart", tests, NULL, NULL);
}
