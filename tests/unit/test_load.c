/* The loader of guest images: good images, and images that lie about a size, an offset or an
 * address. Each of these must be refused with the sentence that says what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <elf.h>
#include <takt/errno.h>
#include <takt/start_info.h>
#include "fake_machine.h"

#define FILE_SIZE 0x4000u

static struct vm *vm;
static struct loader loader;
static u8 *file; /* exactly as long as it says, for ASan and valgrind */
static u64 file_size;
static bool turbo_pc; /* the image is loaded into a PC with a turbo vCPU */

static Elf64_Ehdr *eh(void) { return (Elf64_Ehdr *)file; }

static Elf64_Phdr *ph(unsigned n) { return (Elf64_Phdr *)(file + 64) + n; }

/* Makes an image with two PT_LOAD segments, at 1 MiB and at 1 MiB + 64 KiB, and with a note. */
static void good_elf(void) {
    static const struct {
        u32 namesz, descsz, type;
        char name[4];
        u32 desc;
    } note = { 4, 4, XEN_ELFNOTE_PHYS32_ENTRY, "Xen", 0x100010 };

    memset(file, 0, FILE_SIZE);
    *eh() = (Elf64_Ehdr){ .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1 },
                          .e_type = ET_EXEC,
                          .e_machine = EM_X86_64,
                          .e_version = 1,
                          .e_entry = 0xffffffff80000020,
                          .e_phoff = 64,
                          .e_ehsize = 64,
                          .e_phentsize = sizeof(Elf64_Phdr),
                          .e_phnum = 3 };
    *ph(0) = (Elf64_Phdr){ PT_LOAD, 5, 0x1000, 0xffffffff80000000, 0x100000, 0x2000, 0x3000, 4096 };
    *ph(1) = (Elf64_Phdr){ PT_LOAD, 6, 0x3000, 0xffffffff80010000, 0x110000, 0x1000, 0x1000, 4096 };
    *ph(2) = (Elf64_Phdr){ PT_NOTE, 4, 0x800, 0, 0, sizeof(note), sizeof(note), 4 };
    memcpy(file + 0x800, &note, sizeof(note));
    memset(file + 0x1000, 0x11, 0x2000);
    memset(file + 0x3000, 0x22, 0x1000);
}

static int setup(void **state) {
    struct config_vm c = fake_config("loads", 1);

    turbo_pc = false;
    fake_machine("null");
    strcpy(c.cmdline, "one two");
    vm = fake_vm(&c);
    fake_cpu(vm->vcpu[0]->sched.cpu);
    file_size = FILE_SIZE;
    file = malloc(file_size);
    good_elf();
    return 0;
}

static int teardown(void **state) {
    free(file);
    fake_destroy(vm);
    return 0;
}

static const char *refused(void) {
    struct module m = { "test", file, file_size };
    const char *why = load_start(&loader, &(struct load_order){ .mem = &vm->mem,
                                                                .image = &m,
                                                                .cmdline = vm->config.cmdline,
                                                                .pc = turbo_pc,
                                                                .turbo = turbo_pc });

    return why ? why : "loads";
}

static void load(void) {
    unsigned steps = 0;

    assert_string_equal(refused(), "loads");
    while (load_step(&loader)) assert_true(++steps < 100);
    vcpu_start_state(vm->vcpu[0], &loader.start);
}

/* Returns the command line that a PC finds, with a turbo vCPU or without. */
static const char *cmdline_of_pc(const char *cmdline, bool turbo) {
    static char text[CONFIG_CMDLINE];
    struct load_order order = { .cmdline = cmdline, .pc = true, .turbo = turbo };

    if (!load_cmdline(&order, text)) return "no room";
    return text;
}

static u8 ram(gpa_t gpa) {
    u8 b = 0;

    assert_int_equal(guestmem_read(&vm->mem, gpa, &b, 1), 0);
    return b;
}

