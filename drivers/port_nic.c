/* A network card as a port of the bridge. Each kind of card has an entry in `kinds`, a table of
 * functions, so that the rest of the driver domain does not know which card it is. The 82576
 * (`igb`) can also show virtual functions to other VMs; then its driver here has to answer their
 * requests. port_nic.h has the contracts. */
#include "drivers/port_nic.h"
#include <takt/errno.h>

/* Bytes of the shortest frame on a wire, without its check sequence (IEEE 802.3). */
#define SHORTEST       60
#define IGB_INTERRUPTS 8000 /* a second */

struct port_nic_kind {
    u32 id;
    const char *name;
    u64 size; /* how many bytes BAR 0 has at least */
    int (*init)(struct port_nic *p, volatile void *regs, u64 (*dma_addr)(const void *p));
    void (*start)(struct port_nic *p);
    void (*interrupt)(struct port_nic *p);
    u64 (*missed)(struct port_nic *p);
    /* The next three are NULL for cards that do not need them. */
    void (*run)(struct port_nic *p); /* does what is due */
    bool (*may_send)(struct port_nic *p,
                     /* Returns false if the address is that of a virtual function. */
                     const u8 *from);
    /* Returns whether the card shows us a frame that we have sent. */
    bool (*is_echo)(struct port_nic *p, const u8 *from);
};

/* Queues a frame for the card, which sends it to the real network; the bridge calls it. A frame
 * that is shorter than Ethernet allows is filled up with zeros, so that nothing of an earlier frame
 * in the buffer gets out. Returns 0, or why the bridge has to drop the frame. */
static int card_deliver(struct bridge_port *port, const struct frame *f) {
    struct port_nic *p = container_of(port, struct port_nic, port);
    u8 *to;

    if (f->len > NIC_FRAME) return -EINVAL;
    if (p->kind->may_send && !p->kind->may_send(p, f->head + 6)) {
        port->counts.spoofed++;
        return -EPERM;
    }
    to = nic_send_buffer(p->ring);
    if (!to) return -ENOSPC;
    frame_copy(to, f);
    if (f->len < SHORTEST) __builtin_memset(to + f->len, 0, SHORTEST - f->len);
    nic_send_put(p->ring, MAX(f->len, (u32)SHORTEST));
    p->put = true;
    return 0;
}

/* ---- the cards ---- */

static int e1000_open(struct port_nic *p, volatile void *regs, u64 (*dma_addr)(const void *p)) {
    p->ring = &p->card.e1000.ring;
    return e1000_init(&p->card.e1000, regs, p->memory, dma_addr);
}

static void e1000_go(struct port_nic *p) {
    e1000_interrupts(&p->card.e1000, E1000_IRQ_RX, 0);
    e1000_start(&p->card.e1000, true);
}

static void e1000_interrupted(struct port_nic *p) { e1000_causes(&p->card.e1000); }

static u64 e1000_missed(struct port_nic *p) { return p->card.e1000.overruns; }

static int igb_open(struct port_nic *p, volatile void *regs, u64 (*dma_addr)(const void *p)) {
    p->ring = &p->card.igb.ring;
    igb_vfs_init(&p->card.vfs, &p->card.igb);
    return igb_init(&p->card.igb, regs, p->memory, dma_addr);
}

static void igb_go(struct port_nic *p) {
    igb_interrupts(&p->card.igb, IGB_INTERRUPTS);
    igb_start(&p->card.igb);
}

static void igb_run(struct port_nic *p) { p->due = igb_vfs_serve(&p->card.vfs, p->now); }

/* Reads why the card has interrupted. Changes of the link are told to the virtual functions. After
 * any cause they are served at once (due = 0), because they may have asked for something. */
static void igb_interrupted(struct port_nic *p) {
    u32 causes = igb_causes(&p->card.igb);
    bool link = p->link;

    if (causes & IGB_IRQ_LINK) link = igb_link(&p->card.igb);
    if (link != p->link) igb_vfs_link(&p->card.vfs);
    p->link = link;
    if (causes) p->due = 0;
}

static bool igb_may_send(struct port_nic *p, const u8 *from) {
    return igb_vfs_sends(&p->card.vfs, from, p->now);
}

