/* Guest images: ELF with a PVH note (Xen's docs/misc/pvh.pandoc), or multiboot1 (specification 0.6.96).
 * Nothing in
 * a file is believed: each offset and size is checked against the file and the VM's RAM before a byte is
 * copied.
 * RAM is zero already, so what a segment has in memory beyond the file needs no work. */
#include <takt/errno.h>
#include <takt/start_info.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "vm/vm.h"

#define COPY_STEP  65536u
#define NOTES_MAX  4096u /* bytes of notes that are searched */
#define MB_SEARCH  8192u /* multiboot1, 3.1: the header is in here */
#define START_HIGH 0x90000u

struct elf64_header {
    u8 ident[16];
    u16 type, machine;
    u32 version;
    u64 entry, phoff, shoff;
    u32 flags;
    u16 ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
};

struct elf32_header {
    u8 ident[16];
    u16 type, machine;
    u32 version, entry, phoff, shoff, flags;
    u16 ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
};

struct elf64_phdr {
    u32 type, flags;
    u64 offset, vaddr, paddr, filesz, memsz, align;
};

struct elf32_phdr {
    u32 type, offset, vaddr, paddr, filesz, memsz, flags, align;
};

#define PT_LOAD    1
#define PT_NOTE    4
#define EM_386     3
#define EM_X86_64  62
#define ELFCLASS32 1
#define ELFCLASS64 2

struct mb_header {
    u32 magic, flags, checksum, header_addr, load_addr, load_end, bss_end, entry;
};

#define MB_MAGIC     0x1badb002u
#define MB_BOOTED    0x2badb002u
#define MB_REQUIRED  0xffffu /* flags that a loader has to know */
#define MB_KNOWN     0x3u    /* page-aligned modules, memory information */
#define MB_ADDRESSES BIT(16)

struct mb_info {
    u32 flags, mem_lower, mem_upper, boot_device, cmdline, mods_count, mods_addr, syms[4];
    u32 mmap_length, mmap_addr, drives_length, drives_addr, config_table, loader_name;
};

struct __attribute__((packed)) mb_mmap {
    u32 size;
    u64 addr, len;
    u32 type;
};

/* What a guest finds at its start, in a page that its memory map calls reserved. */
struct start_page {
    struct hvm_start_info info;
    struct mb_info mb;
    struct hvm_memmap_entry map[6];
    struct mb_mmap mb_map[6];
    char loader[8];
    char cmdline[CONFIG_VALUE];
};

/* ---- modules ---- */

static struct module modules[MAX_MODULES];
static u32 nr_modules;

int module_add(const struct module *m) {
    if (module_find(m->name)) return -EEXIST;
    if (nr_modules == MAX_MODULES) return -ENOSPC;
    modules[nr_modules++] = *m;
    return 0;
}

const struct module *module_find(const char *name) {
    for (u32 i = 0; i < nr_modules; i++)
        if (strcmp(modules[i].name, name) == 0) return &modules[i];
    return NULL;
}

/* ---- checks ---- */

static int refuse(const char **why, const char *sentence) {
    *why = sentence;
    return -EINVAL;
}

static bool in_file(const struct loader *l, u64 offset, u64 len) {
    return offset <= l->size && len <= l->size - offset;
}

/* Start and end lie in the same piece of RAM. */
static bool in_ram(const struct guestmem *m, gpa_t gpa, u64 len) {
    u64 start = gpa < m->low_size ? 0 : TAKT_HIGH_RAM;
    u64 size = gpa < m->low_size ? m->low_size : m->size - m->low_size;

    return gpa >= start && gpa - start <= size && len <= size - (gpa - start);
}

static bool overlaps(const struct loader *l, gpa_t gpa, u64 len) {
    for (u32 i = 0; i < l->nr; i++)
        if (gpa < l->segment[i].gpa + l->segment[i].memsz && l->segment[i].gpa < gpa + len) return true;
    return false;
}

