"""Steps of lab 12 that students do not have. tools/grade-all.py adds them."""


def add(lab):
    @lab.step(5, "no memory for tables", hint="-ENOMEM, and what is there already stays good")
    def no_memory(t):
        t.check("no_memory", program="hidden_check")

    @lab.step(5, "eight devices in eight domains", hint="the domain of a device alone counts")
    def many(t):
        t.check("many", program="hidden_check")
