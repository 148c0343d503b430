/* The VT-d driver with a model of the unit: what memory devices reach, which vCPUs they
 * interrupt, and what the operator is told of devices that try to do more. */
#include "vtd_model.h"

#include "fake_log.h"
#include "fake_timer.h"
#include "passthrough/give.h"

#define NIC   PCI_BDF(0, 3, 0)
#define OTHER PCI_BDF(0, 4, 0)
#define CARD  PCI_BDF(1, 0, 0) /* behind the bridge 00:1c.0 */

static struct acpi_info acpi;
static struct memmap ram;
static struct config_vm config;
static u8 table[512];
static u32 end;
static const char *why;
static u64 frames, heap;
static bool relaxed;

static void add(const void *bytes, u32 n) {
    memcpy(table + end, bytes, n);
    end += n;
}

/* A unit, with scopes: { kind, id, bus, device, function }. */
static void add_unit_at(u64 base, bool all, u32 n, const u8 (*scope)[5]) {
    u8 head[16] = { 0, 0, (u8)(16 + 8 * n), 0, all };

    memcpy(head + 8, &base, 8);
    add(head, 16);
    for (u32 i = 0; i < n; i++)
        add((u8[]){ scope[i][0], 8, 0, 0, scope[i][1], scope[i][2], scope[i][3], scope[i][4] }, 8);
}

static void add_region_of(u64 first, u64 last, u32 bdf) {
    u8 head[24] = { 1, 0, 32 };

    memcpy(head + 8, &first, 8);
    memcpy(head + 16, &last, 8);
    add(head, 24);
    add((u8[]){ DMAR_ENDPOINT, 8, 0, 0, 0, (u8)(bdf >> 8), (u8)(bdf >> 3 & 31), (u8)(bdf & 7) }, 8);
}

/* As QEMU tells: everything by name, no INCLUDE_PCI_ALL. */
static void qemu_table(void) {
    static const u8 scopes[][5] = { { DMAR_IOAPIC, 0, 0xff, 0, 0 },
                                    { DMAR_ENDPOINT, 0, 0, 3, 0 },
                                    { DMAR_ENDPOINT, 0, 0, 4, 0 },
                                    { DMAR_BRIDGE, 0, 0, 0x1c, 0 } };

    end = 48;
    table[37] = 1;
    add_unit_at(MODEL_BASE, false, 4, scopes);
}

static void device(u32 bdf) {
    struct fake_pci *f = fake_pci_add(bdf, 0x12345678, 0x02000000);

    fake_pci_bar(f, 0, 0xfe000000 + (bdf & 0xffff) * 0x1000ull + (bdf >> 16) * 0x100000, 0x1000, 0);
    fake_pci_cap(f, 0x50, PCI_CAP_MSI);
}

static void boot(void) {
    if (fake_vectors_used) irq_free(vtd.fault_vector); /* of the boot before */
    vtd = (struct vtd){ .why_off = "no IOMMU is in use", .nr_domains = VTD_MAX_DOMAINS };
    memset(domain, 0, sizeof(domain));
    segments = NULL;
    memset(unit_of_vector, 0, sizeof(unit_of_vector));
    irq_remap_pin = NULL;
    pci_enumerate();
    give_init(&acpi, &ram);
    fake_machine_gives(&pci_claim_part, &pci_part);
    acpi.dmar = table;
    acpi.dmar_len = end;
    iommu_read(&acpi, relaxed);
    why = iommu_init(&acpi, &ram);
    frames = frame_free_count();
    heap = heap_in_use();
}

static int group_setup(void **state) {
    struct config_vm c = fake_config("first", 1);

    fake_machine("credit");
    fake_destroy(fake_vm(&c));
    return 0;
}