static int add_segment(struct loader *l, gpa_t gpa, u64 offset, u64 filesz, u64 memsz, const char **why) {
    if (memsz == 0 && filesz == 0) return 0;
    if (l->nr == LOAD_SEGMENTS) return refuse(why, "the image has too many segments");
    if (!in_file(l, offset, filesz)) return refuse(why, "a segment of the image lies outside the file");
    if (memsz < filesz) return refuse(why, "a segment of the image is larger in the file than in memory");
    if (!in_ram(&l->vm->mem, gpa, memsz))
        return refuse(why, "a segment of the image lies outside the VM's memory");
    if (overlaps(l, gpa, memsz)) return refuse(why, "segments of the image overlap");
    l->segment[l->nr++] = (struct load_segment){ gpa, offset, filesz, memsz };
    return 0;
}

static bool entry_loaded(const struct loader *l, u64 entry) {
    return entry <= 0xffffffffu && overlaps(l, entry, 1);
}

/* ---- ELF ---- */

struct elf {
    bool is64;
    u64 entry, phoff;
    u32 phnum, phentsize;
    bool pvh;
    u64 pvh_entry;
};

static int elf_header(const struct loader *l, struct elf *x, const char **why) {
    struct elf64_header h;
    struct elf32_header h32;

    if (l->size < sizeof(h32) || memcmp(l->image, "\177ELF", 4) != 0) return -ENOENT;
    x->is64 = l->image[4] == ELFCLASS64;
    if (x->is64 ? l->size < sizeof(h) : l->image[4] != ELFCLASS32)
        return refuse(why, "the image's ELF header is cut off or of an unknown class");
    if (x->is64) {
        memcpy(&h, l->image, sizeof(h));
        *x = (struct elf){ true, h.entry, h.phoff, h.phnum, h.phentsize, false, 0 };
    } else {
        memcpy(&h32, l->image, sizeof(h32));
        h.machine = h32.machine;
        *x = (struct elf){ false, h32.entry, h32.phoff, h32.phnum, h32.phentsize, false, 0 };
    }
    if (l->image[5] != 1 || (h.machine != EM_386 && h.machine != EM_X86_64))
        return refuse(why, "the image is not for x86");
    if (x->phentsize != (x->is64 ? sizeof(struct elf64_phdr) : sizeof(struct elf32_phdr)))
        return refuse(why, "the image's program headers have an odd size");
    if (x->phnum > 2 * LOAD_SEGMENTS) return refuse(why, "the image has too many program headers");
    if (!in_file(l, x->phoff, (u64)x->phnum * x->phentsize))
        return refuse(why, "the image's program headers lie outside the file");
    return 0;
}

static struct elf64_phdr elf_phdr(const struct loader *l, const struct elf *x, u32 n) {
    const u8 *at = l->image + x->phoff + (u64)n * x->phentsize;
    struct elf64_phdr p;
    struct elf32_phdr q;

    if (x->is64) {
        memcpy(&p, at, sizeof(p));
        return p;
    }
    memcpy(&q, at, sizeof(q));
    return (struct elf64_phdr){ q.type, q.flags, q.offset, q.vaddr, q.paddr, q.filesz, q.memsz, q.align };
}

/* Looks for Xen's PHYS32_ENTRY in one PT_NOTE. Names and descriptors are padded to four bytes. */
static void elf_notes(const struct loader *l, const struct elf64_phdr *p, struct elf *x) {
    u64 at = p->offset, end = p->offset + MIN(p->filesz, NOTES_MAX);

    while (end - at >= 12) {
        u32 n[3]; /* name size, descriptor size, type */
        u64 name, desc;

        memcpy(n, l->image + at, sizeof(n));
        name = ALIGN_UP((u64)n[0], 4);
        desc = ALIGN_UP((u64)n[1], 4);
        if (name > end - at - 12 || desc > end - at - 12 - name) return;
        if (n[2] == XEN_ELFNOTE_PHYS32_ENTRY && n[0] == 4 && memcmp(l->image + at + 12, "Xen", 4) == 0 &&
            (n[1] == 4 || n[1] == 8)) {
            x->pvh = true;
            x->pvh_entry = 0;
            memcpy(&x->pvh_entry, l->image + at + 12 + name, n[1]);
        }
        at += 12 + name + desc;
    }
}

