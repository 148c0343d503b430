#include "drivers/port_e1000.h"
#include <takt/errno.h>

#define SHORTEST 60 /* bytes of a frame on a wire, without its checksum (IEEE 802.3) */

static int deliver(struct bridge_port *port, const struct frame *f) {
    struct port_e1000 *p = container_of(port, struct port_e1000, port);
    u8 *to;

    if (f->len > E1000_FRAME) return -EINVAL;
    to = e1000_send_buffer(&p->nic);
    if (!to) return -ENOSPC;
    frame_copy(to, f);
    if (f->len < SHORTEST) __builtin_memset(to + f->len, 0, SHORTEST - f->len);
    e1000_send_put(&p->nic, MAX(f->len, (u32)SHORTEST));
    p->put = true;
    return 0;
}

int port_e1000_init(struct port_e1000 *p, struct bridge *b, volatile void *regs,
                    u64 (*dma_addr)(const void *p)) {
    static const struct netem_params wire = { .queue = 1 }; /* it has one of its own */
    const size_t pages = E1000_MEMORY / PAGE_SIZE;
    int error;

    *p = (struct port_e1000){ .port = { .name = "e1000", .deliver = deliver }, .bridge = b };
    p->memory = b->env->pages(pages);
    if (!p->memory) return -ENOMEM;
    error = e1000_init(&p->nic, regs, p->memory, dma_addr);
    if (!error) error = bridge_add(b, &p->port, &wire, &wire);
    if (error) {
        b->env->pages_free(p->memory, pages);
        return error;
    }
    e1000_interrupts(&p->nic, E1000_IRQ_RX, 0);
    e1000_start(&p->nic, true);
    return 0;
}

bool port_e1000_serve(struct port_e1000 *p, u64 now) {
    const void *data;
    u32 i, len;

    for (i = 0; i < PORT_E1000_BATCH && (len = e1000_receive(&p->nic, &data)); i++) {
        struct vring_seg seg = { (u8 *)data + FRAME_HEAD, len - FRAME_HEAD };
        struct frame f = { .len = len, .seg = &seg, .nr = 1 };

        if (len >= FRAME_HEAD) {
            __builtin_memcpy(f.head, data, FRAME_HEAD);
            bridge_input(p->bridge, &p->port, &f, now);
        }
        e1000_receive_next(&p->nic);
    }
    if (i) e1000_receive_refill(&p->nic);
    return i == PORT_E1000_BATCH;
}

void port_e1000_flush(struct port_e1000 *p) {
    if (p->put) e1000_send_kick(&p->nic);
    p->put = false;
}
