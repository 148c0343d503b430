/* Devices of the machine given to VMs: what is refused, what a VM gets, interrupts, and that all of it is
 * taken back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <takt/device.h>
#include <takt/errno.h>

#include "fake_log.h"
#include "fake_machine.h"
#include "fake_pci.h"
#include "fake_timer.h"
#include "npt_model.h"
#include "passthrough/give.h"

#define NIC PCI_BDF(0, 3, 0)

static const struct acpi_info acpi = { .nr_ioapics = 1,
                                       .ioapic = { { 0xfec00000, 0 } },
                                       .nr_overrides = 1,
                                       .override = { { .irq = 5, .gsi = 20, .flags = 0x0d } } };
static struct fake_pci *nic;
static struct config_vm config;
static u64 frames, heap;

/* RAM of the machine ends at 1 GiB and at 6 GiB. */
static void init(void) {
    pci_enumerate();
    give_init(&acpi, 1ull << 30, 6ull << 30);
}

static int group_setup(void **state) {
    struct config_vm c = fake_config("first", 1);

    fake_machine("credit");
    fake_destroy(fake_vm(&c));
    return 0;
}

static int setup(void **state) {
    fake_pci_reset();
    nic = fake_pci_add(NIC, 0x100e8086, 0x02000003);
    fake_pci_bar(nic, 0, 0xfebc0000, 0x20000, 0);
    fake_pci_bar(nic, 1, 0xc040, 0x40, 1);
    config = fake_config("driver", 1);
    config.memory = 6 << 20;
    config.pci[config.nr_pci++] = NIC;
    config.unsafe_dma = true;
    init();
    fake_clock(1000);
    frames = frame_free_count();
    heap = heap_in_use();
    return 0;
}

static int teardown(void **state) {
    assert_int_equal(frame_free_count(), frames);
    assert_int_equal(heap_in_use(), heap);
    assert_int_equal(fake_vectors_used, 0);
    assert_false(fake_get(nic, PCI_COMMAND, 2) & PCI_COMMAND_MASTER);
    for (u32 i = 0; i < pci_count(); i++) assert_null(pci_at(i)->owner);
    return 0;
}

static void refused(int error, const char *why) {
    assert_null(fake_vm(&config));
    assert_int_equal(fake_error, error);
    assert_string_equal(fake_why, why);
    assert_false(nic->master_once);
}

static struct vm *driver(void) {
    struct vm *vm = fake_vm(&config);

    assert_non_null(vm);
    return vm;
}

static void test_refused(void **state) {
    struct fake_pci *other = fake_pci_add(PCI_BDF(0, 4, 0), 0x12345678, 0);

    config.unsafe_dma = false;
    refused(-EPERM,
            "PCI device 00:03.0 reaches all memory, as no IOMMU is in use: it needs unsafe_dma = yes");
    config.unsafe_dma = true;
    config.pci[0] = PCI_BDF(0, 9, 1);
    refused(-ENOENT, "there is no PCI device 00:09.1");

    config.pci[0] = PCI_BDF(0, 4, 0);
    other->space[PCI_HEADER] = 1;
    init();
    refused(-EINVAL, "PCI device 00:04.0: it is a bridge");
    other->space[PCI_HEADER] = 0x7f;
    init();
    refused(-EINVAL, "PCI device 00:04.0: its configuration space is not understood");
    other->space[PCI_HEADER] = 0;
    fake_set(other, PCI_CLASS_REV, 4, 0x06010000);
    init();
    refused(-EINVAL, "PCI device 00:04.0: it is a part of the machine itself");
    fake_set(other, PCI_CLASS_REV, 4, 0x03000000);
    init();
    refused(-EINVAL, "PCI device 00:04.0: the screen shows the log");
    heap = heap_in_use(); /* one device more */
}

