"""Steps of lab 3 that students do not have. tools/grade-all.py adds them."""


def add(lab):
    lab.test("random", 10, "random mappings",
             hint="what was mapped last counts, page by page",
             program="hidden_check")
    lab.test("no_memory", 5, "no memory for tables",
             hint="without memory npt_map returns -ENOMEM, and nothing is lost",
             program="hidden_check")