static bool igb_is_echo(struct port_nic *p, const u8 *from) {
    return igb_vfs_echo(&p->card.vfs, from, p->now);
}

static u64 igb_missed(struct port_nic *p) {
    igb_count(&p->card.igb);
    return p->card.igb.missed;
}

static const struct port_nic_kind kinds[] = {
    { E1000_VENDOR | E1000_DEVICE << 16, "e1000", E1000_BYTES, e1000_open, e1000_go,
      e1000_interrupted, e1000_missed, NULL, NULL, NULL },
    { IGB_VENDOR | IGB_DEVICE << 16, "igb", IGB_BYTES, igb_open, igb_go, igb_interrupted,
      igb_missed, igb_run, igb_may_send, igb_is_echo },
};

static const struct port_nic_kind *card_kind_of(u32 id) {
    for (u32 i = 0; i < ARRAY_SIZE(kinds); i++)
        if (kinds[i].id == id) return &kinds[i];
    return NULL;
}

bool port_nic_known(u32 id) { return card_kind_of(id); }

/* Sets the card up and adds it to the bridge. Returns 0, -ENODEV if there is no driver for it or it
 * does not answer, or another error. The card is started last, when its port is in the bridge.
 * Before that nobody could take its frames. */
int port_nic_init(struct port_nic *p, struct bridge *b, u32 id, volatile void *regs, u64 size,
                  u64 (*dma_addr)(const void *p)) {
    /* This link emulates nothing, because the card has a real wire. */
    static const struct netem_params wire = { .queue = 1 };
    const size_t pages = NIC_RING_MEMORY / PAGE_SIZE;
    int error;

    *p = (struct port_nic){ .port = { .deliver = card_deliver },
                            .bridge = b,
                            .kind = card_kind_of(id),
                            .again = true,
                            .due = ~0ull };
    if (!p->kind || size < p->kind->size) return -ENODEV;
    p->port.name = p->kind->name;
    p->memory = b->env->pages(pages);
    if (!p->memory) return -ENOMEM;
    error = p->kind->init(p, regs, dma_addr);
    if (!error) error = bridge_add(b, &p->port, &wire, &wire);
    if (error) {
        b->env->pages_free(p->memory, pages);
        return error;
    }
    p->kind->start(p);
    return 0;
}

/* Clears the card's interrupt. Returns whether `link` has changed. `again` lets the next run look
 * at the rings, because the interrupt may have been for frames. */
bool port_nic_interrupt(struct port_nic *p, u64 now) {
    bool before = p->link;

    p->now = now;
    p->again = true;
    p->kind->interrupt(p);
    return p->link != before;
}

u64 port_nic_missed(struct port_nic *p) { return p->kind->missed(p); }

/* ---- frames ---- */

/* Gives the bridge the frames that the card has received, up to PORT_NIC_BATCH of them, so that
 * other ports get their turn. If there were that many, `again` says that there may be more. */
static void card_receive(struct port_nic *p) {
    const void *data;
    u32 i;

    for (i = 0; i < PORT_NIC_BATCH; i++) {
        u32 len = nic_receive(p->ring, &data);
        struct vring_seg seg = { (u8 *)data + FRAME_HEAD, len - FRAME_HEAD };
        struct frame f = { .len = len, .seg = &seg, .nr = 1 };

        if (!len) break;
        if (len >= FRAME_HEAD) {
            __builtin_memcpy(f.head, data, FRAME_HEAD);
            if (!p->kind->is_echo || !p->kind->is_echo(p, f.head + 6))
                bridge_input(p->bridge, &p->port, &f, p->now);
        }
        nic_receive_next(p->ring);
    }
    if (i) nic_receive_refill(p->ring);
    p->again = i == PORT_NIC_BATCH;
}

u64 port_nic_serve(struct port_nic *p, u64 now) {
    p->now = now;
    if (p->due <= now) p->kind->run(p);
    if (p->again) card_receive(p);
    if (p->again) return 0;
    return p->due;
}

void port_nic_flush(struct port_nic *p) {
    if (p->put) nic_send_kick(p->ring);
    p->put = false;
}
