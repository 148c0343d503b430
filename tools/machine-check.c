/* Runs Takt's own probes over the description of a real machine, a file of tests/machines/, and
 * prints what they find, one `key: value` a line. tools/machines.py compares that with what the
 * description expects.
 *
 *   build/machine-check FILE
 *
 * A description holds what somebody's tool read from that machine: CPUID, MSRs, ACPI tables, PCI
 * functions. None has everything. Where a probe asks for an MSR that the description lacks, the
 * answer is "not known", but for the few in `assumed`, which are not the CPU's own: they get the
 * value with which Takt runs, and the output says that they were not checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/fake_insn.h"
#include "tests/unit/fake_machine.h"
#include "tests/unit/fake_pci.h"
#include "platform/apic.h"
#include "platform/firmware.h"
#include "preflight.h"
#include "virt/virt.h"
#include "x86/place.h"

#define MAX_LEAVES 1024u
#define MAX_MSRS   128u
#define MAX_CPUS   1024u
#define MAX_TABLES 64u
#define MAX_LINE   (1u << 20)
#define MSR_FAULTS 1u /* the machine does not have this MSR: reading it is a #GP */
/* VT-x tells what it can do in these: SDM 3D A.1 to A.11. */
#define MSR_VMX_FIRST 0x480u
#define MSR_VMX_LAST  0x491u

/* Where the tables lie in the 1 MiB of fake_low_memory. An RSDP may be at 0xe0000: ACPI 6.5,
 * 5.2.5.1. */
#define RSDP_AT    0xe0000u
#define RSDP_LEN   36u
#define XSDT_AT    0x1000u
#define TABLES_AT  0x2000u
#define TABLE_HEAD 36u
#define SUM_AT     9u

static struct {
    u32 leaf, sub;
    struct cpuid value;
} leaves[MAX_LEAVES];

static struct {
    u32 msr;
    bool faults;
    u64 value;
} msrs[MAX_MSRS];

/* What the source of a description cannot know, as it is no property of the CPU. */
static const struct {
    u32 msr;
    u64 value;
    const char *what;
} assumed[] = {
    { MSR_FEATURE_CONTROL, BIT(0) | BIT(2), "whether the firmware allows VT-x" }, /* locked, on */
    { MSR_VM_CR, 0, "whether the firmware allows SVM" },
    { 0x08b, ~0ull, "errata that an update of the microcode mends" },
    { 0x10a, 0, "IA32_ARCH_CAPABILITIES" },
};

static u32 nr_leaves, nr_msrs, nr_apic_ids, nr_tables, apic_ids[MAX_CPUS];
static u64 table_at[MAX_TABLES];
static u32 memory_used = TABLES_AT;
static bool has_cpuid, has_msrs, has_pci;
static const char *file;
static u32 line_number;
static jmp_buf not_known;
static char why_not_known[192];

static void __attribute__((noreturn, format(printf, 1, 2))) bad(const char *fmt, ...) {
    va_list ap;

    fprintf(stderr, "%s:%u: ", file, line_number);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(2);
}

/* ---- the CPU ---- */

/* A leaf that is not in the description reads as zero: extract.py leaves out what is zero.
 * Beyond the highest basic leaf Intel's CPUs repeat that one (SDM 2A, CPUID), so nobody may rely
 * on zeros there. */
static struct cpuid machine_cpuid(u32 leaf, u32 sub) {
    static const u32 with_subleaves[] = { 4, 7, 0xb, 0xd, 0x1f, 0x8000001d };
    bool subleaves = false;

    for (u32 i = 0; i < ARRAY_SIZE(with_subleaves); i++) subleaves |= leaf == with_subleaves[i];
    for (u32 i = 0; i < nr_leaves; i++)
        if (leaves[i].leaf == leaf && (!subleaves || leaves[i].sub == sub)) return leaves[i].value;
    return (struct cpuid){ 0 };
}

static void note_assumption(u32 i) {
    static bool said[ARRAY_SIZE(assumed)];

    if (!said[i]) printf("unchecked: %s\n", assumed[i].what);
    said[i] = true;
}

