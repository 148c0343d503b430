/* Writes a description of this machine to the console, when the command line has `probe`: CPUID,
 * the MSRs that Takt asks, the firmware's tables and the PCI devices. People who have an unusual
 * machine can send it in. `make machines` then checks what Takt would do there
 * (tests/machines/README.md). Each function say_...() writes lines of that format. */
#include "probe.h"

#include "lib/printf.h"
#include "common/string.h"
#include "pci/pci.h"
#include "platform/console.h"
#include "platform/power.h"
#include "x86/errata.h"
#include "common/insn.h"

#define LEAF_STATE      0xdu /* what XSAVE switches */
#define EXTENDED_LEAVES 0x80000000u
#define MAX_LEAF        0x40u /* a CPU that names more basic or extended leaves is not believed */
#define MAX_SUBLEAVES   64u
#define BRAND_LEAVES    0x80000002u /* three of them: SDM 2A, CPUID */

#define CPUID_VMX       BIT(5)  /* leaf 1, ECX */
#define CPUID_SVM       BIT(2)  /* leaf 80000001h, ECX */
#define CPUID_ARCH      BIT(29) /* leaf 7, EDX: IA32_ARCH_CAPABILITIES is there */
#define MSR_MICROCODE   0x08bu
#define MSR_ARCH        0x10au
#define VMX_FIRST       0x480u /* SDM 3D A.1 to A.9 */
#define VMX_ALWAYS      0x48au
#define VMX_SECONDARY   0x48bu
#define VMX_EPT_VPID    0x48cu
#define VMX_TRUE_FIRST  0x48du
#define VMX_TRUE_LAST   0x490u
#define VMX_PRIMARY     0x482u
/* of VMX_PRIMARY: secondary controls may be set */
#define MAY_SECONDARY  BIT(63)
#define MAY_EPT_VPID   (BIT(32 + 1) | BIT(32 + 5)) /* of VMX_SECONDARY */
#define BASIC_TRUE     BIT(55)                     /* of VMX_FIRST */

#define TABLE_HEAD     36u
#define PER_LINE       32u /* bytes of a table */
#define CONFIG_SIZE    0x100u
#define EXTENDED_SIZE  0x1000u
#define EXTENDED_WORDS 16u /* of an extended capability, as many as SR-IOV has */

/* Writes to the console alone: the log has neither the room nor lines of this length. */
static void __attribute__((format(printf, 1, 2))) say(const char *fmt, ...) {
    char text[160];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = hv_vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (unsigned at = 0, len = MIN((unsigned)n, (unsigned)sizeof(text) - 1), taken; at < len;
         at += taken) {
        taken = console_write(text + at, len - at);
        if (!taken) console_flush();
        if (!taken && !console_room()) return; /* the port takes nothing any more */
    }
}

/* ---- the CPU ---- */

static bool all_zero(const struct cpuid *c) { return !(c->eax | c->ebx | c->ecx | c->edx); }

/* Writes one answer of CPUID, unless it is all zeros. */
static void say_leaf(u32 leaf, u32 sub, const struct cpuid *c) {
    if (!all_zero(c)) say("cpuid %x %x: %x %x %x %x\n", leaf, sub, c->eax, c->ebx, c->ecx, c->edx);
}

/* Writes all subleaves of a leaf that has one answer for each value of ECX (SDM 2A, CPUID; APM3
 * E.4). The first empty one ends the list, except in leaf Dh, where others may follow it. */
static void say_subleaves(u32 leaf) {
    for (u32 sub = 0; sub < MAX_SUBLEAVES; sub++) {
        struct cpuid c = cpuid(leaf, sub);

        if (leaf != LEAF_STATE && sub && !(c.eax | c.ebx)) return;
        say_leaf(leaf, sub, &c); /* writes nothing for one that is empty */
        if (leaf == 7 && sub >= c.eax) return;
    }
}

/* Writes the leaves (numbered answers) of CPUID from `first` on. CPUID itself tells the last one of
 * each range. */
static void say_leaves(u32 first) {
    static const u32 with_subleaves[] = { 4, 7, 0xb, 0xd, 0x1f, 0x8000001d };
    u32 last = cpuid(first, 0).eax;

    for (u32 leaf = first; leaf <= last && leaf < first + MAX_LEAF; leaf++) {
        struct cpuid c = cpuid(leaf, 0);
        bool several = false;

        for (u32 i = 0; i < ARRAY_SIZE(with_subleaves); i++) several |= leaf == with_subleaves[i];
        if (several)
            say_subleaves(leaf);
        else
            say_leaf(leaf, 0, &c);
    }
}

/* Writes the value of an MSR, and returns it. */
static u64 say_msr(u32 msr) {
    u64 value = rdmsr(msr);

    say("msr %x: %lx\n", msr, value);
    return value;
}

/* Writes the MSRs that say what VT-x can do here. Some exist only if others say so, and reading one
 * that does not exist would fault. */
static void say_vmx(void) {
    u64 basic = rdmsr(VMX_FIRST), secondary = 0;

    say_msr(MSR_FEATURE_CONTROL);
    for (u32 msr = VMX_FIRST; msr <= VMX_ALWAYS; msr++) say_msr(msr);
    if (rdmsr(VMX_PRIMARY) & MAY_SECONDARY) secondary = say_msr(VMX_SECONDARY);
    if (secondary & MAY_EPT_VPID) say_msr(VMX_EPT_VPID);
    for (u32 msr = VMX_TRUE_FIRST; msr <= VMX_TRUE_LAST; msr++) {
        if (basic & BASIC_TRUE)
            say_msr(msr);
        else
            say("msr %x: faults\n", msr);
    }
}

