/* The parser of ACPI tables, with a physical memory that the test makes up: good tables, and
 * tables that lie about lengths, counts and addresses. Firmware has such errors, and the parser
 * runs before anything could report a crash. Tables about power are in test_fadt.c. */
#include "acpi_rig.h"

static u32 madt_at;

static void madt_entry(u8 type, u8 len) {
    mem[madt_at] = type;
    mem[madt_at + 1] = len;
    madt_at += len;
}

static void madt_cpu(u8 apic_id, u32 flags) {
    mem[madt_at + 2] = mem[madt_at + 3] = apic_id;
    put(madt_at + 4, flags, 4);
    madt_entry(0, 8);
}

static void madt_x2apic(u32 id, u32 flags) {
    put(madt_at + 4, id, 4);
    put(madt_at + 8, flags, 4);
    put(madt_at + 12, id, 4);
    madt_entry(9, 16);
}

static void madt_begin(void) {
    static const u32 at[] = { 0x2000 };

    rsdp(2);
    root(true, 1, at);
    madt_at = 0x2000 + 44;
}

static void madt_end(void) { table(0x2000, "APIC", madt_at - 0x2000); }

static u32 srat_at;

static void srat_begin(void) {
    static const u32 at[] = { 0x3000 };

    rsdp(2);
    root(true, 1, at);
    srat_at = 0x3000 + 48;
}

static void srat_entry(u8 type, u8 len) {
    mem[srat_at] = type;
    mem[srat_at + 1] = len;
    srat_at += len;
}

static void srat_cpu(u8 apic_id, u32 domain, u32 flags) {
    mem[srat_at + 2] = (u8)domain;
    mem[srat_at + 3] = apic_id;
    put(srat_at + 4, flags, 4);
    put(srat_at + 9, domain >> 8, 3);
    srat_entry(0, 16);
}

static void srat_x2apic(u32 apic_id, u32 domain) {
    put(srat_at + 4, domain, 4);
    put(srat_at + 8, apic_id, 4);
    put(srat_at + 12, 1, 4);
    srat_entry(2, 24);
}

static void srat_memory(u64 start, u64 len, u32 domain, u32 flags) {
    put(srat_at + 2, domain, 4);
    put(srat_at + 8, start, 8);
    put(srat_at + 16, len, 8);
    put(srat_at + 28, flags, 4);
    srat_entry(1, 40);
}

static void srat_end(void) { table(0x3000, "SRAT", srat_at - 0x3000); }

static void test_srat(void **state) {
    srat_begin();
    srat_cpu(0, 0x0a, 1);
    srat_cpu(2, 0x0a000b, 1); /* a domain of more than 8 bits */
    srat_x2apic(0x105, 0x0a);
    srat_cpu(4, 7, 0); /* not enabled: its domain is none */
    srat_memory(0, BIT(30), 0x0a, 1);
    srat_memory(BIT(30), BIT(31), 0x0a000b, 3); /* hot-pluggable as well */
    srat_memory(BIT(40), BIT(30), 9, 0);        /* not there */
    srat_end();
    assert_int_equal(parse(), 0);
    assert_int_equal(info.nr_nodes, 2);
    assert_int_equal(acpi_node_of_cpu(&info, 0), 0);
    assert_int_equal(acpi_node_of_cpu(&info, 2), 1);
    assert_int_equal(acpi_node_of_cpu(&info, 0x105), 0);
    assert_int_equal(acpi_node_of_cpu(&info, 99), 0); /* nothing is said */
    assert_int_equal(info.nr_mem_nodes, 2);
    assert_int_equal(info.mem_node[1].start, BIT(30));
    assert_int_equal(info.mem_node[1].end, BIT(30) + BIT(31));
    assert_int_equal(info.mem_node[1].node, 1);
    assert_int_equal(info.bad_tables, 0);
}

static u32 slit_at;

/* The machine has a SLIT for the domains 0 to nr - 1, which comes before its SRAT. */
static void slit_begin(u64 nr) {
    static const u32 at[] = { 0x4000, 0x3000 };

    rsdp(2);
    root(true, 2, at);
    srat_at = 0x3000 + 48;
    slit_at = 0x4000 + 36;
    put(slit_at, nr, 8);
    slit_at += 8;
}