/* What the VM file says by itself is left as it is, and is not said a second time. */
static void test_words_of_a_turbo_vcpu(void **state) {
    char text[CONFIG_CMDLINE] = { 0 };
    struct load_order order = { .cmdline = "quiet", .turbo = true };

    assert_string_equal(cmdline_of_pc("quiet", false), "quiet");
    assert_string_equal(cmdline_of_pc("quiet", true), "quiet isolcpus=0 irqaffinity=0");
    assert_string_equal(cmdline_of_pc("", true), "isolcpus=0 irqaffinity=0");
    assert_string_equal(cmdline_of_pc("isolcpus=nohz,0-1 a", true),
                        "isolcpus=nohz,0-1 a irqaffinity=0");
    assert_string_equal(cmdline_of_pc("a irqaffinity=1", true), "a irqaffinity=1 isolcpus=0");
    assert_string_equal(cmdline_of_pc("noisolcpus=1 irqaffinity=1", true),
                        "noisolcpus=1 irqaffinity=1 isolcpus=0");
    assert_true(load_cmdline(&order, text)); /* a unikernel gets what the VM file says */
    assert_string_equal(text, "quiet");
}

static void test_no_room_for_words(void **state) {
    static const char words[] = " isolcpus=0 irqaffinity=0";
    char text[CONFIG_CMDLINE] = { 0 };

    memset(text, 'a', CONFIG_CMDLINE - sizeof(words));
    assert_string_not_equal(cmdline_of_pc(text, true), "no room");
    strcat(text, "a");
    assert_string_equal(cmdline_of_pc(text, true), "no room");
    strcpy(vm->config.cmdline, text);
    turbo_pc = true;
    assert_string_equal(refused(),
                        "the command line is too long to add what Linux needs for its turbo vCPU");
}

static void test_pvh(void **state) {
    struct vcpu *v = vm->vcpu[0];
    struct hvm_start_info info;
    struct hvm_memmap_entry map[8];
    char cmdline[16];

    load();
    assert_int_equal(ram(0x100000), 0x11);
    assert_int_equal(ram(0x101fff), 0x11);
    assert_int_equal(ram(0x102000), 0);
    assert_int_equal(ram(0x110fff), 0x22);
    assert_int_equal(v->virt.regs.rip, 0x100010);
    assert_int_equal(fake_of(v)->reg[VREG_CR0], 0x11);
    assert_int_equal(fake_of(v)->reg[VREG_EFER], 0);
    assert_int_equal(fake_of(v)->seg[SEG_CS].attr, 0xc9b);
    assert_int_equal(fake_of(v)->seg[SEG_SS].base, 0);
    guestmem_read(&vm->mem, v->virt.regs.gpr[REG_RBX], &info, sizeof(info));
    assert_int_equal(info.magic, HVM_START_MAGIC);
    assert_int_equal(info.version, 1);
    assert_int_equal(info.nr_modules, 0);
    guestmem_read(&vm->mem, info.cmdline_paddr, cmdline, sizeof(cmdline));
    assert_string_equal(cmdline, "one two");
    assert_int_equal(info.memmap_entries, 4);
    guestmem_read(&vm->mem, info.memmap_paddr, map, sizeof(map));
    assert_int_equal(map[0].size + map[1].size + map[2].size, 2 << 20);
    assert_int_equal(map[1].type, 2);
    assert_in_range(v->virt.regs.gpr[REG_RBX], map[1].addr, map[1].addr + map[1].size - 1);
}

/* The start page keeps out of the way of an image in low memory. */
static void test_low_image(void **state) {
    ph(1)->p_paddr = 0x6000;
    ph(1)->p_memsz = 0x5000;
    load();
    assert_int_equal(ram(0x6000), 0x22);
    assert_int_equal(vm->vcpu[0]->virt.regs.gpr[REG_RBX], 0xb000);
}