static u64 machine_rdmsr(u32 msr) {
    for (u32 i = 0; i < nr_msrs; i++) {
        if (msrs[i].msr != msr) continue;
        if (!msrs[i].faults) return msrs[i].value;
        snprintf(why_not_known, sizeof(why_not_known),
                 "Takt reads MSR %x, which this machine does not have: #GP.", msr);
        longjmp(not_known, MSR_FAULTS + 1);
    }
    for (u32 i = 0; i < ARRAY_SIZE(assumed); i++) {
        if (assumed[i].msr != msr) continue;
        note_assumption(i);
        return assumed[i].value;
    }
    snprintf(
        why_not_known, sizeof(why_not_known),
        "MSR %x is missing here%s. On the machine, tools/takt-check or `probe` says yes or no.",
        msr,
        msr >= MSR_VMX_FIRST && msr <= MSR_VMX_LAST ? ": VT-x tells there what it can do" : "");
    longjmp(not_known, 1);
}

/* Takt may unlock SVM, and asks for the microcode's revision by writing 0 first. */
static void machine_wrmsr(u32 msr, u64 value) {}

/* ---- reading the description ---- */

static u64 number(char **at) {
    char *start = *at;
    u64 n = strtoull(start, at, 16);

    if (*at == start) bad("a hexadecimal number was expected at \"%.20s\"", start);
    return n;
}

static void expect(char **at, char c) {
    while (**at == ' ') ++*at;
    if (**at != c) bad("'%c' was expected at \"%.20s\"", c, *at);
    ++*at;
}

/* LEAF SUB: EAX EBX ECX EDX */
static void read_cpuid(char *at) {
    if (nr_leaves == MAX_LEAVES) bad("more than %u leaves of CPUID", MAX_LEAVES);
    leaves[nr_leaves].leaf = (u32)number(&at);
    leaves[nr_leaves].sub = (u32)number(&at);
    expect(&at, ':');
    leaves[nr_leaves].value.eax = (u32)number(&at);
    leaves[nr_leaves].value.ebx = (u32)number(&at);
    leaves[nr_leaves].value.ecx = (u32)number(&at);
    leaves[nr_leaves].value.edx = (u32)number(&at);
    nr_leaves++;
    has_cpuid = true;
}

/* MSR: VALUE, or MSR: faults */
static void read_msr(char *at) {
    if (nr_msrs == MAX_MSRS) bad("more than %u MSRs", MAX_MSRS);
    msrs[nr_msrs].msr = (u32)number(&at);
    expect(&at, ':');
    while (*at == ' ') at++;
    msrs[nr_msrs].faults = !strcmp(at, "faults");
    if (!msrs[nr_msrs].faults) msrs[nr_msrs].value = number(&at);
    nr_msrs++;
    has_msrs = true;
}

static void read_apic_ids(char *at) {
    while (*at == ' ') at++;
    while (*at) {
        if (nr_apic_ids == MAX_CPUS) bad("more than %u CPUs", MAX_CPUS);
        apic_ids[nr_apic_ids++] = (u32)number(&at);
        while (*at == ' ') at++;
    }
}

static void seal(u8 *t, u32 len, u32 sum_at) {
    u8 sum = 0;

    t[sum_at] = 0;
    for (u32 i = 0; i < len; i++) sum = (u8)(sum + t[i]);
    t[sum_at] = (u8)-sum;
}

/* Puts bytes, two digits each, behind the last table; blanks may stand between them. */
static void add_bytes(const char *at) {
    u8 *t = fake_low_memory + table_at[nr_tables - 1];
    u32 len = memory_used - (u32)table_at[nr_tables - 1];

    for (; *at; at++) {
        unsigned v;

        if (*at == ' ') continue;
        if (sscanf(at, "%2x", &v) != 1 || !at[1])
            bad("two hexadecimal digits were expected at \"%.8s\"", at);
        if (memory_used == RSDP_AT) bad("no room for so many tables");
        t[len++] = (u8)v;
        memory_used++;
        at++;
    }
    memcpy(t + 4, &len, 4);
    seal(t, len, SUM_AT);
}

