/* only: tests/system/test_abuse.py */
/* A VM that uses its virtual function against others (`abuser`). What it writes to configuration
 * space changes nothing, in no width. Of its MSI-X table only the masks are its own. What it
 * writes to the registers that name interrupts, and what it forges by DMA, interrupts no other
 * VM. Its function still works afterwards: a frame goes to the VM that was there all the time.
 * Last it makes its function access memory that it does not have. */
#include "vf_rig.h"

#define SPACE   4096u
#define LAST    0x180u /* no capability of a virtual function is behind that */
#define ENTRIES 3u
#define REPORT  (NIC_RING / 4) /* frames, of which the last is reported */
/* A message by entry 255 of the table of the IOMMU, which is not there. */
#define NO_ENTRY  0xfee01ff0u
#define ELSEWHERE 0x30000000u /* this machine has no RAM there, nor this VM */

static u32 events[ENTRIES], refused, seed = 1;

static u32 any(void) { return seed = seed * 1664525 + 1013904223; }

/* ---- configuration space ---- */

static i64 get(u32 at, u32 size) {
    i64 v = hypercall3(TAKT_HC_PCI_READ, 0, at, size);

    refused += v == -EPERM;
    return v;
}

static i64 put(u32 at, u32 size, u32 v) {
    i64 error = hypercall(TAKT_HC_PCI_WRITE, 0, at, size, v);

    refused += error == -EPERM;
    return error;
}

/* The register after `at`: all of the header and of the capabilities, and one in 64 bytes behind
 * them. */
static u32 next(u32 at, u32 step) {
    if (at < LAST) return at + step;
    return at + 64 - step;
}

/* Number n of the values that are written: none of the bits, all of them, any. */
static u32 value(u32 n) {
    if (n == 0) return 0;
    if (n == 1) return ~0u;
    return any();
}

static void write_all(void) {
    for (u32 size = 1; size <= 4; size *= 2)
        for (u32 at = 0; at < SPACE; at = next(at, 1))
            for (u32 n = 0; n < 3; n++) {
                u32 v = value(n);
                i64 error = put(at, size, v), expected = -EPERM;

                if (at % size != 0) expected = -EINVAL;
                if (error != expected)
                    test_fatal("%x to register %x, %u bytes: %d", v, at, size, (int)error);
            }
    CHECK(put(0, 0, 0) == -EINVAL && put(0, 3, 0) == -EINVAL && put(0, 8, 0) == -EINVAL,
          "an odd width");
    CHECK(put(SPACE, 4, 0) == -EINVAL && put(~3u, 4, 0) == -EINVAL, "a register beyond the last");
}

static void configuration_space(void) {
    static i64 before[SPACE / 4];
    u32 command = (u32)get(4, 2), readable = 0;

    for (u32 at = 0; at < SPACE; at = next(at, 4)) before[at / 4] = get(at, 4);
    CHECK(before[0] == (i64)pci.id, "it reads as %lx", before[0]);
    write_all();
    for (u32 at = 0; at < SPACE; at = next(at, 4)) {
        i64 now = get(at, 4);

        CHECK(now == before[at / 4], "register %x was %lx, is %lx", at, before[at / 4], now);
        readable += now >= 0;
        for (u32 k = 0; k < 4 && now >= 0; k++)
            CHECK(get(at + k, 1) == (now >> 8 * k & 0xff) &&
                      (k % 2 || get(at + k, 2) == (now >> 8 * k & 0xffff)),
                  "bytes of register %x", at + k);
    }
    CHECK(readable >= 40 && readable < LAST / 4, "%u registers can be read", readable);
    CHECK(put(4, 2, command & ~4u) == 0 && put(4, 2, command) == 0,
          "its right to be master is not its own");
}

/* ---- the MSI-X table and its pending bits ---- */

static volatile u8 *table;

static void write_page(volatile u8 *page) {
    static const u64 wild[] = { 0, ~0ull, 0xfee01004fee00000, 0x0000453100000000, NO_ENTRY };
    u32 step = 1;

    for (u32 at = 0; at <= PAGE_SIZE - 8; at += step) {
        for (u32 n = 0; n <= ARRAY_SIZE(wild); n++) {
            u64 v;

            if (n < ARRAY_SIZE(wild))
                v = wild[n];
            else
                v = (u64)any() << 32 | any();
            *(volatile u64 *)(page + at) = v;
            *(volatile u32 *)(page + at) = (u32)v;
            *(volatile u16 *)(page + at) = (u16)v;
            page[at] = (u8)v;
        }
        if (at >= 16 * (ENTRIES + 1)) step = 251; /* behind the table */
    }
}