static void slit_row(const u8 *distance, u32 nr) {
    for (u32 i = 0; i < nr; i++) mem[slit_at++] = distance[i];
}

static void slit_end(void) {
    table(0x4000, "SLIT", slit_at - 0x4000);
    srat_end();
}

/* Domain 2 is node 0, and domain 0 is node 1. */
static void slit_nodes(void) {
    srat_memory(0, BIT(30), 2, 1);
    srat_memory(BIT(30), BIT(30), 0, 1);
    srat_memory(BIT(31), BIT(30), 77, 1); /* the SLIT does not name it */
}

static void test_slit(void **state) {
    slit_begin(3);
    slit_row((const u8[]){ 10, 31, 21 }, 3);
    slit_row((const u8[]){ 31, 10, 31 }, 3);
    slit_row((const u8[]){ 22, 31, 10 }, 3);
    slit_nodes();
    slit_end();
    assert_int_equal(parse(), 0);
    assert_int_equal(info.bad_tables, 0);
    assert_int_equal(acpi_distance(&info, 0, 0), 10);
    assert_int_equal(acpi_distance(&info, 0, 1), 22);
    assert_int_equal(acpi_distance(&info, 1, 0), 21);
    assert_int_equal(acpi_distance(&info, 0, 2), 20);
    assert_int_equal(acpi_distance(&info, 2, 2), 10);
    assert_int_equal(acpi_distance(&info, 1, 99), 20);
}

/* A table that cannot be true is left out. */
static void test_slit_lies(void **state) {
    static const u8 lies[][4] = { { 10, 9, 20, 10 }, { 10, 20, 10, 10 }, { 10, 20, 20, 11 } };

    for (u32 i = 0; i <= ARRAY_SIZE(lies); i++) {
        bool too_short = i == ARRAY_SIZE(lies);

        slit_begin(too_short ? BIT(33) : 2);
        slit_row(lies[i % ARRAY_SIZE(lies)], 4);
        slit_nodes();
        slit_end();
        assert_int_equal(parse(), 0);
        assert_int_equal(info.bad_tables, 1);
        assert_int_equal(acpi_distance(&info, 0, 1), 20);
    }
}

static void test_srat_lies(void **state) {
    srat_begin();
    for (u32 i = 0; i < ACPI_MAX_NODES + 3; i++) srat_memory(i * BIT(30), BIT(30), 100 + i, 1);
    srat_memory(~0ull - 4096, BIT(30), 100, 1); /* wraps */
    srat_memory(BIT(40), 0, 100, 1);
    srat_cpu(1, 101, 1);
    srat_entry(1, 8); /* too short to be memory */
    srat_entry(0, 1); /* no length: the rest cannot be found */
    srat_at += 8;
    srat_end();
    assert_int_equal(parse(), 0);
    assert_int_equal(info.nr_nodes, ACPI_MAX_NODES);
    assert_int_equal(info.nr_mem_nodes, ACPI_MAX_NODES);
    assert_int_equal(info.nr_cpu_nodes, 1);
    assert_int_equal(info.bad_tables, 1);
}

static void test_madt(void **state) {
    madt_begin();
    madt_cpu(0, 1);
    madt_cpu(1, 0); /* not enabled */
    madt_cpu(2, 1);
    madt_cpu(2, 1); /* twice */
    madt_cpu(255, 1);
    madt_x2apic(0x12345, 1);
    madt_x2apic(~0u, 1); /* would be all CPUs */
    put(madt_at + 4, 0xfec00000, 4);
    put(madt_at + 8, 24, 4);
    madt_entry(1, 12);
    mem[madt_at + 3] = 0;
    put(madt_at + 4, 2, 4);
    put(madt_at + 8, 13, 2);
    madt_entry(2, 10);
    mem[madt_at + 2] = 255;
    mem[madt_at + 5] = 0;
    madt_entry(4, 6);
    madt_entry(0x7f, 2); /* unknown */
    madt_end();
    assert_int_equal(parse(), 0);
    assert_int_equal(info.nr_cpus, 3);
    assert_int_equal(info.apic_id[1], 2);
    assert_int_equal(info.apic_id[2], 0x12345);
    assert_int_equal(info.nr_ioapics, 1);
    assert_int_equal(info.ioapic[0].gsi_base, 24);
    assert_int_equal(info.nr_overrides, 1);
    assert_int_equal(info.override[0].gsi, 2);
    assert_int_equal(info.override[0].flags, 13);
    assert_int_equal(info.nmi_lint, 0);
    assert_int_equal(info.bad_tables, 0);
}

