"""The steps of lab 5. `make grade` runs them."""
import re

from grader import Lab

SECONDS = 6  # of virtual time, at most, in the hypervisor's image

lab = Lab(5, "a scheduling policy: stride")


@lab.step(10, "a VM that is alone has the whole pCPU",
          hint="wake(), offer() and pick(): somebody has to tell the pCPU to decide (sched_kick), "
               "and pick() has to return the vCPU that is queued")
def alone(t):
    result = t.sim("alone.cfg")
    t.near("CPU time of VM hog, in %", result.cpu("hog"), 100, 0.5)


@lab.step(10, "a VM that wakes gets the pCPU if nobody else wants it",
          hint="offer(): a pCPU that idles has to decide again when a vCPU wakes")
def naps(t):
    result = t.sim("naps.cfg", cpus=2)
    t.near("CPU time of VM a, in %", result.cpu("a"), 20, 1)
    t.at_most("longest time from wake to run of VM b, in us", result.vcpu("b")["wake_us"]["max"],
              100)


@lab.step(10, "three VMs of one weight have a third each",
          hint="charge(): the pass of a VM has to grow while it runs; pick() takes the lowest "
               "pass, and gives a slice of 10 ms")
def equal(t):
    result = t.sim("equal.cfg")
    for vm in "abc":
        t.near(f"CPU time of VM {vm}, in %", result.cpu(vm), 33.33, 0.5)
        t.at_most(f"longest wait of VM {vm}, in ms", result.vcpu(vm)["wait_max_ms"], 31,
                  hint="the slice: with 10 ms nobody waits longer than two slices of others")


@lab.step(15, "shares are by weight",
          hint="charge(): a VM of twice the weight grows half as fast; multiply before you divide, "
               "or small times become 0")
def weights(t):
    result = t.sim("weights.cfg")
    for vm, share in zip("abcd", (50, 25, 12.5, 12.5)):
        t.near(f"CPU time of VM {vm}, in %", result.cpu(vm), share, 0.5)


@lab.step(15, "a VM that slept does not make up for that time",
          hint="wake(): the pass of a VM that slept is far behind; compare it with the pass of the "
               "VM that was picked last")
def late(t):
    result = t.sim("late.cfg", warm_up="4500ms", time="2s")
    t.near("CPU time of VM late in the two seconds after it began, in %", result.cpu("late"), 50,
           1)


@lab.step(10, "a VM gets no more by having more vCPUs",
          hint="the pass belongs to the VM, and charge() makes it grow whichever of its vCPUs ran")
def vcpus(t):
    result = t.sim("vcpus.cfg")
    t.near("CPU time of VM three, in %", result.cpu("three"), 50, 1)
    for number in range(3):
        t.near(f"CPU time of vCPU {number} of VM three, in %",
               result.vcpu("three", number)["cpu_pct"], 16.67, 0.5,
               hint="before(): the vCPUs of a VM take turns")


@lab.step(15, "three pCPUs, none of which idles while a vCPU waits for it",
          hint="place() returns a pCPU of sched_allowed(); pick() calls sched_may_run() and "
               "sched_move(); the hooks saved and affinity offer a vCPU once more")
def several(t):
    result = t.sim("several.cfg", cpus=3)
    t.near("CPU time of VM light, in %", result.cpu("light"), 10, 1)
    for vm in "bcd":
        t.near(f"CPU time of VM {vm}, in %", result.cpu(vm), 72.5, 2)
    result = t.sim("in-step.cfg", cpus=3)
    for vm in "abcd":
        t.near(f"CPU time of VM {vm} of four that begin at once, in %", result.cpu(vm), 75, 1,
               hint="the hook saved: two pCPUs decide at one instant, and a vCPU whose state is "
                    "still on one of them waits for the other")


class Lists:
    """What vcpu-list has said of the CPU time of VMs in the hypervisor's image."""

    def __init__(self, t, text):
        self.t, self.text = t, text

    def times(self, vm):
        """Returns the CPU time of a VM in each list that has it."""
        found = re.findall(rf"^{vm} +\d+ +0 .* (\d+\.\d+) +Pool-0", self.text, re.M)
        self.t.at_least(f"lines of VM {vm} in the log", len(found), 2 if vm == "late" else 4)
        return [float(seconds) for seconds in found]

    def share(self, vm, others, begin, end, expected):
        """Checks what VM `vm` got between two of the last lists, in % of what it and the others
        got together."""
        ran = {name: self.times(name)[end] - self.times(name)[begin] for name in (vm, *others)}
        total = sum(ran.values())
        self.t.at_least(f"CPU time of VMs {', '.join(sorted(ran))} together, in s",
                        round(total, 3), 1.45)
        self.t.near(f"CPU time of VM {vm}, in % of that of {', '.join(sorted(ran))}",
                    round(100 * ran[vm] / total, 2), expected, 1.5)


@lab.step(10, "the same in the hypervisor's image, on Bochs",
          hint="what the simulation forgives: floating point, functions of the C library, and the "
               "time that pick() takes; the log of the machine is in build/image/serial.txt")
def image(t):
    t.needs("alone")
    text = t.machine("image", SECONDS, cpus=2)
    t.says(text, "the log of the hypervisor", r"Switching the machine off")
    lists = Lists(t, text)
    lists.share("a", "b", -4, -3, 66.67)
    for vm, others, expected in (("a", ("b", "late"), 50), ("b", ("a", "late"), 25),
                                 ("late", "ab", 25)):
        lists.share(vm, others, -2, -1, expected)


lab.main()
