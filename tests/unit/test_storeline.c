/* The serial port by which a VM that is a PC reaches the store: requests, replies and events as
 * bytes, the interrupt, what opening and closing the port does, and a guest that sends too much. */
#include <stdio.h>
#include <takt/errno.h>
#include "image/firmware.h"
#include "nodes/nodes.h"
#include "exit_rig.h"

#define VECTOR 0x43u
#define LEVEL  BIT(15)

/* Registers and bits of the 16550. */
enum { DATA, IER, IIR, LCR, MCR, LSR };
#define IER_READ  0x01
#define IER_SENT  0x02
#define LSR_READY 0x01
#define LSR_EMPTY 0x20
#define MCR_DTR   0x01

static int pc_setup(void **state) {
    struct config_vm c = fake_config("pc", 1);

    fake_machine("null");
    fake_clock(1000);
    strcpy(c.kernel, c.image);
    *c.image = 0;
    vm = fake_vm(&c);
    assert_non_null(vm);
    v = vm->vcpu[0];
    fake_cpu(v->sched.cpu);
    fake_current(v);
    return 0;
}

static u64 access(struct bus *bus, u64 addr, u8 size, bool write, u64 value) {
    struct bus_access a = { .addr = addr, .size = size, .write = write, .vcpu = 0 };

    assert_true(bus_do(bus, &a, &value));
    return value;
}

static u8 in(u32 reg) { return (u8)access(&vm->ports, PC_STORE_PORT + reg, 1, false, 0); }

static void out(u32 reg, u8 value) { access(&vm->ports, PC_STORE_PORT + reg, 1, true, value); }

/* A program opens the port, and the IOAPIC sends its interrupt to vCPU 0. */
static void open_port(void) {
    access(&vm->mmio, TAKT_IOAPIC_GPA, 4, true, 0x10 + 2 * PC_STORE_PIN);
    access(&vm->mmio, TAKT_IOAPIC_GPA + 0x10, 4, true, VECTOR | LEVEL);
    out(MCR, MCR_DTR);
}

static bool interrupted(void) { return vlapic_pending(&v->lapic) == VECTOR; }

/* Sends a request whose payload is a string with bars for zero bytes. */
static void send(u32 type, u32 number, const char *payload) {
    struct xs_header h = { type, number, 0, (u32)strlen(payload) };

    for (u32 i = 0; i < sizeof(h); i++) out(DATA, ((u8 *)&h)[i]);
    for (u32 i = 0; i < h.len; i++) out(DATA, payload[i] == '|' ? 0 : (u8)payload[i]);
}

static void receive(void *bytes, u32 n) {
    for (u32 i = 0; i < n; i++) {
        assert_true(in(LSR)&LSR_READY);
        ((u8 *)bytes)[i] = in(DATA);
    }
}

/* Receives one packet, and checks its type, its number, and its payload written as above. */
static void expect(u32 type, u32 number, const char *payload) {
    char text[XS_PAYLOAD_MAX + 1] = { 0 };
    struct xs_header h;

    receive(&h, sizeof(h));
    assert_int_equal(h.type, type);
    assert_int_equal(h.req_id, number);
    assert_int_equal(h.len, strlen(payload));
    receive(text, h.len);
    for (u32 i = 0; i < h.len; i++)
        if (!text[i]) text[i] = '|';
    assert_string_equal(text, payload);
}

static void expect_nothing(void) { assert_false(in(LSR)&LSR_READY); }

/* The operator writes below the home of the VM. */
static void operator_writes(const char *name, const char *value) {
    static struct store_client operator;
    char path[64];

    snprintf(path, sizeof(path), "/local/domain/%u/%s", vm->id, name);
    storelink_enter();
    if (!operator.link.next) assert_int_equal(store_open(&operator, 0, true), 0);
    assert_int_equal(store_write(&operator, 0, path, value, (u32)strlen(value)), 0);
    storelink_leave();
    fake_work();
}

static void test_requests(void **state) {
    open_port();
    expect_nothing();
    send(XS_WRITE, 7, "data/a|hello");
    expect(XS_WRITE, 7, "OK|");
    send(XS_READ, 8, "data/a|");
    expect(XS_READ, 8, "hello");
    send(XS_READ, 9, "/takt/host/uptime_s|");
    expect(XS_ERROR, 9, "EACCES|");
    expect_nothing();
}

/* The replies to two requests that were sent at once come in their order. */
static void test_two_at_once(void **state) {
    open_port();
    send(XS_WRITE, 1, "data/a|x");
    send(XS_READ, 2, "data/a|");
    expect(XS_WRITE, 1, "OK|");
    expect(XS_READ, 2, "x");
    expect_nothing();
}

/* A reply interrupts, and so does a change that somebody else makes. */
static void test_interrupt(void **state) {
    open_port();
    out(IER, IER_READ);
    assert_false(interrupted());
    send(XS_WATCH, 1, "data/b|token|");
    assert_true(interrupted());
    expect(XS_WATCH, 1, "OK|");
    fake_work();
    expect(XS_WATCH_EVENT, 0, "data/b|token|");
    vlapic_accept(&v->lapic, VECTOR);
    vlapic_write(&v->lapic, R_EOI << 4, 0, 1000);
    assert_false(interrupted());
    operator_writes("data/b", "1");
    assert_true(interrupted());
    expect(XS_WATCH_EVENT, 0, "data/b|token|");
    expect_nothing();
}

/* What a program leaves when it closes the port does not reach the next one: half a request, a
 * reply that it has not read, and its watches. */