static int elf_load(struct loader *l, struct elf *x, const char **why) {
    u64 entry = x->entry;
    bool found = false;

    for (u32 i = 0; i < x->phnum; i++) {
        struct elf64_phdr p = elf_phdr(l, x, i);
        int err;

        if (p.type == PT_NOTE && in_file(l, p.offset, p.filesz)) elf_notes(l, &p, x);
        if (p.type != PT_LOAD) continue;
        err = add_segment(l, p.paddr, p.offset, p.filesz, p.memsz, why);
        if (err) return err;
        if (!found && x->entry >= p.vaddr && x->entry - p.vaddr < p.memsz) { /* e_entry may be virtual */
            entry = x->entry - p.vaddr + p.paddr;
            found = true;
        }
    }
    if (l->nr == 0) return refuse(why, "the image has nothing to load");
    x->entry = entry;
    return 0;
}

/* ---- multiboot1 ---- */

static bool mb_find(const struct loader *l, struct mb_header *h, u64 *at) {
    for (*at = 0; *at + 12 <= MIN(l->size, MB_SEARCH); *at += 4) {
        memset(h, 0, sizeof(*h));
        memcpy(h, l->image + *at, MIN(sizeof(*h), l->size - *at));
        if (h->magic == MB_MAGIC && h->magic + h->flags + h->checksum == 0) return true;
    }
    return false;
}

/* 3.1.3: the header is at `at` in the file and at header_addr in memory. */
static int mb_addresses(struct loader *l, const struct mb_header *h, u64 at, const char **why) {
    u64 offset, filesz, memsz;

    if (h->load_addr > h->header_addr || h->header_addr - h->load_addr > at)
        return refuse(why, "the multiboot header's addresses contradict each other");
    offset = at - (h->header_addr - h->load_addr);
    if (h->load_end && h->load_end < h->load_addr)
        return refuse(why, "the multiboot header's addresses contradict each other");
    filesz = h->load_end ? h->load_end - h->load_addr : l->size - offset;
    memsz = h->bss_end ? (u64)h->bss_end - h->load_addr : filesz;
    return add_segment(l, h->load_addr, offset, filesz, memsz, why);
}

/* ---- the whole ---- */

/* Where the start page goes: low, if the image leaves it free, else behind the image. */
static gpa_t start_page_at(const struct loader *l) {
    u64 len = sizeof(struct start_page);
    gpa_t gpa = 0x6000;

    while (gpa + len <= START_HIGH && overlaps(l, gpa, len)) gpa += PAGE_SIZE;
    if (gpa + len <= START_HIGH) return gpa;
    for (u32 i = 0; i < l->nr; i++) {
        gpa = ALIGN_UP(l->segment[i].gpa + l->segment[i].memsz, PAGE_SIZE);
        if (gpa + len <= 0xffffffffu && in_ram(&l->vm->mem, gpa, len) && !overlaps(l, gpa, len)) return gpa;
    }
    return 0;
}

static int set_entry(struct loader *l, u64 entry, bool multiboot, const char **why) {
    if (!entry_loaded(l, entry)) return refuse(why, "the image's entry lies outside what is loaded");
    if (!start_page_at(l))
        return refuse(why, "the image leaves no room in low memory for what it is to find at its start");
    l->entry = (u32)entry;
    l->multiboot = multiboot;
    return 0;
}