/* SIGNATURE: the bytes behind the header */
static void read_table(char *at) {
    u8 *t;

    memory_used = ALIGN_UP(memory_used, 16);
    if (nr_tables == MAX_TABLES || memory_used + TABLE_HEAD > RSDP_AT)
        bad("no room for so many tables");
    table_at[nr_tables++] = memory_used;
    t = fake_low_memory + memory_used;
    memset(t, 0, TABLE_HEAD);
    memcpy(t, at, strnlen(at, 4));
    memory_used += TABLE_HEAD;
    at += strnlen(at, 4);
    expect(&at, ':');
    add_bytes(at);
}

/* The last table goes on: a description that came over a serial line has it in pieces. */
static void read_more(char *at) {
    if (!nr_tables) bad("`more:` goes on with a table, and there is none before it");
    add_bytes(at);
}

/* BUS:DEVICE.FUNCTION OFFSET=DWORD ... bar N=ADDR,SIZE,LOW ... */
static void read_pci(char *at) {
    struct fake_pci *f;
    u32 bus = (u32)number(&at), device, function;

    expect(&at, ':');
    device = (u32)number(&at);
    expect(&at, '.');
    function = (u32)number(&at);
    if (fake_nr_devices == FAKE_DEVICES) bad("more than %u PCI functions", FAKE_DEVICES);
    f = fake_pci_add(PCI_BDF(bus, device, function), 0, 0);
    /* an endpoint's defaults, which this function need not have */
    memset(f->space, 0, sizeof(f->space));
    while (*at == ' ') at++;
    while (*at) {
        bool bar = !strncmp(at, "bar", 3);
        u32 where;

        if (bar) at += 3;
        where = (u32)number(&at);
        expect(&at, '=');
        if (bar) {
            u64 addr = number(&at), size;
            u32 low;

            expect(&at, ',');
            size = number(&at);
            expect(&at, ',');
            low = (u32)number(&at);
            if (where > 5) bad("BAR %u: there are six", where);
            fake_pci_bar(f, where, addr, size, low);
        } else {
            if (where > 0xffc || where % 4) bad("configuration space has no dword at %x", where);
            fake_set(f, where, 4, (u32)number(&at));
        }
        while (*at == ' ') at++;
    }
    f->writable[PCI_COMMAND] = 7;
    f->writable[PCI_COMMAND + 1] = 4;
    has_pci = true;
}

static void read_line(char *line) {
    static const struct {
        const char *word;
        void (*read)(char *at);
    } kinds[] = { { "cpuid ", read_cpuid }, { "msr ", read_msr },   { "apic-ids:", read_apic_ids },
                  { "table ", read_table }, { "more:", read_more }, { "pci ", read_pci } };

    line[strcspn(line, "\r\n")] = 0;
    for (u32 i = 0; i < ARRAY_SIZE(kinds); i++)
        if (!strncmp(line, kinds[i].word, strlen(kinds[i].word)))
            return kinds[i].read(line + strlen(kinds[i].word));
    /* the rest is for tools/machines.py */
}

static void read_description(void) {
    static char line[MAX_LINE];
    FILE *f = fopen(file, "r");

    if (!f) {
        perror(file);
        exit(2);
    }
    while (fgets(line, sizeof(line), f)) {
        line_number++;
        read_line(line);
    }
    fclose(f);
}

/* ---- what Takt makes of it ---- */