static void messages(void) {
    u32 at = (u32)get(0x34, 1), where, pending;

    while (at && get(at, 1) != 0x11) at = (u32)get(at + 1, 1);
    if (!at) test_fatal("it has no MSI-X");
    where = (u32)get(at + 4, 4);
    pending = (u32)get(at + 8, 4);
    table = (volatile u8 *)pci.bar[where & 7].addr + (where & ~7u);
    write_page(table);
    write_page((volatile u8 *)pci.bar[pending & 7].addr + (pending & ~7u));
    for (u32 i = 0; i <= ENTRIES; i++) {
        u32 port = mmio_read32(table + 16 * i + 8);

        CHECK(!mmio_read32(table + 16 * i) && !mmio_read32(table + 16 * i + 4),
              "entry %u has an address", i);
        if (i == 0)
            CHECK(port == pci.port, "entry 0 has data %x", port);
        else
            CHECK((port != 0) == (i < ENTRIES), "entry %u has data %x", i, port);
        CHECK(mmio_read32(table + 16 * i + 12) <= 1 && !table[16 * i + 8],
              "entry %u reads as it should not", i);
    }
    CHECK(!mmio_read32((volatile u8 *)pci.bar[pending & 7].addr + (pending & ~7u)),
          "messages are pending");
}

/* ---- interrupts ---- */

static void on_event(u32 port, void *arg) { __atomic_fetch_add((u32 *)arg, 1, __ATOMIC_SEQ_CST); }

/* Each by its own entry, while the others are masked, or with all open. */
static void own_interrupts(const char *when) {
    u32 before[ENTRIES];

    mmio_write32(nic.regs + IGB_EIAC, 7);
    mmio_write32(nic.regs + IGB_EIMS, 7);
    for (u32 i = 0; i < ENTRIES; i++) {
        for (u32 k = 0; k < ENTRIES; k++) mmio_write32(table + 16 * k + 12, k != i);
        relax();
        memcpy(before, events, sizeof(events));
        mmio_write32(nic.regs + VF_EICS, 1u << i);
        for (u64 end = time_ns() + NS_PER_S; events[i] == before[i] && time_ns() < end;) relax();
        for (u32 k = 0; k < ENTRIES; k++)
            CHECK(events[k] == before[k] + (k == i), "%s: %u events of entry %u by interrupt %u",
                  when, events[k] - before[k], k, i);
    }
}

static void send_many(void) {
    for (u32 i = 0; i < REPORT; i++)
        if (!vf_put(7)) test_fatal("no room");
    nic_send_kick(&nic.ring);
}

/* Raises interrupts by vectors that the function does not have, and at rates that no driver would
 * set. QEMU's card takes its fourth vector for the first one of its neighbour. */
static void wild_registers(void) {
    mmio_write32(nic.regs + IGB_IVAR, 0x83838383);
    send_many();
    for (u32 at = VF_EICS; at <= IGB_IVAR_MISC; at += 4) {
        mmio_write32(nic.regs + at, ~0u);
        mmio_write32(nic.regs + at, any() | 0x80808080);
        mmio_write32(nic.regs + at, any() | 0x80808080);
    }
    send_many();
}

/* Lets the card write the ring's head to the address to which messages go. The ring is useless
 * then. */
static void forge(void) {
    mmio_write32(nic.regs + VF_TX + IGB_TDWBAL, NO_ENTRY | 1);
    send_many();
    sleep_ns(20 * NS_PER_MS);
    mmio_write32(nic.regs + VF_TX + IGB_TDWBAL, 0);
}

static void abuser(void) {
    configuration_space();
    printf("%u registers refused\n", refused);
    messages();
    for (u32 i = 0; i < ENTRIES; i++)
        event_set_handler(mmio_read32(table + 16 * i + 8), 0, on_event, &events[i]);
    own_interrupts("at first");
    wild_registers();
    forge();
    vf_open();
    own_interrupts("at last");
    if (!vf_put((u32)cmdline_u64("to", 0))) test_fatal("no room");
    nic_send_kick(&nic.ring);
}

static void victim(void) {
    pci_count();
    igbvf_interrupts(&nic, 0);
    for (u64 end = time_ns() + 20 * NS_PER_S; !vf_take() && time_ns() < end;) relax();
    CHECK(pci_interrupts >= 1, "the frame came without an interrupt, or not at all");
    printf("%u interrupts of its function\n", pci_interrupts);
}

int main(void) {
    bool abuses = cmdline_has("abuser");

    test_begin();
    test_needs_takt();
    pci_open(IGB_VENDOR | IGB_VF_DEVICE << 16);
    vf_open();
    if (!abuses) {
        victim();
        return test_end("a frame came");
    }
    abuser();
    test_end("its function works still");
    sleep_ns(50 * NS_PER_MS);
    printf("now it goes wild\n");
    mmio_write32(nic.regs + VF_TX, ELSEWHERE);
    send_many();
    sleep_ns(NS_PER_S);
    printf("it is still here\n");
    return 0;
}
