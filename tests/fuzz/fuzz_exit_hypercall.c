/* Hypercalls with any number and arguments, in any mode. The VM serves the devices of a second VM,
 * whose driver does anything to their registers, and which now and then is destroyed and made
 * again. */
#include "exit_fuzz.h"

static struct vm *front_vm(bool anew) {
    static struct vm *front;
    struct config_vm c = fake_config("front", 1);
    u32 cpu = this_cpu()->id;

    if (front && !anew) return front;
    if (front) fake_destroy(front);
    c.nr_devices = 2;
    for (u32 i = 0; i < 2; i++)
        c.device[i] =
            (struct config_device){ .type = VIRTIO_ID_NET + i, .back = "fuzz", .options = "x" };
    front = fake_vm(&c);
    check(front);
    fake_cpu(cpu);
    return front;
}

/* The second VM's driver takes some of the steps that set a device up, as many as the input says,
 * and then does one thing that may be wrong. */
static void front_acts(struct vm *front, struct fuzz_input *in) {
    static const u32 start[][2] = {
        { VIRTIO_STATUS, 3 },  { VIRTIO_DRIVER_FEATURES_SEL, 1 }, { VIRTIO_DRIVER_FEATURES, 1 },
        { VIRTIO_STATUS, 11 }, { VIRTIO_QUEUE_NUM, 1 },           { VIRTIO_QUEUE_READY, 1 },
        { VIRTIO_STATUS, 15 }
    };
    u64 base = TAKT_VIRTIO_GPA + take(in, 1) % 3 * PAGE_SIZE, value;

    for (u32 i = 0, n = (u32)take(in, 1) % 10; i < n && i < ARRAY_SIZE(start); i++) {
        value = start[i][1];
        bus_do(&front->mmio, &(struct bus_access){ base + start[i][0], 4, true, 0 }, &value);
    }
    value = take_value(in);
    bus_do(&front->mmio,
           &(struct bus_access){ base + take(in, 2) % 0x200, (u8)(1 << (take(in, 1) & 3)),
                                 value & 1, 0 },
           &value);
}

/* The mode that the call comes from: 64, 32 or 16 bits, as fuzz_mode() sets CS. */
static u8 bits_of(u8 mode) {
    if (mode & 32) return 64;
    if (mode & 64) return 32;
    return 16;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = { data, size };

    while (in.size) {
        struct vcpu *v = fuzz_vcpu();
        u64 *gpr = v->virt.regs.gpr, before[16];
        u8 nr = (u8)take(&in, 1), mode = (u8)take(&in, 1);
        struct vm *front = front_vm(nr == 255);

        if (nr > 247) front_acts(front, &in);
        v = fuzz_vcpu();
        fuzz_mode(v, mode);
        v->virt.regs.rip = 0x100000;
        for (unsigned i = 0; i < 16; i++) gpr[i] = i * 0x1111111111111111ull;
        gpr[REG_RAX] = nr % 32;
        if (nr >= 200) gpr[REG_RAX] = take_value(&in);
        gpr[REG_RBX] = take_value(&in);
        /* Half of the calls name a device that is there. */
        if (nr & 64) gpr[REG_RBX] = front->id * TAKT_MAX_DEVICES + (nr >> 5 & 1);
        gpr[REG_RCX] = take_value(&in);
        gpr[REG_RDX] = take_value(&in);
        gpr[REG_RSI] = take_value(&in);
        memcpy(before, gpr, sizeof(before));
        fuzz_handle(v, (struct vm_exit){ .reason = EXIT_HYPERCALL,
                                         .insn_len = 3,
                                         .hc = { bits_of(mode), mode & 3, mode & 8 } });
        /* All registers but RAX keep their values. */
        check(memcmp(before + 1, gpr + 1, sizeof(before) - sizeof(u64)) == 0);
    }
    return 0;
}
