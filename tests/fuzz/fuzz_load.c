/* The loader of guest images. If the first byte is odd, the rest is the file. If it is even, the
 * rest are changes to a good file. The loader must write into the VM's memory only, and must
 * end. */
#include "exit_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = { data, size };
    struct vcpu *v = fuzz_vcpu();
    struct module m;
    struct loader l;
    char symbol[IMAGE_SYMBOL];
    u8 *file;
    bool raw = take(&in, 1) & 1;

    m = fake_image;
    if (raw) m = (struct module){ "fuzz", in.data, in.size };
    file = malloc(MAX(m.size, (u64)1));
    memcpy(file, m.data, m.size);
    m.data = file;
    while (!raw && in.size) {
        u64 at = take(&in, 2) % m.size, value = take_value(&in);

        memcpy(file + at, &value, MIN(8, m.size - at));
    }
    if (!load_start(&l, &(struct load_order){
                            .mem = &v->vm->mem, .image = &m, .cmdline = v->vm->config.cmdline })) {
        unsigned steps = 0;

        while (load_step(&l)) check(++steps < 100);
        vcpu_start_state(v, &l.start);
        check(v->virt.regs.rip < v->vm->mem.size);
    }
    image_symbol(&m, take_value(&in), symbol);
    check(strlen(symbol) < sizeof(symbol));
    free(file);
    return 0;
}
