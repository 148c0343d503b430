"""Steps of lab 2 that students do not have. tools/grade-all.py adds them."""


def add(lab):
    @lab.step(10, "a VM with two vCPUs",
              hint="the leaf tells how many vCPUs the VM has: v->vm->nr_vcpus")
    def two(t):
        text = t.machine("tests/hidden", 6)
        for pattern in (r"probe: leaf 656e696d 2 0\b", r"probe: two chunks, off by 0\b"):
            t.says(text, "the log of a machine whose VM has two vCPUs", pattern)
