"""Steps of lab 3 that students do not have. tools/grade-all.py adds them."""


def add(lab):
    @lab.step(10, "random mappings", hint="what was mapped last counts, page by page")
    def random(t):
        t.check("random", program="hidden_check")

    @lab.step(5, "no memory for tables", hint="without memory npt_map returns -ENOMEM, and nothing "
                                              "is lost")
    def no_memory(t):
        t.check("no_memory", program="hidden_check")
