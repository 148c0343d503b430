"""The steps of lab 7. `make grade` runs them."""
from grader import Lab

lab = Lab(7, "micro-slices: vSlicer")


def measure(t, name):
    return t.sim(name, warm_up="3s", time="30s")


def shares(t, result, expected):
    for vm, share in expected.items():
        t.near(f"CPU time of VM {vm}, in %", result.cpu(vm), share, 0.5)


@lab.step(15, "VMs that are all latency-sensitive take turns by what they ask for",
          hint="vslicer_slice() returns the micro-slice of an LS; with no NL on the pCPU "
               "micro_of() gives each one what it asks for; one that has used that up waits in "
               "Q_LATER (vslicer_queue)")
def alone(t):
    result = measure(t, "alone.cfg")
    shares(t, result, {"ls-1": 50, "ls-2": 50})
    for vm in ("ls-1", "ls-2"):
        t.near(f"switches to VM {vm} in a second", result.vcpu(vm)["switches_per_s"], 100, 1)
        t.at_most(f"longest wait of VM {vm}, in ms", result.vcpu(vm)["wait_max_ms"], 5.1)


@lab.step(15, "the slice of an NL is never cut",
          hint="vslicer_slice(): an NL runs for its time of a round, T_N, and an LS that waits "
               "does not end that")
def whole(t):
    result = measure(t, "one.cfg")
    for vm in ("nl-1", "nl-2", "nl-3"):
        t.near(f"switches to VM {vm} in a second", result.vcpu(vm)["switches_per_s"], 8.33, 0.3)
        t.at_most(f"longest wait of VM {vm}, in ms", result.vcpu(vm)["wait_max_ms"], 90.1)


@lab.step(20, "one LS runs between two slices of NL, as long in all as they do",
          hint="vslicer_queue(): an LS that may run in this T_S goes first (Q_MICRO); its budget "
               "is T_n = T_N / n. When that is used up it waits in Q_LATER, with the next budget")
def one(t):
    result = measure(t, "one.cfg")
    shares(t, result, {"ls": 25, "nl-1": 25, "nl-2": 25, "nl-3": 25})
    t.at_most("longest wait of VM ls, in ms", result.vcpu("ls")["wait_max_ms"], 30.1)
    t.near("switches to VM ls in a second", result.vcpu("ls")["switches_per_s"], 25, 0.5)


@lab.step(20, "two LS wait for a slice of an NL and a micro-slice of each other",
          hint="micro_of(): the budget T_n is cut into r equal micro-slices, r = ceil(T_n / what "
               "it asks for); T_m = T_n / r")
def two(t):
    result = measure(t, "two.cfg")
    shares(t, result, {"ls-1": 25, "ls-2": 25, "nl-1": 25, "nl-2": 25})
    for vm in ("ls-1", "ls-2"):
        t.near(f"switches to VM {vm} in a second", result.vcpu(vm)["switches_per_s"], 50, 1)
        t.at_most(f"longest wait of VM {vm}, in ms", result.vcpu(vm)["wait_max_ms"], 35.1)


@lab.step(10, "a VM may say how long it wants to wait, instead of how long it runs",
          hint="asked_for(): while an LS waits, each of the m - 1 others has a micro-slice")
def latency(t):
    result = measure(t, "latency.cfg")
    for vm in ("ls-1", "ls-2", "ls-3"):
        t.near(f"CPU time of VM {vm}, in %", result.cpu(vm), 20, 0.5)
        t.at_most(f"longest wait of VM {vm}, in ms", result.vcpu(vm)["wait_max_ms"], 34.1)
        t.at_most(f"switches to VM {vm} in a second", result.vcpu(vm)["switches_per_s"], 115,
                  hint="asked_for(): a micro-slice that is too short costs switches; the wait is "
                       "divided among the others, m - 1 of them")


@lab.step(15, "times are by weight",
          hint="round_time(): T_N is the time of the heaviest NL, nl_weight; a vCPU of another "
               "weight (counted_weight) has as much more or less")
def weights(t):
    result = measure(t, "weights.cfg")
    shares(t, result, {"ls": 44.44, "nl-1": 22.22, "nl-2": 22.22, "light": 11.11})
    t.at_most("longest wait of VM ls, in ms", result.vcpu("ls")["wait_max_ms"], 30.1)
    t.at_most("longest wait of VM nl-1, in ms", result.vcpu("nl-1")["wait_max_ms"], 110)


lab.main()