static void check_tables(void) {
    static struct acpi_info info;
    static struct dmar_info dmar;
    u8 *xsdt = fake_low_memory + XSDT_AT, *rsdp = fake_low_memory + RSDP_AT;
    u32 len = TABLE_HEAD + 8 * nr_tables, rsdp_len = RSDP_LEN;
    u64 xsdt_at = XSDT_AT;
    u32 odd = 0;

    memcpy(xsdt, "XSDT", 4);
    memcpy(xsdt + 4, &len, 4);
    memcpy(xsdt + TABLE_HEAD, table_at, 8 * nr_tables);
    seal(xsdt, len, SUM_AT);
    memcpy(rsdp, "RSD PTR ", 8);
    rsdp[15] = 2;
    memcpy(rsdp + 20, &rsdp_len, 4);
    memcpy(rsdp + 24, &xsdt_at, 8);
    seal(rsdp, 20, 8);
    seal(rsdp, RSDP_LEN, 32);

    if (acpi_parse(&info, rsdp, RSDP_LEN) < 0) {
        printf("acpi: no usable root table\n");
        return;
    }
    printf("cpus: %u\n", info.nr_cpus + info.cpus_left_out);
    printf("ioapics: %u\n", info.nr_ioapics);
    printf("overrides: %u\n", info.nr_overrides);
    printf("malformed tables: %u\n", info.bad_tables);
    if (info.repeated_tables) printf("repeated tables: %u\n", info.repeated_tables);
    printf("hpet: %lx\n", info.hpet_addr);
    printf("ecam: %lx\n", info.nr_ecams ? info.ecam[0].base : 0);
    printf("ecam windows: %u\n", info.nr_ecams);
    if (info.serial.there)
        printf("serial port: %s %lx\n", info.serial.in_memory ? "memory" : "I/O", info.serial.addr);
    if (!info.dmar) return;
    dmar_parse(&dmar, info.dmar, info.dmar_len);
    for (u32 i = 0; i < dmar.nr_units; i++) odd += dmar.unit[i].odd != NULL;
    if (dmar.unsure)
        printf("iommu table: malformed\n");
    else if (odd || dmar.lost_regions)
        printf("iommu table: odd\n");
    else
        printf("iommu table: good\n");
    printf("iommu units: %u\n", dmar.nr_units);
    printf("iommu regions: %u\n", dmar.nr_regions);
    printf("iommu scopes: %u\n", dmar.nr_scopes);
}

static void check_pci(void) {
    u32 bridges = 0, express = 0, msix = 0, alone = 0;

    pci_enumerate();
    for (u32 i = 0; i < pci_count(); i++) {
        const struct pci_device *d = pci_at(i);

        bridges += d->header == 1;
        express += d->express != 0;
        msix += d->msix != 0;
        alone += d->group == d->bdf;
    }
    printf("pci functions: %u\n", pci_count());
    printf("pci bridges: %u\n", bridges);
    printf("pci express: %u\n", express);
    printf("pci with msi-x: %u\n", msix);
    printf("pci groups: %u\n", alone);
}

/* How many different values the first `n` of `v` have. */
static u32 different(const u64 *v, u32 n) {
    u32 count = 0;

    for (u32 i = 0; i < n; i++) {
        u32 before = 0;

        while (v[before] != v[i]) before++;
        count += before == i;
    }
    return count;
}

/* The places of all CPUs, by their APIC ids and the first CPU's CPUID. */
static void check_places(void) {
    static u64 socket[MAX_CPUS], core[MAX_CPUS], thread[MAX_CPUS];
    struct place_bits bits = place_bits_read();

    for (u32 i = 0; i < nr_apic_ids; i++) {
        struct place p = place_of(&bits, apic_ids[i]);

        socket[i] = p.socket;
        core[i] = (u64)p.socket << 32 | p.core;
        thread[i] = core[i] << 8 | p.thread;
    }
    printf("sockets: %u\n", different(socket, nr_apic_ids));
    printf("cores: %u\n", different(core, nr_apic_ids));
    printf("threads: %u\n", different(thread, nr_apic_ids));
}

static void check_cpu(void) {
    const char *why;

    fake_cpuid = machine_cpuid;
    fake_rdmsr = machine_rdmsr;
    fake_wrmsr = machine_wrmsr;
    switch (setjmp(not_known)) {
    case 0:
        if (apic_probe() < 0) {
            printf("verdict: no\nsays: it has no local APIC\n");
            return;
        }
        why = preflight("the description of this machine does not tell");
        if (why)
            printf("verdict: no\nsays: %s\n", why);
        else
            printf("verdict: yes\nsays: Guests can run.\n");
        break;
    case MSR_FAULTS + 1: printf("verdict: fault\nsays: %s\n", why_not_known); break;
    default: printf("verdict: not known\nsays: %s\n", why_not_known); break;
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: machine-check FILE\n");
        return 2;
    }
    file = argv[1];
    fake_machine("credit");
    fake_low_memory = calloc(1, 1 << 20);
    fake_pci_reset();
    read_description();
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (has_cpuid) check_cpu();
    if (has_cpuid && nr_apic_ids) check_places();
    if (nr_tables) check_tables();
    if (has_pci) check_pci();
    return 0;
}
