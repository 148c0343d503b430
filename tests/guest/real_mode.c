/* vcpus: 2 */
/* Real-mode and 32-bit code on a vCPU that a SIPI started: I/O, CPUID, a far call, an interrupt
 * through the real-mode table, hypercalls (which are #UD there), then protected mode, hypercalls
 * there, and back. */
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <guest/x86.h>

#define PAGE 0x10000
#define DATA ((volatile u32 *)(PAGE + 0xe00))

enum { STAGE, FEATURES, PORT, SOFT_INT, UD_REAL, PM_VERSION, PM_UNKNOWN, UNUSED, BACK };

extern char stub[], stub_end[], stub_vmmcall[], pm_hc1[], pm_hc2[];

/* DATA is DS:0xe00 in real mode. Vectors 6 (#UD) and 0x60 of the real-mode table at 0 point into
 * the stub. */
__asm__(
    ".pushsection .text\n"
    "stub: .code16\n"
    "  cli; mov %cs, %ax; mov %ax, %ds; mov %ax, %ss; mov $0xd00, %sp\n"
    "  movl $1, 0xe00\n"
    "  mov $1, %eax; cpuid; mov %ecx, 0xe04\n"
    "  xor %eax, %eax; inb $0x80, %al; mov %eax, 0xe08\n"
    "  int $0x60\n"
    "  movl $2, 0xe00\n"
    "stub_vmmcall: .byte 0x0f, 0x01, 0xd9\n"
    "  movl $3, 0xe00\n"
    "  lgdtl gdtr - stub\n"
    "  mov $0x11, %eax; mov %eax, %cr0\n"
    "  ljmpl $8, $0x10000 + pm - stub\n"
    "int60: movl $0x60, %cs:0xe0c; iret\n"
    "int6: push %bp; mov %sp, %bp; addw $3, 2(%bp); pop %bp; incl %cs:0xe10; iret\n"
    "pm: .code32\n"
    "  mov $0x10, %eax; mov %eax, %ds; mov %eax, %ss; mov $0x10d00, %esp\n"
    "  mov $0, %eax\n"
    "pm_hc1: .byte 0x0f, 0x01, 0xd9; mov %eax, 0x10e14\n"
    "  mov $0x3ff, %eax\n"
    "pm_hc2: .byte 0x0f, 0x01, 0xd9; mov %eax, 0x10e18\n"
    "  movl $4, 0x10e00\n"
    "  ljmp $0x18, $(pm16 - stub)\n"
    "pm16: .code16\n"
    "  mov $0x20, %ax; mov %ax, %ds; mov %ax, %ss\n"
    "  mov $0x10, %eax; mov %eax, %cr0\n"
    "  ljmp $0x1000, $(back - stub)\n"
    "back: mov %cs, %ax; mov %ax, %ds\n"
    "  movl $0x1234, 0xe20\n"
    "  movl $5, 0xe00\n"
    "1: hlt; jmp 1b\n"
    ".balign 8\n"
    "gdt: .quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff, 0x00009b010000ffff, 0x000093010000ffff\n"
    "gdtr: .word . - gdt - 1; .long 0x10000 + gdt - stub\n"
    "stub_end: .code64\n"
    ".popsection");

extern char int60[], int6[];

/* In the real-mode table, at 0: the compiler must not see that. */
static void set_vector(u8 vector, u64 offset) {
    volatile u32 *table = NULL;

    __asm__("" : "+r"(table));
    table[vector] = (PAGE >> 4) << 16 | (u32)offset;
}

int main(void) {
    bool amd = !on_takt() || cpuid(TAKT_CPUID_ABI, 0).ebx & TAKT_FEAT_VMMCALL;
    u64 end;

    test_begin();
    if (vcpu_count() < 2) test_error("needs two vCPUs");
    memset((void *)PAGE, 0, PAGE_SIZE);
    memcpy((void *)PAGE, stub, stub_end - stub);
    if (!amd) {
        *(u8 *)(PAGE + (stub_vmmcall - stub) + 2) = 0xc1;
        *(u8 *)(PAGE + (pm_hc1 - stub) + 2) = 0xc1;
        *(u8 *)(PAGE + (pm_hc2 - stub) + 2) = 0xc1;
    }
    set_vector(0x60, int60 - stub);
    set_vector(6, int6 - stub);
    vcpu_start_raw(1, PAGE >> 12);
    for (end = time_ns() + NS_PER_S; DATA[STAGE] < 5 && time_ns() < end;) thread_yield();
    CHECK(DATA[STAGE] == 5, "got as far as stage %u", DATA[STAGE]);
    CHECK(DATA[FEATURES] == cpuid(1, 0).ecx, "CPUID in real mode: %x instead of %x", DATA[FEATURES],
          cpuid(1, 0).ecx);
    CHECK(DATA[PORT] == 0xff || !on_takt(), "IN in real mode: %x", DATA[PORT]);
    CHECK(DATA[SOFT_INT] == 0x60, "INT 60h left %x", DATA[SOFT_INT]);
    CHECK(DATA[BACK] == 0x1234, "back in real mode: %x", DATA[BACK]);
    if (on_takt()) {
        CHECK(DATA[UD_REAL] == 1, "a hypercall in real mode: %u #UD", DATA[UD_REAL]);
        CHECK(DATA[PM_VERSION] == TAKT_ABI_VERSION, "version from protected mode: %x",
              DATA[PM_VERSION]);
        CHECK(DATA[PM_UNKNOWN] == (u32)-ENOSYS, "unknown number from protected mode: %x",
              DATA[PM_UNKNOWN]);
    }
    return test_end("real mode, protected mode, and back");
}
