/* vms: 2 */
/* time: 2500 */
/* keys1: net = dev_front_ends-2 */
/* The front VM ends while its back end writes into its RAM all the time, from before that until
 * long after it. The back end must never fault. It is told, and serves nobody any more. System
 * tests give the command lines the word `forever`: then the front end stays, and the back end
 * takes on each front end that comes next. */
#include "dev_rig.h"

static bool forever;

static void front(void) {
    struct box *box = page_alloc(1);

    memset(box, 0, PAGE_SIZE);
    dev_await_type(0, VIRTIO_ID_NET);
    dev_start(0, box);
    dev_ask(0, box, 1);
    sleep_ns(20 * NS_PER_MS); /* the back end writes now */
    for (u64 i = 0; forever; i++) sleep_ns(NS_PER_S);
}

/* Writes all of the page through which the two talk, again and again. Returns true when there is
 * news. */
static bool hammer(struct dev_back *b) {
    volatile u64 *word = (volatile u64 *)b->box;

    for (u32 i = 8; i < 512; i++) word[i] = i;
    return event_take(b->bell);
}

/* Answers the request of the front end. Returns false if that has ended meanwhile. */
static bool answer(struct dev_back *b) {
    i64 error = hypercall2(TAKT_HC_BACK_MAP, b->is.handle, (u64)&b->window);

    if (!error && window_map(&b->window)) test_error("no memory for page tables");
    b->front.resets = 0;
    while (!error && b->front.status != DEV_RUNS) {
        event_poll(b->port, NS_PER_MS);
        event_take(b->port);
        error = back_state(b, b->front.resets);
    }
    if (error) return false;
    b->box = (struct box *)(b->window.base + b->front.queue[0].desc);
    while (!b->box->asked && back_state(b, b->front.resets) == 0) sleep_ns(NS_PER_MS / 10);
    b->box->answered = b->box->asked;
    return hypercall1(TAKT_HC_BACK_IRQ, b->is.handle) == 0;
}

static void back(void) {
    static u64 own[512];
    struct dev_back b = { 0 };
    u64 end, rounds = 0;
    bool served;

    for (u32 i = 0; i < 512; i++) own[i] = i * 7;
    do {
        back_find(&b);
        back_offer(&b);
        served = answer(&b);
        while (served && (!hammer(&b) || back_state(&b, 0) != -ENOENT)) rounds++;
        for (end = time_ns() + 20 * NS_PER_MS; served && time_ns() < end;) hammer(&b);
        CHECK(hypercall2(TAKT_HC_BACK_MAP, b.is.handle, (u64)&b.window) == -ENOENT,
              "mapped what is gone");
        CHECK(hypercall1(TAKT_HC_BACK_IRQ, b.is.handle) == -ENOENT, "interrupted what is gone");
        CHECK(hypercall1(TAKT_HC_BACK_UNMAP, b.is.handle) == 0 || !served, "cannot unmap");
        CHECK(hypercall1(TAKT_HC_BACK_UNMAP, b.is.handle) == -ENOENT, "unmapped twice");
        CHECK(event_close(b.port) == 0, "cannot close its port");
        for (u32 i = 0; i < 512; i++) CHECK(own[i] == i * 7, "its own word %u is %lx", i, own[i]);
        b.front.status = 0;
    } while (forever);
    CHECK(rounds > 0, "it never wrote");
    CHECK(hypercall2(TAKT_HC_BACK_LIST, 0, (u64)&b.is) == -ENOENT, "still listed");
}

int main(void) {
    forever = cmdline_has("forever");
    return dev_test(front, back, NULL, "it ended, and the other went on");
}
