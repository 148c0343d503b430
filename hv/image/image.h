/* Guest images: the boot modules that they come in, loading them, and the names of their functions.
 *
 * An image is an ELF file with a PVH note (Xen, docs/misc/pvh.pandoc) or a multiboot1 kernel
 * (specification 0.6.96). Nothing in the file is believed: every offset and size is checked against
 * the file and against the VM's RAM before a byte is copied. */
#ifndef HV_IMAGE_IMAGE_H
#define HV_IMAGE_IMAGE_H

#include "mm/guestmem.h"

/* ---- boot modules (module.c): registered by main.c at boot, constant afterwards ---- */

#define MAX_MODULES 64

struct module {
    const char *name;
    const void *data;
    size_t size;
};

/* Adds a module. *m is copied, but not the name and the data that it points to: these have to stay.
 * Returns 0, or
 *   -EEXIST  there is a module of this name
 *   -ENOSPC  there are MAX_MODULES already */
int module_add(const struct module *m);

/* Returns the module of this name, or NULL if there is none. */
const struct module *module_find(const char *name);

/* ---- the loader (load.c) ---- */

#define LOAD_SEGMENTS 32

struct load_segment {
    gpa_t gpa;
    const u8 *data;
    u64 filesz, memsz; /* bytes; the part beyond filesz is zero */
};

/* What is to be loaded. All that it points at must stay until the last load_step(). */
struct load_order {
    const struct guestmem *mem; /* where it goes: all zeros before */
    const struct module *image;
    const struct module *ramdisk; /* a file that the guest finds at the end of its RAM, or NULL */
    const char *cmdline;          /* for the guest: an array of CONFIG_CMDLINE bytes */
    /* Is it a PC? Then the guest is told that its ACPI tables begin at LOAD_FIRMWARE, and the
     * memory from there up to 1 MiB is kept free for them. */
    bool pc;
    bool turbo; /* vCPU 0 is a turbo vCPU */
};

#define LOAD_FIRMWARE 0xe0000ull /* where PCs have their firmware */

/* How vCPU 0 begins: in 32-bit protected mode, flat, without paging. */
struct image_start {
    u32 entry, eax, ebx;
};

struct loader {
    struct load_order order;
    const u8 *image; /* the file */
    u64 size;
    struct load_segment segment[LOAD_SEGMENTS];
    u32 nr;   /* segments */
    u32 at;   /* the segment that is being copied */
    u64 done; /* bytes of it that were copied */
    u64 entry;
    gpa_t ramdisk; /* where it goes; 0: there is none */
    bool multiboot;
    struct image_start start; /* valid when load_step() has returned false */
};

/* Checks the whole image, and prepares *l. Returns NULL, or one sentence that says why the image,
 * or the ramdisk, is refused. */
const char *load_start(struct loader *l, const struct load_order *order);

/* Copies at most 64 KiB. Returns true if it has to be called again. The last call writes the page
 * that tells the guest its memory map and command line, and fills in l->start. */
bool load_step(struct loader *l);

/* ---- the command line (cmdline.c) ---- */

/* Writes to `text`, which has CONFIG_CMDLINE bytes, the command line that the guest gets. A PC with
 * a turbo vCPU gets `isolcpus=0` and `irqaffinity=0` appended, apart from those of the two that the
 * VM file sets by itself. Returns false if there is no room for them. */
bool load_cmdline(const struct load_order *order, char *text);

/* ---- symbols (symbol.c) ---- */

#define IMAGE_SYMBOL 64 /* bytes of text, with the 0 at the end */

/* Writes the name of the function that contains the virtual address `address` into `text`, as
 * "fill+0x14", from the symbol table of a 64-bit ELF file. `text` becomes "" if that cannot be
 * told: there is no table, it has more symbols than a pCPU may be held up for (4,096), or the
 * address is not in the image's code. */
void image_symbol(const struct module *m, u64 address, char text[IMAGE_SYMBOL]);

/* ---- between load.c and symbol.c: reading a file that is not believed ---- */

#define ELF_MAGIC   0x464c457fu /* 0x7f 'E' 'L' 'F' */
#define ELF_CLASS   4           /* where the class is */
#define ELF_CLASS32 1
#define ELF_CLASS64 2

/* Returns whether all of the `len` bytes at `offset` are in the file. */
static inline bool image_has(const struct loader *l, u64 offset, u64 len) {
    return offset <= l->size && len <= l->size - offset;
}

/* Returns the `bytes` (at most 8) bytes of the file at `at` as a little-endian number, or 0 if they
 * are not all in the file. */
static inline u64 image_number(const struct loader *l, u64 at, unsigned bytes) {
    u64 value = 0;

    if (!image_has(l, at, bytes)) return 0;
    for (unsigned i = 0; i < bytes; i++) value |= (u64)l->image[at + i] << (8 * i);
    return value;
}

#endif