static int setup(void **state) {
    struct fake_pci *bridge;

    relaxed = false;
    model_reset();
    fake_timers_reset();
    fake_clock(1000);
    apic_x2 = true;
    percpu_of[0]->apic_id = 0;
    percpu_of[1]->apic_id = 1;
    acpi = (struct acpi_info){ .nr_ioapics = 1, .ioapic = { { 0xfec00000, 0, 0 } } };
    ram = (struct memmap){ .nr = 1, .range = { { 0, 1ull << 30 } } };
    fake_pci_reset();
    bridge = fake_pci_add(PCI_BDF(0, 0x1c, 0), 0x1111, 0x06040000);
    bridge->space[PCI_HEADER] = 1;
    bridge->space[PCI_SECONDARY] = bridge->space[PCI_SUBORDINATE] = 1;
    device(NIC);
    device(OTHER);
    device(CARD);
    config = fake_config("driver", 1);
    config.memory = 6 << 20;
    config.pci[config.nr_pci++] = NIC;
    qemu_table();
    return 0;
}

/* With whatever a test began, all its VMs are gone at the end, and no device reaches anything. */
static int teardown(void **state) {
    if (why) return 0;
    assert_int_equal(heap_in_use(), heap);
    for (u32 i = 0; i < pci_count(); i++)
        assert_int_equal(model_dma(model, pci_at(i)->bdf, 0x1000, true), HPA_NONE);
    return 0;
}

static struct vm *driver(void) {
    struct vm *vm = fake_vm(&config);

    if (!vm) fail_msg("%s", fake_why);
    return vm;
}

/* Checks that the device reaches the VM's RAM at its addresses. */
static void reaches_ram(struct vm *vm, u32 bdf) {
    for (u64 gpa = 0; gpa < vm->mem.size; gpa += 0x7f000)
        for (u32 write = 0; write < 2; write++)
            assert_int_equal(model_dma(model, bdf, gpa + 0x123, write),
                             vm->mem.chunk[gpa >> CHUNK_SHIFT] + (gpa & (CHUNK_SIZE - 1)) + 0x123);
}

static bool reaches(u32 bdf, u64 gpa) { return model_dma(model, bdf, gpa, true) != HPA_NONE; }

static void forget_faults(void) {
    fake_advance(2 * FAULT_PAUSE);
    assert_int_equal(model->record[1] >> 63, 0);
}

/* ---- switching it on ---- */

static void test_blocked_from_the_start(void **state) {
    boot();
    assert_null(why);
    assert_true(vtd.on);
    assert_int_equal(model->status,
                     (u32)(TRANSLATE | REMAP | QUEUE | SET_ROOT | SET_INTERRUPTS) & model->status);
    assert_true(model->status & TRANSLATE && model->status & REMAP &&
                !(model->status & COMPATIBLE));
    assert_int_equal(model->table_now & 0xfff, 1 << 11 | 7);
    assert_false(reaches(NIC, 0x1000));
    forget_faults();
    assert_false(reaches(PCI_BDF(7, 1, 1), 0x1000));
    assert_non_null(
        strstr(fake_log_last, "nobody's: PCI device 07:01.1 may not write to 1000: it is blocked"));
}

static void test_refusals(void **state) {
    const struct {
        u64 cap, ecap;
        const char *why;
    } bad[] = { { MODEL_CAP & ~(CAP_LEVELS_3 | CAP_LEVELS_4), MODEL_ECAP, "its IOMMU is too old" },
                { MODEL_CAP, MODEL_ECAP & ~ECAP_QUEUE, "its IOMMU is too old" },
                { MODEL_CAP | CAP_WRITE_BUFFER, MODEL_ECAP, "its IOMMU is too old" },
                { MODEL_CAP, MODEL_ECAP & ~ECAP_REMAPS, "its IOMMU does not remap interrupts" },
                { 0, 0, "its IOMMU does not answer" },
                { ~0ull, ~0ull, "its IOMMU does not answer" } };

    for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
        model->cap = bad[i].cap;
        model->ecap = bad[i].ecap;
        boot();
        assert_string_equal(why, bad[i].why);
        assert_false(vtd.on || model->status & TRANSLATE || irq_remap_pin);
        assert_string_equal(iommu_refused(pci_find(NIC)), bad[i].why);
        assert_false(iommu_blocks(pci_find(NIC)));
    }
    model_reset();
    table[37] = 0; /* firmware says that the machine cannot */
    boot();
    assert_string_equal(why, "its IOMMU does not remap interrupts");
    table[37] = 1;
    table[50] = 3; /* a length that does not hold */
    boot();
    assert_string_equal(why, "firmware's table of IOMMUs is malformed");
    assert_null(fake_vm(&config));
    assert_string_equal(
        fake_why,
        "PCI device 00:03.0 reaches all memory, as firmware's table of IOMMUs is malformed: it"
        " needs unsafe_dma = yes");
    qemu_table();
    model->stuck = true;
    boot();
    assert_string_equal(why, "its IOMMU cannot be switched on");
    model_reset();
    acpi.ivrs = true;
    boot();
    assert_string_equal(why, "this kind of IOMMU is not known");
}

