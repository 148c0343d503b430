/* Not linked: compiled to assembly, from which the Makefile takes the marked lines for NASM. */
#include "boot/layout.h"
#include <takt/types.h>

#define DEFINE(name, value)        __asm__ volatile("\n->" #name " %0" : : "i"(value))
#define OFFSET(name, type, member) DEFINE(name, offsetof(type, member))

void asm_offsets(void);
void asm_offsets(void) {
    DEFINE(LINK_BASE, LINK_BASE);
    DEFINE(BOOT_STACK, BOOT_STACK);
    DEFINE(SEL_CODE, SEL_CODE);
    DEFINE(SEL_DATA, SEL_DATA);
}