static void test_bad_places(void **state) {
    static const struct {
        u64 addr;
        u32 type;
        const char *why;
    } bad[] = {
        { 0, 0, "firmware gave a BAR of it no address" },
        { 0x3ff00000, 0, "a BAR of it lies where none can be" }, /* RAM of the machine */
        { 0xfec00000, 0, "a BAR of it lies where none can be" }, /* IOAPIC and the like */
        { 0xffff0000, 0, "a BAR of it lies where none can be" },
        { 0x17fff0000, 4, "a BAR of it lies where none can be" },  /* RAM above 4 GiB */
        { 0x4000000000, 4, "a BAR of it lies where none can be" }, /* windows into other VMs */
        { 0x180, 1, "a BAR of it lies where none can be" },        /* ports that VMs have of their own */
    };
    char why[128];

    for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
        memset(nic->writable + PCI_BAR0, 0, 24);
        memset(nic->space + PCI_BAR0, 0, 24);
        fake_pci_bar(nic, 2, bad[i].addr, bad[i].type & 1 ? 0x40 : 0x10000, bad[i].type);
        init();
        hv_snprintf(why, sizeof(why), "PCI device 00:03.0: %s", bad[i].why);
        refused(-EINVAL, why);
    }
    fake_pci_bar(nic, 2, 0x200000000, BIT(31), 4);
    init();
    refused(-EINVAL, "PCI device 00:03.0: a BAR of it is larger than 1 GiB");
    memset(nic->writable + PCI_BAR0, 0, 24);
    fake_pci_bar(nic, 2, 0x180000000, 0x10000, 4); /* behind all RAM */
    init();
    fake_destroy(driver());
    config.memory = 8 << 20;
    fake_pci_bar(nic, 2, 0xfe001000, 0x100, 0); /* 256 bytes, and another device's in the same page */
    fake_pci_bar(fake_pci_add(PCI_BDF(0, 4, 0), 0x12345678, 0), 0, 0xfe001200, 0x100, 0);
    init();
    assert_null(fake_vm(&config));
    assert_string_equal(fake_why, "PCI device 00:03.0 has registers in one page with 00:04.0");
    heap = heap_in_use();
}

/* Ranges of ports are few a VM, and some are its own: 13 are left for devices. */
static void test_too_many_ports(void **state) {
    config.nr_pci = 0;
    for (u32 i = 0; i < 3; i++) {
        struct fake_pci *f = fake_pci_add(PCI_BDF(0, 4 + i, 0), 0x12345678, 0);

        for (u32 k = 0; k < (i < 2 ? 6 : 1); k++) fake_pci_bar(f, k, 0x1000 + 0x200 * i + 0x40 * k, 0x40, 1);
        fake_set(f, PCI_LINE, 1, 0xff); /* no interrupt */
        config.pci[config.nr_pci++] = PCI_BDF(0, 4 + i, 0);
    }
    init();
    fake_destroy(driver());
    fake_pci_bar(&fake_device[fake_nr_devices - 1], 1, 0x1440, 0x40, 1);
    init();
    assert_null(fake_vm(&config));
    assert_int_equal(fake_error, -ENOSPC);
    assert_string_equal(fake_why, "PCI device 00:06.0: it has too many ranges of ports");
    heap = heap_in_use();
}

/* Of `nr` pages from `at` on those that are mapped. */
static u32 pages(const struct vm *vm, u64 at, u32 nr) {
    u32 n = 0;

    for (u32 i = 0; i < nr && vm->virt.mem; i++)
        n += npt_lookup(&vm->virt.npt, at + i * PAGE_SIZE, NULL) != HPA_NONE;
    return n;
}

/* No part of the making of a VM takes long: it looks at one BAR, or maps 64 MiB of it in 2 MiB pages, or 64
 * pages of 4 KiB. */
static void test_parts(void **state) {
    struct fake_pci *big = fake_pci_add(PCI_BDF(0, 4, 0), 0x12345678, 0);
    const u64 first = 0x200000000, stride = 64 << 20;
    u32 claiming = 0, mapped = 0, small = 0, before;
    struct vm *vm = NULL;

    for (u32 i = 0; i < 3; i++) fake_pci_bar(big, 2 * i, first + i * BIT(30), BIT(30), 4);
    fake_pci_cap(big, 0x60, PCI_CAP_MSIX);
    fake_set(big, 0x62, 2, 2047);
    fake_set(big, 0x64, 4, 0x3fff000 | 2); /* its table is in two of the 2 MiB pages of the second BAR */
    config.pci[config.nr_pci++] = PCI_BDF(0, 4, 0);
    init();
    assert_int_equal(vm_create(&config, NULL, NULL), 0);
    vm = vm_find("driver");
    while (vm->state == VM_CREATING) {
        claiming += vm->nr_pci < 2;
        for (u32 i = 0; i < 2 && vm->virt.mem && mapped < 48; i++) {
            if (npt_lookup(&vm->virt.npt, first + mapped * stride, NULL) == HPA_NONE) break;
            assert_int_equal(i, 0);
            mapped++;
        }
        before = small;
        small = pages(vm, first + BIT(30) + (62 << 20), 1024); /* where the table is */
        assert_in_range(small, before, before + 64);
        assert_true(work_run());
    }
    assert_int_equal(mapped, 48);
    assert_int_equal(claiming, 2 * 6);
    for (u64 at = 0; at < 3 * BIT(30); at += PAGE_SIZE) { /* and nothing is left out */
        u64 table = at - BIT(30) - 0x3fff000;
        unsigned prot;

        assert_int_equal(npt_lookup(&vm->virt.npt, first + at, &prot), first + at);
        assert_int_equal(prot, table < 16 * 2048 ? NPT_R : NPT_RW);
    }
    fake_destroy(vm);
    heap = heap_in_use();
}