static void test_left_on(void **state) {
    model->status = (u32)(TRANSLATE | REMAP | QUEUE | COMPATIBLE);
    model->root_now = model->table_now = MODEL_RAM;
    model->cap |= 1ull << 5;
    model->protected = BIT(31) | 1;
    model->faults = FAULTS_QUEUE; /* an invalid descriptor, time-outs: the queue stands still */
    boot();
    assert_null(why);
    assert_int_equal(model->faults & FAULTS_QUEUE, 0);
    assert_false(model->status & COMPATIBLE || model->protected);
    assert_int_not_equal(model->root_now, MODEL_RAM);
    assert_false(reaches(NIC, 0x1000));
}

/* ---- memory ---- */

static void test_a_domain(void **state) {
    struct vm *vm;
    u64 left;

    boot();
    vm = driver();
    reaches_ram(vm, NIC);
    assert_false(reaches(NIC, vm->mem.size));
    assert_int_equal(vm->state, VM_CRASHED);
    forget_faults();
    assert_false(reaches(OTHER, 0x1000));
    fake_destroy(vm);
    forget_faults();
    assert_false(reaches(NIC, 0x1000)); /* though the unit knew where that was */
    assert_int_equal(model->record[1] >> 63, 0);
    left = frame_free_count();
    forget_faults();
    vm = driver(); /* and again, without a page more */
    reaches_ram(vm, NIC);
    fake_destroy(vm);
    assert_int_equal(frame_free_count(), left);
}

/* Tests each form of tables that a unit may want. */
static void test_forms(void **state) {
    static const u64 caps[] = { MODEL_CAP, MODEL_CAP & ~CAP_2M, MODEL_CAP & ~CAP_LEVELS_4,
                                MODEL_CAP | CAP_CACHING };

    for (u32 i = 0; i < ARRAY_SIZE(caps) * 4; i++) {
        struct vm *vm;

        setup(NULL);
        model->cap = caps[i / 4];
        if (i & 1) model->ecap |= ECAP_COHERENT;
        if (i & 2) model->ecap |= ECAP_SNOOPS;
        boot();
        assert_null(why);
        vm = driver();
        reaches_ram(vm, NIC);
        fake_destroy(vm);
        teardown(NULL);
    }
}

/* A unit of three levels: 512 GiB, windows among them, and nothing behind. */
static void test_three_levels(void **state) {
    const gpa_t at = TAKT_FOREIGN_GPA;
    struct vm *vm;

    config.on_dma_fault = ON_DMA_FAULT_LOG;
    model->cap &= ~CAP_LEVELS_4;
    boot();
    assert_null(why);
    vm = driver();
    reaches_ram(vm, NIC);
    assert_int_equal(model->context[NIC].e[1] & 7, 1);
    assert_int_equal(iommu_map(vm, at, 8 << 20, CHUNK_SIZE), 0);
    assert_int_equal(model_dma(model, NIC, at + 0x5678, true), (8 << 20) + 0x5678);
    assert_false(reaches(NIC, 1ull << 39));
    assert_int_equal(model->record[1] >> 32 & 255, 4);
    fake_destroy(vm);
    forget_faults();
}

/* When the call returns, devices reach what was put at an address, whatever the unit had cached
 * before. */
