"""Steps of lab 7 that students do not have. tools/grade-all.py adds them."""


def add(lab):
    @lab.step(5, "two LS and three NL", hint="T_n is T_N divided by the number of NL")
    def two_and_three(t):
        result = t.sim("tests/two-and-three.cfg", warm_up="3s", time="30s")
        for vm in ("ls-1", "ls-2"):
            t.near(f"CPU time of VM {vm}, in %", result.cpu(vm), 20, 0.5)
            t.at_most(f"longest wait of VM {vm}, in ms", result.vcpu(vm)["wait_max_ms"], 35.1)

    @lab.step(5, "other seeds", hint="the schedule does not depend on when a VM begins")
    def seeds(t):
        for seed in (1, 2, 3):
            result = t.sim("one.cfg", warm_up="3s", time="30s", options=["-c", f"seed={seed}"])
            t.near("CPU time of VM ls, in %", result.cpu("ls"), 25, 0.5)
            t.at_most("longest wait of VM ls, in ms", result.vcpu("ls")["wait_max_ms"], 30.1)
