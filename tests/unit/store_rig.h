/* The store with an administrator and some VMs, for tests. Payloads are written as in XenStore's
 * documentation: a bar stands for a zero byte. */
#ifndef STORE_RIG_H
#define STORE_RIG_H

#include <stdio.h>
#include <string.h>
#include "heap_model.h"
#include "store/store.h"

#define RIG_VMS 4u /* client 0 is the administrator, the others VMs of those ids */

static struct store_client rig_client[RIG_VMS];
static unsigned rig_notified[RIG_VMS];

static void rig_notify(struct store_client *c) { rig_notified[c - rig_client]++; }

static void rig_settle(void) {
    while (store_work())
        ;
}

static void rig_open(u32 i) {
    memset(&rig_client[i], 0, sizeof(rig_client[i]));
    rig_client[i].notify = rig_notify;
    rig_settle();
    if (store_open(&rig_client[i], (u16)i, i == 0) || store_stream(&rig_client[i])) abort();
    rig_settle();
}

static void rig_close(u32 i) {
    while (store_close(&rig_client[i]))
        ;
}

/* Everything that clients could have made is gone. */
static void rig_start(void) {
    static bool done;

    if (!done && store_init(1)) abort();
    done = true;
    for (u32 i = 0; i < RIG_VMS; i++) rig_open(i);
}

static void rig_end(void) {
    static char names[65536], path[XS_ABS_PATH_MAX + 2];

    rig_settle();
    for (int len = store_list(&rig_client[0], 0, "/", names, sizeof(names), NULL, NULL), at = 0;
         at < len; at += (int)strlen(names + at) + 1) {
        snprintf(path, sizeof(path), "/%s", names + at);
        if (store_rm(&rig_client[0], 0, path)) abort();
        rig_settle();
    }
    for (u32 i = RIG_VMS; i--;) rig_close(i);
}

/* Bars become zero bytes. Returns the length. */
static inline u32 rig_bytes(const char *text, char *bytes) {
    u32 len = 0;

    for (; text[len]; len++) bytes[len] = text[len] == '|' ? 0 : text[len];
    return len;
}

static inline const char *rig_text(const char *bytes, u32 len) {
    static char text[XS_PAYLOAD_MAX + 1];

    for (u32 i = 0; i < len; i++) text[i] = bytes[i] ? bytes[i] : '|';
    text[len] = 0;
    return text;
}

/* A packet's payload as a string, up to its first zero byte. */
static inline const char *rig_string(const struct store_packet *packet) {
    return (const char *)packet->data;
}

/* One request of `len` bytes; the reply is in the client's `out`, and all that followed is done. */
static inline struct store_packet *rig_send(struct store_client *c, u32 type, u32 tx,
                                            const void *payload, u32 len) {
    c->in.head = (struct xs_header){ .type = type, .req_id = 7, .tx_id = tx, .len = len };
    memcpy(c->in.data, payload, len);
    while (!store_request(c))
        ;
    rig_settle();
    return &c->out;
}

#endif
