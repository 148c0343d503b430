"""Steps of lab 5 that students do not have. tools/grade-all.py adds them."""


def add(lab):
    @lab.step(5, "other weights", hint="shares are by weight, whatever the weights are")
    def other_weights(t):
        for number in "123":
            result = t.sim("tests/hidden-weights.cfg", options=["-c", f"seed={number}"])
            for vm, share in zip("abc", (58.31, 36.44, 5.25)):
                t.near(f"CPU time of VM {vm}, in %", result.cpu(vm), share, 0.6)

    @lab.step(5, "two VMs that slept", hint="a VM that slept begins where the others are")
    def two_late(t):
        result = t.sim("tests/hidden-late.cfg", warm_up="3500ms", time="2s")
        for vm in ("hog", "late-1", "late-2"):
            t.near(f"CPU time of VM {vm}, in %", result.cpu(vm), 33.33, 1.5)
