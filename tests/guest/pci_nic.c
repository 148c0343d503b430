/* devices: nic */
/* keys: pci = 00:03.0; unsafe_dma = yes */
/* time: 1500 */
/* A network card that was given to this VM: frames go out and answers come in, and the interrupt
 * line raises one interrupt until that is acknowledged. The test runs twice, because the first
 * VM after boot leaves the card to the next one. */
#include "net_rig.h"

static void check_space(void) {
    u32 command = (u32)hypercall3(TAKT_HC_PCI_READ, 0, 4, 2);

    CHECK(hypercall3(TAKT_HC_PCI_READ, 0, 0, 4) == (i64)pci.id,
          "configuration space has another id");
    CHECK((command & 6) == 6, "command register %x: neither memory nor master", command);
    CHECK(hypercall3(TAKT_HC_PCI_READ, 0, 1, 2) == -EINVAL, "a read that is not aligned");
    CHECK(hypercall3(TAKT_HC_PCI_READ, 1, 0, 4) == -ENOENT, "a second device");
    CHECK(hypercall(TAKT_HC_PCI_WRITE, 0, 4, 2, command & ~2u) == -EPERM,
          "memory decoding can be taken away");
    CHECK(hypercall(TAKT_HC_PCI_WRITE, 0, 4, 4, command) == -EPERM,
          "the status register can be written");
    CHECK(hypercall(TAKT_HC_PCI_WRITE, 0, 0x10, 4, 0x1000) == -EPERM, "a BAR can be moved");
    CHECK(hypercall(TAKT_HC_PCI_WRITE, 0, 4, 2, command & ~4u) == 0,
          "its right to be master cannot be given up");
    CHECK(!(hypercall3(TAKT_HC_PCI_READ, 0, 4, 2) & 4), "it is master still");
    CHECK(hypercall(TAKT_HC_PCI_WRITE, 0, 4, 2, command) == 0, "nor be taken again");
    CHECK(hypercall2(TAKT_HC_PCI_INFO, 1, (u64)&pci) == -ENOENT, "there is another device");
    CHECK(hypercall2(TAKT_HC_PCI_INFO, 0, 1ull << 40) == -EFAULT, "it tells where there is no RAM");
}

/* The ports of configuration space do nothing, in any width and at any offset. */
static void check_ports(void) {
    u32 command = (u32)hypercall3(TAKT_HC_PCI_READ, 0, 4, 4);

    for (u32 reg = 0; reg < 0x40; reg += 4) {
        outl(0xcf8, 0x80000000 | pci.bdf << 8 | reg);
        CHECK(inl(0xcf8) == ~0u && inl(0xcfc) == ~0u, "register %x is there: %x", reg, inl(0xcfc));
    }
    outl(0xcf8, 0x80000000 | pci.bdf << 8 | 4);
    for (u16 port = 0xcfc; port < 0xd00; port++) {
        outb(port, 0);
        outw(port, 0);
        outl(port, 0);
        outb((u16)(port - 4), 0x80);
    }
    outl(0xcf8, 0x80ffff01); /* beyond all buses, type 1 */
    outl(0xcfc, 0);
    CHECK(hypercall3(TAKT_HC_PCI_READ, 0, 4, 4) == (i64)command, "command was %x, is %x", command,
          (u32)hypercall3(TAKT_HC_PCI_READ, 0, 4, 4));
}

int main(void) {
    u32 answers = 0, held;

    test_begin();
    test_needs_takt();
    nic_open();
    check_space();
    check_ports();
    printf("network card %x:%x:%x:%x:%x:%x, port %u, DMA offset %lx\n", nic.mac[0], nic.mac[1],
           nic.mac[2], nic.mac[3], nic.mac[4], nic.mac[5], pci.port, pci.dma_offset);
    CHECK(e1000_link(&nic), "the link is down");
    pci_count();
    e1000_interrupts(&nic, E1000_IRQ_RX, 0);
    send_arp();
    nic_send_kick(&nic.ring);
    if (!pci_await(1)) test_fatal("no interrupt");
    answers += take_answers();
    CHECK(answers == 1, "%u answers to one question", answers);

    /* the line is masked until we say that we are done: neither its state nor another frame
     * comes through */
    held = pci_interrupts;
    send_arp();
    nic_send_kick(&nic.ring);
    for (u64 end = time_ns() + 4 * NS_PER_S; answers < 2 && time_ns() < end;
         answers += take_answers())
        delay_ns(100 * NS_PER_US);
    CHECK(answers == 2, "no second answer");
    CHECK(pci_interrupts == held, "%u interrupts while the line is masked", pci_interrupts - held);
    CHECK(hypercall1(TAKT_HC_PCI_EOI, 0) == 0, "it cannot be acknowledged");
    CHECK(pci_await(held + 1), "the line fell silent after EOI");
    CHECK(e1000_causes(&nic) & E1000_IRQ_RX, "the interrupt was for nothing");
    CHECK(hypercall1(TAKT_HC_PCI_EOI, 0) == 0, "it cannot be acknowledged");
    delay_ns(5 * NS_PER_MS);
    CHECK(pci_interrupts == held + 1, "it interrupts though its causes were taken");

    /* A batch of frames, with each interrupt acknowledged. */
    for (u32 i = 0; i < 8; i++) send_arp();
    nic_send_kick(&nic.ring);
    for (u32 i = 1; answers < 10 && pci_await(held + 1 + i); i++) {
        e1000_causes(&nic);
        answers += take_answers();
        hypercall1(TAKT_HC_PCI_EOI, 0);
    }
    CHECK(answers == 10, "%u answers to 10 questions", answers);
    nic_send_buffer(&nic.ring);
    CHECK(nic.ring.sent == 10, "%lu frames were sent", nic.ring.sent);
    CHECK(nic.ring.bad == 0, "%lu frames were bad", nic.ring.bad);
    e1000_stop(&nic);
    printf("%u interrupts, %lu frames received\n", pci_interrupts, nic.ring.received);
    return test_end("frames and interrupts there and back");
}
