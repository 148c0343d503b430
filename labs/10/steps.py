"""The steps of lab 10. `make grade` runs them, one test of tests/check.c each."""
from grader import Lab

lab = Lab(10, "the backlog, and early acknowledgements")

lab.test("order", 15, "segments are kept in the order in which they arrived",
         hint="backlog_append() puts it at the end, backlog_take() takes the first one; a segment "
              "counts until backlog_done()")
lab.test("early", 20, "a segment that is next in order is acknowledged at once",
         hint="backlog_add(): its number is bl.nxt, it has data, and early acknowledgements are "
              "on (b->online); bl.nxt then moves behind it. Set nb->early")
lab.test("gap", 15, "after a gap nothing is acknowledged early",
         hint="backlog_add(), lines 14 to 20: a segment with data that is not next in order ends "
              "early acknowledgements")
lab.test("resync", 15, "when TCP has taken the backlog they begin again",
         hint="backlog_resync(): with an empty backlog go on from rcv->nxt, but not while TCP has "
              "a hole, and not while rcv->nxt is behind what was acknowledged")
lab.test("room", 10, "what is dropped is not acknowledged",
         hint="backlog_add(): bl.nxt moves only over segments that are kept")
lab.test("flags", 10, "nothing is acknowledged early behind a FIN",
         hint="only TCP can tell whether a segment with FIN ends the stream: b->may_end")
lab.test("window", 10, "nothing beyond the window is acknowledged",
         hint="rcv->edge is the first number for which no room was announced")

lab.main()
