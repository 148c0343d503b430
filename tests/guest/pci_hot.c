/* only: tests/system/test_sriov.py */
/* A virtual function comes and goes while this VM runs. Each time its registers are there. They
 * are not when the operator has asked for the function and this VM has given it up. At the end,
 * with `touches`, the VM uses them all the same. */
#include <guest/store.h>
#include <guest/string.h>
#include "pci_rig.h"

#define NODE   "device/pci/0"
#define VMBMEM 0x800

static struct semaphore changed = SEMAPHORE(0);

static void on_change(void *ctx, const char *path) { sem_up(&changed); }

static bool ends(const char *text, i64 n, const char *end) {
    i64 len = (i64)strlen(end);

    return len ? n >= len && strcmp(text + n - len, end) == 0 : n == 0;
}

/* Until the node says what ends so; "": nothing. */
static void await(const char *end) {
    char text[32];
    i64 n;

    for (;;) {
        n = store_read(0, NODE, text, sizeof(text) - 1);
        if (n < 0) test_fatal("the node cannot be read: %d", (int)n);
        text[n] = 0;
        if (ends(text, n, end)) return;
        if (!sem_down_until(&changed, time_ns() + 20 * NS_PER_S))
            test_fatal("the node says %s, not %s", text, end);
    }
}

static void use(u32 round) {
    volatile u8 *regs = pci_registers();

    for (u32 i = 0; i < 16; i++) mmio_write32(regs + VMBMEM + 4 * i, round << 8 | i);
    for (u32 i = 0; i < 16; i++)
        CHECK(mmio_read32(regs + VMBMEM + 4 * i) == (round << 8 | i), "round %u: word %u is %x",
              round, i, mmio_read32(regs + VMBMEM + 4 * i));
}

int main(void) {
    test_begin();
    test_needs_takt();
    if (store_start()) test_fatal("there is no store");
    store_watch(NODE, on_change, NULL);
    CHECK(hypercall2(TAKT_HC_PCI_INFO, 0, (u64)&pci) == -ENOENT, "there is a device");
    CHECK(store_write(0, NODE, "released", 8) == -EINVAL, "nobody asked for it");
    for (u32 round = 0; round < 3; round++) {
        await("given");
        pci_open(0x10ca8086);
        use(round);
        printf("round %u: has %x\n", round, pci.bdf);
        await("leaving");
        use(round);
        CHECK(store_write(0, NODE, "free", 4) == -EINVAL, "a word that means nothing");
        CHECK(store_write(0, NODE, "released", 8) == 0, "it cannot be released");
        await("");
        CHECK(hypercall2(TAKT_HC_PCI_INFO, 0, (u64)&pci) == -ENOENT, "there is a device still");
        CHECK(hypercall3(TAKT_HC_PCI_READ, 0, 0, 4) == -ENOENT, "its configuration space is there");
        CHECK(hypercall(TAKT_HC_PCI_WRITE, 0, 4, 2, 6) == -ENOENT, "and can be written");
        CHECK(hypercall1(TAKT_HC_PCI_EOI, 0) == -ENOENT, "an interrupt is acknowledged");
    }
    test_end("it came and went");
    if (cmdline_has("touches")) mmio_read32(pci_registers());
    return 0;
}