static void test_no_room_for_start(void **state) {
    ph(0)->p_paddr = 0;
    ph(0)->p_memsz = 0x200000;
    ph(1)->p_type = PT_NULL;
    memcpy(file + 0x800 + 16, &(u32){ 0x10 }, 4);
    assert_string_equal(
        refused(), "the image leaves no room in low memory for what it is to find at its start");
}

static void test_elf32(void **state) {
    Elf32_Ehdr h = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, 1 },
                     .e_machine = EM_386,
                     .e_phoff = 64,
                     .e_phentsize = sizeof(Elf32_Phdr),
                     .e_phnum = 2 };
    Elf32_Phdr p[2] = { { PT_LOAD, 0x1000, 0x100000, 0x100000, 0x1000, 0x1000, 5, 4 },
                        { PT_NOTE, 0x800, 0, 0, 20, 20, 4, 4 } };

    memcpy(file, &h, sizeof(h));
    memcpy(file + 64, p, sizeof(p));
    load();
    assert_int_equal(vm->vcpu[0]->virt.regs.rip, 0x100010);
}

static void test_lies(void **state) {
    static const struct {
        unsigned offset, size;
        u64 value;
        const char *why;
    } lies[] = {
#define EH(field)    offsetof(Elf64_Ehdr, field), sizeof(((Elf64_Ehdr *)0)->field)
#define PH(n, field) 64 + n * 56 + offsetof(Elf64_Phdr, field), sizeof(((Elf64_Phdr *)0)->field)
        { 0, 1, 0, "the image is neither ELF nor multiboot" },
        { 4, 1, 3, "the image's ELF header is cut off or of an unknown class" },
        { 5, 1, 2, "the image is not for x86" },
        { EH(e_machine), 40, "the image is not for x86" },
        { EH(e_phentsize), 55, "the image's program headers have an odd size" },
        { EH(e_phnum), 65535, "the image has too many program headers" },
        { EH(e_phnum), 65, "the image has too many program headers" },
        { EH(e_phnum), 0, "the image has nothing to load" },
        { EH(e_phoff), ~0ull, "the image's program headers lie outside the file" },
        { EH(e_phoff), ~0ull - 100, "the image's program headers lie outside the file" },
        { EH(e_phoff), FILE_SIZE - 100, "the image's program headers lie outside the file" },
        { PH(0, p_offset), ~0ull - 0xfff, "a segment of the image lies outside the file" },
        { PH(0, p_offset), 0x2001, "a segment of the image lies outside the file" },
        { PH(0, p_filesz), ~0ull, "a segment of the image lies outside the file" },
        { PH(0, p_memsz), 0x1fff, "a segment of the image is larger in the file than in memory" },
        { PH(0, p_memsz), ~0ull, "a segment of the image lies outside the VM's memory" },
        { PH(0, p_memsz), 0x100001, "a segment of the image lies outside the VM's memory" },
        { PH(0, p_paddr), ~0ull - 0x10, "a segment of the image lies outside the VM's memory" },
        { PH(0, p_paddr), 0x100000000, "a segment of the image lies outside the VM's memory" },
        { PH(0, p_paddr), 0xfee00000, "a segment of the image lies outside the VM's memory" },
        { PH(0, p_memsz), 0x10001, "segments of the image overlap" },
        { PH(1, p_paddr), 0x102fff, "segments of the image overlap" },
        { 0x800 + 16, 4, 0x103000, "the image's entry lies outside what is loaded" },
        { 0x800 + 16, 4, 0, "the image's entry lies outside what is loaded" },
        { 0x800, 4, 5, "the image has neither a PVH note nor a multiboot header" },
        { 0x800, 4, ~0u, "the image has neither a PVH note nor a multiboot header" },
        { 0x804, 4, ~0u, "the image has neither a PVH note nor a multiboot header" },
        { 0x804, 4, 8, "the image has neither a PVH note nor a multiboot header" },
        { PH(2, p_offset), ~0ull, "the image has neither a PVH note nor a multiboot header" },
        { PH(2, p_filesz), 19, "the image has neither a PVH note nor a multiboot header" },
        { PH(2, p_filesz), ~0ull, "the image has neither a PVH note nor a multiboot header" },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(lies); i++) {
        good_elf();
        memcpy(file + lies[i].offset, &lies[i].value, lies[i].size);
        assert_string_equal(refused(), lies[i].why);
    }
    good_elf();
    for (file_size = 0; file_size < FILE_SIZE; file_size++) { /* cut off anywhere */
        u8 *all = file;

        if (file_size > 300 && file_size % 61) continue;
        file = malloc(file_size);
        memcpy(file, all, file_size);
        assert_string_not_equal(refused(), "loads");
        free(file);
        file = all;
    }
}