static void test_one_owner(void **state) {
    struct vm *vm = driver();
    struct config_vm c = config;

    strcpy(c.head.name, "other");
    assert_null(fake_vm(&c));
    assert_int_equal(fake_error, -EBUSY);
    assert_string_equal(fake_why, "PCI device 00:03.0 belongs to driver");
    assert_true(fake_get(nic, PCI_COMMAND, 2) & PCI_COMMAND_MASTER); /* untouched */
    fake_destroy(vm);
    vm = fake_vm(&c); /* and given again */
    assert_non_null(vm);
    fake_destroy(vm);
}

static void test_what_it_gets(void **state) {
    struct vm *vm = driver();
    struct takt_pci info;
    unsigned prot;

    assert_int_equal(fake_get(nic, PCI_COMMAND, 2), 7); /* INTx too */
    for (u64 at = 0; at < 0x20000; at += PAGE_SIZE) {
        assert_int_equal(npt_lookup(&vm->virt.npt, 0xfebc0000 + at, &prot), 0xfebc0000 + at);
        assert_int_equal(prot, NPT_RW);
    }
    assert_int_equal(npt_lookup(&vm->virt.npt, 0xfebe0000, NULL), HPA_NONE);
    assert_int_equal(npt_lookup(&vm->virt.npt, 0xfebbf000, NULL), HPA_NONE);
    assert_int_equal(vm_giver->info(vm, 0, 0x3000), 0);
    guestmem_read(&vm->mem, 0x3000, &info, sizeof(info));
    assert_int_equal(info.bdf, NIC);
    assert_int_equal(info.id, 0x100e8086);
    assert_int_equal(info.class_rev, 0x02000003);
    assert_int_equal(info.bar[0].addr, 0xfebc0000);
    assert_int_equal(info.bar[0].size, 0x20000);
    assert_int_equal(info.bar[0].io, 0);
    assert_int_equal(info.bar[1].size, 0);
    assert_int_equal(info.bar[1].io, 0xc040);
    assert_int_equal(info.bar[1].io_size, 0x40);
    assert_true(info.port > 0);
    /* all of its RAM in one piece: what a device gets as an address */
    for (u64 at = 0; at < config.memory; at += PAGE_SIZE)
        assert_int_equal(npt_lookup(&vm->virt.npt, at, NULL), at + info.dma_offset);
    assert_int_equal(vm_giver->info(vm, 0, config.memory), -EFAULT);
    fake_destroy(vm);
}

static bool pending(const struct vm *vm, u32 port) { return vm->events.shared->pending[0] >> port & 1; }

static bool take(struct vm *vm, u32 port) {
    bool was = pending(vm, port);

    vm->events.shared->pending[0] &= ~BIT(port);
    return was;
}

static void test_line(void **state) {
    struct vm *vm = driver();
    u32 port = vm->pci[0]->port;

    assert_true(fake_pin.connected && !fake_pin.masked);
    assert_int_equal(fake_pin.gsi, 11);
    assert_int_equal(fake_pin.flags, 3); /* low, level */
    fake_interrupt(fake_pin.vector);
    assert_true(fake_pin.masked);
    assert_true(take(vm, port));
    assert_int_equal(vm_giver->eoi(vm, 0), 0);
    assert_false(fake_pin.masked);
    assert_false(pending(vm, port));
    fake_interrupt(fake_pin.vector);
    assert_true(take(vm, port));
    assert_int_equal(vm->pci[0]->interrupts, 2);
    fake_destroy(vm);
    assert_true(fake_pin.masked); /* by the interrupt, and it stays so */
}

