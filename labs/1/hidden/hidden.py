"""Steps of lab 1 that students do not have. tools/grade-all.py adds them."""


def add(lab):
    @lab.step(10, "other words and more vCPUs",
              hint="the command line says the name and the number of ticks, and vcpu_count() how "
                   "many vCPUs there are")
    def others(t):
        text = t.machine("tests/hidden", 5)
        for pattern in (r"hello from Grace: 4 vCPUs", r"tick 2 at 2\d\b",
                        r"4 threads have counted to 4000\b"):
            t.says(text, "the log of a machine with four vCPUs", pattern)
        t.true("lines of ticks", "tick 3" not in text, "two", "three or more")