/* ---- multiboot1 ---- */

static void mb_header(u32 at, u32 flags, u32 header, u32 load, u32 load_end, u32 bss_end,
                      u32 entry) {
    u32 h[8] = {
        0x1badb002, flags, -(0x1badb002u + flags), header, load, load_end, bss_end, entry
    };

    memcpy(file + at, h, sizeof(h));
}

static void test_multiboot_elf(void **state) {
    struct vcpu *v = vm->vcpu[0];
    u32 info[16];

    ph(2)->p_type = PT_NULL;
    mb_header(0x1000, 3, 0, 0, 0, 0, 0);
    load();
    assert_int_equal(v->virt.regs.rip, 0x100020); /* the entry is virtual: as physical */
    assert_int_equal(v->virt.regs.gpr[REG_RAX], 0x2badb002);
    guestmem_read(&vm->mem, v->virt.regs.gpr[REG_RBX], info, sizeof(info));
    assert_int_equal(info[0], 0x24d);
    assert_int_equal(info[1], 640);
    assert_int_equal(info[2], 1024);
    assert_int_equal(info[11] % 24, 0);
    assert_int_equal(ram(info[4]), 'o');
    assert_int_equal(ram(info[12]), 20); /* size of an entry without itself */
}

static void test_multiboot_addresses(void **state) {
    memset(file, 0, FILE_SIZE);
    memset(file + 0x1000, 0x33, 0x3000);
    mb_header(0x1004, 0x10000, 0x100004, 0x100000, 0x102000, 0x108000, 0x100040);
    load();
    assert_int_equal(ram(0x100100), 0x33);
    assert_int_equal(ram(0x101fff), 0x33);
    assert_int_equal(ram(0x102000), 0);
    assert_int_equal(vm->vcpu[0]->virt.regs.rip, 0x100040);
    mb_header(0x1004, 0x10000, 0x100004, 0x100000, 0, 0, 0x100040); /* the whole file */
    assert_string_equal(refused(), "loads");
    assert_int_equal(loader.segment[0].filesz, 0x3000);
}

static void test_multiboot_lies(void **state) {
    static const struct {
        u32 flags, header, load, load_end, bss_end, entry;
        const char *why;
    } lies[] = {
        { 0x10004, 0x100004, 0x100000, 0, 0, 0x100000,
          "the image's multiboot header asks for more than there is" },
        { 0x10000, 0x100000, 0x100004, 0, 0, 0x100000,
          "the multiboot header's addresses contradict each other" },
        { 0x10000, 0x200000, 0x100000, 0, 0, 0x100000,
          "the multiboot header's addresses contradict each other" },
        { 0x10000, 0x100004, 0x100000, 0xfffff, 0, 0x100000,
          "the multiboot header's addresses contradict each other" },
        { 0x10000, 0x100004, 0x100000, 0x108000, 0, 0x100000,
          "a segment of the image lies outside the file" },
        { 0x10000, 0x100004, 0x100000, 0x102000, 0x101000, 0x100000,
          "a segment of the image is larger in the file than in memory" },
        { 0x10000, 0x100004, 0x100000, 0x102000, 0x90000, 0x100000,
          "a segment of the image lies outside the VM's memory" },
        { 0x10000, 0x100004, 0x100000, 0x102000, 0x300000, 0x100000,
          "a segment of the image lies outside the VM's memory" },
        { 0x10000, 0x100004, 0x100000, 0, 0, 0x103000,
          "the image's entry lies outside what is loaded" },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(lies); i++) {
        memset(file, 0, FILE_SIZE);
        mb_header(0x1004, lies[i].flags, lies[i].header, lies[i].load, lies[i].load_end,
                  lies[i].bss_end, lies[i].entry);
        assert_string_equal(refused(), lies[i].why);
    }
    memset(file, 0, FILE_SIZE);
    mb_header(0x2000, 0x10000, 0x100000, 0x100000, 0, 0, 0x100000); /* too far into the file */
    assert_string_equal(refused(), "the image is neither ELF nor multiboot");
    mb_header(0x1002, 0x10000, 0x100000, 0x100000, 0, 0, 0x100000); /* not aligned */
    assert_string_equal(refused(), "the image is neither ELF nor multiboot");
}

