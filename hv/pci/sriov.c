/* Switches on the virtual functions of cards that have them (SR-IOV): the card, called the physical
 * function (PF), can show itself as several devices (VFs), so that several VMs can have one each.
 * The firmware need not have done that, so this file finds addresses for their BARs (the registers
 * that say where a device answers) in the window of addresses that the bridge above forwards. */
#include "pci/sriov.h"

#include "lib/printf.h"

/* Offsets in the capability, and bits: SR-IOV 1.1, 3.3. */
enum {
    CONTROL = 0x08,
    INITIAL_VFS = 0x0c,
    NUM_VFS = 0x10,
    OFFSET = 0x14,
    STRIDE = 0x16,
    VF_DEVICE = 0x1a,
    PAGES_SUPPORTED = 0x1c,
    PAGE = 0x20,
    VF_BAR = 0x24,
};
#define VF_ENABLE     BIT(0)
#define VF_MEMORY     BIT(3)
#define ARI_HIERARCHY BIT(4)
#define PAGE_4K       BIT(0)

/* Offsets in the PCI Express capability, and a bit of both: PCI Express 7.8.15, 7.8.16. */
#define EXPRESS_CAP2   0x24
#define EXPRESS_CTL2   0x28
#define ARI_FORWARDING BIT(5)

#define INTEL          0x8086u
#define CLASS_ETHERNET 0x0200u /* PCI Code and ID Assignment 1.11, 1.3 */

#define WINDOW_BITS    0xfff0ull /* of a bridge's base and limit: address bits 20 to 31 */
#define WINDOW_SHIFT   16
#define WINDOW_LAST    0xfffff /* a window ends with a whole MiB: PCI-PCI Bridge 1.2, 3.2.5.6 */

/* Reads or writes a register of 16 bits of the card's SR-IOV capability. */
static u32 sriov_get(const struct pci_device *pf, u32 reg) {
    return pci_read(pf->bdf, pf->sriov + reg, 2);
}

static void sriov_set(const struct pci_device *pf, u32 reg, u32 v) {
    pci_write(pf->bdf, pf->sriov + reg, 2, v);
}

/* ---- where BARs of virtual functions can be ---- */

/* Returns the most bytes that a BAR can cover. A BAR that was not sized covers at most as many
 * bytes as its address is aligned to, because the address of a BAR is a multiple of its size. */
static u64 bar_reach(const struct pci_device *d, const struct pci_bar *b) {
    if (d->unsized) return b->addr & -b->addr; /* the lowest bit that is set */
    return b->size;
}

/* Has [at, end) bytes in common with the `size` bytes from `first` on? */
static bool vf_bar_overlaps(u64 at, u64 end, u64 first, u64 size) {
    return size && at < first + size && first < end;
}

/* Returns the end of a range in [at, end) that some device decodes; 0 if there is none. */
static u64 end_of_occupied(u64 at, u64 end) {
    for (u32 i = 0; i < pci_count(); i++) {
        const struct pci_device *d = pci_at(i);

        for (u32 k = 0; k < ARRAY_SIZE(d->bar); k++) {
            const struct pci_bar *b = &d->bar[k], *v = &d->vf_bar[k];
            u64 size = bar_reach(d, b), all = v->size * d->nr_vfs;

            if (!b->io && vf_bar_overlaps(at, end, b->addr, size)) return b->addr + size;
            if (vf_bar_overlaps(at, end, v->addr, all)) return v->addr + all;
        }
    }
    return 0;
}

/* Gives *b the lowest address where `all` bytes are free, among those that the bridge forwards to
 * the devices below it. Returns false if there is none. */
static bool place_vf_bar(const struct pci_device *bridge, struct pci_bar *b, u64 all) {
    u64 first = (pci_read(bridge->bdf, PCI_WINDOW, 2) & WINDOW_BITS) << WINDOW_SHIFT;
    u64 last =
        (pci_read(bridge->bdf, PCI_WINDOW + 2, 2) & WINDOW_BITS) << WINDOW_SHIFT | WINDOW_LAST;
    u64 align = MAX(b->size, (u64)PAGE_SIZE), next;

    b->addr = ALIGN_UP(first, align);
    while ((next = end_of_occupied(b->addr, b->addr + all))) b->addr = ALIGN_UP(next, align);
    return b->addr && b->addr + all - 1 <= last;
}

