/* Where a CPU is in the machine: its socket (the chip), its core in the socket, and its thread in
 * the core. The APIC id, the number by which interrupts reach a CPU, consists of these three
 * numbers, one behind the other. How many bits each of them has differs between machines, and CPUID
 * tells it. The scheduler wants to know, because CPUs that are near each other share caches. */
#include "x86/place.h"

#include "common/insn.h"

#define LEAF_TOPOLOGY    0x0bu /* SDM 2A, CPUID leaf 0Bh and its successor 1Fh */
#define LEAF_TOPOLOGY_V2 0x1fu
#define LEVEL_THREAD     1u
#define MAX_LEVELS       8u
#define LEAF_AMD_CORES   0x80000008u
#define LEAF_AMD_THREADS 0x8000001eu

#define CPUID_HTT        BIT(28) /* leaf 1, EDX: the package has several logical CPUs */

/* Returns how many bits `n` different numbers need. */
static u32 bits_for(u32 n) {
    if (n <= 1) return 0;
    return 32 - (u32)__builtin_clz(n - 1);
}

/* Reads the levels that the leaf has, from threads upwards. Each says by how many bits an APIC
 * id has to be shifted to get the number of what is above that level. Returns false if the CPU
 * does not have this leaf. */
static bool read_levels(u32 leaf, struct place_bits *b) {
    *b = (struct place_bits){ 0 };
    for (u32 i = 0; i < MAX_LEVELS; i++) {
        struct cpuid level = cpuid_or_zero(leaf, i);
        u32 type = level.ecx >> 8 & 0xff, shift = level.eax & 31;

        if (!type || !(level.ebx & 0xffff)) return i > 0;
        if (type == LEVEL_THREAD) b->thread = shift;
        b->socket = shift;
    }
    return true;
}

/* Returns which bits of an APIC id number what, for Intel's older CPUs, which have no topology
 * leaf. CPUID leaf 1 says how many APIC ids are reserved for a package (socket): the low bits that
 * number these ids are the core and the thread, and the socket's number begins above them, at bit
 * b.socket. Leaf 4 says for how many cores ids are reserved, and so how many of the low bits the
 * core takes. The thread has the rest, bits 0 to b.thread - 1. */
static struct place_bits read_intel_legacy(void) {
    struct cpuid one = cpuid(1, 0);
    u32 ids = 1, cores = (cpuid_or_zero(4, 0).eax >> 26) + 1;
    struct place_bits b = { 0 };

    if (one.edx & CPUID_HTT) ids = one.ebx >> 16 & 0xff;
    b.socket = bits_for(ids);
    if (bits_for(cores) < b.socket) b.thread = b.socket - bits_for(cores);
    return b;
}

/* Returns which bits of an APIC id number what, for AMD's older CPUs, which have no topology leaf.
 * Leaf 8000_0008 says how many bits number the cores of a package, or how many cores there are.
 * Leaf 8000_001E counts threads; CPUs without it have none. */
static struct place_bits read_amd(void) {
    u32 ecx = cpuid_or_zero(LEAF_AMD_CORES, 0).ecx, size = ecx >> 12 & 15;
    u32 threads = (cpuid_or_zero(LEAF_AMD_THREADS, 0).ebx >> 8 & 0xff) + 1;

    if (!size) size = bits_for((ecx & 0xff) + 1);
    return (struct place_bits){ .socket = size, .thread = bits_for(threads) };
}

/* Asks this CPU which bits of an APIC id number the socket, the core and the thread. */
struct place_bits place_bits_read(void) {
    bool intel = cpuid(0, 0).ebx == CPUID_GENU;
    struct place_bits b;

    if (read_levels(LEAF_TOPOLOGY_V2, &b) || read_levels(LEAF_TOPOLOGY, &b)) return b;
    if (intel) return read_intel_legacy();
    return read_amd();
}

/* Returns the socket, the core and the thread that an APIC id means. */
struct place place_of(const struct place_bits *b, u32 apic_id) {
    u64 id = apic_id; /* so that a shift by 32 is no special case */

    return (struct place){ .socket = (u32)(id >> b->socket),
                           .core = (u32)((id & (BIT(b->socket) - 1)) >> b->thread),
                           .thread = (u32)(id & (BIT(b->thread) - 1)) };
}

/* Are the CPUs with these two APIC ids in one socket? */
static bool same_socket(const struct place_bits *b, u32 x, u32 y) {
    return (u64)x >> b->socket == (u64)y >> b->socket;
}

/* Are they threads of one core? */
static bool same_core(const struct place_bits *b, u32 x, u32 y) {
    return (u64)x >> b->thread == (u64)y >> b->thread;
}

/* Does `x` come before `y`? The one that shares more with `first` does; if both share the same,
 * the lower id does. */
static bool comes_before(const struct place_bits *b, u32 x, u32 y, u32 first) {
    bool socket_x = same_socket(b, x, first), socket_y = same_socket(b, y, first);
    bool core_x = same_core(b, x, first), core_y = same_core(b, y, first);

    if (socket_x != socket_y) return socket_x;
    if (core_x != core_y) return core_x;
    if (x == first || y == first) return x == first;
    return x < y;
}

/* Sorts APIC ids by socket, core and thread, the boot CPU first. It sorts by insertion, because the
 * list is short and sorted once. */
void place_sort(const struct place_bits *b, u32 *ids, u32 nr, u32 first) {
    for (u32 i = 1; i < nr; i++) {
        u32 id = ids[i], at = i;

        for (; at > 0 && comes_before(b, id, ids[at - 1], first); at--) ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

/* Keeps only the first id of each core. Returns how many ids are left. */
u32 place_one_per_core(const struct place_bits *b, u32 *ids, u32 nr) {
    u32 left = 0;

    for (u32 i = 0; i < nr; i++)
        if (left == 0 || !same_core(b, ids[left - 1], ids[i])) ids[left++] = ids[i];
    return left;
}
