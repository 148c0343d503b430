/* expect: crashed */
/* vcpus: 2 */
/* A hardware task switch, which exists in 32-bit mode only, stops the VM. */
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

#define PAGE 0x10000

extern char stub[], stub_end[];

/* In real mode at PAGE: goes to protected mode, loads TR, and jumps to the other task. The TSSs
 * are at PAGE + 0x200 and 0x300. */
__asm__(
    ".pushsection .text\n"
    "stub: .code16\n"
    "  cli; mov %cs, %ax; mov %ax, %ds\n"
    "  lgdtl gdtr - stub\n"
    "  mov $0x11, %eax; mov %eax, %cr0\n"
    "  ljmpl $8, $0x10000 + pm - stub\n"
    "pm: .code32\n"
    "  mov $0x10, %eax; mov %eax, %ds; mov %eax, %es; mov %eax, %ss; mov $0x10f00, %esp\n"
    "  mov $0x18, %eax; ltr %ax\n"
    "  ljmp $0x20, $0\n"
    "1: hlt; jmp 1b\n"
    ".balign 8\n"
    "gdt: .quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff, 0x0000890102000067, 0x0000890103000067\n"
    "gdtr: .word . - gdt - 1; .long 0x10000 + gdt - stub\n"
    "stub_end: .code64\n"
    ".popsection");

int main(void) {
    test_begin();
    memset((void *)PAGE, 0, PAGE_SIZE);
    memcpy((void *)PAGE, stub, stub_end - stub);
    vcpu_start_raw(1, PAGE >> 12);
    sleep_ns(200 * NS_PER_MS);
    test_survived();
}