/* Writes all that Takt asks of the CPU. */
static void say_cpu(void) {
    struct cpu_kind kind = cpu_kind_read();

    say_leaves(0);
    say_leaves(EXTENDED_LEAVES);
    if (cpuid_or_zero(7, 0).edx & CPUID_ARCH) say_msr(MSR_ARCH);
    if (kind.microcode) say("msr %x: %lx\n", MSR_MICROCODE, (u64)kind.microcode << 32);
    if (cpuid(1, 0).ecx & CPUID_VMX) say_vmx();
    if (cpuid_or_zero(EXTENDED_LEAVES + 1, 0).ecx & CPUID_SVM) say_msr(MSR_VM_CR);
}

/* Writes the name that the CPU gives itself, without the blanks in front of it. */
static void say_name(void) {
    char name[49] = "a CPU without a name";
    const char *start = name;
    u32 words[12];

    if (cpuid(EXTENDED_LEAVES, 0).eax >= BRAND_LEAVES + 2) {
        for (u32 i = 0; i < 3; i++) {
            struct cpuid c = cpuid(BRAND_LEAVES + i, 0);

            memcpy(words + 4 * i, &c, sizeof(c));
        }
        memcpy(name, words, 48);
        name[48] = 0;
    }
    while (*start == ' ') start++;
    say("name: %s\n", start);
}

/* ---- what firmware and PCI tell ---- */

/* Is it one of the tables that Takt reads? FADT, DSDT and SSDT are left out, as AML is long. */
static bool is_wanted(const u8 *t) {
    static const char wanted[][5] = { "APIC", "HPET", "MCFG", "SRAT", "DMAR", "IVRS", "SPCR" };

    for (u32 i = 0; i < ARRAY_SIZE(wanted); i++)
        if (!memcmp(t, wanted[i], 4)) return true;
    return false;
}

/* Writes a table of the firmware in hexadecimal, in lines of PER_LINE bytes. */
static void say_table(const u8 *t, u32 len) {
    say("table %c%c%c%c:\n", t[0], t[1], t[2], t[3]);
    for (u32 at = TABLE_HEAD; at < len; at += PER_LINE) {
        char text[2 * PER_LINE + 1];

        for (u32 i = 0; i < PER_LINE && at + i < len; i++)
            hv_snprintf(text + 2 * i, sizeof(text) - 2 * i, "%02x", t[at + i]);
        say("more: %s\n", text);
    }
}

/* Writes those of the firmware's ACPI tables that tools/machines can use. */
static void say_tables(const struct acpi_info *acpi) {
    for (u32 i = 0; i < acpi->nr_tables; i++) {
        const u8 *t = acpi_map(acpi->table[i].addr, acpi->table[i].len);

        if (t && is_wanted(t)) say_table(t, acpi->table[i].len);
    }
}

/* Writes those words of a device's configuration space in [from, to) that are not 0. */
static void say_dwords(u32 bdf, u32 from, u32 to) {
    for (u32 at = from; at < to; at += 4) {
        u32 value = pci_read(bdf, at, 4);

        if (value) say(" %x=%x", at, value);
    }
}

/* Writes the first words of each extended capability of a device (PCI Express 3.0, 7.9): groups of
 * registers, each of which begins with where the next one is. A list that leads in a circle ends
 * after PCI_MAX_CAPS. */
static void say_extended(u32 bdf) {
    for (u32 at = CONFIG_SIZE, n = 0; at >= CONFIG_SIZE && n < PCI_MAX_CAPS; n++) {
        u32 head = pci_read(bdf, at, 4);

        if (!head || !~head) return;
        say_dwords(bdf, at, MIN(at + 4 * EXTENDED_WORDS, EXTENDED_SIZE));
        at = head >> 20 & 0xffc; /* its two lowest bits are reserved */
    }
}

/* Writes one line about a PCI function: its configuration space and the sizes of its BARs (the
 * registers that say where the device answers). */
static void say_device(const struct pci_device *d) {
    say("pci %x:%x.%x", d->bdf >> 8, d->bdf >> 3 & 31, d->bdf & 7);
    say_dwords(d->bdf, 0, CONFIG_SIZE);
    if (d->express) say_extended(d->bdf);
    for (u32 i = 0; i < ARRAY_SIZE(d->bar); i++)
        if (d->bar[i].size)
            say(" bar%u=%lx,%lx,%x", i, d->bar[i].addr, d->bar[i].size,
                pci_read(d->bdf, PCI_BAR0 + 4 * i, 4) & 15);
    say("\n");
}

/* Writes all that Takt's probes read of this machine to the console, and ends the machine. */
void probe_run(const struct acpi_info *acpi, const char *why_not) {
    say("---- the description of this machine begins ----\n");
    say_name();
    say("source: read by Takt on the machine itself\n");
    say("licence: to be told by those who pass it on\n");
    if (why_not)
        say("verdict: no\nsays: %s\n", why_not);
    else
        say("verdict: yes\nsays: Guests can run.\n");
    say("apic-ids:");
    for (u32 i = 0; i < acpi->nr_cpus; i++) say(" %x", acpi->apic_id[i]);
    say("\n");
    say_cpu();
    say_tables(acpi);
    for (u32 i = 0; i < pci_count(); i++) say_device(pci_at(i));
    say("---- the description of this machine ends ----\n");
    platform_halt();
}