static void test_opened_again(void **state) {
    open_port();
    send(XS_WATCH, 1, "data/b|token|");
    out(DATA, XS_READ);
    out(MCR, 0);
    expect_nothing();
    out(MCR, MCR_DTR);
    operator_writes("data/b", "1");
    expect_nothing();
    send(XS_READ, 5, "data/b|");
    expect(XS_READ, 5, "1");
    expect_nothing();
}

/* A packet that is too long ends the connection, and the port goes on taking bytes. */
static void test_too_long(void **state) {
    struct xs_header h = { XS_WRITE, 1, 0, XS_PAYLOAD_MAX + 1 };

    open_port();
    for (u32 i = 0; i < sizeof(h); i++) out(DATA, ((u8 *)&h)[i]);
    for (u32 i = 0; i < 3 * CONSOLE_RING; i++) out(DATA, 'x');
    expect_nothing();
    assert_true(in(LSR)&LSR_EMPTY);
    out(MCR, 0);
    out(MCR, MCR_DTR);
    send(XS_WRITE, 2, "data/a|x");
    expect(XS_WRITE, 2, "OK|");
}

/* A guest that sends and never reads is told to wait before its bytes would be lost, and when it
 * reads at last all replies are there. */
static void test_guest_that_does_not_read(void **state) {
    char value[201] = { 0 }, request[256];
    u32 sent = 0;

    memset(value, 'v', sizeof(value) - 1);
    open_port();
    snprintf(request, sizeof(request), "data/a|%s", value);
    send(XS_WRITE, 1, request);
    expect(XS_WRITE, 1, "OK|");
    out(IER, IER_SENT);
    while (in(LSR)&LSR_EMPTY) {
        send(XS_READ, 100 + sent++, "data/a|"); /* 23 bytes, of which 16 are sure to find room */
        assert_true(sent < 1000);
    }
    assert_true(sent > 2 * CONSOLE_RING / 250);
    vlapic_accept(&v->lapic, VECTOR);
    in(IIR);
    vlapic_write(&v->lapic, R_EOI << 4, 0, 1000);
    assert_false(interrupted());
    for (u32 i = 0; i + 1 < sent; i++) expect(XS_READ, 100 + i, value);
    assert_true(in(LSR)&LSR_EMPTY);
}

/* While the store is busy with something long, a request waits and is not lost. */
static void test_busy_store(void **state) {
    static struct store_client other;
    struct __attribute__((packed)) {
        struct xs_header head;
        char path[6];
    } request = { { XS_READ, 3, 0, sizeof(request.path) }, "domid" };
    char path[64];

    storelink_enter();
    assert_int_equal(store_open(&other, 0, true), 0);
    for (u32 i = 0; i < 1000; i++) {
        snprintf(path, sizeof(path), "/many/%u", i);
        while (store_write(&other, 0, path, "x", 1) == -EBUSY) store_work();
    }
    while (store_work()) {
    }
    storelink_leave();
    open_port();
    for (u32 i = 0; i + 1 < sizeof(request); i++) out(DATA, ((u8 *)&request)[i]);
    storelink_enter();
    assert_int_equal(store_rm(&other, 0, "/many"), 0);
    storelink_leave();
    out(DATA, 0); /* the last byte of the request */
    expect_nothing();
    fake_work();
    snprintf(path, sizeof(path), "%u", vm->id);
    expect(XS_READ, 3, path);
    storelink_enter();
    while (store_close(&other)) {
    }
    storelink_leave();
}

static i64 store_call(u64 nr) {
    gpr = v->virt.regs.gpr;
    gpr[REG_RAX] = nr;
    gpr[REG_RBX] = BUF;
    assert_int_equal(handle((struct vm_exit){ .reason = EXIT_HYPERCALL, .insn_len = 3 }), NO_GP);
    return (i64)gpr[REG_RAX];
}

/* A guest that has connected a page of its own uses that, and the port is silent. */
static void test_page_instead(void **state) {
    open_port();
    assert_true(store_call(TAKT_HC_STORE_CONNECT) > 0);
    send(XS_READ, 3, "domid|");
    fake_work();
    expect_nothing();
}

/* A guest that connects a page while there is no memory is told so, and may try again. The pages
 * for its packets go with the VM. */
static void test_page_without_memory(void **state) {
    hpa_t *held = test_malloc(frame_free_count() * sizeof(*held));
    u64 n = 0, left;

    assert_true(evtchn_make(&vm->events) > 0); /* so that a second port needs no memory */
    while (frame_free_count()) held[n++] = frame_alloc(0);
    assert_int_equal(store_call(TAKT_HC_STORE_CONNECT), -ENOMEM);
    assert_int_equal(store_call(TAKT_HC_STORE_NOTIFY), -ENOENT);
    while (n) frame_free(held[--n], 0);
    test_free(held);
    left = frame_free_count();
    assert_true(store_call(TAKT_HC_STORE_CONNECT) > 0);
    assert_true(left - frame_free_count() >= 2);
    assert_int_equal(store_call(TAKT_HC_STORE_NOTIFY), 0);
}

/* A VM that is no PC has no such port. */
static void test_no_pc(void **state) {
    u64 value = 0;
    struct bus_access a = { .addr = PC_STORE_PORT, .size = 1 };

    assert_null(vm->store.line);
    assert_false(bus_do(&vm->ports, &a, &value));
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, pc_setup, teardown)
        T(test_requests),
        T(test_two_at_once),
        T(test_interrupt),
        T(test_opened_again),
        T(test_too_long),
        T(test_guest_that_does_not_read),
        T(test_busy_store),
        T(test_page_instead),
#undef T
        TEST(test_page_without_memory),
        TEST(test_no_pc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
