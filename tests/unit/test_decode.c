/* The decoder of MOV instructions, with encodings that were checked by hand against SDM 2A.
 * tests/tools/test_decode.py adds thousands that binutils decodes. A wrong length or operand
 * would corrupt a register of the guest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "vdev/decode.h"

#define B(...) (const u8[]){ __VA_ARGS__ }, sizeof((const u8[]){ __VA_ARGS__ })
#define LOAD(sz, rsize, n)                                                                         \
    { .size = sz, .reg_size = rsize, .reg = n }
#define STORE(sz, n)                                                                               \
    { .write = true, .size = sz, .reg_size = sz, .reg = n }

static const struct {
    const char *text;
    unsigned mode;
    const u8 *bytes;
    unsigned len;
    struct mmio_insn want; /* .len is that of `bytes` */
} good[] = {
    { "mov [rax],ecx", 64, B(0x89, 0x08), STORE(4, 1) },
    { "mov eax,[rbx+0x20]", 64, B(0x8b, 0x43, 0x20), LOAD(4, 4, 0) },
    { "mov r9,[rbx]", 64, B(0x4c, 0x8b, 0x0b), LOAD(8, 8, 9) },
    { "mov [r13+disp32],r14d", 64, B(0x45, 0x89, 0xb5, 1, 2, 3, 4), STORE(4, 14) },
    { "mov [rip+x],ax", 64, B(0x66, 0x89, 0x05, 0, 0, 0, 0), STORE(2, 0) },
    { "mov eax,[rsp+rcx*4]", 64, B(0x8b, 0x04, 0x8c), LOAD(4, 4, 0) },
    { "mov eax,[disp32] by SIB", 64, B(0x8b, 0x04, 0x25, 0, 0, 0xe0, 0xfe), LOAD(4, 4, 0) },
    { "mov eax,[rbp+rcx+8]", 64, B(0x8b, 0x44, 0x0d, 8), LOAD(4, 4, 0) },
    { "mov [rdi],ah",
      64,
      B(0x88, 0x27),
      { .write = true, .size = 1, .reg_size = 1, .reg = 0, .high = true } },
    { "mov [rdi],spl", 64, B(0x40, 0x88, 0x27), STORE(1, 4) },
    { "mov bh,[rdi]", 64, B(0x8a, 0x3f), { .size = 1, .reg_size = 1, .reg = 3, .high = true } },
    { "mov dword [rax],imm",
      64,
      B(0xc7, 0x00, 0x78, 0x56, 0x34, 0x92),
      { .write = true, .size = 4, .reg_size = 4, .imm = true, .value = 0x92345678 } },
    { "mov qword [rax],-2",
      64,
      B(0x48, 0xc7, 0x00, 0xfe, 0xff, 0xff, 0xff),
      { .write = true, .size = 8, .reg_size = 8, .imm = true, .value = ~1ull } },
    { "mov word [rax+1],imm",
      64,
      B(0x66, 0xc7, 0x40, 1, 0x34, 0x12),
      { .write = true, .size = 2, .reg_size = 2, .imm = true, .value = 0x1234 } },
    { "mov byte [ecx],imm",
      64,
      B(0x67, 0xc6, 0x01, 0x80),
      { .write = true, .size = 1, .reg_size = 1, .imm = true, .value = 0x80 } },
    { "movzx eax,byte [rax]", 64, B(0x0f, 0xb6, 0x00), LOAD(1, 4, 0) },
    { "movzx r8,word [rax]", 64, B(0x4c, 0x0f, 0xb7, 0x00), LOAD(2, 8, 8) },
    { "movsx cx,byte [rax]",
      64,
      B(0x66, 0x0f, 0xbe, 0x08),
      { .size = 1, .reg_size = 2, .reg = 1, .sign = true } },
    { "movsx edx,word [rax]",
      64,
      B(0x0f, 0xbf, 0x10),
      { .size = 2, .reg_size = 4, .reg = 2, .sign = true } },
    { "movsxd rdx,dword [rax]",
      64,
      B(0x48, 0x63, 0x10),
      { .size = 4, .reg_size = 8, .reg = 2, .sign = true } },
    { "movabs eax,[moffs64]", 64, B(0xa1, 0, 0, 0xe0, 0xfe, 0, 0, 0, 0), LOAD(4, 4, 0) },
    { "movabs [moffs64],rax", 64, B(0x48, 0xa3, 0, 0, 0xe0, 0xfe, 0, 0, 0, 0), STORE(8, 0) },
    { "mov al,[moffs32]", 64, B(0x67, 0xa0, 0, 0, 0, 0), LOAD(1, 1, 0) },
    { "rex before a prefix is no rex", 64, B(0x48, 0x66, 0x89, 0x08), STORE(2, 1) },
    { "rex.w beats 66", 64, B(0x66, 0x48, 0x89, 0x08), STORE(8, 1) },
    { "seven prefixes", 64, B(0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65, 0x2e, 0x89, 0x08), STORE(4, 1) },
    { "15 bytes",
      64,
      B(0x2e, 0x2e, 0x2e, 0x2e, 0x67, 0x48, 0xc7, 0x84, 0x08, 1, 2, 3, 4, 0, 0),
      {} }, /* 17: cut */

    { "mov [eax],ecx", 32, B(0x89, 0x08), STORE(4, 1) },
    { "mov eax,[disp32]", 32, B(0x8b, 0x05, 0, 0, 0xe0, 0xfe), LOAD(4, 4, 0) },
    { "mov eax,[moffs32]", 32, B(0xa1, 0x20, 0, 0xe0, 0xfe), LOAD(4, 4, 0) },
    { "mov ax,[bp+si+disp16]", 32, B(0x67, 0x66, 0x8b, 0x82, 0, 1), LOAD(2, 2, 0) },
    { "mov [disp16],ebx", 32, B(0x67, 0x89, 0x1e, 0, 1), STORE(4, 3) },
    { "mov ax,[moffs16]", 32, B(0x66, 0x67, 0xa1, 0, 1), LOAD(2, 2, 0) },

    { "mov [bx+si],cx", 16, B(0x89, 0x08), STORE(2, 1) },
    { "mov ecx,[disp16]", 16, B(0x66, 0x8b, 0x0e, 0, 1), LOAD(4, 4, 1) },
    { "mov [eax+ecx*8],dx", 16, B(0x67, 0x89, 0x14, 0xc8), STORE(2, 2) },
    { "mov word [bp+1],imm",
      16,
      B(0xc7, 0x46, 1, 0x34, 0x12),
      { .write = true, .size = 2, .reg_size = 2, .imm = true, .value = 0x1234 } },
};

