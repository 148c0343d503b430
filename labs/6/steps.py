"""The steps of lab 6. `make grade` runs them."""
from grader import Lab

lab = Lab(6, "credit, and theft of service")


@lab.step(20, "shares are by weight",
          hint="grant(): a VM gets credit * weight / weights, and each of its vCPUs that is "
               "granted credit an equal part of that")
def weights(t):
    result = t.sim("weights.cfg", warm_up="3s", time="30s")
    for vm, share in zip("abc", (50, 25, 25)):
        t.near(f"CPU time of VM {vm}, in %", result.cpu(vm), share, 1)


@lab.step(10, "a VM gets no more by having more vCPUs",
          hint="grant(): the part of a VM is divided by the number of its vCPUs that are granted "
               "credit")
def vcpus(t):
    result = t.sim("vcpus.cfg", cpus=2, warm_up="3s", time="30s")
    for vm in ("two", "one", "other"):
        t.near(f"CPU time of VM {vm}, in %", result.cpu(vm), 66.67, 1.5)


@lab.step(10, "a VM that has credit and wakes runs at once",
          hint="rank_of(): it has the rank BOOST if it was boosted and has credit")
def waker(t):
    result = t.sim("waker.cfg")
    t.at_most("longest time from wake to run of VM waker, in us",
              result.vcpu("waker")["wake_us"]["max"], 1000)


@lab.step(20, "the attack: a VM gets 85 % where a quarter is fair",
          hint="attack.cfg: ticks come every 10 ms and charge the VM that they find; go to sleep "
               "shortly before (lead_us), and wake shortly after (nap_us)")
def attack(t):
    result = t.sim("attack.cfg", hint="attack.cfg: change the command line of VM thief alone")
    pool, vms = result.data["pools"][0], result.data["vms"]
    names = [(v["vm"], v["image"], v["params"]["weight"]) for v in vms]
    t.equal("the VMs, their images and weights in attack.cfg", names,
            [("thief", "evader", 256)] + [(f"hog-{i}", "spin", 256) for i in (1, 2, 3)],
            hint="attack.cfg: change the command line of VM thief alone")
    t.equal("the policy in attack.cfg, and whom it charges",
            (pool["policy"], pool["params"]["debit"], pool["params"]["tick_us"]),
            ("credit", "tick", 0), hint="attack.cfg: change the command line of VM thief alone")
    t.at_least("CPU time of VM thief, in %", result.cpu("thief"), 85)


@lab.step(20, "the hole is closed: your scheduler gives the thief its quarter",
          hint="charge_begin() notes the time, charge_up_to_now() charges for what has passed "
               "since; a tick must not decide who pays")
def closed(t):
    result = t.sim("thief.cfg", warm_up="3s", time="20s")
    t.near("CPU time of VM thief of thief.cfg, in %", result.cpu("thief"), 25, 1)
    with open("attack.cfg", encoding="utf-8") as f:
        text = f.read().replace("sched = credit\nsched_preset = faithful-3.4", "sched = simple")
    with open("build/attack.cfg", "w", encoding="utf-8") as f:
        f.write(text)
    result = t.sim("build/attack.cfg", warm_up="3s", time="20s")
    t.at_most("CPU time of VM thief in your own attack, in %", result.cpu("thief"), 26)
    result = t.sim("weights.cfg", warm_up="3s", time="30s")
    t.near("CPU time of VM a of weights.cfg, in %", result.cpu("a"), 50, 1)


@lab.step(15, "what a VM does not need goes to the others, by weight",
          hint="account(): a VM holds at most the credit of a period, so grant() may give out less "
               "than it was told to; grant the rest again until nobody can hold more")
def light(t):
    result = t.sim("light.cfg", warm_up="3s", time="30s")
    t.near("CPU time of VM light, in %", result.cpu("light"), 5, 0.5)
    for vm, share in zip("abc", (47.5, 23.75, 23.75)):
        t.near(f"CPU time of VM {vm}, in %", result.cpu(vm), share, 1)


lab.main()
