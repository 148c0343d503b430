#include "platform/hostmap.h"

#include "boot/layout.h"
#include "lib/printf.h"
#include "platform/firmware.h"
#include "x86/insn.h"

/* SDM 3A 4.5, table 4-15 and on */
#define PTE_P     BIT(0)
#define PTE_W     BIT(1)
#define PTE_PWT   BIT(3)
#define PTE_PCD   BIT(4)
#define PTE_LARGE BIT(7)
#define PTE_NX    BIT(63)
#define PTE_ADDR  0x000ffffffffff000ull

#define SIZE_2M   BIT(21)

extern const u64 boot_pml4[512];
extern const u8 image_text[], image_rodata[], image_data[], image_end[];

static u64 mmio_next = MMIO_BASE, stack_next = STACK_BASE;
static u64 *root; /* the PML4 */

static u64 nx(void) { return rdmsr(MSR_EFER) & BIT(11) ? PTE_NX : 0; }

/* The entry for `va` in the table of level `level` (0: 4 KiB pages), making tables on the way. NULL when
 * memory is out. */
static u64 *entry_of(u64 va, int level) {
    u64 *table = root;

    for (int l = 3; l > level; l--) {
        u64 *e = &table[va >> (12 + 9 * l) & 511];

        if (!*e) {
            hpa_t pa = frame_alloc_zeroed(0);

            if (pa == HPA_NONE) return NULL;
            *e = pa | PTE_P | PTE_W;
        }
        ASSERT(!(*e & PTE_LARGE));
        table = hpa_to_va(*e & PTE_ADDR);
    }
    return &table[va >> (12 + 9 * level) & 511];
}

/* Maps the 4 KiB page at `va`, which nobody uses yet: so no CPU has to be told. False: memory is out. */
static bool map_page(u64 va, hpa_t pa, u64 flags) {
    u64 *e = entry_of(va, 0);

    if (e) *e = pa | PTE_P | flags;
    return e;
}

void hostmap_direct(hpa_t start, hpa_t end) {
    for (hpa_t pa = MAX(ALIGN_DOWN(start, SIZE_2M), BIT(32)); pa < end; pa += SIZE_2M) {
        u64 *e = entry_of(DIRECTMAP + pa, 1);

        if (!e) panic("no memory for the page tables of the direct map");
        *e = pa | PTE_P | PTE_W | PTE_LARGE | nx();
    }
}

/* New tables beside those of boot.asm, then one switch. */
void hostmap_image(void) {
    hpa_t pa = frame_alloc_zeroed(0);

    if (pa == HPA_NONE) panic("no memory for the hypervisor's page tables");
    root = hpa_to_va(pa);
    root[DIRECTMAP >> 39 & 511] = boot_pml4[DIRECTMAP >> 39 & 511] | nx();
    for (u64 va = LINK_BASE + LOAD_BASE; va < (u64)image_end; va += PAGE_SIZE) {
        u64 flags = va < (u64)image_rodata ? 0 : va < (u64)image_data ? nx() : nx() | PTE_W;

        if (!map_page(va, va - LINK_BASE, flags)) panic("no memory for the hypervisor's page tables");
    }
    write_cr3(hostmap_root());
}

hpa_t hostmap_root(void) { return va_to_hpa(root); }

volatile void *mmio_map(hpa_t pa, u64 len) {
    u32 width = cpuid_or_zero(0x80000008, 0).eax & 0xff;
    u64 flags = PTE_W | PTE_PWT | PTE_PCD | nx(), last = pa + len - 1, size, va;
    bool large = !((pa | len) & (SIZE_2M - 1)); /* configuration space of all of PCI is */

    if (last < pa || last >> MAX(width, 36u)) return NULL;
    mmio_next = large ? ALIGN_UP(mmio_next, SIZE_2M) : mmio_next;
    size = large ? SIZE_2M : PAGE_SIZE;
    va = mmio_next + pa % PAGE_SIZE;
    for (hpa_t p = ALIGN_DOWN(pa, PAGE_SIZE); p <= last; p += size, mmio_next += size) {
        u64 *e = entry_of(mmio_next, large);

        if (!e) return NULL;
        *e = p | PTE_P | flags | (large ? PTE_LARGE : 0);
    }
    return (volatile void *)va;
}

const void *acpi_map(u64 pa, u64 len) {
    return pa < BIT(32) && len <= BIT(32) - pa ? hpa_to_va(pa) : (const void *)mmio_map(pa, len);
}

u8 *stack_map(u32 size) {
    stack_next += PAGE_SIZE; /* the guard */
    for (u64 end = stack_next + size; stack_next < end; stack_next += PAGE_SIZE) {
        hpa_t pa = frame_alloc(0);

        if (pa == HPA_NONE || !map_page(stack_next, pa, PTE_W | nx())) return NULL;
    }
    return (u8 *)stack_next;
}
