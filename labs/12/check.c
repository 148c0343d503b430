/* The tests of lab 12. Device 03:02.1 is a network card that was given to a VM, and device 03:00.0
 * is another one on its bus. */
#include "rig.h"

#define CARD  0x0311
#define OTHER 0x0300
#define FAR   0x8000000000ull /* needs other tables of level 3 */

static struct domain vm, neighbour;

static void attach(void) {
    begin();
    goes("a device without a domain reads", CARD, 0x5000, DMA_READ, HPA_NONE);
    domain_init(&vm, 7);
    expect_result("iommu_attach", iommu_attach(&unit, CARD, &vm), 0);
    goes("nothing is mapped", CARD, 0x5000, DMA_READ, HPA_NONE);
    expect("that the unit has a context entry for the device", hw_context(CARD), true);
    expect("the number of the domain in it", contexts[CARD].high >> 8, 7);
    expect("the table of the domain in it", contexts[CARD].low, vm.root | 1);
    expect("that it has none for the other device", hw_context(OTHER), false);
    expect("frames: two tables, and the domain's", model_in_use, 3);
    domain_init(&neighbour, 8);
    expect_result("iommu_attach of a device on the same bus",
                  iommu_attach(&unit, OTHER, &neighbour), 0);
    expect("frames: the table of the bus is there already", model_in_use, 4);
    expect_result("iommu_attach of a device on bus 0xff", iommu_attach(&unit, 0xff08, &neighbour),
                  0);
    expect("that the unit has a context entry for it", hw_context(0xff08), true);
}

static void map(void) {
    begin();
    domain_init(&vm, 7);
    domain_init(&neighbour, 8);
    expect_result("domain_map", domain_map(&vm, 0x5000, 0x9000, 3 * PAGE_SIZE, 3), 0);
    iommu_attach(&unit, CARD, &vm);
    iommu_attach(&unit, OTHER, &neighbour);
    goes("the card reads its first page", CARD, 0x5123, DMA_READ, 0x9123);
    goes("the card writes its last page", CARD, 0x7fff, DMA_WRITE, 0xbfff);
    goes("the card reads behind that", CARD, 0x8000, DMA_READ, HPA_NONE);
    goes("the card reads before that", CARD, 0x4fff, DMA_READ, HPA_NONE);
    goes("a device of another domain reads there", OTHER, 0x5123, DMA_READ, HPA_NONE);
    expect_result("domain_map across two tables",
                  domain_map(&vm, FAR - PAGE_SIZE, 0x20000, 2 * PAGE_SIZE, 3), 0);
    goes("the card writes before the border", CARD, FAR - 1, DMA_WRITE, 0x20fff);
    goes("the card writes behind the border", CARD, FAR, DMA_WRITE, 0x21000);
}

static void rights(void) {
    begin();
    domain_init(&vm, 7);
    iommu_attach(&unit, CARD, &vm);
    domain_map(&vm, 0x5000, 0x9000, PAGE_SIZE, DMA_READ);
    domain_map(&vm, 0x6000, 0xa000, PAGE_SIZE, DMA_WRITE);
    goes("the card reads a page that it may read", CARD, 0x5000, DMA_READ, 0x9000);
    goes("the card writes a page that it may only read", CARD, 0x5000, DMA_WRITE, HPA_NONE);
    goes("the card writes a page that it may only write", CARD, 0x6000, DMA_WRITE, 0xa000);
    goes("the card reads a page that it may only write", CARD, 0x6000, DMA_READ, HPA_NONE);
    domain_map(&vm, 0x5000, 0xc000, PAGE_SIZE, DMA_READ | DMA_WRITE);
    goes("the page was mapped again, elsewhere", CARD, 0x5000, DMA_READ, 0xc000);
    goes("the page was mapped again, with more rights", CARD, 0x5000, DMA_WRITE, 0xc000);
}

static void unmap(void) {
    unsigned frames;

    begin();
    domain_init(&vm, 7);
    iommu_attach(&unit, CARD, &vm);
    domain_map(&vm, 0x5000, 0x9000, 2 * PAGE_SIZE, 3);
    goes("the card reads", CARD, 0x5000, DMA_READ, 0x9000);
    goes("the card reads the next page", CARD, 0x6000, DMA_READ, 0xa000);
    domain_unmap(&vm, 0x5000, PAGE_SIZE);
    goes("the page was taken away, which the unit had cached", CARD, 0x5000, DMA_READ, HPA_NONE);
    goes("the page beside it", CARD, 0x6000, DMA_READ, 0xa000);
    frames = model_in_use;
    domain_unmap(&vm, FAR, 64 * PAGE_SIZE);
    expect("frames after domain_unmap of what was not mapped", model_in_use, frames);
}

static void detach(void) {
    begin();
    domain_init(&vm, 7);
    domain_init(&neighbour, 8);
    iommu_attach(&unit, CARD, &vm);
    iommu_attach(&unit, OTHER, &neighbour);
    domain_map(&vm, 0x5000, 0x9000, PAGE_SIZE, 3);
    domain_map(&neighbour, 0x5000, 0xe000, PAGE_SIZE, 3);
    goes("the card reads", CARD, 0x5000, DMA_READ, 0x9000);
    iommu_detach(&unit, CARD);
    goes("the card reads after its VM has ended", CARD, 0x5000, DMA_READ, HPA_NONE);
    goes("the other device reads", OTHER, 0x5000, DMA_READ, 0xe000);
    iommu_detach(&unit, 0x4400); /* it was never in a domain */
    expect("frames after iommu_detach of a device that was in no domain: none for its bus",
           hw_word(unit.root + 0x44 * 16), 0);
    iommu_attach(&unit, CARD, &neighbour);
    goes("the card reads, given to another VM", CARD, 0x5000, DMA_READ, 0xe000);
}

/* A device of a VM writes all over the memory of the machine. */
static void wild(void) {
    char text[80];

    begin();
    domain_init(&vm, 7);
    iommu_attach(&unit, CARD, &vm);
    domain_map(&vm, 0x5000, 0x9000, PAGE_SIZE, 3);
    for (u64 address = 0; address < BIT(21); address += PAGE_SIZE) {
        hpa_t hpa = dma(CARD, address, DMA_WRITE);

        if (address == 0x5000) continue;
        expect("where a wild write goes", hpa, HPA_NONE);
        expect("that it is reported", fault.there && fault.source == CARD, true);
    }
    dma(CARD, 0x9010, DMA_WRITE);
    iommu_describe(text, sizeof(text), fault.source, fault.address, fault.write);
    if (strcmp(text, "device 03:02.1 may not write 0x9010") != 0)
        differs("the sentence", "device 03:02.1 may not write 0x9010", text);
    iommu_describe(text, sizeof(text), 0xff08, 0, false);
    if (strcmp(text, "device ff:01.0 may not read 0") != 0)
        differs("the sentence", "device ff:01.0 may not read 0", text);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        { "attach", attach }, { "map", map },   { "rights", rights }, { "unmap", unmap },
        { "detach", detach }, { "wild", wild }, { NULL, NULL },
    };

    return run_tests(tests, argc, argv);
}
