/* What newer CPUs with AMD-V tell about an exit, and what they can flush (decode assists, flush by
 * ASID), over the model of a CPU (fake_hw.h), each switched on and off. And the model's own check
 * of clean bits: what Takt marks as unchanged in a VMCB has not changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include "fake_hw.h"
#include "fake_machine.h"
#include "vcpu/exits.h"
#include "virt/svm.h"
#include "virt/vendor.h"

#define CODE          0x100000u
#define ALL           (HW_NEXT_RIP | HW_FLUSH_BY_ASID | HW_DECODE)
#define LAPIC_VERSION (TAKT_LAPIC_GPA + 0x30)
#define VERSION_LOW   0x14u /* of every LAPIC with these registers: SDM 3A 12.4.8 */
#define TAGS          16u   /* ASIDs of the model, with 0 */

static struct vm *vm;
static struct vcpu *v;

static void start(u32 features) {
    struct config_vm c = fake_config("guest", 2);

    fake_machine("null");
    fake_clock(1000);
    hw_svm_features = features;
    hw_start(HW_AMD);
    vm = fake_vm(&c);
    assert_non_null(vm);
    v = vm->vcpu[0];
    fake_cpu(v->sched.cpu);
    hw_enter(NULL);
}

static void stop(void) {
    hw_guest = NULL;
    hw_meanwhile = NULL;
    hw_svm_features = 0;
    svm_allow(true, true);
    fake_destroy(vm);
}

/* Writes the instruction that the guest executes next. */
static void put_insn(u64 at, const char *insn, u32 len) {
    assert_int_equal(guestmem_write(&vm->mem, at, insn, len), 0);
    v->virt.regs.rip = at;
}

/* Another vCPU overwrites the instruction after the CPU has executed it. */
static void overwrite(void) {
    assert_int_equal(guestmem_write(&vm->mem, CODE, "\x90\x90\x90\x90", 4), 0);
}

/* ---- decode assists ---- */

static void exit_cr0_selective(struct guest_regs *regs) {
    hw_vmcb()->exit_code = SVM_EXIT_CR0_SELECTIVE;
    hw_vmcb()->next_rip = CODE + 3;
}

static void exit_cr4_read(struct guest_regs *regs) {
    hw_vmcb()->exit_code = SVM_EXIT_CR_READ + 4;
    hw_vmcb()->next_rip = CODE + 3;
}

static void exit_cr4_read_to_r9(struct guest_regs *regs) {
    exit_cr4_read(regs);
    hw_vmcb()->exit_info1 = CR_EXIT_IS_MOV | 9;
}

/* The CPU says which registers a MOV was about, so the bytes in memory do not matter. */
static void test_mov_cr(void **state) {
    start(ALL);
    hw_meanwhile = overwrite;
    put_insn(CODE, "\x0f\x22\xc1", 3); /* mov %ecx, %cr0 */
    v->virt.regs.gpr[REG_RCX] = CR0_PE | CR0_ET | CR0_CD;
    hw_enter(exit_cr0_selective);
    assert_int_equal(v->virt.regs.rip, CODE + 3);
    assert_int_equal(virt->get_reg(&v->virt, VREG_CR0), CR0_PE | CR0_ET | CR0_CD);
    put_insn(CODE, "\x0f\x20\xe2", 3); /* mov %cr4, %edx */
    v->virt.regs.gpr[REG_RDX] = ~0ull;
    hw_enter(exit_cr4_read);
    assert_int_equal(v->virt.regs.rip, CODE + 3);
    assert_int_equal(v->virt.regs.gpr[REG_RDX], vcpu_reg(v, VREG_CR4));
    v->virt.regs.rip = CODE;
    v->virt.regs.gpr[9] = ~0ull;
    hw_enter(exit_cr4_read_to_r9);
    assert_int_equal(v->virt.regs.gpr[9], vcpu_reg(v, VREG_CR4));
    stop();
}

