/* What virt.c, vmx.c and svm.c allocate for a vCPU, over the model of a CPU (fake_hw.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "fake_hw.h"
#include "fake_machine.h"
#include "vcpu/vcpu.h"

static const enum hw_kind kinds[] = { HW_INTEL, HW_KVM_INTEL, HW_AMD, HW_KVM_AMD };
static struct vm *vm;

static struct vm *new_vm(void) {
    struct config_vm c = fake_config("guest", 2);
    struct vm *made = fake_vm(&c);

    assert_non_null(made);
    return made;
}

static void start(enum hw_kind kind) {
    fake_machine("null");
    fake_clock(1000);
    hw_start(kind);
    vm = new_vm();
    fake_cpu(vm->vcpu[0]->sched.cpu);
}

/* The pages of vCPUs, and what the heap has of them, are given back. */
static void test_vcpus_leave_nothing(void **state) {
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
        u64 frames, heap;

        start(kinds[i]);
        fake_destroy(vm);
        frames = frame_free_count();
        heap = heap_in_use();
        fake_destroy(new_vm());
        assert_int_equal(frame_free_count(), frames);
        assert_int_equal(heap_in_use(), heap);
    }
}

/* What XSAVE writes is in the vCPU's object, at an address that XSAVE accepts. A new vCPU has the
 * control words of a CPU after a reset. */
static void test_xsave_area(void **state) {
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
        struct virt_vcpu *made;
        const u8 *area;
        u64 heap;

        start(kinds[i]);
        heap = heap_in_use();
        made = virt_vcpu_alloc(sizeof(struct vcpu) + 1);
        assert_non_null(made);
        area = made->xsave;
        assert_int_equal((u64)area % 64, 0);
        assert_true(area > (u8 *)made + sizeof(struct vcpu));
        /* 832 bytes is what the model's CPU tells */
        assert_true(area + 832 <= (u8 *)made + (heap_in_use() - heap));
        heap_free(made);
        area = vm->vcpu[0]->virt.xsave;
        assert_int_equal(*(const u16 *)area, 0x37f);
        assert_int_equal(*(const u32 *)(area + 24), 0x1f80);
        fake_destroy(vm);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vcpus_leave_nothing),
        cmocka_unit_test(test_xsave_area),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
