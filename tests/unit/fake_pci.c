#include "fake_pci.h"

#include <string.h>
#include <takt/errno.h>
#include "platform/apic.h"
#include "platform/hostmap.h"
#include "platform/irq.h"
#include "x86/trap.h"
#include "x86/tsc.h"

struct fake_pci fake_device[FAKE_DEVICES];
u32 fake_nr_devices, fake_mappings, fake_vectors_used, fake_reads;
u8 fake_registers[32 * PAGE_SIZE];
struct fake_pin fake_pin;
static u16 index_of[FAKE_SEGMENTS << 16]; /* by bdf: 1 and the index of the first that has it */

static struct {
    void (*fn)(void *);
    void *arg;
} vectors[64];
u32 fake_no_messages = ~0u;

/* ---- devices ---- */

void fake_pci_reset(void) {
    memset(fake_device, 0, (fake_nr_devices + 1) * sizeof(*fake_device));
    memset(index_of, 0, sizeof(index_of));
    fake_nr_devices = fake_mappings = 0;
}

u32 fake_get(const struct fake_pci *f, u32 at, u32 size) {
    u32 v = 0;

    memcpy(&v, f->space + at, size);
    return v;
}

void fake_set(struct fake_pci *f, u32 at, u32 size, u32 v) { memcpy(f->space + at, &v, size); }

struct fake_pci *fake_pci_add(u32 bdf, u32 id, u32 class_rev) {
    struct fake_pci *f = &fake_device[fake_nr_devices++];

    f->bdf = bdf;
    if (!index_of[bdf]) index_of[bdf] = (u16)fake_nr_devices;
    fake_set(f, PCI_ID, 4, id);
    fake_set(f, PCI_CLASS_REV, 4, class_rev);
    fake_set(f, PCI_COMMAND, 2, 3);
    fake_set(f, PCI_LINE, 2, 0x10b);
    f->writable[PCI_COMMAND] = 7;
    f->writable[PCI_COMMAND + 1] = 4;
    return f;
}

void fake_pci_bar(struct fake_pci *f, u32 i, u64 addr, u64 size, u32 low) {
    u64 mask = -size & ~0xfull;
    bool wide = (low & 7) == 4;

    if (low & 1) mask = -size & ~3ull;
    fake_set(f, PCI_BAR0 + 4 * i, 4, (u32)addr | low);
    memcpy(f->writable + PCI_BAR0 + 4 * i, &mask, wide ? 8 : 4);
    if (wide) fake_set(f, PCI_BAR0 + 4 * i + 4, 4, (u32)(addr >> 32));
}

void fake_pci_cap(struct fake_pci *f, u8 at, u8 id) {
    f->space[at] = id;
    f->space[at + 1] = f->space[PCI_CAPABILITIES];
    f->space[PCI_CAPABILITIES] = at;
    f->space[PCI_STATUS] |= 0x10;
    if (id == PCI_CAP_EXPRESS) f->express = at;
    memset(f->writable + at + 2, 0xff, 18);
}

void fake_pci_extended(struct fake_pci *f, u16 at, u16 id) {
    u32 last = 0x100;

    while (fake_get(f, last, 4) >> 20) last = fake_get(f, last, 4) >> 20;
    if (at != 0x100) fake_set(f, last, 4, fake_get(f, last, 4) | (u32)at << 20);
    fake_set(f, at, 4, id | 1u << 16);
}