static struct vm *racer;

static void interrupt_beside(void) { fake_interrupt(fake_pin.vector); }

static void eoi_beside(void) { vm_giver->eoi(racer, 0); }

/* An EOI and an interrupt at the same instant, on two pCPUs: the next EOI opens the line. */
static void test_eoi_beside_an_interrupt(void **state) {
    struct vm *vm = racer = driver();

    fake_interrupt(fake_pin.vector);
    fake_pin_race = interrupt_beside;
    vm_giver->eoi(vm, 0); /* the line is unmasked, and it interrupts before the EOI is over */
    assert_int_equal(vm->pci[0]->interrupts, 2);
    vm_giver->eoi(vm, 0);
    assert_false(fake_pin.masked);

    fake_pin_race = eoi_beside; /* of an event before */
    fake_interrupt(fake_pin.vector);
    vm_giver->eoi(vm, 0);
    assert_false(fake_pin.masked);
    fake_destroy(vm);
}

/* Whoever acknowledges at once a line that does not fall gets so many a millisecond and no more. */
static void test_storm_of_a_line(void **state) {
    struct vm *vm = driver();
    u32 port = vm->pci[0]->port, n = 0;

    for (; !fake_pin.masked && n < 100; n++) {
        fake_interrupt(fake_pin.vector);
        take(vm, port);
        vm_giver->eoi(vm, 0);
    }
    assert_int_equal(n, 20);
    vm_giver->eoi(vm, 0);
    assert_true(fake_pin.masked);
    fake_clock(1000 + NS_PER_MS);
    fake_advance(0);
    assert_false(fake_pin.masked);
    fake_interrupt(fake_pin.vector);
    assert_true(take(vm, port));
    vm_giver->eoi(vm, 0);
    assert_false(fake_pin.masked);
    for (u32 i = 0; i < 19; i++) { /* held again when it goes */
        fake_interrupt(fake_pin.vector);
        vm_giver->eoi(vm, 0);
    }
    assert_true(fake_pin.masked);
    fake_destroy(vm);
    fake_clock(1000 + 3 * NS_PER_MS);
    fake_advance(0);
    assert_true(fake_pin.masked);
}

static void test_where_lines_lead(void **state) {
    struct fake_pci *other = fake_pci_add(PCI_BDF(0, 4, 0), 0x12345678, 0);
    u32 gsi = 0, flags = 0;
    struct vm *vm, *second;

    fake_set(other, PCI_LINE, 1, 5); /* which ACPI has elsewhere, active high */
    init();
    assert_string_equal(give_line(pci_at(1), &gsi, &flags), "its interrupt line register");
    assert_int_equal(gsi, 20);
    assert_int_equal(flags, 2);
    fake_set(other, PCI_LINE, 1, 0xff);
    init();
    assert_null(give_line(pci_at(1), &gsi, &flags));
    config.pci[0] = PCI_BDF(0, 4, 0); /* it has none: so be it */
    vm = driver();
    assert_int_equal(vm->pci[0]->irq, PCI_NO_IRQ);
    assert_int_equal(vm_giver->eoi(vm, 0), 0);
    fake_destroy(vm);

    fake_set(other, PCI_LINE, 1, 11); /* that of the network card */
    init();
    vm = driver();
    config.pci[0] = NIC;
    strcpy(config.head.name, "second");
    second = fake_vm(&config);
    assert_null(second);
    assert_int_equal(fake_error, -EBUSY);
    assert_string_equal(fake_why, "PCI device 00:03.0 shares its interrupt line with 00:04.0");
    fake_destroy(vm);
    heap = heap_in_use();
}

static void put(u32 at, u64 v, unsigned bytes) { memcpy(fake_low_memory + at, &v, bytes); }

static void seal(u32 at, u32 len, u32 sum_at) {
    u8 sum = 0;

    for (u32 i = 0; i < len; i++) sum = (u8)(sum + fake_low_memory[at + i]);
    fake_low_memory[at + sum_at] = (u8)-sum;
}