static void test_large_in_steps(void **state) {
    unsigned steps = 0;

    free(file);
    file = malloc(0x90000);
    memset(file, 0x44, 0x90000);
    good_elf();
    file_size = 0x90000;
    ph(0)->p_filesz = ph(0)->p_memsz = 0x8f000;
    ph(1)->p_type = PT_NULL;
    assert_string_equal(refused(), "loads");
    while (load_step(&loader)) steps++;
    assert_in_range(steps, 9, 12);
    assert_int_equal(ram(0x100000 + 0x8efff), 0x44);
}

/* There are two notes at the very end of the file, and ours is the second one. */
static void test_second_note(void **state) {
    static const u32 other[4] = { 4, 0, 1, 0x6e6558 };

    memcpy(file + FILE_SIZE - 20, file + 0x800, 20);
    memcpy(file + FILE_SIZE - 36, other, 16);
    ph(2)->p_offset = FILE_SIZE - 36;
    ph(2)->p_filesz = 36;
    load();
    assert_int_equal(vm->vcpu[0]->virt.regs.rip, 0x100010);
}

static void test_modules(void **state) {
    static const struct module m = { "mod", "x", 1 };

    assert_int_equal(module_add(&m), 0);
    assert_int_equal(module_add(&m), -EEXIST);
    assert_non_null(module_find("mod"));
    assert_null(module_find("mo"));
    for (int i = 0; i < MAX_MODULES; i++) {
        struct module n = { strdup("n00"), "x", 1 };

        ((char *)n.name)[1] += (char)(i / 10);
        ((char *)n.name)[2] += (char)(i % 10);
        if (module_add(&n)) {
            assert_int_equal(i, MAX_MODULES - 2); /* two were there */
            return;
        }
    }
    fail();
}

/* ---- symbols ---- */

static Elf64_Shdr *sh(unsigned n) { return (Elf64_Shdr *)(file + 0x900) + n; }

static Elf64_Sym *sym(unsigned n) { return (Elf64_Sym *)(file + 0xa00) + n; }

/* Of 0x2000 bytes of text at 0x100000: fill from 0x100010, spill (of assembler: no type) from
 * 0x100800; a variable and a constant that are nearer to some addresses, but no functions; names
 * at 0xb00. */