void fake_pci_sriov(struct fake_pci *f, u16 at, u32 total, u32 offset, u32 stride) {
    static const u8 bar[16] = { 0, 0xc0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

    f->sriov = at;
    fake_pci_extended(f, at, PCI_EXT_SRIOV);
    fake_set(f, at + 0x0c, 4, total | total << 16);
    fake_set(f, at + 0x14, 4, offset | stride << 16);
    fake_set(f, at + 0x1a, 2, 0x10ca);
    fake_set(f, at + 0x1c, 4, 0x553);
    f->writable[at + 8] = 0x19;
    f->writable[at + 0x10] = f->writable[at + 0x20] = 0xff;
    fake_set(f, at + 0x24, 4, 0xc);
    fake_set(f, at + 0x30, 4, 0xc);
    memcpy(f->writable + at + 0x24, bar, 8);
    memcpy(f->writable + at + 0x30, bar, 8);
    for (u32 n = 0; n < total; n++) {
        struct fake_pci *v = fake_pci_add(f->bdf + offset + n * stride, ~0u, 0x02000001);

        fake_pci_cap(v, 0xa0, PCI_CAP_EXPRESS);
        fake_set(v, 0xa4, 4, BIT(28));
        fake_set(v, PCI_COMMAND, 2, 0);
        fake_set(v, PCI_LINE, 2, 0);
        v->pf = f;
        v->vf = n;
    }
}

static bool there(const struct fake_pci *f) {
    if (f->silent_until && now_ns() < f->silent_until) return false;
    return !f->pf ||
           (f->pf->space[f->pf->sriov + 8] & 1 && f->vf < f->pf->space[f->pf->sriov + 0x10]);
}

static struct fake_pci *find(u32 bdf) {
    u32 i = bdf < ARRAY_SIZE(index_of) && index_of[bdf] ? index_of[bdf] - 1u : fake_nr_devices;

    for (; i < fake_nr_devices; i++)
        if (fake_device[i].bdf == bdf && there(&fake_device[i])) return &fake_device[i];
    return NULL;
}

u32 pci_next_bus(u32 bus) {
    u32 next = PCI_NO_BUS;

    if (bus < 256) return bus;
    for (u32 i = 0; i < fake_nr_devices; i++)
        if (fake_device[i].bdf >> 8 >= bus) next = MIN(next, fake_device[i].bdf >> 8);
    return next;
}

u32 pci_read(u32 bdf, u32 offset, u32 size) {
    const struct fake_pci *f = find(bdf);

    fake_reads++;
    return f && offset + size <= 4096 ? fake_get(f, offset, size) : ~0u >> (32 - 8 * size);
}

/* A function-level reset takes COMMAND, BARs and MSI-X away, and virtual functions; a power
 * state is left as it is written. */
static void function_reset(struct fake_pci *f) {
    u32 cap = f->space[PCI_CAPABILITIES];

    for (u32 at = PCI_BAR0; at < PCI_BAR0 + 24; at++) f->space[at] &= (u8)~f->writable[at];
    fake_set(f, PCI_COMMAND, 2, 0);
    /* A list that a fuzzer wrote may be a circle, so the search ends after as many steps as a list
     * can have. */
    for (u32 step = 0; step < 48 && cap && f->space[cap] != PCI_CAP_MSIX; step++)
        cap = f->space[cap + 1];
    if (cap && f->space[cap] == PCI_CAP_MSIX)
        fake_set(f, cap + 2, 2, fake_get(f, cap + 2, 2) & 0x3fff);
    for (u32 i = 0; i < fake_nr_devices; i++)
        if (fake_device[i].pf == f) function_reset(&fake_device[i]);
    if (f->sriov) {
        for (u32 at = f->sriov + 8; at < f->sriov + 0x40u; at++)
            f->space[at] &= (u8)~f->writable[at];
        f->space[f->sriov + 0x20] = 1;
    }
    f->resets++;
    f->silent_until = f->silent_ns ? now_ns() + f->silent_ns : 0;
}

void pci_write(u32 bdf, u32 offset, u32 size, u32 value) {
    struct fake_pci *f = find(bdf);

    if (!f || offset + size > 4096) return;
    f->touched += offset == PCI_COMMAND || (offset >= PCI_BAR0 && offset < PCI_BAR0 + 24);
    if (offset >= PCI_BAR0 && offset < PCI_BAR0 + 24 && fake_get(f, PCI_COMMAND, 2) & 3 &&
        fake_get(f, offset, size) != value)
        f->moved = true;
    /* These registers can only be read while the virtual functions are on. */
    if (f->sriov && offset >= f->sriov + 0x10u && offset < f->sriov + 0x40u &&
        f->space[f->sriov + 8] & 1)
        return;
    for (u32 i = 0; i < size; i++) {
        u8 w = f->writable[offset + i];

        f->space[offset + i] = (u8)((f->space[offset + i] & ~w) | (value >> 8 * i & w));
    }
    f->master_once |= (fake_get(f, PCI_COMMAND, 2) & PCI_COMMAND_MASTER) != 0;
    if (f->express && offset == f->express + 8u && value & 0x8000) {
        f->space[offset + 1] &= 0x7f;
        function_reset(f);
    }
}

/* ---- the machine ---- */

volatile void *mmio_map(hpa_t pa, u64 len) {
    return fake_mappings < 32 ? fake_registers + PAGE_SIZE * fake_mappings++ + (pa & 0xff0) : NULL;
}

u8 *fake_low_memory;

const void *acpi_map(u64 pa, u64 len) {
    return fake_low_memory && pa < BIT(20) && len <= BIT(20) - pa ? fake_low_memory + pa : NULL;
}

int irq_alloc(void (*fn)(void *), void *arg) {
    u32 i = 0;

    while (i < ARRAY_SIZE(vectors) && vectors[i].fn) i++;
    if (i == ARRAY_SIZE(vectors)) return -ENOSPC;
    vectors[i].fn = fn;
    vectors[i].arg = arg;
    fake_vectors_used++;
    return (int)(0x30 + i);
}

void irq_free(int vector) {
    vectors[vector - 0x30].fn = NULL;
    fake_vectors_used--;
}

int irq_pin_connect(u32 gsi, int vector, u32 flags) {
    if (gsi >= 24) return -ENODEV;
    fake_pin = (struct fake_pin){ gsi, flags, vector, true, true };
    return 0;
}

void (*fake_pin_race)(void);

static void race(void) {
    void (*other)(void) = fake_pin_race;

    fake_pin_race = NULL;
    if (other) other();
}

void irq_pin_mask(u32 gsi, bool masked) {
    if (gsi != fake_pin.gsi) return;
    if (masked) race();
    fake_pin.masked = masked;
    if (!masked) race();
}

int (*irq_remap_pin)(u32 id, u32 vector, bool level);
void (*irq_eoi)(void);

void irq_init(const struct acpi_info *a) {}

int irq_message(int vector, u32 cpu, struct irq_message *m) {
    *m = (struct irq_message){ 0xfee00000 | cpu << 12, (u32)vector };
    return cpu == fake_no_messages ? -ENODEV : 0;
}

void fake_interrupt(int vector) {
    if (vectors[vector - 0x30].fn) vectors[vector - 0x30].fn(vectors[vector - 0x30].arg);
}
