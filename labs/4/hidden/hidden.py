"""Steps of lab 4 that students do not have. tools/grade-all.py adds them."""


def add(lab):
    lab.test("all", 10, "all vectors",
             hint="classes, and what is in service below",
             program="hidden_check")