static void test_windows(void **state) {
    const gpa_t at = TAKT_FOREIGN_GPA;
    struct vm *vm;

    config.on_dma_fault = ON_DMA_FAULT_LOG;
    boot();
    vm = driver();
    assert_int_equal(iommu_map(vm, at, 8 << 20, CHUNK_SIZE), 0);
    assert_int_equal(model_dma(model, NIC, at + 0x5678, true), (8 << 20) + 0x5678);
    assert_int_equal(iommu_map(vm, at, 16 << 20, CHUNK_SIZE), 0);
    assert_int_equal(model_dma(model, NIC, at + 0x5678, true), (16 << 20) + 0x5678);
    assert_int_equal(iommu_map(vm, at, HPA_NONE, CHUNK_SIZE), 0);
    assert_false(reaches(NIC, at + 0x5678));
    reaches_ram(vm, NIC);
    fake_destroy(vm);
}

/* Windows that were there before the first device would be out of its reach. */
static void test_windows_before(void **state) {
    struct vm *vm;
    int r;

    config.nr_pci = 0;
    boot();
    vm = driver();
    vm->back.nr_windows = 1;
    assert_int_equal(iommu_prepare(vm, pci_find(NIC)), -EBUSY);
    assert_string_equal(vm->why,
                        "it serves other VMs already, whose RAM its first device would not reach");
    assert_null(vm->dma);
    vm->back.nr_windows = 0;
    while ((r = iommu_prepare(vm, pci_find(NIC))) > 0) continue;
    assert_int_equal(r, 0);
    vm->back.nr_windows = 1;
    assert_int_equal(iommu_prepare(vm, pci_find(NIC)), 0); /* they are in it */
    vm->back.nr_windows = 0;
    assert_false(spin_is_locked(&backend_lock));
    iommu_release(vm);
    fake_destroy(vm);
}

static void test_scopes(void **state) {
    struct vm *vm;

    config.pci[0] = CARD; /* by its bridge */
    boot();
    vm = driver();
    reaches_ram(vm, CARD);
    fake_destroy(vm);

    end = 48;
    add_unit_at(MODEL_BASE, false, 1, &(const u8[5]){ DMAR_ENDPOINT, 0, 0, 4, 0 });
    boot();
    assert_null(fake_vm(&config));
    assert_string_equal(
        fake_why,
        "PCI device 01:00.0 reaches all memory, as firmware names no IOMMU for it: it needs"
        " unsafe_dma = yes");

    end = 48; /* the second has all but what the first names */
    add_unit_at(MODEL_BASE, false, 1, &(const u8[5]){ DMAR_ENDPOINT, 0, 0, 4, 0 });
    add_unit_at(MODEL_BASE + PAGE_SIZE, true, 0, NULL);
    boot();
    vm = driver();
    assert_ptr_equal(assignment_of(pci_find(CARD))->iommu, &vtd.unit[1]);
    assert_int_equal(model_dma(&model[1], CARD, 0x1000, false), vm->mem.chunk[0] + 0x1000);
    fake_destroy(vm);
    assert_int_equal(model_dma(&model[1], CARD, 0x1000, false), HPA_NONE);
}

/* If one entry of the table is odd, only the devices that it names are affected. */
static void test_an_odd_entry(void **state) {
    static const u8 nic[5] = { DMAR_ENDPOINT, 0, 0, 3, 0 },
                    other[5] = { DMAR_ENDPOINT, 0, 0, 4, 0 };
    struct vm *vm;

    end = 48;
    add_unit_at(MODEL_BASE, false, 1, &nic);
    add_unit_at(0x800, false, 1, &other);
    add_unit_at(MODEL_BASE + PAGE_SIZE, true, 0, NULL);
    config.pci[config.nr_pci++] = CARD;
    boot();
    assert_null(why);
    vm = driver();
    reaches_ram(vm, NIC);
    assert_ptr_equal(assignment_of(pci_find(CARD))->iommu, &vtd.unit[2]);
    fake_destroy(vm);
    config.nr_pci = 1;
    config.pci[0] = OTHER;
    assert_null(fake_vm(&config));
    assert_string_equal(fake_why,
                        "PCI device 00:04.0 reaches all memory, as firmware's table tells no"
                        " address of its IOMMU: it needs unsafe_dma = yes");
    why = "done";
}

