/* An emulated instruction may end at the top of the lower half of the address space. It is
 * executed; what fails is to fetch the next one. So the guest must get a #GP whose RIP is behind
 * the instruction. */
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/x86.h>

#define TOP 0x800000000000ull

static const struct {
    const char *name;
    u8 len, code[4];
} insns[] = {
    { "CPUID", 2, { 0x0f, 0xa2 } },        { "NOP", 1, { 0x90 } },
    { "IN", 2, { 0xe4, 0x80 } },           { "RDMSR", 2, { 0x0f, 0x32 } },
    { "WBINVD", 2, { 0x0f, 0x09 } },       { "MOV from CR0", 3, { 0x0f, 0x20, 0xc0 } },
    { "VMCALL", 3, { 0x0f, 0x01, 0xc1 } }, { "VMMCALL", 3, { 0x0f, 0x01, 0xd9 } },
};

/* Jumps there with the number of an MSR in RCX that exists. */
static void go(void *arg) {
    __asm__ volatile("push %%rbx; xor %%eax, %%eax; call *%0; pop %%rbx"
                     :
                     : "r"(arg), "c"(0x1a0)
                     : "rax", "rdx", "memory");
}

int main(void) {
    u8 *page = page_alloc(1);

    test_begin();
    if (!page || page_map(TOP - PAGE_SIZE, (u64)page, PTE_P | PTE_W)) test_error("no memory");
    for (unsigned i = 0; i < ARRAY_SIZE(insns); i++) {
        u64 at = TOP - insns[i].len;
        struct exception e;

        memcpy((void *)at, insns[i].code, insns[i].len);
        e = try_run(go, (void *)at);
        if (e.vector == EXC_UD) continue; /* the other vendor's hypercall */
        check_exception(e.vector, EXC_GP, insns[i].name);
        CHECK(e.rip == TOP, "%s: #GP at %lx", insns[i].name, e.rip);
    }
    return test_end("the hole between the halves is not entered");
}