/* Without decode assists memory alone tells it, and there is another instruction by now. */
static void test_mov_cr_in_memory(void **state) {
    static const u32 features[] = { HW_NEXT_RIP, HW_NEXT_RIP | HW_DECODE, HW_DECODE };

    for (unsigned i = 0; i < ARRAY_SIZE(features); i++) {
        svm_allow(false, true);
        if (!(features[i] & HW_NEXT_RIP)) svm_allow(true, true); /* lengths would be missing */
        start(features[i]);
        put_insn(CODE, "\x0f\x20\xe2", 3);
        hw_enter(exit_cr4_read);
        assert_int_equal(v->virt.regs.rip, CODE + 3);
        assert_int_equal(v->virt.regs.gpr[REG_RDX], vcpu_reg(v, VREG_CR4));
        hw_meanwhile = overwrite;
        put_insn(CODE, "\x0f\x20\xe2", 3);
        hw_enter(exit_cr4_read);
        assert_int_equal(v->virt.regs.rip, CODE);
        assert_int_equal(vm->state, VM_CRASHED);
        stop();
    }
}

static bool intercepted;

static void look_at_cr0(struct guest_regs *regs) {
    intercepted = hw_vmcb()->intercept[0] & SVM_INTERCEPT(SVM_EXIT_CR0_SELECTIVE);
}

/* LMSW is no MOV, and the CPU says so: it still runs for one step without the intercept. */
static void test_lmsw(void **state) {
    start(ALL);
    put_insn(CODE, "\x0f\x01\xf0", 3); /* lmsw %ax */
    hw_enter(exit_cr0_selective);
    assert_int_equal(v->virt.regs.rip, CODE);
    hw_enter(look_at_cr0);
    assert_false(intercepted);
    stop();
}

static void read_version(struct guest_regs *regs) {
    hw_vmcb()->exit_code = SVM_EXIT_NPF;
    hw_vmcb()->exit_info1 = 0;
    hw_vmcb()->exit_info2 = LAPIC_VERSION;
}

/* Reads a register of the LAPIC by an instruction of `len` bytes. The CPU tells `told` of them. */
static void read_lapic(u64 at, const char *insn, u32 len, u8 told) {
    hw_bytes_told = told;
    put_insn(at, insn, len);
    v->virt.regs.gpr[REG_RAX] = 0;
    hw_enter(read_version);
    assert_int_equal(vm->state, VM_RUNNING);
    assert_int_equal(v->virt.regs.rip, at + len);
    assert_int_equal((u8)v->virt.regs.gpr[REG_RAX], VERSION_LOW);
}

/* The bytes of an instruction that accesses a device: those that the CPU tells count, even if there
 * are others in memory by now. If it tells none, or not the whole instruction, they are fetched. */
static void test_bytes_of_an_instruction(void **state) {
    static const char mov[] = "\x8b\x05\x30\x00\xe0\xfe";
    u64 end;

    for (unsigned bits = 16; bits <= 32; bits += 16) {
        /* A register of the LAPIC has 32 bits, so the operand of 16-bit code has a prefix. */
        const char *insn = bits == 16 ? "\x66\x8b\x07" : "\x8b\x07";
        u32 len = bits == 16 ? 3 : 2;
        struct guest_seg cs;

        start(ALL);
        virt->get_seg(&v->virt, SEG_CS, &cs);
        cs.attr &= (u16)~ATTR_BIG;
        if (bits == 32) cs.attr |= ATTR_BIG;
        virt->set_seg(&v->virt, SEG_CS, &cs);
        read_lapic(CODE, insn, len, 15);
        hw_meanwhile = overwrite;
        read_lapic(CODE, insn, len, 15);
        read_lapic(CODE, insn, len, (u8)len);
        hw_meanwhile = NULL;
        read_lapic(CODE, insn, len, 0);
        read_lapic(CODE, insn, len, 1);
        if (bits == 32) read_lapic(CODE, mov, 6, 5); /* an address follows */
        end = vm->mem.size - len;                    /* nothing comes behind it */
        read_lapic(end, insn, len, 15);
        stop();
    }
}

