/* Devices of the machine that are given to VMs: which ones are refused, what a VM gets, and that
 * all of it is taken back when the VM ends. */
#include <string.h>
#include <takt/device.h>
#include <takt/errno.h>

#include "give_rig.h"
#include "passthrough/interrupt.h"

static void test_refused(void **state) {
    struct fake_pci *other = fake_pci_add(PCI_BDF(0, 4, 0), 0x12345678, 0);

    config.unsafe_dma = false;
    refused(
        -EPERM,
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
}

static void test_bad_places(void **state) {
    static const struct {
        u64 addr;
        u32 type;
        const char *why;
    } bad[] = {
        { 0, 0, "firmware gave a BAR of it no address" },
        { 0x30000000, 0, "a BAR of it lies where none can be" }, /* firmware's own RAM */
        { 0x3ff00000, 0, "a BAR of it lies where none can be" }, /* RAM of the machine */
        { 0xfec00000, 0, "a BAR of it lies where none can be" }, /* IOAPIC and the like */
        { 0xffff0000, 0, "a BAR of it lies where none can be" },
        { 0x17fff0000, 4, "a BAR of it lies where none can be" }, /* RAM above 4 GiB */
        { 0x3fff0000, 4, "a BAR of it lies where none can be" },
        { 0xfffffffffffff000ull & ~0xffffull, 4,
          "a BAR of it lies where none can be" },           /* its end is address 0 */
        { 0x180, 1, "a BAR of it lies where none can be" }, /* ports that VMs have of their own */
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
    /* The BAR has 256 bytes, and a BAR of another device is in the same page. */
    fake_pci_bar(nic, 2, 0xfe001000, 0x100, 0);
    fake_pci_bar(fake_pci_add(PCI_BDF(0, 4, 0), 0x12345678, 0), 0, 0xfe001200, 0x100, 0);
    init();
    assert_null(fake_vm(&config));
    assert_string_equal(fake_why, "PCI device 00:03.0 shares a page of registers with 00:04.0");
}

/* A BAR of 64 bits that cannot be in the VM where it is in the machine is elsewhere, with all
 * that belongs to it; one of 32 bits is refused. */
static void test_other_places(void **state) {
    static const u64 at[] = { 0x4000000000, 0x380000000000, 0x3fff000000,
                              0x200000,     0x100000000,    0x80000000 };
    static const struct memmap low = { 1, { { 0, 1 << 20 } } }; /* it ends before all of them */
    const u64 size = 0x200000;
    struct vm *vm;
    int r;

    config.unsafe_dma = true;
    memset(nic->space + PCI_BAR0, 0, 24);
    memset(nic->writable + PCI_BAR0, 0, 24);
    fake_pci_bar(nic, 0, 0xfebc0000, 0x20000, 0);
    fake_pci_cap(nic, 0x60, PCI_CAP_MSIX);
    fake_set(nic, 0x62, 2, 3);
    fake_set(nic, 0x64, 4, 0x3000 | 2);
    for (u32 i = 0; i < ARRAY_SIZE(at); i++) {
        const u64 gpa = TAKT_BAR_GPA + (2ull << 30) + at[i] % BIT(30);
        bool stays = at[i] == 0x80000000 || at[i] == 0x100000000;
        struct takt_pci info;
        u64 from, to, value = 0;

        fake_pci_bar(nic, 2, at[i], size, 4);
        pci_enumerate();
        give_init(&acpi, &low);
        fake_machine_gives(&pci_claim_part, &pci_part);
        vm = driver();
        assert_int_equal(give_info(vm, 0, 0x3000), 0);
        guestmem_read(&vm->mem, 0x3000, &info, sizeof(info));
        assert_int_equal(info.bar[2].addr, stays ? at[i] : gpa);
        assert_int_equal(info.bar[3].addr, 0);
        assert_int_equal(give_read(vm, 0, PCI_BAR0 + 8, 4), (u32)info.bar[2].addr | 4);
        assert_int_equal(give_read(vm, 0, PCI_BAR0 + 12, 4), info.bar[2].addr >> 32);
        assert_true(msix_pages(vm->pci[0]->pci, 2, &from, &to));
        for (u64 n = 0; n < size; n += PAGE_SIZE)
            assert_int_equal(npt_lookup(&vm->virt.npt, info.bar[2].addr + n, NULL),
                             at[i] + n >= from && at[i] + n < to ? HPA_NONE : at[i] + n);
        if (!stays && at[i] > config.memory)
            assert_int_equal(npt_lookup(&vm->virt.npt, at[i], NULL), HPA_NONE);
        assert_true(bus_do(&vm->mmio,
                           &(struct bus_access){ .addr = info.bar[2].addr + 0x3008, .size = 4 },
                           &value));
        assert_int_equal(value, info.port);
        fake_destroy(vm);
    }
    fake_pci_bar(nic, 2, 0x200000, size, 0); /* of 32 bits */
    memset(nic->writable + PCI_BAR0 + 12, 0, 4);
    fake_set(nic, PCI_BAR0 + 12, 4, 0);
    pci_enumerate();
    give_init(&acpi, &low);
    fake_machine_gives(&pci_claim_part, &pci_part);
    assert_null(fake_vm(&config));
    assert_string_equal(fake_why, "BAR 2 of PCI device 00:03.0 lies where this VM has RAM");
    /* A VM that runs already and is refused the device keeps its RAM. */
    config.nr_pci = 0;
    vm = driver();
    do {
        u64 wait = 0;

        r = give_attach(vm, NIC, &wait);
    } while (r > 0);
    assert_int_equal(r, -EINVAL);
    assert_int_not_equal(npt_lookup(&vm->virt.npt, 0x200000, NULL), HPA_NONE);
    fake_destroy(vm);
}

/* Ranges of ports are few a VM, and some are its own: 13 are left for devices. */
static void test_too_many_ports(void **state) {
    config.nr_pci = 0;
    for (u32 i = 0; i < 3; i++) {
        struct fake_pci *f = fake_pci_add(PCI_BDF(0, 4 + i, 0), 0x12345678, 0);

        for (u32 k = 0; k < (i < 2 ? 6 : 3); k++)
            fake_pci_bar(f, k, 0x1000 + 0x200 * i + 0x40 * k, 0x40, 1);
        fake_set(f, PCI_LINE, 1, 0xff); /* no interrupt */
        config.pci[config.nr_pci++] = PCI_BDF(0, 4 + i, 0);
    }
    init();
    fake_destroy(driver());
    fake_pci_bar(&fake_device[fake_nr_devices - 1], 3, 0x14c0, 0x40, 1);
    init();
    assert_null(fake_vm(&config));
    assert_int_equal(fake_error, -ENOSPC);
    assert_string_equal(fake_why, "PCI device 00:06.0: it has too many ranges of ports");
}

/* Returns how many of `nr` pages from `at` on are mapped. */
static u32 pages(const struct vm *vm, u64 at, u32 nr) {
    u32 n = 0;

    for (u32 i = 0; i < nr && vm->virt.mem; i++)
        n += npt_lookup(&vm->virt.npt, at + i * PAGE_SIZE, NULL) != HPA_NONE;
    return n;
}

/* No part of the making of a VM takes long: it looks at one BAR, or maps 64 MiB of it in 2 MiB
 * pages, or 64 pages of 4 KiB. */
static void test_parts(void **state) {
    struct fake_pci *big = fake_pci_add(PCI_BDF(0, 4, 0), 0x12345678, 0);
    const u64 first = 0x200000000, stride = 64 << 20;
    u32 claiming = 0, mapped = 0, small = 0, before;
    struct vm *vm = NULL;

    for (u32 i = 0; i < 3; i++) fake_pci_bar(big, 2 * i, first + i * BIT(30), BIT(30), 4);
    fake_pci_cap(big, 0x60, PCI_CAP_MSIX);
    fake_set(big, 0x62, 2, 2047);
    /* The table of the device is in two of the 2 MiB pages of its second BAR. */
    fake_set(big, 0x64, 4, 0x3fff000 | 2);
    config.pci[config.nr_pci++] = PCI_BDF(0, 4, 0);
    init();
    assert_int_equal(vm_create(&config, NULL, NULL), 0);
    vm = vm_find("driver");
    while (vm->state == VM_CREATING) {
        claiming += vm->nr_pci < 2;
        for (u32 i = 0; i < 2 && vm->virt.mem && mapped < 48; i++) {
            if (npt_lookup(&vm->virt.npt, first + mapped * stride + 0x10000, NULL) == HPA_NONE)
                break;
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

        assert_int_equal(npt_lookup(&vm->virt.npt, first + at, &prot),
                         table < 16 * 2048 ? HPA_NONE : first + at);
    }
    fake_destroy(vm);
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
    assert_int_equal(give_info(vm, 1, 0x3000), -ENOENT); /* it has one device */
    assert_int_equal(give_eoi(vm, 1), -ENOENT);
    assert_int_equal(give_info(vm, 0, 0x3000), 0);
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
    /* All of the RAM is in one piece, because the device gets its address. */
    for (u64 at = 0; at < config.memory; at += PAGE_SIZE)
        assert_int_equal(npt_lookup(&vm->virt.npt, at, NULL), at + info.dma_offset);
    assert_int_equal(give_info(vm, 0, config.memory), -EFAULT);
    fake_destroy(vm);
}

/* Of all registers, a VM can write only two bits of one. */
static void test_registers(void **state) {
    struct vm *vm = driver();
    u8 before[4096];

    memcpy(before, nic->space, sizeof(before));
    for (u32 size = 0; size < 9; size++)
        for (u32 at = 0; at < 5000; at++) {
            bool valid = (size == 1 || size == 2 || size == 4) && at % size == 0 && at < 4096;
            i64 err = give_write(vm, 0, at, size, ~0u);

            assert_int_equal(err, valid ? -EPERM : -EINVAL);
        }
    assert_memory_equal(nic->space, before, sizeof(before));
    assert_int_equal(give_write(vm, 0, PCI_COMMAND, 2, 3), 0);
    assert_int_equal(fake_get(nic, PCI_COMMAND, 2), 3);
    assert_int_equal(give_write(vm, 0, PCI_COMMAND, 2, 0x407), 0);
    assert_int_equal(fake_get(nic, PCI_COMMAND, 2), 0x407);
    assert_int_equal(give_write(vm, 0, PCI_COMMAND, 2, 0x405), -EPERM);
    assert_int_equal(give_write(vm, 0, PCI_COMMAND, 2, 0x507), -EPERM);
    fake_destroy(vm);
}

/* If the image is refused, or a BAR turns out to be in the VM's RAM, everything that is held of the
 * device goes back. */
static void test_undone(void **state) {
    strcpy(config.image, "absent");
    assert_null(fake_vm(&config));
    assert_string_equal(fake_why, "its image is not among the boot modules: absent");
    strcpy(config.image, "null");
    config.memory = 2ull << 30;
    assert_null(fake_vm(&config));
    config.memory = 6 << 20;
    fake_destroy(driver());
}

/* A device that can reach another one unseen is given with it, or not at all. */
static void test_groups(void **state) {
    fake_pci_add(NIC + 1, 0x12345678, 0);
    nic->space[PCI_HEADER] = 0x80;
    init();
    refused(-EPERM,
            "PCI device 00:03.0 could reach 00:03.1 past the IOMMU: one VM gets both, or it needs"
            " allow_shared_group = yes");
    config.allow_shared_group = true;
    fake_destroy(driver());
    config.allow_shared_group = false;
    config.pci[config.nr_pci++] = NIC + 1;
    fake_set(&fake_device[1], PCI_LINE, 1, 0xff);
    init();
    fake_destroy(driver());
    nic->master_once = false;
    /* The other device of the group may belong to another VM by now. */
    assignment_of(pci_find(NIC + 1))->owner = (void *)&config;
    refused(-EPERM,
            "PCI device 00:03.0 could reach 00:03.1 past the IOMMU: one VM gets both, or it needs"
            " allow_shared_group = yes");
    assignment_of(pci_find(NIC + 1))->owner = NULL;
}

/* A reset takes a tenth of a second. Nothing waits for it meanwhile, and bus mastering is off all
 * the time. */
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
    assert_ptr_equal(assignment_of(pci_find(NIC))->owner, again);
    vm_put(again);
    assert_true(frame_free_count() < frames - 1536); /* not before the device is quiet */
    fake_work();
    assert_int_equal(fake_get(nic, PCI_BAR0, 4), 0xfebc0000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_places, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_places, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_many_ports, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_owner, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_it_gets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_registers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_undone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_groups, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reset_between, setup, teardown),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