static void test_good(void **state) {
    for (unsigned i = 0; i < ARRAY_SIZE(good); i++) {
        struct mmio_insn got, want = good[i].want;
        u8 padded[32];

        memset(padded, 0xcc, sizeof(padded));
        memcpy(padded, good[i].bytes, good[i].len);
        if (want.size == 0) {
            assert_int_equal(mmio_decode(&got, padded, sizeof(padded), good[i].mode), -EINVAL);
            continue;
        }
        if (mmio_decode(&got, padded, sizeof(padded), good[i].mode))
            fail_msg("%s: unknown", good[i].text);
        want.len = (u8)good[i].len;
        if (memcmp(&got, &want, sizeof(got)))
            fail_msg("%s: len %u size %u write %d reg %u/%u", good[i].text, got.len, got.size,
                     got.write, got.reg, got.reg_size);
        /* An instruction that is cut off anywhere must not be decoded. */
        for (unsigned n = 0; n < good[i].len; n++)
            assert_int_equal(mmio_decode(&got, padded, n, good[i].mode), -EINVAL);
    }
}

static const struct {
    const char *text;
    unsigned mode;
    const u8 *bytes;
    unsigned len;
} bad[] = {
    { "mov eax,ecx: no memory", 64, B(0x89, 0xc8) },
    { "lock mov", 64, B(0xf0, 0x89, 0x08) },
    { "rep mov", 64, B(0xf3, 0x89, 0x08) },
    { "stosd", 64, B(0xab) },
    { "rep movsd", 64, B(0xf3, 0xa5) },
    { "lock xadd", 64, B(0xf0, 0x0f, 0xc1, 0x08) },
    { "cmpxchg8b", 64, B(0x0f, 0xc7, 0x08) },
    { "bts [rax],rcx", 64, B(0x48, 0x0f, 0xab, 0x08) },
    { "bt [rax],rcx", 64, B(0x48, 0x0f, 0xa3, 0x08) },
    { "movsxd cx,[rax]", 64, B(0x66, 0x63, 0x08) },
    { "arpl", 32, B(0x63, 0x08) },
    { "c7 /1", 64, B(0xc7, 0x08, 0, 0, 0, 0) },
    { "xbegin", 64, B(0xc7, 0xf8, 0, 0, 0, 0) },
    { "movnti", 64, B(0x0f, 0xc3, 0x08) },
    { "movbe", 64, B(0x0f, 0x38, 0xf0, 0x08) },
    { "movaps", 64, B(0x0f, 0x28, 0x08) },
    { "or [rax],ecx", 64, B(0x09, 0x08) },
    { "xchg", 64, B(0x87, 0x08) },
    { "mov ds,[rax]", 64, B(0x8e, 0x18) },
    { "vex", 64, B(0xc5, 0xf8, 0x10, 0x08) },
    { "dec eax; not a rex in 32-bit mode", 32, B(0x48, 0x89, 0x08) },
    { "16 prefixes", 64,
      B(0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x89,
        0x08) },
};

