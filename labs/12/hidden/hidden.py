"""Steps of lab 12 that students do not have. tools/grade-all.py adds them."""


def add(lab):
    lab.test("no_memory", 5, "no memory for tables",
             hint="-ENOMEM, and what is there already stays good",
             program="hidden_check")
    lab.test("many", 5, "eight devices in eight domains",
             hint="the domain of a device alone counts",
             program="hidden_check")
