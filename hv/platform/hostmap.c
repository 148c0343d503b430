#include "platform/hostmap.h"

#include "boot/layout.h"
#include "lib/printf.h"
#include "lib/spinlock.h"
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
#define SIZE_1G   BIT(30)

extern u64 boot_pml4[512], boot_pdpt[512], boot_pdpt_high[512];
extern const u8 image_text[], image_rodata[], image_data[], image_end[];

static u64 mmio_next = MMIO_BASE, stack_next = STACK_BASE;
static struct spinlock map_lock;
static hpa_t boot_root;

static u64 nx(void) { return rdmsr(MSR_EFER) & BIT(11) ? PTE_NX : 0; }

/* The entry for `va` in the table of level `level` (0: 4 KiB pages), making tables on the way. NULL when
 * memory is out. */
static u64 *entry_of(u64 va, int level) {
    u64 *table = boot_pml4;

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

void hostmap_direct(hpa_t start, hpa_t end) {
    bool giant = cpuid(0x80000001, 0).edx >> 26 & 1;
    u64 size = giant ? SIZE_1G : SIZE_2M;

    start = MAX(ALIGN_DOWN(start, size), SIZE_1G * 4);
    for (hpa_t pa = start; pa < end; pa += size) {
        u64 *e = entry_of(DIRECTMAP + pa, giant ? 2 : 1);

        if (!e) panic("no memory for the page tables of the direct map");
        *e = pa | PTE_P | PTE_W | PTE_LARGE | nx();
    }
}

void hostmap_image(void) {
    u64 va = LINK_BASE + LOAD_BASE;
    hpa_t pd = frame_alloc_zeroed(0);
    u64 *copy;

    boot_root = frame_alloc(0); /* of RAM below 4 GiB: there is no other yet */
    if (pd == HPA_NONE || boot_root == HPA_NONE) panic("no memory for the hypervisor's page tables");
    copy = hpa_to_va(boot_root);
    for (int i = 0; i < 512; i++) copy[i] = boot_pml4[i];
    /* A new table beside the old one, then one switch: this code runs from what is changed. */
    boot_pdpt_high[511] = 0;
    u64 *new_pd = hpa_to_va(pd);
    for (; va < (u64)image_end; va += PAGE_SIZE) {
        u64 flags = va < (u64)image_rodata ? 0 : va < (u64)image_data ? nx() : nx() | PTE_W;
        u64 *pde = &new_pd[va >> 21 & 511];

        if (!*pde) {
            hpa_t pt = frame_alloc_zeroed(0);

            if (pt == HPA_NONE) panic("no memory for the hypervisor's page tables");
            *pde = pt | PTE_P | PTE_W;
        }
        ((u64 *)hpa_to_va(*pde & PTE_ADDR))[va >> 12 & 511] = (va - LINK_BASE) | PTE_P | flags;
    }
    boot_pdpt_high[510] = pd | PTE_P | PTE_W;
    boot_pml4[0] = 0;
    boot_pml4[256] |= nx();
    write_cr3(hostmap_root());
}

hpa_t hostmap_root(void) { return (u64)boot_pml4 - LINK_BASE; }

hpa_t hostmap_boot_root(void) { return boot_root; }

volatile void *mmio_map(hpa_t pa, u64 len) {
    u64 first = ALIGN_DOWN(pa, PAGE_SIZE), end = ALIGN_UP(pa + len, PAGE_SIZE), va;
    volatile void *result = NULL;

    spin_lock(&map_lock);
    va = mmio_next;
    for (hpa_t p = first; p < end; p += PAGE_SIZE) {
        u64 *e = entry_of(va + p - first, 0);

        if (!e) goto out;
        *e = p | PTE_P | PTE_W | PTE_PWT | PTE_PCD | nx();
    }
    mmio_next += end - first;
    result = (volatile void *)(va + pa - first);
out:
    spin_unlock(&map_lock);
    return result;
}

u8 *stack_map(u32 size) {
    u8 *top = NULL;

    spin_lock(&map_lock);
    stack_next += PAGE_SIZE;
    for (u32 off = 0; off < size; off += PAGE_SIZE, stack_next += PAGE_SIZE) {
        u64 *e = entry_of(stack_next, 0);
        hpa_t pa = e ? frame_alloc(0) : HPA_NONE;

        if (pa == HPA_NONE) goto out;
        *e = pa | PTE_P | PTE_W | nx();
    }
    top = (u8 *)stack_next;
out:
    spin_unlock(&map_lock);
    return top;
}
