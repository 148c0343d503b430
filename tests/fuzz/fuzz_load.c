/* The loader of guest images. Odd first byte: the rest is the file. Even: the rest are changes
 * to a good one. */
#include "exit_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = { data, size };
    struct vcpu *v = fuzz_vcpu();
    struct module m = { "fuzz", NULL, 0 };
    struct loader l;
    char symbol[IMAGE_SYMBOL];
    u8 *file;
    bool raw = take(&in, 1) & 1;

    m.size = raw ? in.size : fake_image.size;
    m.data = file = malloc(m.size + !m.size);
    memcpy(file, raw ? in.data : fake_image.data, m.size);
    while (!raw && in.size) {
        u64 at = take(&in, 2) % m.size, value = take_value(&in);

        memcpy(file + at, &value, MIN(8, m.size - at));
    }
    if (!load_start(&l, &v->vm->mem, v->vm->config.cmdline, &m)) {
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