/* Behind a bridge pins turn with the number of the device; the MP table knows bus 0 alone. */
static void test_behind_a_bridge(void **state) {
    static const u8 entries[] = { 1, 0, 'P',  'C',  'I', ' ', ' ', ' ', 2, 0,          0x11, 1,
                                  0, 0, 0xc0, 0xfe, 3,   0,   0,   0,   0, 1 << 2 | 3, 0,    19 };
    struct fake_pci *bridge = fake_pci_add(PCI_BDF(0, 1, 0), 0x12345678, 0x06040000);
    u32 gsi = 0, flags = 0;

    fake_pci_add(PCI_BDF(7, 2, 0), 0x12345678, 0)->space[PCI_PIN] = 2;
    bridge->space[PCI_HEADER] = 1;
    bridge->space[PCI_SECONDARY] = 7;
    fake_low_memory = calloc(1, 1 << 20);
    memcpy(fake_low_memory + 0xf0000, "_MP_", 4);
    put(0xf0004, 0x3000, 4);
    seal(0xf0000, 16, 10);
    memcpy(fake_low_memory + 0x3000, "PCMP", 4);
    put(0x3004, 44 + sizeof(entries), 2);
    memcpy(fake_low_memory + 0x302c, entries, sizeof(entries));
    seal(0x3000, 44 + sizeof(entries), 7);
    init();
    /* INTB of device 2: pin 1 + 2 = 3 of the bridge, which is device 1 */
    assert_string_equal(give_line(pci_find(PCI_BDF(7, 2, 0)), &gsi, &flags), "the MP table");
    assert_int_equal(gsi, 19);
    assert_int_equal(flags, 3);
    free(fake_low_memory);
    fake_low_memory = NULL;
    init();
    heap = heap_in_use();
}

static void test_msi(void **state) {
    struct vm *vm;
    u32 port, n;

    fake_pci_cap(nic, 0x40, PCI_CAP_MSI);
    fake_set(nic, 0x42, 2, 0x1f0 & ~0x71u); /* 64 bits, masks */
    fake_set(nic, 0x50, 4, ~0u);
    init();
    vm = driver();
    port = vm->pci[0]->port;
    assert_int_equal(vm->pci[0]->irq, PCI_MSI);
    assert_int_equal(fake_get(nic, 0x44, 4), 0xfee00000);
    assert_int_equal(fake_get(nic, 0x48, 4), 0);
    assert_int_equal(fake_get(nic, 0x4c, 2), vm->pci[0]->vector);
    assert_int_equal(fake_get(nic, 0x50, 4), ~1u);
    assert_true(fake_get(nic, 0x42, 2) & 1);
    assert_true(fake_get(nic, PCI_COMMAND, 2) & PCI_COMMAND_NO_INTX);
    for (n = 0; fake_get(nic, 0x42, 2) & 1 && n < 100; n++) fake_interrupt(vm->pci[0]->vector);
    assert_int_equal(n, 20); /* a storm is held */
    assert_true(take(vm, port));
    vm_giver->eoi(vm, 0); /* that is for lines */
    assert_false(fake_get(nic, 0x42, 2) & 1);
    fake_clock(1000 + NS_PER_MS);
    fake_advance(0);
    assert_true(fake_get(nic, 0x42, 2) & 1);
    assert_true(take(vm, port)); /* one may have been lost */
    fake_destroy(vm);
    assert_false(fake_get(nic, 0x42, 2) & 1);
}

static void test_msix(void **state) {
    struct vm *vm;
    unsigned prot;

    fake_pci_bar(nic, 4, 0xfe000000, 0x8000, 4);
    fake_pci_cap(nic, 0x60, PCI_CAP_MSIX);
    fake_set(nic, 0x62, 2, 299); /* 300 entries: two pages */
    fake_set(nic, 0x64, 4, 0x2004);
    init();
    vm = driver();
    assert_int_equal(vm->pci[0]->irq, PCI_MSIX);
    assert_int_equal(fake_get(nic, 0x62, 2) & 0xc000, 0x8000);
    assert_int_equal(*(u32 *)vm->pci[0]->msix_entry, 0xfee00000);
    assert_int_equal(*(u32 *)(vm->pci[0]->msix_entry + 8), vm->pci[0]->vector);
    assert_int_equal(*(u32 *)(vm->pci[0]->msix_entry + 12), 0);
    for (u64 at = 0; at < 0x8000; at += PAGE_SIZE) { /* I4: the table is ours */
        assert_int_equal(npt_lookup(&vm->virt.npt, 0xfe000000 + at, &prot), 0xfe000000 + at);
        assert_int_equal(prot, at == 0x2000 || at == 0x3000 ? NPT_R : NPT_RW);
    }
    for (u32 n = 0; n < 20; n++) fake_interrupt(vm->pci[0]->vector);
    assert_int_equal(fake_get(nic, 0x62, 2) & 0xc000, 0xc000);
    fake_clock(1000 + NS_PER_MS);
    fake_advance(0);
    assert_int_equal(fake_get(nic, 0x62, 2) & 0xc000, 0x8000);
    fake_destroy(vm);
    assert_int_equal(fake_get(nic, 0x62, 2) & 0x8000, 0);
}

