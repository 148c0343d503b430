"""The steps of lab 8. `make grade` runs them."""
from grader import Lab

lab = Lab(8, "fair shares of a turbo core: vTurbo")


def totals(t, name, expected, within=1):
    """Checks what VMs get of both cores together, in % of a core."""
    result = t.sim(name, cpus=3, time="5s")
    for vm, share in expected.items():
        t.near(f"CPU time of VM {vm} on both cores, in %", result.cpu(vm), share, within)


@lab.step(10, "who uses all of the turbo core leaves the regular one to the other",
          hint="the share of a VM of the regular pool is what is fair in both pools, less what it "
               "used of the turbo pool")
def everything(t):
    totals(t, "all.cfg", {"vm1": 100, "vm2": 100})


@lab.step(25, "the introduction's example: 75 and 25 + 50",
          hint="vturbo_exchange(): first add up what all VMs used of both pools; then a VM's fair "
               "part of that, less its turbo_ns, is its share_ns. used_by() is about the time "
               "since the last call, and scaled() must not overflow")
def intro(t):
    totals(t, "intro.cfg", {"regular": 75, "both": 75})
    result = t.sim("intro.cfg", cpus=3, time="5s")
    t.near("CPU time of VM both on the turbo core, in %", result.vcpu("both")["cpu_pct"], 50, 1)


@lab.step(15, "Table 1: turbo demands of 15 and 55 %",
          hint="turbo_ns is the VM's time in the turbo pool alone, since the last call: that of "
               "d->peer")
def events(t):
    totals(t, "events.cfg", {"vm1": 85.5, "vm2": 85.5}, within=1.5)


@lab.step(15, "four VMs, three of them with a turbo vCPU, get half a core each",
          hint="a VM without a turbo vCPU (d->peer is NULL) has used 0 of the turbo pool, and has "
               "a share as well")
def four(t):
    totals(t, "four.cfg", {"a": 50, "b": 50, "c": 50, "d": 50})


@lab.step(15, "fair is by weight",
          hint="FS_i = C w_i / W, with the VM's own weight")
def weights(t):
    totals(t, "weights.cfg", {"a": 100, "b": 50, "c": 50})
    totals(t, "thirds.cfg", {"a": 85.7, "b": 42.9, "c": 21.4})


@lab.step(15, "a VM that sleeps takes nothing from the others",
          hint="is_active_in_a_pool(): W is the sum of the weights of those VMs that have active "
               "vCPUs (nr_active) in one of the two pools")
def asleep(t):
    totals(t, "asleep.cfg", {"regular": 75, "both": 75})


lab.main()