static void test_unknown(void **state) {
    struct mmio_insn got;

    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
        if (mmio_decode(&got, bad[i].bytes, bad[i].len, bad[i].mode) != -EINVAL)
            fail_msg("%s: taken for a MOV", bad[i].text);
    assert_int_equal(mmio_decode(&got, NULL, 0, 64), -EINVAL);
}

static void test_values(void **state) {
    const u64 old = 0x1122334455667788ull;
    struct mmio_insn in = { .size = 4, .reg_size = 4 };

    assert_int_equal(mmio_loaded(&in, old, 0xffffffff80000001ull), 0x80000001);
    in = (struct mmio_insn){ .size = 4, .reg_size = 8, .sign = true };
    assert_int_equal(mmio_loaded(&in, old, 0x80000001), 0xffffffff80000001ull);
    in = (struct mmio_insn){ .size = 1, .reg_size = 2, .sign = true };
    assert_int_equal(mmio_loaded(&in, old, 0x180), 0x112233445566ff80ull);
    in = (struct mmio_insn){ .size = 1, .reg_size = 4, .sign = true };
    assert_int_equal(mmio_loaded(&in, old, 0x80), 0xffffff80);
    in = (struct mmio_insn){ .size = 2, .reg_size = 2 };
    assert_int_equal(mmio_loaded(&in, old, 0xabcd), 0x112233445566abcdull);
    in = (struct mmio_insn){ .size = 1, .reg_size = 1 };
    assert_int_equal(mmio_loaded(&in, old, 0xab), 0x11223344556677abull);
    assert_int_equal(mmio_stored(&in, old), 0x88);
    in.high = true;
    assert_int_equal(mmio_loaded(&in, old, 0xab), 0x112233445566ab88ull);
    assert_int_equal(mmio_stored(&in, old), 0x77);
    in = (struct mmio_insn){ .size = 8, .reg_size = 8 };
    assert_int_equal(mmio_loaded(&in, 0, old), old);
    assert_int_equal(mmio_stored(&in, old), old);
    in = (struct mmio_insn){ .size = 2, .imm = true, .value = 0x1234 };
    assert_int_equal(mmio_stored(&in, old), 0x1234);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_values),
    };

    return cmocka_run_group_tests_name("decode", tests, NULL, NULL);
}
