/* The hypervisor's own page tables: where its image, the machine's RAM (the "direct map", at a
 * fixed distance from the physical address), the registers of devices and the CPUs' stacks are.
 * They grow only during boot, and nothing is ever unmapped, so no CPU has to flush its TLB.
 * "Write-combining" memory is such that the CPU collects writes and sends them together, as suits a
 * screen. */
#include "platform/hostmap.h"

#include "boot/layout.h"
#include "lib/printf.h"
#include "mm/npt.h"
#include "platform/firmware.h"
#include "common/insn.h"

/* SDM 3A 4.5, table 4-15 and on */
#define PTE_P           BIT(0)
#define PTE_W           BIT(1)
#define PTE_PWT         BIT(3)
#define PTE_PCD         BIT(4)
#define PTE_NX          BIT(63)

#define CPUID_ADDRESSES 0x80000008u
#define PHYSICAL_WIDTH  0xffu /* of its EAX: how many bits physical addresses have */
#define LEAST_WIDTH     36u   /* what a CPU without this leaf has */

static u64 mmio_next = MMIO_BASE, stack_next = STACK_BASE;

/* The format of the hypervisor's own tables, for the walker that also makes those of guests. */
static struct npt_format format = {
    .table = PTE_P | PTE_W,
    .right = { [NPT_R] = PTE_P | PTE_NX,
               [NPT_RW] = PTE_P | PTE_W | PTE_NX,
               [NPT_R | NPT_X] = PTE_P },
    .type = { [NPT_UC] = PTE_PWT | PTE_PCD, [NPT_WC] = PTE_PWT }, /* x86/cpu.c: pat_init */
};
static struct npt tables;

/* Maps [pa, pa + len) at `va`, where nothing was mapped before, so that no CPU has to flush its
 * TLB. Returns false if there is no memory for a table. */
static bool hostmap_map(u64 va, hpa_t pa, u64 len, unsigned prot, enum npt_memtype type) {
    return npt_map(&tables, va & (NPT_LIMIT - 1), pa, len, prot, type) == 0;
}

/* Maps the RAM in [start, end) in the direct map. */
void hostmap_direct(hpa_t start, hpa_t end) {
    start = MAX(ALIGN_DOWN(start, SIZE_2M), BIT(32));
    end = ALIGN_UP(end, SIZE_2M);
    if (start < end && !hostmap_map(DIRECTMAP + start, start, end - start, NPT_RW, NPT_WB))
        panic("no memory for the page tables of the direct map");
}

/* Returns what may be done with the page of the image at `va`: boot/takt.ld has code first, then
 * constants, then data. */
static unsigned image_right(u64 va) {
    if (va < (u64)image_rodata) return NPT_R | NPT_X;
    if (va < (u64)image_data) return NPT_R;
    return NPT_RW;
}

/* Gives each page of the image only the rights that it needs. Makes new tables for the image beside
 * those of boot.asm, and switches to them when they are complete. The direct map's tables are kept:
 * the new top level points to those of boot.asm, and only makes the direct map not executable. A
 * CPU without NX treats that bit as reserved, so there it is set nowhere. */
void hostmap_image(void) {
    bool ok = npt_init(&tables, &format) == 0;
    u64 nx = 0;

    if (rdmsr(MSR_EFER) & EFER_NXE) nx = PTE_NX;
    for (unsigned i = 0; i < ARRAY_SIZE(format.right); i++) format.right[i] &= ~PTE_NX | nx;
    for (u64 va = LINK_BASE + LOAD_BASE; ok && va < (u64)image_end; va += PAGE_SIZE) {
        ok = hostmap_map(va, va - LINK_BASE, PAGE_SIZE, image_right(va), NPT_WB);
    }
    if (!ok) panic("no memory for the hypervisor's page tables");
    ((u64 *)hpa_to_va(tables.root))[DIRECTMAP >> 39 & 511] = boot_pml4[DIRECTMAP >> 39 & 511] | nx;
    write_cr3(tables.root);
}

/* Returns the physical address of the top table, for CR3. */
hpa_t hostmap_root(void) { return tables.root; }

/* Maps the registers at [pa, pa + len) at the next free place, and returns where. Returns NULL if
 * there is no memory for a table, or if the CPU has no such physical addresses, as a wrong table of
 * the firmware may say. */
static volatile void *hostmap_registers(hpa_t pa, u64 len, enum npt_memtype type) {
    u32 width = cpuid_or_zero(CPUID_ADDRESSES, 0).eax & PHYSICAL_WIDTH;
    u64 first = ALIGN_DOWN(pa, PAGE_SIZE), end = pa + len, va;

    if (end <= pa || (end - 1) >> MAX(width, LEAST_WIDTH)) return NULL;
    va = mmio_next;
    /* Whole large pages, as configuration space of all of PCI has, can be mapped as such. */
    if (!((pa | len) & (SIZE_2M - 1))) va = ALIGN_UP(va, SIZE_2M);
    mmio_next = va + ALIGN_UP(end, PAGE_SIZE) - first;
    if (!hostmap_map(va, first, mmio_next - va, NPT_RW, type)) return NULL;
    return (volatile void *)(va + pa % PAGE_SIZE);
}

/* Maps device registers, uncached and for ever. Returns where, or NULL. */
volatile void *mmio_map(hpa_t pa, u64 len) { return hostmap_registers(pa, len, NPT_UC); }

/* Maps a frame buffer with write combining, for ever. Returns where, or NULL. */
volatile void *mmio_map_wc(hpa_t pa, u64 len) { return hostmap_registers(pa, len, NPT_WC); }

/* Maps a table of the firmware. Returns where, or NULL. Below 4 GiB all is mapped from the boot
 * on. */
const void *acpi_map(u64 pa, u64 len) {
    if (pa < BIT(32) && len <= BIT(32) - pa) return hpa_to_va(pa); /* always mapped */
    return (const void *)mmio_map(pa, len);
}

/* Allocates and maps a stack of `size` bytes. Returns its top, or NULL if there is no memory. The
 * page below the stack stays unmapped (the guard), so a stack that overflows causes a fault. */
u8 *stack_map(u32 size) {
    stack_next += PAGE_SIZE; /* the guard */
    for (u64 end = stack_next + size; stack_next < end; stack_next += PAGE_SIZE) {
        hpa_t pa = frame_alloc(0);

        if (pa == HPA_NONE || !hostmap_map(stack_next, pa, PAGE_SIZE, NPT_RW, NPT_WB)) return NULL;
    }
    return (u8 *)stack_next;
}