static void test_madt_lies(void **state) {
    static const u8 lengths[] = { 0, 1, 200 };

    for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
        setup(NULL);
        madt_begin();
        madt_cpu(0, 1);
        mem[madt_at + 1] = lengths[i];
        madt_at += 8;
        madt_end();
        assert_int_equal(parse(), 0);
        assert_int_equal(info.nr_cpus, 1);
        assert_int_equal(info.bad_tables, 1);
    }
    setup(NULL);
    madt_begin();
    madt_entry(0, 4); /* too short to be what it says */
    madt_cpu(7, 1);
    madt_end();
    assert_int_equal(parse(), 0);
    assert_int_equal(info.nr_cpus, 1);
    assert_int_equal(info.apic_id[0], 7);
}

static void test_many_cpus(void **state) {
    madt_begin();
    for (u32 i = 0; i < ACPI_MAX_CPUS + 36; i++) madt_x2apic(i, 1);
    madt_end();
    assert_int_equal(parse(), 0);
    assert_int_equal(info.nr_cpus, ACPI_MAX_CPUS);
    assert_int_equal(info.cpus_left_out, 36);
}

/* Each CPU must have its place in the list once, and the boot CPU must be the first. */
static void check_boot_cpu(u32 id, u32 nr, u32 left_out) {
    acpi_boot_cpu(&info, id);
    assert_int_equal(info.nr_cpus, nr);
    assert_int_equal(info.cpus_left_out, left_out);
    assert_int_equal(info.apic_id[0], id);
    for (u32 i = 0; i < nr; i++)
        for (u32 j = 0; j < i; j++) assert_int_not_equal(info.apic_id[i], info.apic_id[j]);
}

static void test_boot_cpu(void **state) {
    madt_begin();
    for (u32 i = 0; i < 4; i++) madt_x2apic(2 * i, 1);
    madt_end();
    assert_int_equal(parse(), 0);
    check_boot_cpu(0, 4, 0);
    check_boot_cpu(4, 4, 0);
    check_boot_cpu(7, 5, 0); /* the table forgot it */
    setup(NULL);
    assert_int_equal(parse(), -ENOENT);
    check_boot_cpu(3, 1, 0);
}

/* More CPUs than the list holds, and the boot CPU is not among the first: one more than fit
 * would be started. */
static void test_boot_cpu_of_many(void **state) {
    madt_begin();
    for (u32 i = 0; i < ACPI_MAX_CPUS + 36; i++) madt_x2apic(i, 1);
    madt_end();
    assert_int_equal(parse(), 0);
    check_boot_cpu(ACPI_MAX_CPUS + 16, ACPI_MAX_CPUS, 36);
    assert_int_equal(parse(), 0);
    check_boot_cpu(ACPI_MAX_CPUS - 1, ACPI_MAX_CPUS, 36);
    setup(NULL);
    madt_begin();
    for (u32 i = 0; i < ACPI_MAX_CPUS; i++) madt_x2apic(i, 1);
    madt_end();
    assert_int_equal(parse(), 0);
    check_boot_cpu(5000, ACPI_MAX_CPUS, 1); /* forgotten, and no room */
}

static void test_checksums(void **state) {
    madt_begin();
    madt_cpu(0, 1);
    madt_end();
    mem[0x2000 + 40] ^= 1;
    assert_int_equal(parse(), 0);
    assert_int_equal(info.nr_cpus, 0);
    assert_int_equal(info.bad_tables, 1);

    madt_end();
    mem[RSDP + 9] ^= 1;
    assert_true(parse() < 0);
}

