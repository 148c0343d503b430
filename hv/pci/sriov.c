#include "pci/sriov.h"

#include "config.h"
#include "lib/printf.h"

void give_tell(const struct pci_device *d);
void interrupt_again(struct pci_device *d);

/* SR-IOV 3.3, offsets in the capability. */
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
#define VF_ENABLE      BIT(0)
#define VF_MEMORY      BIT(3)
#define ARI_HIERARCHY  BIT(4)
#define PAGE_4K        BIT(0)

#define EXPRESS_CAP2   0x24 /* PCI Express 7.8.15, 7.8.16 */
#define EXPRESS_CTL2   0x28
#define ARI_FORWARDING BIT(5)

static u32 get(const struct pci_device *pf, u32 reg) { return pci_read(pf->bdf, pf->sriov + reg, 2); }

static void set(const struct pci_device *pf, u32 reg, u32 v) { pci_write(pf->bdf, pf->sriov + reg, 2, v); }

/* ---- places ---- */

/* The most that a BAR can cover: where it was not sized, as much as its address is aligned to, as
 * addresses are multiples of sizes. */
static u64 most(const struct pci_device *d, const struct pci_bar *b) {
    return d->unsized ? b->addr & -b->addr : b->size;
}

static bool meets(u64 at, u64 end, u64 first, u64 size) { return size && at < first + size && first < end; }

/* What decodes somewhere in [at, end): the first address behind it; 0: nothing. */
static u64 occupied(u64 at, u64 end) {
    for (u32 i = 0; i < pci_count(); i++) {
        const struct pci_device *d = pci_at(i);

        for (u32 k = 0; k < 6; k++) {
            const struct pci_bar *b = &d->bar[k], *v = &d->vf_bar[k];
            u64 size = most(d, b), all = v->size * d->nr_vfs;

            if (!b->io && meets(at, end, b->addr, size)) return b->addr + size;
            if (meets(at, end, v->addr, all)) return v->addr + all;
        }
    }
    return 0;
}

/* The lowest free place in what the bridge hands on. */
static bool place(const struct pci_device *bridge, struct pci_bar *b, u64 all) {
    u64 limit = (pci_read(bridge->bdf, PCI_WINDOW + 2, 2) & 0xfff0ull) << 16 | 0xfffff;
    u64 align = MAX(b->size, (u64)PAGE_SIZE), next;

    b->addr = ALIGN_UP((pci_read(bridge->bdf, PCI_WINDOW, 2) & 0xfff0ull) << 16, align);
    while ((next = occupied(b->addr, b->addr + all))) b->addr = ALIGN_UP(next, align);
    return b->addr && b->addr + all - 1 <= limit;
}

static const char *place_all(struct pci_device *pf, const struct pci_device *bridge, u32 nr) {
    pf->nr_vfs = nr; /* what is placed counts as occupied */
    for (u32 i = 0, n; i < 6; i += n) {
        struct pci_bar b;

        n = pci_size_bar(pf, pf->sriov + VF_BAR + 4 * i, i == 5, &b);
        if (!b.size) continue;
        if (b.io) return "a BAR of theirs is for ports";
        if (!place(bridge, &b, b.size * nr)) return "the bridge above it has no room for their BARs";
        pf->vf_bar[i] = b;
    }
    return NULL;
}

/* ---- switching on ---- */

/* Their numbers on the bus follow from what was programmed, and have to be handed on by the bridge. */
static const char *numbers(const struct pci_device *pf, const struct pci_device *bridge, u32 nr) {
    u32 stride = get(pf, STRIDE), first = pf->bdf + get(pf, OFFSET), last = first + stride * (nr - 1);

    if (first == pf->bdf || (nr > 1 && !stride)) return "they have no numbers of their own";
    if (last >> 8 > pci_read(bridge->bdf, PCI_SUBORDINATE, 1))
        return "some would be on no bus below the bridge";
    for (u32 i = 0; i < nr; i++)
        if (pci_find(first + i * stride)) return "one would be where another device is";
    return NULL;
}

static void program(const struct pci_device *pf) {
    const struct pci_device *bridge = pci_bridge_of(pf->bdf >> 8);
    u32 ctl2 = bridge->express + (u32)EXPRESS_CTL2, control = get(pf, CONTROL) & ~(u32)ARI_HIERARCHY;
    bool ari =
        bridge->express && pci_read(bridge->bdf, bridge->express + (u32)EXPRESS_CAP2, 4) & ARI_FORWARDING;

    if (ari && pf->ari) { /* the number of a device may be other than 0 on a link: PCI Express 6.13 */
        pci_write(bridge->bdf, ctl2, 2, pci_read(bridge->bdf, ctl2, 2) | (u32)ARI_FORWARDING);
        control |= ARI_HIERARCHY;
    }
    set(pf, CONTROL, control);
    pci_write(pf->bdf, pf->sriov + PAGE, 4, PAGE_4K);
    set(pf, NUM_VFS, pf->nr_vfs);
    for (u32 i = 0; i < 6; i++) {
        const struct pci_bar *b = &pf->vf_bar[i];

        if (!b->size) continue;
        pci_write(pf->bdf, pf->sriov + VF_BAR + 4 * i, 4, (u32)b->addr);
        if (b->wide) pci_write(pf->bdf, pf->sriov + VF_BAR + 4 * i + 4, 4, 0);
    }
}