static void good_symbols(void) {
    static const char names[] = "\0fill\0spill\0variable";

    eh()->e_shoff = 0x900;
    eh()->e_shentsize = sizeof(Elf64_Shdr);
    eh()->e_shnum = 4;
    *sh(1) = (Elf64_Shdr){ .sh_type = SHT_PROGBITS,
                           .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                           .sh_addr = 0x100000,
                           .sh_offset = 0x1000,
                           .sh_size = 0x2000 };
    *sh(2) = (Elf64_Shdr){ .sh_type = SHT_SYMTAB,
                           .sh_offset = 0xa00,
                           .sh_size = 5 * sizeof(Elf64_Sym),
                           .sh_link = 3,
                           .sh_entsize = sizeof(Elf64_Sym) };
    *sh(3) = (Elf64_Shdr){ .sh_type = SHT_STRTAB, .sh_offset = 0xb00, .sh_size = sizeof(names) };
    *sym(1) = (Elf64_Sym){ .st_name = 1, .st_info = STT_FUNC, .st_shndx = 1, .st_value = 0x100010 };
    *sym(2) =
        (Elf64_Sym){ .st_name = 6, .st_info = STT_NOTYPE, .st_shndx = 1, .st_value = 0x100800 };
    *sym(3) =
        (Elf64_Sym){ .st_name = 12, .st_info = STT_OBJECT, .st_shndx = 1, .st_value = 0x100900 };
    *sym(4) = (Elf64_Sym){
        .st_name = 12, .st_info = STT_NOTYPE, .st_shndx = SHN_ABS, .st_value = 0x100700
    };
    memcpy(file + 0xb00, names, sizeof(names));
}

static const char *symbol(u64 address) {
    static char text[IMAGE_SYMBOL];
    struct module m = { "test", file, file_size };

    image_symbol(&m, address, text);
    return text;
}

static void test_symbols(void **state) {
    assert_string_equal(symbol(0x100010), ""); /* an image without a table */
    good_symbols();
    assert_string_equal(symbol(0x100010), "fill+0x0");
    assert_string_equal(symbol(0x1007ff), "fill+0x7ef");
    assert_string_equal(symbol(0x100800), "spill+0x0");
    assert_string_equal(symbol(0x101fff), "spill+0x17ff");
    assert_string_equal(symbol(0x10000f), ""); /* before the first */
    assert_string_equal(symbol(0x102000), ""); /* behind the text */
    assert_string_equal(symbol(~0ull), "");
    memcpy(file + 0xb01, "fi\033l", 4);
    assert_string_equal(symbol(0x100010), "fi?l+0x0");
}

/* Nothing in the table is believed. However large it says that it is, it costs no more than the
 * bound. */
static void test_symbols_that_lie(void **state) {
    good_symbols();
    eh()->e_shoff = FILE_SIZE - 64;
    assert_string_equal(symbol(0x100010), "");
    eh()->e_shoff = ~0ull;
    assert_string_equal(symbol(0x100010), "");
    good_symbols();
    eh()->e_shentsize = 1;
    assert_string_equal(symbol(0x100010), "");
    good_symbols();
    sh(2)->sh_offset = FILE_SIZE - 8;
    assert_string_equal(symbol(0x100010), "");
    good_symbols();
    sh(2)->sh_entsize = 0;
    assert_string_equal(symbol(0x100010), "");
    good_symbols();
    sh(2)->sh_link = 9;
    assert_string_equal(symbol(0x100010), "");
    good_symbols();
    sh(3)->sh_offset = ~0ull;
    assert_string_equal(symbol(0x100010), "");
    good_symbols();
    sym(1)->st_name = 0xffffffff;
    assert_string_equal(symbol(0x100010), "");
    good_symbols();
    sh(3)->sh_size = 3; /* the name goes on behind its table */
    assert_string_equal(symbol(0x100010), "fi+0x0");
    good_symbols();
    eh()->e_ident[EI_CLASS] = ELFCLASS32;
    assert_string_equal(symbol(0x100010), "");
    file_size = 70;
    assert_string_equal(symbol(0x100010), "");
}