static void test_root_falls_back(void **state) {
    static const u32 at[] = { 0x2000 };

    madt_begin();
    madt_cpu(3, 1);
    madt_end();
    table(ROOT, "XSDT", 36);
    put(ROOT + 4, 0, 4); /* length 0 */
    put(RSDP + 16, 0x3000, 4);
    seal(RSDP, 20, 8);
    seal(RSDP, 36, 32);
    put(0x3000 + 36, at[0], 4);
    table(0x3000, "RSDT", 40);
    assert_int_equal(parse(), 0);
    assert_int_equal(info.nr_cpus, 1);
    assert_int_equal(info.bad_tables, 1);
}

/* Notebooks with two MADTs are known, for systems of which some do not know how to read the one.
 * Both have all CPUs and IOAPICs, numbered differently: the first one counts, as in Linux. */
static void test_two_madts(void **state) {
    static const u32 at[] = { 0x2000, 0x4000, 0x2000 };

    madt_begin();
    madt_cpu(0, 1);
    madt_end();
    madt_at = 0x4000 + 44;
    madt_cpu(4, 1);
    madt_cpu(5, 1);
    table(0x4000, "APIC", madt_at - 0x4000);
    root(true, 3, at);
    assert_int_equal(parse(), 0);
    assert_int_equal(info.nr_cpus, 1);
    assert_int_equal(info.apic_id[0], 0);
    assert_int_equal(info.repeated_tables, 2);
    assert_int_equal(info.bad_tables, 0);
}

/* The second checksum of the RSDP covers the XSDT's address. */
static void test_second_checksum(void **state) {
    static const u32 at[] = { 0x2000 };

    madt_begin();
    madt_cpu(3, 1);
    madt_end();
    mem[RSDP + 25] ^= 1;
    assert_int_equal(parse(), -ENOENT); /* at ROOT there is no RSDT */
    memset(mem + ROOT, 0, 64);
    root(false, 1, at);
    assert_int_equal(parse(), 0);
    assert_int_equal(info.nr_cpus, 1);
}

static void test_length_beyond_memory(void **state) {
    madt_begin();
    put(0x2000 + 4, 0xfffff000, 4);
    memcpy(mem + 0x2000, "APIC", 4);
    assert_int_equal(parse(), 0);
    assert_int_equal(info.bad_tables, 1);
}

static void test_others(void **state) {
    static const u32 at[] = { 0x2000, 0x4000, 0x5000, 0x6000 };

    rsdp(0);
    root(false, 4, at);
    put(0x6000 + 44, 0xa0000000, 8);
    put(0x6000 + 52, 1, 2); /* another segment */
    put(0x6000 + 60, 0xb0000000, 8);
    mem[0x6000 + 71] = 0x7f;
    put(0x6000 + 76, 0xc0000000, 8);
    table(0x6000, "MCFG", 92);
    table(0x2000, "FACP", 36);
    put(0x4000 + 44, 0xfed00000, 8);
    table(0x4000, "HPET", 56);
    table(0x5000, "DMAR", 48);
    assert_int_equal(parse(), 0);
    assert_int_equal(info.hpet_addr, 0xfed00000);
    assert_non_null(info.dmar);
    assert_int_equal(info.nr_ecams, 3); /* whatever they are: space.c looks at them */
    assert_int_equal(info.ecam[0].base, 0xa0000000);
    assert_int_equal(info.ecam[0].segment, 1);
    assert_int_equal(info.ecam[1].base, 0xb0000000);
    assert_int_equal(info.ecam[1].segment, 0);
    assert_int_equal(info.ecam[1].first, 0);
    assert_int_equal(info.ecam[1].last, 0x7f);
    table(0x6000, "MCFG", 75); /* cut within the second entry */
    table(0x4000, "HPET", 55);
    table(0x5000, "DMAR", 47);
    assert_int_equal(parse(), 0);
    assert_int_equal(info.hpet_addr, 0);
    assert_null(info.dmar);
    assert_int_equal(info.nr_ecams, 1);
    table(0x6000, "MCFG", 59);
    assert_int_equal(parse(), 0);
    assert_int_equal(info.nr_ecams, 0);
}

