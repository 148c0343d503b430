/* The tests of lab 10. Each plays the segments that arrive while a thread owns the socket. */
#include "rig.h"

static void order(void) {
    begin();
    for (u32 i = 0; i < 4; i++) {
        arrives(i * 100, 100);
        expect("segments in the backlog", b.count, i + 1);
    }
    for (u32 i = 0; i < 4; i++) {
        struct net_buf *nb = backlog_take(&b);

        expect("that there is a segment", nb != NULL, true);
        expect("the number of the segment that is taken out", nb->seq - START, i * 100);
        expect("segments before backlog_done", b.count, 4 - i);
        backlog_done(&b);
        expect("segments after backlog_done", b.count, 3 - i);
    }
    expect("that the backlog is empty", backlog_take(&b) == NULL, true);
    arrives(400, 100);
    expect("that a segment can be added again", backlog_take(&b) != NULL, true);
}

static void early(void) {
    begin();
    verdict("the first segment, in order", arrives(0, 500), BACKLOG_ACK);
    expect("bl.nxt after it", b.nxt - START, 500);
    verdict("the next one, whose numbers wrap", arrives(500, 700), BACKLOG_ACK);
    expect("bl.nxt after it", b.nxt - START, 1200);
    expect("early of the segment", bufs[1].early, true);
    verdict("a segment without data", arrives(1200, 0), BACKLOG_KEPT);
    verdict("the segment after that", arrives(1200, 100), BACKLOG_ACK);
    verdict("with early acknowledgements switched off",
            backlog_add(&b, &rcv,
                        &(struct net_buf){ .seq = START + 1300, .len = 10, .plain = true }, false,
                        true),
            BACKLOG_KEPT);
    expect("bl.nxt after that", b.nxt - START, 1300);
}

static void gap(void) {
    begin();
    verdict("a segment in order", arrives(0, 100), BACKLOG_ACK);
    verdict("a segment beyond a gap", arrives(200, 100), BACKLOG_KEPT);
    expect("bl.nxt after it", b.nxt - START, 100);
    verdict("the segment that closes the gap", arrives(100, 100), BACKLOG_KEPT);
    expect("bl.nxt after it", b.nxt - START, 100);
    verdict("the segment after that", arrives(300, 100), BACKLOG_KEPT);
    begin();
    verdict("a segment in order", arrives(0, 100), BACKLOG_ACK);
    verdict("an old segment once more", arrives(0, 100), BACKLOG_KEPT);
    expect("bl.nxt after it", b.nxt - START, 100);
}

static void resync(void) {
    begin();
    arrives(0, 100);
    arrives(200, 100); /* beyond a gap: early acknowledgements end */
    arrives(100, 100);
    replay();
    expect("rcv.nxt after TCP has taken all", rcv.nxt - START, 200);
    rcv.hole = false;
    rcv.nxt = START + 300; /* TCP had kept the segment beyond the gap */
    verdict("the next segment, when TCP has no gap", arrives(300, 100), BACKLOG_ACK);
    expect("bl.nxt after it", b.nxt - START, 400);
    replay();
    rcv.hole = true;
    verdict("a segment in order, while TCP has a gap", arrives(400, 100), BACKLOG_KEPT);
    replay();
    rcv.hole = false;
    verdict("a segment in order, when the gap is closed", arrives(500, 100), BACKLOG_ACK);
}

static void room(void) {
    begin();
    verdict("a segment in order", arrives(0, 100), BACKLOG_ACK);
    verdict("a segment without room", arrives_with(100, 100, true, false), BACKLOG_DROPPED);
    expect("segments after it", b.count, 1);
    expect("bl.nxt after it", b.nxt - START, 100);
    verdict("the segment behind the one that was dropped", arrives(200, 100), BACKLOG_KEPT);
    expect("bl.nxt after it", b.nxt - START, 100);
}

static void flags(void) {
    begin();
    verdict("a segment in order", arrives(0, 100), BACKLOG_ACK);
    verdict("a segment with FIN", arrives_with(100, 50, false, true), BACKLOG_KEPT);
    verdict("what comes behind a FIN", arrives(150, 100), BACKLOG_KEPT);
    verdict("and behind that, though it would be next", arrives(100, 100), BACKLOG_KEPT);
    expect("bl.nxt after it", b.nxt - START, 100);
    begin();
    verdict("a FIN alone", arrives_with(0, 0, false, true), BACKLOG_KEPT);
    verdict("a segment behind it", arrives(0, 100), BACKLOG_KEPT);
    replay();
    verdict("a segment when TCP has taken the FIN", arrives(rcv.nxt - START, 100), BACKLOG_ACK);
}

static void window(void) {
    begin();
    verdict("a segment that fills the window", arrives(0, WINDOW), BACKLOG_ACK);
    verdict("a segment beyond the window", arrives(WINDOW, 1), BACKLOG_KEPT);
    begin();
    verdict("a segment of which a part is beyond the window", arrives(0, WINDOW + 1), BACKLOG_KEPT);
    expect("bl.nxt after it", b.nxt - START, 0);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        { "order", order }, { "early", early }, { "gap", gap },       { "resync", resync },
        { "room", room },   { "flags", flags }, { "window", window }, { NULL, NULL },
    };

    return run_tests(tests, argc, argv);
}