/* If a path is not understood, it may lead to any device that no other entry names. */
static void test_a_malformed_scope(void **state) {
    static const u8 nic[5] = { DMAR_ENDPOINT, 0, 0, 3, 0 },
                    other[5] = { DMAR_ENDPOINT, 0, 0, 4, 0 };
    struct vm *vm;

    end = 48;
    add_unit_at(MODEL_BASE, false, 1, &nic);
    add_unit_at(MODEL_BASE + 2 * PAGE_SIZE, false, 1, &other);
    table[end - 7] = 7; /* the length of its scope */
    add_unit_at(MODEL_BASE + PAGE_SIZE, true, 0, NULL);
    boot();
    assert_null(why);
    vm = driver();
    reaches_ram(vm, NIC);
    fake_destroy(vm);
    for (u32 i = 0; i < 2; i++) {
        config.pci[0] = i ? CARD : OTHER;
        assert_null(fake_vm(&config));
        assert_non_null(strstr(fake_why,
                               "reaches all memory, as firmware's table of IOMMUs has a malformed"
                               " entry: it needs unsafe_dma = yes"));
    }
    why = "done";
}

/* 00:03.0 and 0001:00:03.0 are the same to their units, which therefore must not share tables. */
static void test_segments(void **state) {
    const u32 far = 1 << 16 | NIC;
    struct irq_message m;
    struct vm *vm;
    u32 cpu, at;
    int vector;

    device(far);
    at = end;
    add_unit_at(MODEL_BASE + PAGE_SIZE, true, 0, NULL);
    table[at + 6] = 1;
    boot();
    assert_null(why);
    vm = driver();
    reaches_ram(vm, NIC);
    vector = vm->pci[0]->entry[0].vector;
    assert_int_equal(iommu_irq(vm->pci[0], (u32)vector, 0, &m), 0);
    assert_int_equal(model_message(model, NIC, m.addr, m.data, &cpu), vector);
    assert_int_equal(model_message(&model[1], NIC, m.addr, m.data, &cpu), -1);
    assert_non_null(
        strstr(fake_log_last, "nobody's: PCI device 0001:00:03.0 may not interrupt by entry"));
    fake_advance(2 * FAULT_PAUSE);
    assert_int_equal(model_dma(&model[1], NIC, 0x1000, true), HPA_NONE);
    assert_int_equal(vm->state, VM_RUNNING);
    fake_destroy(vm);
    fake_advance(2 * FAULT_PAUSE);
    config.pci[0] = far;
    vm = driver();
    assert_int_equal(model_dma(&model[1], NIC, 0x1000, true), vm->mem.chunk[0] + 0x1000);
    assert_int_equal(model_dma(model, NIC, 0x1000, true), HPA_NONE);
    fake_destroy(vm);
    forget_faults();
}

static void test_regions(void **state) {
    add_region_of(0x50000000, 0x50000fff, NIC);
    add_region_of(0x10000000, 0x10000fff, NIC); /* in RAM */
    boot();
    assert_null(why);
    assert_non_null(strstr(fake_log_last, "IOMMU"));
    assert_int_equal(model_dma(model, NIC, 0x50000010, true), 0x50000010);
    assert_false(reaches(NIC, 0x10000010));
    assert_null(fake_vm(&config));
    assert_string_equal(
        fake_why,
        "PCI device 00:03.0 cannot be given to VMs, as firmware goes on using it (RMRR; relax_rmrr"
        " allows it)");
    config.unsafe_dma = true;
    assert_null(fake_vm(&config));
    forget_faults();
    model_reset(); /* teardown looks whether it reaches RAM */
    model->status = 0;
    why = "done";
}

/* With relax_rmrr the device is given with what firmware reserves for it, and with nothing else;
 * this goes when the device does. */
