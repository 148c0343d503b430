/* Tests of lab 10 that students do not have. */
#include "rig.h"

/* Segments come in random order, some twice, some dropped, and TCP takes the backlog now and then.
 * What was acknowledged early must be what TCP then has. */
static void nothing_is_promised(void) {
    u64 rng = 7;

    begin();
    for (u32 step = 0; step < 5000; step++) {
        u32 at;
        enum backlog_verdict v;

        rng = rng * 6364136223846793005ull + 1442695040888963407ull;
        at = (u32)(b.nxt - START);
        if ((rng >> 33) % 4 == 0) at += (u32)((rng >> 40) % 3) * 100 - 100;
        v = arrives_with(at, 100, (rng >> 50) % 20 != 0, b.count < 20 && (rng >> 45) % 10 != 0);
        if (v == BACKLOG_DROPPED) used--;
        if (b.count > 15 || (rng >> 55) % 8 == 0) {
            u32 promised = b.nxt;

            replay();
            expect("that TCP has all that was acknowledged early", seq_before(rcv.nxt, promised),
                   false);
            rcv.hole = false;
        }
    }
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        { "nothing_is_promised", nothing_is_promised },
        { NULL, NULL },
    };

    return run_tests(tests, argc, argv);
}
