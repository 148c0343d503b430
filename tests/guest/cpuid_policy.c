/* vcpus: 2 */
/* time: 1000 */
/* CPUID on all leaves: what it says does not change, is the same on both vCPUs apart from their
 * ids, and shows nothing beyond the highest leaf and nothing that is hidden. A guest that sees
 * different features on two vCPUs may crash when a thread moves. */
#include <guest/string.h>
#include <guest/test.h>
#include <takt/seed.h>
#include <guest/vcpu.h>
#include <guest/x86.h>

static const u32 bases[] = { 0, 0x40000000, 0x80000000 };

#define LEAVES 0x25
#define SUBS   4

static struct cpuid answer[2][ARRAY_SIZE(bases)][LEAVES][SUBS];

static u32 subleaf(u32 n) {
    if (n == 3) return 0xdeadbeef;
    return n;
}

static void ask(void *arg) {
    u32 me = this_vcpu()->id;

    for (unsigned b = 0; b < ARRAY_SIZE(bases); b++)
        for (u32 i = 0; i < LEAVES; i++)
            for (u32 sub = 0; sub < SUBS; sub++)
                answer[me][b][i][sub] = cpuid(bases[b] + i, subleaf(sub));
}

/* Bits in which vCPUs may differ: leaf, register. */
static bool has_id(u32 leaf) {
    return leaf == 1 || leaf == 0xb || leaf == 0x1f || leaf == 0x4 || leaf == TAKT_CPUID_ABI ||
           leaf == 0x8000001e || leaf == 0xd /* depends on XCR0 */;
}

static void sweep(bool two) {
    ask(NULL);
    if (two) vcpu_call(1, ask, NULL);
    for (unsigned b = 0; b < ARRAY_SIZE(bases); b++)
        for (u32 i = 0; i < LEAVES; i++)
            for (u32 sub = 0; sub < SUBS; sub++) {
                u32 leaf = bases[b] + i;
                struct cpuid *first = &answer[0][b][i][sub], again = cpuid(leaf, subleaf(sub));

                CHECK(!memcmp(first, &again, sizeof(again)), "leaf %x.%x changes", leaf,
                      subleaf(sub));
                CHECK(!two || has_id(leaf) || !memcmp(first, &answer[1][b][i][sub], sizeof(again)),
                      "leaf %x.%x differs on vCPU 1", leaf, subleaf(sub));
            }
}

static void beyond(u32 base) {
    u32 max = cpuid(base, 0).eax;
    static const u32 further[] = { 1, 2, 7, 0x30, 0xff, 0x1000, 0x0fffffff };

    CHECK(max >= base && max < base + 0x100, "highest leaf from %x is %x", base, max);
    for (unsigned i = 0; i < ARRAY_SIZE(further); i++) {
        struct cpuid c = cpuid(max + further[i], 0);

        CHECK(!(c.eax | c.ebx | c.ecx | c.edx), "leaf %x, beyond %x, is %x %x %x %x",
              max + further[i], max, c.eax, c.ebx, c.ecx, c.edx);
    }
}

static void hidden(void) {
    struct cpuid l1 = cpuid(1, 0), l7 = cpuid(7, 0), x1 = cpuid(0x80000001, 0);

    CHECK(l1.ecx & BIT(31), "no hypervisor bit");
    CHECK(!(l1.ecx & BIT(5)), "VMX is shown");
    CHECK(!(l1.ecx & BIT(6)), "SMX is shown");
    CHECK(!(l1.ecx & BIT(3)), "MONITOR is shown");
    CHECK(!(l7.ebx & BIT(2)), "SGX is shown");
    CHECK(!(x1.ecx & BIT(2)), "SVM is shown");
    CHECK(!(x1.ecx & BIT(12)), "SKINIT is shown");
    CHECK(!cpuid(0x8000000a, 0).eax, "SVM's leaf is shown");
    CHECK(!cpuid(0xa, 0).eax, "performance counters are shown");
    CHECK(l1.edx & BIT(9), "no LAPIC");
    CHECK(x1.edx & BIT(29), "no long mode");
    CHECK((l1.ebx >> 24) == this_vcpu()->id, "APIC id %u", l1.ebx >> 24);
}

static void takt_leaves(void) {
    struct cpuid c = cpuid(TAKT_CPUID_BASE, 0), time = cpuid(TAKT_CPUID_TIME, 0),
                 info = cpuid(TAKT_CPUID_INFO, 0);

    CHECK(c.eax == TAKT_CPUID_SEED, "highest Takt leaf %x", c.eax);
    CHECK(cpuid(TAKT_CPUID_ABI, 0).eax == TAKT_ABI_VERSION, "ABI %x", cpuid(TAKT_CPUID_ABI, 0).eax);
    CHECK(cpuid(TAKT_CPUID_ABI, 0).edx == 0, "vCPU id %u", cpuid(TAKT_CPUID_ABI, 0).edx);
    CHECK(time.eax > 1000 && time.ebx > 1000, "TSC %u kHz, LAPIC timer %u kHz", time.eax, time.ebx);
    CHECK(info.eax == TAKT_SHARED_GPA && info.ebx == TAKT_INFO_GPA && info.ecx == vcpu_count(),
          "leaf 3");
    CHECK(takt_machine_seed() == 2026, "seed of the machine %lu", takt_machine_seed());
    CHECK(takt_seed() == seed_of_vm(2026, "cpuid_policy"), "seed of the VM %lx", takt_seed());
    CHECK(cpuid(TAKT_CPUID_ABI, 0xffffffff).eax == TAKT_ABI_VERSION, "a subleaf of ours matters");
}

int main(void) {
    unsigned n;

    test_begin();
    test_needs_takt();
    n = vcpu_start_all();
    sweep(n > 1);
    beyond(0);
    beyond(0x40000000);
    beyond(0x80000000);
    hidden();
    takt_leaves();
    return test_end("CPUID tells what it should and no more");
}