static void test_relaxed_regions(void **state) {
    struct vm *vm;
    u64 at;

    relaxed = true;
    config.on_dma_fault = ON_DMA_FAULT_LOG;
    config.pci[config.nr_pci++] = OTHER;
    add_region_of(0x50000000, 0x50090fff, NIC); /* in three parts */
    add_region_of(0x10000000, 0x10000fff, NIC); /* RAM of the machine: not believed */
    add_region_of(0x60000000, 0x60000fff, CARD);
    boot();
    vm = driver();
    reaches_ram(vm, NIC);
    for (at = 0x50000000; at < 0x50091000; at += PAGE_SIZE)
        assert_int_equal(model_dma(model, NIC, at, true), at);
    assert_int_equal(model_dma(model, OTHER, 0x50000000, true), 0x50000000); /* one domain a VM */
    assert_false(reaches(NIC, 0x50091000) || reaches(NIC, 0x10000000) || reaches(NIC, 0x60000000));
    forget_faults();
    for (u64 wait = at = 0; give_detach(vm, NIC, true, &wait) > 0; wait = 0)
        if (wait) fake_clock(at = wait);
    assert_false(reaches(OTHER, 0x50000000) || reaches(NIC, 0x50000000));
    reaches_ram(vm, OTHER);
    forget_faults();
    fake_destroy(vm);

    config.memory = 6 << 20;
    setup(NULL);
    relaxed = true;
    ram.range[0].end = 1 << 20;
    add_region_of(0x200000, 0x200fff, NIC); /* where the VM has RAM */
    boot();
    assert_null(fake_vm(&config));
    assert_string_equal(
        fake_why,
        "memory that firmware reserves for PCI device 00:03.0 lies where this VM has its own");
    setup(NULL);
    relaxed = true;
    add_region_of(0x50000000, 0x51000fff, NIC); /* a page too much */
    boot();
    assert_null(fake_vm(&config));
    assert_string_equal(fake_why,
                        "PCI device 00:03.0 cannot be given to VMs, as firmware reserves more than"
                        " 16 MiB of memory for it (RMRR)");
    forget_faults();
    why = "done";
}

/* At page 0, which RAM begins with or does not; with tables of three levels there is none for
 * what lies so low when nothing does. */
static void test_region_at_0(void **state) {
    for (u32 levels = 3; levels <= 4; levels++) {
        for (u32 is_ram = 0; is_ram < 2; is_ram++) {
            setup(NULL);
            model->cap &= levels == 3 ? ~CAP_LEVELS_4 : ~CAP_LEVELS_3;
            ram.range[0].start = is_ram ? 0 : 1 << 20;
            add_region_of(0, 0xfff, NIC);
            boot();
            assert_null(why);
            assert_int_equal(model_dma(model, NIC, 0x10, true), is_ram ? HPA_NONE : 0x10);
            assert_false(reaches(NIC, 0x1000));
            forget_faults();
            assert_null(fake_vm(&config));
            assert_string_equal(fake_why, "PCI device 00:03.0 cannot be given to VMs, as firmware "
                                          "goes on using it (RMRR; relax_rmrr"
                                          " allows it)");
        }
    }
    why = "done";
}

/* ---- interrupts ---- */

static void test_interrupts(void **state) {
    struct irq_message m, again;
    struct vm *vm;
    u32 cpu = 99;
    int vector;

    config.on_dma_fault = ON_DMA_FAULT_LOG;
    boot();
    vm = driver();
    vector = vm->pci[0]->entry[0].vector;
    assert_int_equal(iommu_irq(vm->pci[0], (u32)vector, 0, &m), 0);
    assert_int_equal(model_message(model, NIC, m.addr, m.data, &cpu), vector);
    assert_int_equal(cpu, 0);
    /* The interrupt can be sent to another pCPU, which has an effect at once. */
    assert_int_equal(iommu_irq(vm->pci[0], (u32)vector, 1, &again), 0);
    assert_memory_equal(&m, &again, sizeof(m));
    assert_int_equal(model_message(model, NIC, m.addr, m.data, &cpu), vector);
    assert_int_equal(cpu, 1);

    assert_int_equal(model_message(model, OTHER, m.addr, m.data, &cpu), -1); /* another's entry */
    assert_non_null(strstr(
        fake_log_last, "PCI device 00:04.0 may not interrupt by entry 49: it is another device's"));
    forget_faults();
    /* A message in the form without remapping is refused. */
    assert_int_equal(model_message(model, NIC, 0xfee00000, (u32)vector, &cpu), -1);
    forget_faults();
    /* A message by an entry that is not there is refused, too. */
    assert_int_equal(model_message(model, NIC, m.addr, m.data + 1, &cpu), -1);
    forget_faults();
    fake_destroy(vm);
    assert_int_equal(model_message(model, NIC, m.addr, m.data, &cpu), -1);
    forget_faults();
}