/* Sizes and places the BARs of `nr` virtual functions. Returns NULL, or why that cannot be. */
static const char *place_vf_bars(struct pci_device *pf, const struct pci_device *bridge, u32 nr) {
    pf->nr_vfs = nr; /* from now on end_of_occupied() counts what is placed */
    for (u32 i = 0, n; i < ARRAY_SIZE(pf->vf_bar); i += n) {
        struct pci_bar b;

        n = pci_size_bar(pf, pf->sriov + VF_BAR + 4 * i, i == 5, &b);
        if (!b.size) continue;
        if (b.io) return "one of their BARs is for I/O ports";
        if (!place_vf_bar(bridge, &b, b.size * nr))
            return "the bridge above it has no room for their BARs";
        pf->vf_bar[i] = b;
    }
    return NULL;
}

/* ---- enabling ---- */

/* Returns NULL, or what is wrong with the bdfs that the virtual functions get. These follow from
 * what was programmed, and the bridge above must forward their bus. */
static const char *check_bdfs(const struct pci_device *pf, const struct pci_device *bridge,
                              u32 nr) {
    u32 stride = sriov_get(pf, STRIDE), first = pf->bdf + sriov_get(pf, OFFSET);
    u32 last = first + stride * (nr - 1);

    if (first == pf->bdf || (nr > 1 && !stride)) return "they would have no bdfs of their own";
    if (last >> 8 > pci_read(bridge->bdf, PCI_SUBORDINATE, 1))
        return "the bridge above would not forward to all of them";
    for (u32 i = 0; i < nr; i++)
        if (pci_find(first + i * stride)) return "one of them would have the bdf of another device";
    return NULL;
}

/* Switches ARI on if both ends of the link to the card know it. With ARI, the link may carry other
 * device numbers than 0 (PCI Express 6.13), so that more virtual functions fit on the first bus.
 * Returns whether the bridge forwards them now. */
static bool use_ari(const struct pci_device *pf, const struct pci_device *bridge) {
    u32 control = bridge->express + (u32)EXPRESS_CTL2;

    if (!bridge->express || !pf->ari) return false;
    if (!(pci_read(bridge->bdf, bridge->express + (u32)EXPRESS_CAP2, 4) & ARI_FORWARDING))
        return false;
    pci_write(bridge->bdf, control, 2, pci_read(bridge->bdf, control, 2) | (u32)ARI_FORWARDING);
    return true;
}

/* Writes all registers of the capability but the bits that enable virtual functions. Their BARs lie
 * below 4 GiB, as all that the bridge's window for 32-bit addresses forwards, so the upper halves
 * are 0. */
static void program_sriov(const struct pci_device *pf) {
    u32 control = sriov_get(pf, CONTROL) & ~(u32)ARI_HIERARCHY;

    if (use_ari(pf, pci_bridge_of(pf->bdf >> 8))) control |= ARI_HIERARCHY;
    sriov_set(pf, CONTROL, control);
    pci_write(pf->bdf, pf->sriov + PAGE, 4, PAGE_4K);
    sriov_set(pf, NUM_VFS, pf->nr_vfs);
    for (u32 i = 0; i < ARRAY_SIZE(pf->vf_bar); i++) {
        const struct pci_bar *b = &pf->vf_bar[i];

        if (!b->size) continue;
        pci_write(pf->bdf, pf->sriov + VF_BAR + 4 * i, 4, (u32)b->addr);
        if (b->wide) pci_write(pf->bdf, pf->sriov + VF_BAR + 4 * i + 4, 4, 0);
    }
}

/* Makes the virtual functions exist. They need time before they answer (SRIOV_SETTLE_NS). */
static void switch_vfs_on(const struct pci_device *pf) {
    sriov_set(pf, CONTROL, sriov_get(pf, CONTROL) | (u32)(VF_ENABLE | VF_MEMORY));
}