static const char *enable(struct pci_device *pf, u32 most) {
    const struct pci_device *bridge = pci_bridge_of(pf->bdf >> 8);
    u32 nr = MIN(get(pf, INITIAL_VFS), most);
    const char *why;

    if (!nr) return "it has none to give";
    if (!bridge) return "there is no bridge above it, in whose window they could be";
    if (!(pci_read(pf->bdf, pf->sriov + PAGES_SUPPORTED, 4) & PAGE_4K)) return "it knows no pages of 4 KiB";
    set(pf, CONTROL,
        get(pf, CONTROL) & ~(u32)(VF_ENABLE | VF_MEMORY)); /* NumVFs and the BARs can be written */
    pci_write(pf->bdf, pf->sriov + PAGE, 4, PAGE_4K);      /* which the sizes depend on */
    why = place_all(pf, bridge, nr);
    if (why) return why;
    program(pf);
    why = numbers(pf, bridge, nr);
    if (!why) set(pf, CONTROL, get(pf, CONTROL) | (u32)(VF_ENABLE | VF_MEMORY));
    return why;
}

bool sriov_enable(u32 most) {
    bool any = false;

    for (u32 i = 0; i < pci_count() && most; i++) {
        struct pci_device *pf = pci_at(i);
        const char *why = pf->sriov ? enable(pf, most) : NULL;

        if (why) {
            log_warn("PCI device %s has no virtual functions: %s", pf->name, why);
            pf->nr_vfs = 0;
        }
        any |= pf->nr_vfs;
    }
    return any;
}

void sriov_hold(struct pci_device *pf) {
    for (u32 i = 0; i < pci_count(); i++) {
        struct pci_device *d = pci_at(i);

        if (d->pf != pf || !d->owner) continue;
        pci_off(d, true);
        give_tell(d);
    }
}

/* They are there again, as after a reset of their own; those that were held go on, unless all is lost. */
static void make_ready(struct pci_device *pf) {
    for (u32 i = 0; i < pci_count(); i++) {
        struct pci_device *d = pci_at(i);

        if (d->pf != pf) continue;
        d->lost |= pf->lost;
        pci_write(d->bdf, PCI_COMMAND, 2, pci_idle_command(d));
        if (d->held && !d->lost) interrupt_again(d);
        if (d->owner) give_tell(d);
    }
}

bool sriov_again(struct pci_device *pf) {
    if (!pf->nr_vfs || pf->lost || get(pf, CONTROL) & VF_ENABLE) {
        make_ready(pf);
        return false;
    }
    program(pf);
    set(pf, CONTROL, get(pf, CONTROL) | (u32)(VF_ENABLE | VF_MEMORY));
    return true;
}

void sriov_find(void) {
    for (u32 i = 0; i < pci_count(); i++) { /* theirs come behind it */
        struct pci_device *pf = pci_at(i);
        u32 id = pf->vendor, found = 0;

        if (!pf->nr_vfs) continue;
        id |= get(pf, VF_DEVICE) << 16;
        for (u32 n = 0; n < pf->nr_vfs; n++)
            found += pci_add_vf(pf, n, pf->bdf + get(pf, OFFSET) + n * get(pf, STRIDE), id) != NULL;
        log_info("PCI device %s: %u virtual function%s", pf->name, found, plural(found));
    }
}

/* ---- names ---- */

int sriov_number(const struct pci_device *pf) {
    int n = 0;

    for (u32 i = 0; i < pci_count(); i++) {
        const struct pci_device *d = pci_at(i);
        bool igb = d->sriov && d->vendor == 0x8086 && d->class_rev >> 16 == 0x0200;

        if (d == pf) return igb ? n : -1;
        n += igb;
    }
    return -1;
}

/* Of that number among Intel's, or NULL. */
static const struct pci_device *named(u32 number) {
    for (u32 i = 0; i < pci_count(); i++)
        if (pci_at(i)->sriov && sriov_number(pci_at(i)) == (int)number) return pci_at(i);
    return NULL;
}

struct pci_device *sriov_asked(u64 request) {
    u32 vf = request >> 32 & 0xff;
    const struct pci_device *pf = request & CONFIG_VF_NAMED ? named((u32)request) : pci_find((u32)request);

    for (u32 i = 0; pf && i < pci_count(); i++) {
        struct pci_device *d = pci_at(i);

        if (d->pf != pf) continue;
        if (request & CONFIG_VF_ANY ? !d->owner && !d->lost : d->vf == vf) return d;
    }
    return NULL;
}
