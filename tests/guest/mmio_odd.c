/* Accesses to the xAPIC's page of odd widths and at places that are no registers, and a MOV to
 * it that crosses a page boundary, whose second half is there or missing. */
#include <guest/lapic.h>
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/x86.h>

#define TPR ((volatile u32 *)(TAKT_LAPIC_GPA + LAPIC_TPR))
#define VA  0x10000000000ull

/* Reads that are narrower than a register, or between registers, return something and do no
 * harm. */
static void odd(void) {
    volatile u8 *page = (volatile u8 *)TAKT_LAPIC_GPA;
    u32 before = lapic_read(LAPIC_SVR);

    for (unsigned o = 0; o < 4096 - 8; o += 4) {
        (void)page[o];
        (void)*(volatile u16 *)(page + o);
        if (o != LAPIC_EOI) (void)*(volatile u32 *)(page + o);
    }
    page[LAPIC_TPR + 4] = 1;
    *(volatile u16 *)(page + LAPIC_TPR + 2) = 0xffff;
    *(volatile u32 *)(page + 0x3f0) = ~0u;
    *(volatile u32 *)(page + 0xff0) = ~0u;
    CHECK(lapic_read(LAPIC_SVR) == before, "SVR %x", lapic_read(LAPIC_SVR));
    lapic_write(LAPIC_ESR, 0);
    lapic_write(LAPIC_ESR, 0);
}

/* movl %eax, (%rdi); ret over the boundary of two pages, at each place in it, and with the
 * second page missing. */
static void crossing(void) {
    static const u8 code[] = {
        0xc7, 0x87, 0x00, 0x00, 0x00, 0x00, 0x90, 0x00, 0x00, 0x00, 0xc3
    }; /* movl $0x90, 0(%rdi) */
    u8 *a = page_alloc(1), *gap = page_alloc(1), *b = page_alloc(1);

    if (!a || !gap || !b || page_map(VA, (u64)a, PTE_P | PTE_W) ||
        page_map(VA + PAGE_SIZE, (u64)b, PTE_P | PTE_W))
        test_error("no memory");
    for (unsigned over = 1; over < sizeof(code); over++) {
        u64 at = VA + PAGE_SIZE - sizeof(code) + over;
        struct exception e;

        memcpy((void *)at, code, sizeof(code));
        *TPR = 0;
        e = try_run((void (*)(void *))at, (void *)TPR);
        check_exception(e.vector, EXC_NONE, "a MOV over a page boundary");
        CHECK(*TPR == 0x90, "%u bytes over: TPR %x", over, *TPR);
        *TPR = 0;
        page_map(VA + PAGE_SIZE, 0, 0);
        e = try_run((void (*)(void *))at, (void *)TPR);
        page_map(VA + PAGE_SIZE, (u64)b, PTE_P | PTE_W);
        check_exception(e.vector, EXC_PF, "its second half missing");
        CHECK(over < 2 || *TPR == 0, "%u bytes over and missing: TPR %x", over, *TPR);
        CHECK(e.cr2 == VA + PAGE_SIZE, "CR2 %lx", e.cr2);
    }
    *TPR = 0;
}

int main(void) {
    u64 f;

    test_begin();
    f = irq_save();
    lapic_set_mode(false);
    if (on_takt()) odd();
    crossing();
    irq_restore(f);
    return test_end("MOVs to a device");
}
