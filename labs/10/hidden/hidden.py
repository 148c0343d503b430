"""Steps of lab 10 that students do not have. tools/grade-all.py adds them."""


def add(lab):
    lab.test("nothing_is_promised", 10, "what is acknowledged is kept",
             hint="bl.nxt moves only over segments that are in the backlog and in order",
             program="hidden_check")