/* With decode_assists = no what is in memory counts. */
static void test_bytes_in_memory(void **state) {
    svm_allow(false, true);
    start(ALL);
    read_lapic(CODE, "\x8b\x07", 2, 15);
    hw_meanwhile = overwrite;
    put_insn(CODE, "\x8b\x07", 2);
    hw_enter(read_version);
    assert_int_equal(vm->state, VM_CRASHED);
    stop();
}

/* ---- flush by ASID ---- */

static u32 asid_seen;
static u8 flush_seen;

static void look(struct guest_regs *regs) {
    asid_seen = hw_vmcb()->asid;
    flush_seen = hw_vmcb()->tlb_control;
}

/* Enters, and checks what the CPU was told to flush. */
static void expect_flush(u8 flush) {
    hw_enter(look);
    assert_int_equal(flush_seen, flush);
}

/* For an odd `nr` that page is taken away from the VM; for an even one the hypervisor changes CR4
 * for the guest. Both are a reason to flush. */
static void cause_flush(unsigned nr) {
    if (nr % 2)
        assert_int_equal(npt_unmap(&vm->virt.npt, nr * PAGE_SIZE, PAGE_SIZE), 0);
    else
        virt->set_reg(&v->virt, VREG_CR4, virt->get_reg(&v->virt, VREG_CR4));
}

static void test_flush_keeps_the_asid(void **state) {
    u32 asid;

    start(ALL);
    expect_flush(0);
    asid = asid_seen;
    for (unsigned i = 0; i < 2 * TAGS; i++) {
        cause_flush(i);
        expect_flush(TLB_CTL_ASID);
        expect_flush(0); /* once is enough */
        assert_int_equal(asid_seen, asid);
    }
    stop();
}

/* Without flush by ASID each flush takes a new ASID. When they are used up, all that the CPU has is
 * flushed. */
static void test_flush_by_new_asids(void **state) {
    for (unsigned allowed = 0; allowed < 2; allowed++) {
        u32 all = 0;

        svm_allow(true, allowed);
        start(allowed ? HW_NEXT_RIP : ALL);
        for (unsigned i = 0; i < 2 * TAGS; i++) {
            u32 before;

            expect_flush(0);
            before = asid_seen;
            cause_flush(i);
            hw_enter(look);
            assert_int_not_equal(asid_seen, before);
            assert_true(flush_seen == 0 || (flush_seen == TLB_CTL_ALL && asid_seen == 1));
            all += flush_seen == TLB_CTL_ALL;
        }
        assert_int_equal(all, 2);
        stop();
    }
}

/* Moves the vCPU to another pCPU, and enters there. */
static void move_and_enter(u32 cpu) {
    struct vm_exit e;

    virt->save(&v->virt);
    fake_cpu(cpu);
    virt->load(&v->virt);
    hw_once(look);
    virt->run(&v->virt, ~0ull, &e);
}

/* ASIDs belong to a pCPU. Nothing that another one has cached of the VMCB counts here: the model
 * stops the test if any of it is marked as clean. */
static void test_move(void **state) {
    static const u32 features[] = { 0, ALL };

    for (unsigned i = 0; i < ARRAY_SIZE(features); i++) {
        u32 home, first;

        start(features[i]);
        home = this_cpu()->id;
        hw_enter(look);
        first = asid_seen;
        move_and_enter(!home);
        assert_int_equal(flush_seen, 0);
        assert_int_equal(asid_seen, 1); /* the first one there */
        move_and_enter(home);
        assert_int_equal(flush_seen, 0);
        assert_int_equal(asid_seen, first + 1);
        stop();
    }
}

/* ---- what is offered, and what is used ---- */

