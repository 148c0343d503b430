/* Names of a guest's functions, for the report of a crash. The ELF symbol table of the image is
 * read as it lies in the file; nothing is kept. Layout: System V gABI, chapter 4. */
#include "image/image.h"
#include "lib/printf.h"

/* Elf64_Ehdr */
#define EH_SHOFF     40
#define EH_SHENTSIZE 58
#define EH_SHNUM     60

/* Elf64_Shdr */
#define SH_TYPE       4
#define SH_FLAGS      8
#define SH_ADDR       16
#define SH_OFFSET     24
#define SH_SIZE       32
#define SH_LINK       40 /* of a symbol table: the section with its names */
#define SH_ENTSIZE    56
#define SECTION       64u /* bytes of one */
#define SECTIONS_MAX  64u /* how many sections are looked at */
#define SHT_SYMTAB    2
#define SHF_EXECINSTR 4u

#define STT_NOTYPE    0 /* what assemblers make */
#define STT_FUNC      2
/* The most symbols: each takes some ten instructions, with interrupts off. */
#define SYMBOLS_MAX  4096u

#define OFFSET_CHARS 20 /* how many of IMAGE_SYMBOL's characters are for "+0x" and 16 digits */

struct symbol { /* Elf64_Sym */
    u32 name;
    u8 info, other;
    u16 section;
    u64 value, size;
} __attribute__((packed)); /* a file may have it at any address */
_Static_assert(sizeof(struct symbol) == 24, "Elf64_Sym has 24 bytes");

/* Places in the file, all of them inside it. */
struct symtab {
    u64 symbols; /* where the first is */
    u64 n;
    u64 names;
    u64 names_len; /* bytes */
};

/* Are the symbols and their names inside the file, and not too many? */
static bool symtab_inside(const struct loader *l, const struct symtab *t) {
    return t->n <= SYMBOLS_MAX && image_has(l, t->symbols, t->n * sizeof(struct symbol)) &&
           image_has(l, t->names, t->names_len);
}

/* Finds the symbol table of the image, an ELF file with 64-bit words. Returns false if there is
 * none, or if `address` is in none of its sections of code. */
static bool symtab_find(const struct loader *l, u64 address, struct symtab *t) {
    u64 sections = image_number(l, EH_SHOFF, 8),
        n = MIN(image_number(l, EH_SHNUM, 2), SECTIONS_MAX);
    bool code = false, found = false;

    if (image_number(l, 0, 4) != ELF_MAGIC || image_number(l, ELF_CLASS, 1) != ELF_CLASS64)
        return false;
    if (image_number(l, EH_SHENTSIZE, 2) != SECTION) return false;
    if (!image_has(l, sections, n * SECTION)) return false;
    for (u64 i = 0; i < n; i++) {
        u64 at = sections + i * SECTION, link = image_number(l, at + SH_LINK, 4);
        u64 names = sections + link * SECTION;

        if (image_number(l, at + SH_FLAGS, 8) & SHF_EXECINSTR &&
            address - image_number(l, at + SH_ADDR, 8) < image_number(l, at + SH_SIZE, 8))
            code = true;
        if (image_number(l, at + SH_TYPE, 4) != SHT_SYMTAB) continue;
        if (image_number(l, at + SH_ENTSIZE, 8) != sizeof(struct symbol) || link >= n) continue;
        *t = (struct symtab){ .symbols = image_number(l, at + SH_OFFSET, 8),
                              .n = image_number(l, at + SH_SIZE, 8) / sizeof(struct symbol),
                              .names = image_number(l, names + SH_OFFSET, 8),
                              .names_len = image_number(l, names + SH_SIZE, 8) };
        found = symtab_inside(l, t);
    }
    return code && found;
}

/* Returns the last function that begins at `address` or before it, or NULL if there is none. */
static const struct symbol *symbol_before(const struct loader *l, const struct symtab *t,
                                          u64 address) {
    const struct symbol *first = (const void *)(l->image + t->symbols), *best = NULL;

    for (const struct symbol *s = first; s < first + t->n; s++) {
        unsigned type = s->info & 15;

        if (type != STT_FUNC && type != STT_NOTYPE) continue;
        if (s->section == 0 || s->section >= SECTIONS_MAX) continue; /* undefined; a constant */
        if (s->value > address) continue;
        if (!best || s->value >= best->value) best = s;
    }
    return best;
}

/* Finds the name of the function that contains `address` in the image's symbol table. The file may
 * contain anything, so each character of the name is read with a check of its place. */
void image_symbol(const struct module *m, u64 address, char text[IMAGE_SYMBOL]) {
    struct loader l = { .image = m->data, .size = m->size };
    char function[IMAGE_SYMBOL - OFFSET_CHARS];
    const struct symbol *s;
    struct symtab t = { 0 };
    u32 len = 0;

    text[0] = 0;
    if (!symtab_find(&l, address, &t)) return;
    s = symbol_before(&l, &t, address);
    if (!s) return;
    for (u64 at = s->name; at < t.names_len && len < sizeof(function) - 1; at++) {
        char c = (char)image_number(&l, t.names + at, 1);

        if (!c) break;
        if (c < ' ' || c > '~') c = '?'; /* the name goes to a terminal */
        function[len++] = c;
    }
    function[len] = 0;
    if (len) hv_snprintf(text, IMAGE_SYMBOL, "%s+0x%lx", function, address - s->value);
}
