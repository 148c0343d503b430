/* time: 6000 */
/* All ports, by byte, word and doubleword. Those of no device read as ones and ignore what is
 * written, even if an access spans two devices. Configuration space of PCI is not there at all. */
#include <guest/guest.h>
#include <guest/test.h>
#include <takt/io.h>

static bool near(u32 port, u32 device, u32 size) {
    return port + 3 >= device && port < device + size;
}

/* The ports of the VM's devices, and those from which an access of four bytes reaches them. */
static bool is_device(u32 port) {
    return near(port, TAKT_UART_PORT, 8) || near(port, TAKT_DEBUGCON_PORT, 1) ||
           near(port, TAKT_DEBUG_EXIT_PORT, 4);
}

static void sweep(void) {
    u32 step = test_on("bochs") ? 1 : 61; /* odd, so that every alignment comes up */

    for (u32 p = 0; p < 0x10000; p += p < 0x400 ? 1 : step) {
        if (is_device(p)) continue;
        u8 b = inb(p);
        u16 w = inw(p);
        u32 d = inl(p);

        CHECK(b == 0xff && w == 0xffff && d == 0xffffffff, "port %x reads %x %x %x", p, b, w, d);
        if (p % 16) continue;
        outb(p, 0);
        outw(p, 0);
        outl(p, 0);
    }
}

/* Accesses that begin in the UART and end outside, or the other way round, do nothing. */
static void spanning(void) {
    u8 scratch;

    outb(TAKT_UART_PORT + 7, 0x5a);
    scratch = inb(TAKT_UART_PORT + 7);
    CHECK(scratch == 0x5a, "UART's scratch register holds %x", scratch);
    CHECK(inl(TAKT_UART_PORT + 5) == 0xffffffff, "a doubleword at 0x3fd reads %x",
          inl(TAKT_UART_PORT + 5));
    CHECK(inw(TAKT_UART_PORT + 7) == 0xffff, "a word at 0x3ff reads %x", inw(TAKT_UART_PORT + 7));
    CHECK(inl(TAKT_UART_PORT - 2) == 0xffffffff, "a doubleword at 0x3f6 reads %x",
          inl(TAKT_UART_PORT - 2));
    outl(TAKT_UART_PORT + 5, 0);
    outw(TAKT_UART_PORT + 7, 0);
    CHECK(inb(TAKT_UART_PORT + 7) == 0x5a, "a write that spans changed the scratch register");
    CHECK(inl(0xfffd) == 0xffffffff && inw(0xffff) == 0xffff, "the end of the port space");
}

static void pci(void) {
    static const u32 addresses[] = { 0x80000000, 0x80000800, 0x8000f800, 0x80ff0000, 0x80fffffc,
                                     0x00000000, 0x80000001, 0x80000003, 0xff000000, 0xffffffff };

    for (unsigned i = 0; i < ARRAY_SIZE(addresses); i++) {
        outl(0xcf8, addresses[i]);
        CHECK(inl(0xcfc) == 0xffffffff, "configuration %x reads %x", addresses[i], inl(0xcfc));
        for (unsigned o = 0; o < 4; o++) {
            CHECK(inb(0xcfc + o) == 0xff, "configuration %x, byte %u", addresses[i], o);
            outb(0xcfc + o, 0);
        }
        CHECK(inw(0xcfe) == 0xffff && inl(0xcfa) == 0xffffffff && inl(0xcff) == 0xffffffff,
              "odd widths");
        outl(0xcfc, 0xffffffff);
        outw(0xcf9, 0);
        outb(0xcfb, 0x80);
    }
}

int main(void) {
    test_begin();
    test_needs_takt();
    sweep();
    spanning();
    pci();
    return test_end("ports that nobody claims");
}