/* Tests Microsoft's table SPCR, which names the firmware's serial port. */
static void test_spcr(void **state) {
    static const u32 at[] = { 0x2000 };
    static const struct {
        u8 kind, space, width, access, code;
        bool there;
        u32 stride, baud;
    } cases[] = {
        { 0, 1, 8, 1, 7, true, 1, 115200 }, { 1, 1, 8, 0, 3, true, 1, 9600 },
        { 0x12, 0, 32, 3, 0, true, 4, 0 },  { 0x12, 0, 8, 1, 200, true, 1, 0 },
        { 3, 0, 32, 3, 7, false, 0, 0 }, /* ARM's PL011 */
        { 0, 2, 8, 1, 7, false, 0, 0 },  /* in PCI's configuration space */
        { 0, 0, 32, 0, 6, true, 4, 57600 },
    };

    for (u32 i = 0; i < ARRAY_SIZE(cases); i++) {
        setup(NULL);
        rsdp(2);
        root(true, 1, at);
        mem[0x2000 + 8] = 2; /* revision */
        mem[0x2000 + 36] = cases[i].kind;
        mem[0x2000 + 40] = cases[i].space;
        mem[0x2000 + 41] = cases[i].width;
        mem[0x2000 + 43] = cases[i].access;
        put(0x2000 + 44, cases[i].space == 1 ? 0x2f8 : 0xfe036000, 8);
        mem[0x2000 + 52] = 3;
        mem[0x2000 + 53] = 3;
        put(0x2000 + 54, 19, 4);
        mem[0x2000 + 58] = cases[i].code;
        table(0x2000, "SPCR", 80);
        assert_int_equal(parse(), 0);
        assert_int_equal(info.serial.there, cases[i].there);
        if (!cases[i].there) continue;
        assert_int_equal(info.serial.in_memory, cases[i].space == 0);
        assert_int_equal(info.serial.addr, cases[i].space == 1 ? 0x2f8 : 0xfe036000);
        assert_int_equal(info.serial.stride, cases[i].stride);
        assert_int_equal(info.serial.baud, cases[i].baud);
        assert_true(info.serial.has_irq && info.serial.has_gsi);
        assert_int_equal(info.serial.irq, 3);
        assert_int_equal(info.serial.gsi, 19);
    }
    put(0x2000 + 44, 0, 8); /* switched off */
    table(0x2000, "SPCR", 80);
    assert_int_equal(parse(), 0);
    assert_false(info.serial.there);
    put(0x2000 + 44, 0x2f8, 8);
    table(0x2000, "SPCR", 63); /* cut */
    assert_int_equal(parse(), 0);
    assert_false(info.serial.there);
}

/* An RSDP that the loader gives is taken before one in memory; a bad one is not. */
static void test_rsdp_given(void **state) {
    u8 copy[36];

    madt_begin();
    madt_cpu(0, 1);
    madt_end();
    memcpy(copy, mem + RSDP, 36);
    memset(mem + RSDP, 0, 36);
    assert_int_equal(acpi_parse(&info, copy, 36), 0);
    assert_int_equal(info.nr_cpus, 1);
    copy[8] ^= 1;
    assert_true(acpi_parse(&info, copy, 36) < 0);
    copy[8] ^= 1;
    assert_true(acpi_parse(&info, copy, 19) < 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_madt, setup),
        cmocka_unit_test_setup(test_madt_lies, setup),
        cmocka_unit_test_setup(test_srat, setup),
        cmocka_unit_test_setup(test_slit, setup),
        cmocka_unit_test_setup(test_slit_lies, setup),
        cmocka_unit_test_setup(test_srat_lies, setup),
        cmocka_unit_test_setup(test_many_cpus, setup),
        cmocka_unit_test_setup(test_boot_cpu, setup),
        cmocka_unit_test_setup(test_boot_cpu_of_many, setup),
        cmocka_unit_test_setup(test_checksums, setup),
        cmocka_unit_test_setup(test_root_falls_back, setup),
        cmocka_unit_test_setup(test_two_madts, setup),
        cmocka_unit_test_setup(test_second_checksum, setup),
        cmocka_unit_test_setup(test_length_beyond_memory, setup),
        cmocka_unit_test_setup(test_others, setup),
        cmocka_unit_test_setup(test_spcr, setup),
        cmocka_unit_test_setup(test_rsdp_given, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