/* Enables the virtual functions of a card. Returns NULL, or why the card gets none. */
static const char *enable_vfs(struct pci_device *pf, u32 most) {
    const struct pci_device *bridge = pci_bridge_of(pf->bdf >> 8);
    u32 nr = MIN(sriov_get(pf, INITIAL_VFS), most);
    const char *why;

    if (!nr) return "its capability offers none";
    if (!bridge) return "there is no bridge above it, in whose window they could be";
    if (!(pci_read(pf->bdf, pf->sriov + PAGES_SUPPORTED, 4) & PAGE_4K))
        return "it does not support pages of 4 KiB";
    /* NumVFs and the BARs can be written only while virtual functions are off: SR-IOV 1.1, 3.3.7,
     * 3.3.14 */
    sriov_set(pf, CONTROL, sriov_get(pf, CONTROL) & ~(u32)(VF_ENABLE | VF_MEMORY));
    pci_write(pf->bdf, pf->sriov + PAGE, 4, PAGE_4K); /* the sizes of BARs depend on it */
    why = place_vf_bars(pf, bridge, nr);
    if (why) return why;
    program_sriov(pf);
    why = check_bdfs(pf, bridge, nr);
    if (!why) switch_vfs_on(pf);
    return why;
}

/* Enables at most `most` virtual functions on each card that has them. Returns whether any were
 * enabled. If a card gets none, the log says why; the card itself stays usable. */
bool sriov_enable(u32 most) {
    bool any = false;

    for (u32 i = 0; i < pci_count() && most; i++) {
        struct pci_device *pf = pci_at(i);
        const char *why = NULL;

        if (pf->sriov) why = enable_vfs(pf, most);
        if (why) {
            log_warn("PCI device %s has no virtual functions: %s", pf->name, why);
            pf->nr_vfs = 0;
        }
        if (pf->nr_vfs) any = true;
    }
    return any;
}

/* Enables the virtual functions of `pf` again, which a reset has disabled. Returns true if it is to
 * be called once more after SRIOV_SETTLE_NS. The first call after a reset writes the capability
 * again, which the reset has cleared. The second one, when the virtual functions have had time to
 * come back, makes each of them idle. */
bool sriov_restore(struct pci_device *pf) {
    if (pf->nr_vfs && !pf->lost && !(sriov_get(pf, CONTROL) & VF_ENABLE)) {
        program_sriov(pf);
        switch_vfs_on(pf);
        return true;
    }
    for (u32 i = 0; i < pci_count(); i++) {
        struct pci_device *vf = pci_at(i);

        if (vf->pf != pf) continue;
        if (pf->lost) vf->lost = true;
        pci_write(vf->bdf, PCI_COMMAND, 2, pci_idle_command(vf));
    }
    return false;
}

/* Adds the virtual functions that were enabled to the devices, and logs how many answer. Only
 * vendor and device of a card's virtual functions are in the card's own capability, all alike. */
void sriov_find(void) {
    /* virtual functions have higher bdfs, so this loop meets those that it adds, and passes over
     * them */
    for (u32 i = 0; i < pci_count(); i++) {
        struct pci_device *pf = pci_at(i);
        u32 id = pf->vendor, found = 0;

        if (!pf->nr_vfs) continue;
        id |= sriov_get(pf, VF_DEVICE) << 16;
        for (u32 n = 0; n < pf->nr_vfs; n++)
            found += pci_add_vf(pf, n, pf->bdf + sriov_get(pf, OFFSET) + n * sriov_get(pf, STRIDE),
                                id) != NULL;
        log_info("PCI device %s: %u virtual function%s", pf->name, found, plural(found));
    }
}

/* ---- names ---- */

/* Does the card get a name igb<n>? It does if it is a network card of Intel's with virtual
 * functions. */
static bool is_igb(const struct pci_device *d) {
    return d->sriov && d->vendor == INTEL && d->class_rev >> 16 == CLASS_ETHERNET;
}

/* Returns the number n for which the card is called igb<n>, or -1 if it has no such name. */
int sriov_number(const struct pci_device *pf) {
    int n = 0;

    if (!is_igb(pf)) return -1;
    for (u32 i = 0; i < pci_count(); i++) {
        if (pci_at(i) == pf) return n;
        if (is_igb(pci_at(i))) n++;
    }
    return -1;
}

/* Returns the card that is called igb<number>, or NULL. */
const struct pci_device *sriov_named(u32 number) {
    for (u32 i = 0; i < pci_count(); i++)
        if (pci_at(i)->sriov && sriov_number(pci_at(i)) == (int)number) return pci_at(i);
    return NULL;
}