/* A change of one device's interrupt is told to the unit that has the device, and to no other unit.
 * The other entries stay in the cache of that unit. */
static void test_interrupts_of_two_units(void **state) {
    struct irq_message m;
    struct vm *vm;
    u32 before[MODEL_UNITS], cpu;

    end = 48;
    add_unit_at(MODEL_BASE, false, 1, &(const u8[5]){ DMAR_ENDPOINT, 0, 0, 4, 0 });
    add_unit_at(MODEL_BASE + PAGE_SIZE, true, 0, NULL);
    boot();
    vm = driver();
    assert_ptr_equal(assignment_of(pci_find(NIC))->iommu, &vtd.unit[1]);
    assert_int_equal(iommu_irq(vm->pci[0], 0x40, 0, &m), 0);
    assert_int_equal(model_message(&model[1], NIC, m.addr, m.data, &cpu), 0x40);
    assert_int_equal(iommu_irq(vm->pci[0], 0x41, 0, &m), 0);
    assert_int_equal(model_message(&model[1], NIC, m.addr, m.data, &cpu), 0x41);
    for (u32 i = 0; i < MODEL_UNITS; i++) before[i] = model[i].entry_flushes;
    assert_int_equal(iommu_irq(vm->pci[0], 0x41, 1, &m), 0);
    assert_int_equal(model_message(&model[1], NIC, m.addr, m.data, &cpu), 0x41);
    assert_int_equal(cpu, 1);
    assert_true(model[1].entry[0x40].valid);
    iommu_irq_free(0x41);
    iommu_irq_free(0x40);
    assert_int_equal(model_message(&model[1], NIC, m.addr, m.data, &cpu), -1);
    fake_destroy(vm);
    assert_int_equal(model[0].entry_flushes, before[0]);
    assert_true(model[1].entry_flushes >= before[1] + 3);
    fake_advance(2 * FAULT_PAUSE);
}

static void test_pins(void **state) {
    u32 cpu = 99;

    boot();
    assert_ptr_equal(irq_remap_pin, vtd_remap_pin);
    assert_int_equal(irq_remap_pin(0, 0x33, true), 0);
    assert_int_equal(model_message(model, 0xff00, 0xfee00000 | 0x33 << 5 | 16, 0x8033, &cpu), 0x33);
    assert_int_equal(model->entry[0x33].e[0] >> 4 & 1, 1);
    assert_int_equal(irq_remap_pin(7, 0x34, true), -ENODEV);
    iommu_irq_free(0x33);
    assert_int_equal(model_message(model, 0xff00, 0xfee00000 | 0x33 << 5 | 16, 0x8033, &cpu), -1);
    forget_faults();
}

static void test_ids(void **state) {
    struct irq_message m;
    struct vm *vm;
    u32 cpu;

    model->ecap &= ~ECAP_X2APIC;
    boot();
    assert_int_equal(model->table_now & 0xfff, 7);
    vm = driver();
    percpu_of[1]->apic_id = 254;
    assert_int_equal(iommu_irq(vm->pci[0], 0x40, 1, &m), 0);
    assert_int_equal(model_message(model, NIC, m.addr, m.data, &cpu), 0x40);
    assert_int_equal(cpu, 254);
    percpu_of[1]->apic_id = 255;
    assert_int_equal(iommu_irq(vm->pci[0], 0x40, 1, &m), -ENODEV);
    iommu_irq_free(0x40);
    fake_destroy(vm);

    setup(NULL);
    boot();
    vm = driver();
    percpu_of[1]->apic_id = 0x12345;
    assert_int_equal(iommu_irq(vm->pci[0], 0x40, 1, &m), 0);
    assert_int_equal(model_message(model, NIC, m.addr, m.data, &cpu), 0x40);
    assert_int_equal(cpu, 0x12345);
    iommu_irq_free(0x40);
    fake_destroy(vm);
}