static void test_chosen_by_capability(void **state) {
    static const struct {
        u32 features;
        bool decode, flush, allowed;
    } t[] = {
        { 0, false, false, true },
        { HW_NEXT_RIP, false, false, true },
        { HW_NEXT_RIP | HW_DECODE, true, false, true },
        { HW_FLUSH_BY_ASID, false, true, true },
        { HW_DECODE, false, false, true }, /* which no CPU has without next-RIP */
        { ALL, true, true, true },
        { ALL, true, true, false },
    };
    struct virt_caps caps;

    fake_machine("null");
    for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
        svm_allow(t[i].allowed, t[i].allowed);
        hw_svm_features = t[i].features;
        hw_power_on(HW_AMD);
        assert_int_equal(virt_probe(&caps), 0);
        assert_int_equal(caps.decode_assists, t[i].decode);
        assert_int_equal(caps.flush_by_asid, t[i].flush);
        assert_int_equal(svm_has_decode_assists, t[i].decode && t[i].allowed);
        assert_int_equal(virt_flushes_tags, t[i].flush && t[i].allowed);
    }
    svm_allow(true, true);
    hw_svm_features = 0;
    hw_power_on(HW_INTEL); /* what was found of another vendor's CPU is forgotten */
    assert_int_equal(virt_probe(&caps), 0);
    assert_false(virt_flushes_tags || caps.decode_assists || caps.flush_by_asid);
}

/* ---- the checker itself ---- */

static void assert_broken(const char *sentence) {
    hw_expect_broken = true;
    hw_enter(NULL);
    assert_non_null(hw_broken);
    assert_string_equal(hw_broken, sentence);
    stop();
}

#define CHANGED(name) "changed although marked clean: " name

/* Each field is changed behind the hypervisor's back, so its clean bit stays set. */
static void test_clean_bits(void **state) {
    static const struct {
        u32 offset; /* of 8 bytes in the VMCB */
        u64 flip;
        const char *sentence;
    } faults[] = {
        { offsetof(struct vmcb, intercept_dr), 1, CHANGED("the intercepts") },
        { offsetof(struct vmcb, pause_count), 1, CHANGED("the intercepts") },
        { offsetof(struct vmcb, tsc_offset), 1, CHANGED("the TSC offset") },
        { offsetof(struct vmcb, msrpm), BIT(20), CHANGED("the bitmaps") },
        { offsetof(struct vmcb, asid), 2, CHANGED("the ASID") },
        { offsetof(struct vmcb, int_ctl), INT_CTL_IGN_TPR, CHANGED("TPR or virtual interrupt") },
        { offsetof(struct vmcb, n_cr3), BIT(20), CHANGED("the nested tables") },
        { offsetof(struct vmcb, pat), 1, CHANGED("the PAT") },
        { offsetof(struct vmcb, efer), EFER_NXE, CHANGED("EFER") },
        { offsetof(struct vmcb, cr3), BIT(12), CHANGED("CR0, CR3 or CR4") },
        { offsetof(struct vmcb, dr6), 1, CHANGED("DR6 or DR7") },
        { offsetof(struct vmcb, gdtr.base), 8, CHANGED("GDTR") },
        { offsetof(struct vmcb, idtr.base), 8, CHANGED("IDTR") },
        { offsetof(struct vmcb, ds.base), 8, CHANGED("CS, SS, DS or ES") },
        { offsetof(struct vmcb, cr2), 8, CHANGED("CR2") },
        { offsetof(struct vmcb, clean), BIT(10), "clean bits of what Takt does not use" },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(faults); i++) {
        u64 value;
        u8 *field;

        start(0);
        field = (u8 *)hw_vmcb_of(&v->virt) + faults[i].offset;
        memcpy(&value, field, sizeof(value));
        value ^= faults[i].flip;
        memcpy(field, &value, sizeof(value));
        assert_broken(faults[i].sentence);
    }
    start(0);
    hw_vmcb_of(&v->virt)->tlb_control = TLB_CTL_ASID; /* which this CPU does not offer */
    assert_broken("a way of flushing the TLB that this CPU does not offer");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chosen_by_capability),
        cmocka_unit_test(test_mov_cr),
        cmocka_unit_test(test_mov_cr_in_memory),
        cmocka_unit_test(test_lmsw),
        cmocka_unit_test(test_bytes_of_an_instruction),
        cmocka_unit_test(test_bytes_in_memory),
        cmocka_unit_test(test_flush_keeps_the_asid),
        cmocka_unit_test(test_flush_by_new_asids),
        cmocka_unit_test(test_move),
        cmocka_unit_test(test_clean_bits),
    };

    return cmocka_run_group_tests_name("svm", tests, NULL, NULL);
}