/* I4, I5: of the registers a VM writes two bits of one. */
static void test_registers(void **state) {
    struct vm *vm = driver();
    u8 before[256];

    memcpy(before, nic->space, 256);
    for (u32 size = 0; size < 9; size++)
        for (u32 at = 0; at < 5000; at++) {
            bool valid = (size == 1 || size == 2 || size == 4) && at % size == 0 && at < 4096;
            i64 err = vm_giver->write(vm, 0, at, size, ~0u);

            assert_int_equal(err, valid ? -EPERM : -EINVAL);
            if (valid)
                assert_int_equal(vm_giver->read(vm, 0, at, size),
                                 at < 256 ? (i64)fake_get(nic, at, size) : (i64)(~0u >> (32 - 8 * size)));
            else
                assert_int_equal(vm_giver->read(vm, 0, at, size), -EINVAL);
        }
    assert_memory_equal(nic->space, before, 256);
    assert_int_equal(vm_giver->write(vm, 0, PCI_COMMAND, 2, 3), 0);
    assert_int_equal(fake_get(nic, PCI_COMMAND, 2), 3);
    assert_int_equal(vm_giver->write(vm, 0, PCI_COMMAND, 2, 0x407), 0);
    assert_int_equal(fake_get(nic, PCI_COMMAND, 2), 0x407);
    assert_int_equal(vm_giver->write(vm, 0, PCI_COMMAND, 2, 0x405), -EPERM);
    assert_int_equal(vm_giver->write(vm, 0, PCI_COMMAND, 2, 0x507), -EPERM);
    fake_destroy(vm);
}

/* What is held of the device when the image is refused, or a BAR turns out to be in the VM's RAM, goes
 * back. */
static void test_undone(void **state) {
    strcpy(config.image, "absent");
    assert_null(fake_vm(&config));
    assert_string_equal(fake_why, "its image is not among the boot modules");
    strcpy(config.image, "null");
    config.memory = 2ull << 30;
    assert_null(fake_vm(&config));
    config.memory = 6 << 20;
    fake_destroy(driver());
}

/* Reset takes a tenth of a second, which nobody waits for; bus mastering is off all the while. */
static void test_reset_between(void **state) {
    struct vm *vm, *again;

    fake_pci_cap(nic, 0x60, PCI_CAP_EXPRESS);
    fake_set(nic, 0x64, 4, BIT(28));
    init();
    vm = driver();
    assert_int_equal(nic->resets, 1);
    vm_destroy(vm, NULL, NULL);
    vm_put(vm);
    fake_work_due();
    assert_int_equal(nic->resets, 2);
    assert_false(fake_get(nic, PCI_COMMAND, 2) & PCI_COMMAND_MASTER);
    again = vm_find("driver");
    assert_ptr_equal(pci_find(NIC)->owner, again);
    vm_put(again);
    assert_true(frame_free_count() < frames - 1536); /* not before the device is quiet */
    fake_work();
    assert_int_equal(fake_get(nic, PCI_BAR0, 4), 0xfebc0000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_places, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_many_ports, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_owner, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_it_gets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_eoi_beside_an_interrupt, setup, teardown),
        cmocka_unit_test_setup_teardown(test_storm_of_a_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_where_lines_lead, setup, teardown),
        cmocka_unit_test_setup_teardown(test_behind_a_bridge, setup, teardown),
        cmocka_unit_test_setup_teardown(test_msi, setup, teardown),
        cmocka_unit_test_setup_teardown(test_msix, setup, teardown),
        cmocka_unit_test_setup_teardown(test_registers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_undone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reset_between, setup, teardown),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