/* ---- faults ---- */

static void test_stopped(void **state) {
    struct vm *vm;

    boot();
    vm = driver();
    assert_false(reaches(NIC, 0x30000123));
    assert_int_equal(vm->state, VM_CRASHED);
    assert_string_equal(vm->why, "PCI device 00:03.0 may not write to 30000000 (VT-d fault 5)");
    assert_false(pci_read(NIC, PCI_COMMAND, 2) & PCI_COMMAND_MASTER);
    assert_int_equal(assignment_of(pci_find(NIC))->faults, 1);
    forget_faults();
    fake_destroy(vm);
}

static void test_a_flood(void **state) {
    u32 lines;
    struct vm *vm;

    config.on_dma_fault = ON_DMA_FAULT_LOG;
    boot();
    vm = driver();
    lines = fake_log_lines;
    for (u32 i = 0; i < 3000; i++) {
        assert_int_equal(model_dma(model, NIC, 0x30000000, false), HPA_NONE);
        fake_advance(NS_PER_MS / 10);
        fake_clock(fake_now);
    }
    assert_in_range(fake_log_lines - lines, 1, 2); /* in 0.3 s */
    assert_non_null(strstr(fake_log_last,
                           "driver: PCI device 00:03.0 may not read from 30000000 (VT-d fault 6)"));
    assert_in_range(assignment_of(pci_find(NIC))->faults, 200,
                    700); /* one or two a millisecond are looked at */
    assert_int_equal(vm->state, VM_RUNNING);
    forget_faults();
    fake_destroy(vm);
}

static void test_no_answer(void **state) {
    struct vm *vm;
    u32 command;

    boot();
    vm = driver();
    model->silent = true;
    iommu_map(vm, TAKT_FOREIGN_GPA, 8 << 20, CHUNK_SIZE);
    iommu_map(vm, TAKT_FOREIGN_GPA, HPA_NONE, CHUNK_SIZE);
    assert_false(pci_read(NIC, PCI_COMMAND, 2) & PCI_COMMAND_MASTER); /* at once */
    command = pci_read(NIC, PCI_COMMAND, 2) | PCI_COMMAND_MASTER;
    give_write(vm, 0, PCI_COMMAND, 2, command); /* another vCPU goes on */
    fake_advance(NS_PER_MS);
    assert_int_equal(give_write(vm, 0, PCI_COMMAND, 2, command), -EPERM);
    assert_false(pci_read(NIC, PCI_COMMAND, 2) & PCI_COMMAND_MASTER);
    assert_int_equal(vm->state, VM_CRASHED);
    assert_string_equal(vm->why, "the IOMMU of its devices does not answer any more");
    fake_destroy(vm);
    assert_null(fake_vm(&config));
    assert_string_equal(
        fake_why,
        "PCI device 00:03.0 cannot be given to VMs, as its IOMMU does not answer any more");
    config.unsafe_dma = true;
    assert_null(fake_vm(&config));
    why = "done";
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_blocked_from_the_start),
        TEST(test_refusals),
        TEST(test_left_on),
        TEST(test_a_domain),
        TEST(test_forms),
        TEST(test_three_levels),
        TEST(test_windows),
        TEST(test_windows_before),
        TEST(test_scopes),
        TEST(test_an_odd_entry),
        TEST(test_a_malformed_scope),
        TEST(test_segments),
        TEST(test_regions),
        TEST(test_relaxed_regions),
        TEST(test_region_at_0),
        TEST(test_interrupts),
        TEST(test_interrupts_of_two_units),
        TEST(test_pins),
        TEST(test_ids),
        TEST(test_stopped),
        TEST(test_a_flood),
        TEST(test_no_answer),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