/* Linux has 100,000 symbols: to look through them would hold the pCPU up for milliseconds. */
static void test_too_many_symbols(void **state) {
    u64 n = 5000;

    file_size = 0x1000 + n * sizeof(Elf64_Sym) + FILE_SIZE;
    file = realloc(file, file_size);
    good_elf();
    good_symbols();
    memset(file + FILE_SIZE, 0, file_size - FILE_SIZE);
    memcpy(file + FILE_SIZE, file + 0xa00, 5 * sizeof(Elf64_Sym));
    sh(2)->sh_offset = FILE_SIZE;
    sh(2)->sh_size = n * sizeof(Elf64_Sym);
    assert_string_equal(symbol(0x100010), "");
    sh(2)->sh_size = 4096 * sizeof(Elf64_Sym);
    assert_string_equal(symbol(0x100010), "fill+0x0");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* ---- a ramdisk, and a PC's firmware ---- */

static const char *refused_with(const struct module *ramdisk, bool pc) {
    struct module m = { "test", file, file_size };
    const char *why = load_start(&loader, &(struct load_order){ .mem = &vm->mem,
                                                                .image = &m,
                                                                .ramdisk = ramdisk,
                                                                .cmdline = vm->config.cmdline,
                                                                .pc = pc });

    return why ? why : "loads";
}

static void test_ramdisk(void **state) {
    static const u8 data[3 * PAGE_SIZE + 1] = { [3 * PAGE_SIZE] = 0x33 };
    struct module disk = { "disk", data, sizeof(data) };
    u64 end = vm->mem.low_size;

    assert_string_equal(refused_with(&disk, true), "loads");
    while (load_step(&loader))
        ;
    assert_int_equal(ram(end - PAGE_SIZE), 0x33);
    disk.size = end;
    assert_string_equal(refused_with(&disk, true), "the ramdisk is larger than the VM's memory");
    disk.size = end - 0x108000;
    assert_string_equal(refused_with(&disk, true),
                        "the VM's memory is too small for both the image and the ramdisk");
}

/* A multiboot1 kernel finds the ramdisk as its only module, with the ramdisk's name as the module's
 * string (multiboot1, 3.3). */
static void test_ramdisk_of_multiboot(void **state) {
    static const u8 data[5000] = { [4999] = 0x44 };
    struct module disk = { "disk", data, sizeof(data) };
    struct {
        u32 start, end, string, reserved;
    } module;
    struct mb_info info;

    ph(2)->p_type = PT_NULL;
    mb_header(0x1000, 3, 0, 0, 0, 0, 0);
    assert_string_equal(refused_with(&disk, true), "loads");
    while (load_step(&loader))
        ;
    guestmem_read(&vm->mem, loader.start.ebx, &info, sizeof(info));
    assert_true(info.flags & BIT(3));
    assert_int_equal(info.mods_count, 1);
    guestmem_read(&vm->mem, info.mods_addr, &module, sizeof(module));
    assert_int_equal(module.end - module.start, sizeof(data));
    assert_int_equal(ram(module.end - 1), 0x44);
    assert_int_equal(ram(module.string), 'd');
    assert_int_equal(ram(module.string + 4), 0);
    assert_int_equal(module.reserved, 0);
    assert_string_equal(refused_with(NULL, true), "loads");
    while (load_step(&loader))
        ;
    guestmem_read(&vm->mem, loader.start.ebx, &info, sizeof(info));
    assert_int_equal(info.mods_count, 0);
}

static void test_image_where_the_firmware_is(void **state) {
    ph(1)->p_paddr = LOAD_FIRMWARE;
    assert_string_equal(refused_with(NULL, true),
                        "the image lies where a PC has its firmware, from 0xe0000 to 1 MiB");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_words_of_a_turbo_vcpu),
        TEST(test_no_room_for_words),
        TEST(test_pvh),
        TEST(test_ramdisk),
        TEST(test_ramdisk_of_multiboot),
        TEST(test_image_where_the_firmware_is),
        TEST(test_low_image),
        TEST(test_no_room_for_start),
        TEST(test_elf32),
        TEST(test_lies),
        TEST(test_multiboot_elf),
        TEST(test_multiboot_addresses),
        TEST(test_multiboot_lies),
        TEST(test_large_in_steps),
        TEST(test_second_note),
        TEST(test_symbols),
        TEST(test_symbols_that_lie),
        TEST(test_too_many_symbols),
        TEST(test_modules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