int load_start(struct loader *l, struct vm *vm, const struct module *m, const char **why) {
    struct mb_header mb;
    struct elf x;
    u64 at;
    bool has_mb;
    int elf, err;

    *l = (struct loader){ .vm = vm, .image = m->data, .size = m->size };
    has_mb = mb_find(l, &mb, &at);
    if (has_mb && mb.flags & MB_REQUIRED & ~MB_KNOWN)
        return refuse(why, "the image's multiboot header asks for more than there is");
    elf = elf_header(l, &x, why);
    if (elf == -EINVAL) return elf;
    if (has_mb && mb.flags & MB_ADDRESSES) {
        err = mb_addresses(l, &mb, at, why);
        return err ? err : set_entry(l, mb.entry, true, why);
    }
    if (elf == -ENOENT) return refuse(why, "the image is neither ELF nor multiboot");
    err = elf_load(l, &x, why);
    if (err) return err;
    if (x.pvh) return set_entry(l, x.pvh_entry, false, why);
    if (!has_mb) return refuse(why, "the image has neither a PVH note nor a multiboot header");
    return set_entry(l, x.entry, true, why);
}

static u32 memory_map(const struct guestmem *m, gpa_t page, struct hvm_memmap_entry *e) {
    u64 end = page + ALIGN_UP(sizeof(struct start_page), PAGE_SIZE);
    u32 n = 0;

    e[n++] = (struct hvm_memmap_entry){ 0, page, 1, 0 };
    e[n++] = (struct hvm_memmap_entry){ page, end - page, 2, 0 };
    e[n++] = (struct hvm_memmap_entry){ end, m->low_size - end, 1, 0 };
    e[n++] = (struct hvm_memmap_entry){ TAKT_IOAPIC_GPA, TAKT_HIGH_RAM - TAKT_IOAPIC_GPA, 2, 0 };
    if (m->size > m->low_size)
        e[n++] = (struct hvm_memmap_entry){ TAKT_HIGH_RAM, m->size - m->low_size, 1, 0 };
    return n;
}

static void fill_start_page(struct start_page *s, gpa_t at, const struct vm *vm) {
    u32 base = (u32)at, n = memory_map(&vm->mem, at, s->map);

    hv_snprintf(s->cmdline, sizeof(s->cmdline), "%s", vm->config.cmdline);
    memcpy(s->loader, "Takt", 5);
    s->info = (struct hvm_start_info){ .magic = HVM_START_MAGIC,
                                       .version = 1,
                                       .cmdline_paddr = base + offsetof(struct start_page, cmdline),
                                       .memmap_paddr = base + offsetof(struct start_page, map),
                                       .memmap_entries = n };
    for (u32 i = 0; i < n; i++)
        s->mb_map[i] =
            (struct mb_mmap){ sizeof(s->mb_map[0]) - 4, s->map[i].addr, s->map[i].size, s->map[i].type };
    s->mb = (struct mb_info){ .flags = 0x24d, /* memory, command line, modules, map, loader's name */
                              .mem_lower = 640,
                              .mem_upper = (u32)((vm->mem.low_size - 0x100000) / 1024),
                              .cmdline = base + offsetof(struct start_page, cmdline),
                              .mmap_length = n * sizeof(s->mb_map[0]),
                              .mmap_addr = base + offsetof(struct start_page, mb_map),
                              .loader_name = base + offsetof(struct start_page, loader) };
}

static void finish(struct loader *l) {
    gpa_t at = start_page_at(l);
    struct start_page page = { 0 };

    fill_start_page(&page, at, l->vm);
    guestmem_write(&l->vm->mem, at, &page, sizeof(page));
    if (l->multiboot)
        vcpu_start_state(l->vm->vcpu[0], l->entry, MB_BOOTED, (u32)at + offsetof(struct start_page, mb));
    else
        vcpu_start_state(l->vm->vcpu[0], l->entry, 0, (u32)at + offsetof(struct start_page, info));
}

bool load_step(struct loader *l) {
    const struct load_segment *s = &l->segment[l->at];
    u64 n;

    if (l->at == l->nr) {
        finish(l);
        return false;
    }
    n = MIN(s->filesz - l->done, COPY_STEP);
    guestmem_write(&l->vm->mem, s->gpa + l->done, l->image + s->offset + l->done, n);
    l->done += n;
    if (l->done == s->filesz) {
        l->at++;
        l->done = 0;
    }
    return true;
}
