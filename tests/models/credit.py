"""A reference model of Xen's Credit scheduler, 3.4 to 4.2: the same rules once more, in Python,
written from what is known of Xen and not from hv/sched. A test plays the same VMs in this model and
in build/sim and compares every decision. So a slip that was made in one of the two shows.

Credit is a right to CPU time. In each accounting pass a pool grants credit to its active VMs by
weight; a vCPU that runs uses its credit up. BOOST, UNDER and OVER are the classes of vCPUs that
were just woken, have credit left, or have none.

docs/scheduler.md ("Credit", "Where this is not Xen") says where Takt differs from Xen, and the
model does as Takt does there. docs/testing.md ("Reference models") lists details that Xen leaves
open. With `unit = 100_000` credit is counted in Xen's whole credits of 100 us, with `unit = 1` in
ns (credit_unit_us).
"""
import dataclasses
import itertools
import sys


import tracestream

from models.machine import Timer
from models.scenario import Run, Scenario, VmSpec, random_guest

BOOST, UNDER, OVER = 0, 1, 2  # the lower comes first
MS = 1_000_000


def ceil_div(a, b):
    return -(-a // b)


@dataclasses.dataclass
class Rules:
    tslice: int = 30 * MS
    tick: int = 10 * MS
    period: int = 30 * MS       # from one accounting pass to the next
    ratelimit: int = 1 * MS
    unit: int = 1               # ns of a unit of credit
    weight_of_vcpu: bool = True  # else a weight is the VM's, however many of its vCPUs are active
    inactive_half: bool = True  # a vCPU that becomes inactive keeps half of its credit; else none
    tickle_all: bool = False    # a wake kicks all idle pCPUs; else one
    yield_hint: bool = True     # a vCPU that yields also lets one of the next class go first
    activate_at_burn: bool = False  # not Xen's: a vCPU that is charged anything becomes active
    tick_pays: bool = False     # the vCPU that a tick finds running pays for the whole tick


def rules_of(preset, **more):
    """Returns the Rules of a preset of docs/scheduler.md."""
    if preset in ("faithful-3.4", "faithful-4.0"):
        base = Rules(ratelimit=0, weight_of_vcpu=False, inactive_half=False, tickle_all=True,
                     yield_hint=False,
                     tick_pays=preset == "faithful-3.4")
    elif preset == "faithful-4.1":
        base = Rules(ratelimit=0)
    else:
        assert preset == "faithful-4.2"
        base = Rules()
    return dataclasses.replace(base, **{"unit": 100_000, **more})


class Vm:
    def __init__(self, number, name, weight=256, cap=0):
        self.number, self.name, self.weight, self.cap = number, name, weight, cap
        self.active = []    # its active vCPUs
        self.vcpus = []
        self.turbo = None   # vTurbo: its other part


class Credit:
    """One pool: its pCPUs `cpus` and whatever vCPUs are added to it."""

    def __init__(self, machine, cpus, rules):
        self.m, self.cpus, self.r = machine, sorted(cpus), rules
        self.vms = []
        self.active = []    # VMs with an active vCPU, in the order in which accounting visits them
        self.balance = 0    # sum of the active vCPUs' credit after the last pass
        self.epoch = 0      # counts passes
        # (ns, credit there was to divide at last, balance after, {vCPU: granted})
        self.grants = []
        self.seen = {c: 0 for c in self.cpus}
        self.queue = {c: ([], [], []) for c in self.cpus}
        self.ticker = {c: Timer(lambda c=c: self.tick(c)) for c in self.cpus}
        self.master = Timer(self.account)
        self.rotor = -1   # the idle pCPU that a wake kicked last
        self.limit = rules.period // rules.unit  # "300": a pCPU's credit for a period
        for c in self.cpus:
            machine.policy[c] = self

    def add(self, v):
        """Takes v into the pool, without credit. It begins to wait only when it wakes."""
        v.credit, v.cls, v.active = 0, UNDER, False
        v.unbilled = 0      # ns run and not yet charged, of less than half a unit
        v.charged = 0       # up to when it was charged
        v.picked = 0        # since when it runs
        v.hint = False      # it yielded
        v.queued = None     # the list that it waits in

    # ---- charging ----

    def burn(self, v, at_tick=False):
        """Charges v for what it ran since it was charged last: the nearest number of whole units.
        What is left over, or was charged too much, is remembered, also while v does not run."""
        if self.r.tick_pays:
            v.credit -= self.r.tick // self.r.unit if at_tick else 0
            return
        total = v.unbilled + self.m.now - v.charged
        n = (total + self.r.unit // 2) // self.r.unit
        v.credit -= n
        v.unbilled = total - n * self.r.unit
        v.charged = self.m.now
        if n and self.r.activate_at_burn and not v.active:
            self.activate(v)

    def activate(self, v):
        """Puts v on the list of active vCPUs, which are granted credit. If no accounting pass was
        planned, the next one is planned."""
        v.active = True
        v.vm.active.insert(0, v)
        if len(v.vm.active) == 1:
            self.active.insert(0, v.vm)
        if self.master.seq is None:
            self.m.at(self.m.now // self.r.period * self.r.period + self.r.period, self.master,
                      self.cpus[0])

    def deactivate(self, v):
        """Takes v off the list of active vCPUs, so that it is granted nothing until it is active
        again."""
        v.active = False
        v.vm.active.remove(v)
        if not v.vm.active:
            self.active.remove(v.vm)

    # ---- the tick of a pCPU ----

    def next_tick(self, cpu):
        """Returns when the next tick of the pCPU is due. Ticks of different pCPUs are a little
        apart."""
        shift = self.r.tick // 64 * cpu
        if self.m.now < shift:
            return shift
        return shift + ((self.m.now - shift) // self.r.tick + 1) * self.r.tick

    def tick(self, cpu):
        """Charges the vCPU that runs on this pCPU, ends its boost, and makes it active. If it was
        active already, and had better be on another pCPU, it is taken off to be moved there. The
        first tick after an accounting pass also sorts those who wait by their new classes. The next
        tick is planned only if somebody runs here."""
        v = self.m.pcpus[cpu].current
        if v:
            if v.cls == BOOST:
                v.cls = UNDER
            self.burn(v, at_tick=True)
            if not v.active:
                self.activate(v)
            elif v.runnable and self.place(v) != cpu:
                v.migrating = True
                self.m.kick(cpu)
        if self.seen[cpu] != self.epoch:
            self.seen[cpu] = self.epoch
            self.sort(cpu)
        if v:
            self.m.at(self.next_tick(cpu), self.ticker[cpu], cpu)

    def sort(self, cpu):
        """Moves each vCPU that waits for this pCPU to the list of the class that it now has."""
        waiting = [v for q in self.queue[cpu] for v in q]
        for cls, q in enumerate(self.queue[cpu]):
            q[:] = [v for v in waiting if v.cls == cls]
            for v in q:
                v.queued = q

    # ---- accounting ----

    def weight(self, vm):
        """Returns the weight by which credit is divided among VMs."""
        return vm.weight * (len(vm.active) if self.r.weight_of_vcpu else 1)

    def peak_and_park(self, vm, overdrawn, total):
        """Returns the most that vm may be granted in this pass, and the credit below which its
        vCPUs are parked (kept from running, because the cap is used up); None means never."""
        peak = self.limit * len(vm.active)
        if overdrawn:
            peak += ceil_div(overdrawn * self.weight(vm), total)
        if not vm.cap:
            return peak, None
        cap = ceil_div(vm.cap * self.limit, 100)
        return min(peak, cap), ceil_div(cap, len(vm.active))

    def divide(self):
        """Returns [(VM, what it gets, park limit)], and the credit that there was, with all that
        was handed on."""
        overdrawn = max(-self.balance, 0)
        total = left = sum(self.weight(vm) for vm in self.active)
        credit = self.limit * len(self.cpus) + overdrawn
        could_use_more, shares = False, []
        for vm in list(self.active):
            w = self.weight(vm)
            left -= w
            peak, park = self.peak_and_park(vm, overdrawn, total)
            fair = ceil_div(credit * w, total)
            if fair < peak:
                could_use_more = True
            else:
                if left:
                    credit += ceil_div((fair - peak) * total, left)
                if could_use_more:
                    self.active.remove(vm)
                    self.active.insert(0, vm)
                fair = peak
            shares.append((vm, fair, park))
        return self.in_order(shares), credit

    def in_order(self, shares):
        """Returns the grants in the order in which they are given. Takt gives them when all have
        been computed, in the order that the list has then; in Xen each VM gets its grant when it is
        visited. The amounts are the same. Only which vCPU is unparked first may differ."""
        return sorted(shares, key=lambda s: self.active.index(s[0]))

    def account(self):
        """Makes an accounting pass: divides credit among the active VMs and grants it. The next
        pass is planned only if a VM is active."""
        if self.active:
            self.grant(*self.divide())
            self.epoch += 1
        else:
            self.balance = 0
        if self.active:
            self.m.at(self.m.now + self.r.period, self.master, self.cpus[0])

    def grant(self, shares, credit):
        """Gives the active vCPUs of each VM equal parts of what the VM gets, and adds the pass to
        `grants` for the comparison."""
        balance, given = 0, {}
        for vm, fair, park in shares:
            each = ceil_div(fair, len(vm.active))
            for v in list(vm.active):
                given[v] = each
                balance += self.settle(v, each, park)
        self.balance = balance
        self.grants.append((self.m.now, credit, balance, given))

    def settle(self, v, each, park):
        """Gives v its part. By its credit then, v becomes UNDER or OVER, is parked or unparked, or
        becomes inactive. Returns its credit."""
        v.credit += each
        if v.credit < 0:
            v.cls = OVER
            if park is not None and v.credit < -park and not v.parked:
                self.m.park(v)
            v.credit = max(v.credit, -self.limit)
            return v.credit
        v.cls = UNDER
        if v.parked:
            self.m.unpark(v)
        if v.credit > self.limit:
            self.deactivate(v)
            v.credit = v.credit // 2 if self.r.inactive_half else 0
        return v.credit

    # ---- queues ----

    def insert(self, v):
        """Has v wait behind the others of its class. If v yielded, it waits behind the first vCPU
        of the next worse class in which any waits."""
        lists = self.queue[v.cpu]
        q, at = lists[v.cls], len(lists[v.cls])
        if v.hint:
            v.hint = False
            for worse in lists[v.cls + 1:]:
                if worse:
                    q, at = worse, 1
                    break
        q.insert(at, v)
        v.queued = q

    def remove(self, v):
        """Takes v out of the queue in which it waits."""
        v.queued.remove(v)
        v.queued = None

    def head(self, cpu):
        """Returns the first of those who wait for this pCPU, or None."""
        for q in self.queue[cpu]:
            if q:
                return q[0]
        return None

    def wake(self, v, boost=True):
        """Has v wait, in class BOOST if it has credit left and `boost` is true, and kicks who may
        run it."""
        if boost and v.cls == UNDER:
            v.cls = BOOST
        self.insert(v)
        self.tickle(v)

    def tickle(self, v):
        """Kicks the pCPUs that may run v, which has just begun to wait. These are its own one, if
        that is idle or runs a vCPU of a worse class, and, if its own one is not idle, an idle pCPU
        that v may use (all of them with `tickle_all`)."""
        current = self.m.pcpus[v.cpu].current
        if current is None or v.cls < current.cls:
            self.m.kick(v.cpu)
        if current is None:
            return
        idle = [c for c in self.cpus if self.m.pcpus[c].current is None and c in v.affinity]
        if not idle:
            return
        if self.r.tickle_all:
            for c in idle:
                self.m.kick(c)
            return
        self.rotor = next((c for c in idle if c > self.rotor), idle[0])
        self.m.kick(self.rotor)

    def place(self, v):
        """Returns the pCPU where v should be: the one where it is, unless it would have to wait
        there while a pCPU that it may use is idle; then the next idle one."""
        current = self.m.pcpus[v.cpu].current
        others = current is not None and current is not v
        if v.cpu in v.affinity and not others and self.head(v.cpu) is None:
            return v.cpu
        idle = [c for c in self.cpus if self.m.pcpus[c].current is None and c in v.affinity]
        after = [c for c in idle if c > v.cpu]
        return (after or idle or [v.cpu])[0]

    def yielded(self, v):
        v.hint = self.r.yield_hint

    # ---- decisions ----

    def decide(self, cpu):
        """Returns (the vCPU that pCPU `cpu` runs now, ns until it has to decide again), or (None,
        None) if it is idle. A current vCPU that has run for less than `ratelimit` goes on.
        Otherwise the first of those who wait here is taken. If that one is OVER, or nobody waits, a
        vCPU of a better class that waits for another pCPU is taken instead."""
        v = self.m.pcpus[cpu].current
        now = self.m.now
        if v:
            self.burn(v)
            if v.runnable and now - v.picked < self.r.ratelimit:
                v.hint = False
                return v, self.r.ratelimit
            if v.runnable:
                self.insert(v)
        best = self.head(cpu)
        if best is None or best.cls == OVER:
            stolen = self.steal(cpu, best.cls if best else OVER + 1)
            best = stolen or best
        if best is None:
            return None, None
        self.remove(best)
        if best.cpu != cpu:
            best.cpu = cpu
        if best is not v:
            best.picked = now
        best.charged = now
        if self.ticker[cpu].seq is None:
            self.m.at(self.next_tick(cpu), self.ticker[cpu], cpu)
        return best, self.slice_of(best)

    def slice_of(self, _v):
        return self.r.tslice

    def cyclic(self, cpu):
        """Returns the other pCPUs, from the neighbour of `cpu` on."""
        return [c for c in self.cpus if c > cpu] + [c for c in self.cpus if c < cpu]

    def steal(self, cpu, worse):
        """Returns the first vCPU of a better class than `worse` that waits for another pCPU and may
        run on this one, or None."""
        for c in self.cyclic(cpu):
            if self.m.pcpus[c].current is None:
                continue
            for v in itertools.chain(*self.queue[c][:worse]):
                if v.cls >= worse:
                    break
                if cpu in v.affinity and v.saved:
                    return v
        return None


# ---- scenarios ----

def credits(ns):
    """Returns an amount of credit as a trace record has it: in whole credits of 100 us, cut off
    towards 0, in 32 bits."""
    return int(ns / 100_000) & 0xFFFFFFFF


def settings_and_rules(rng, presets=("faithful-3.4", "faithful-4.0", "faithful-4.1",
                                             "faithful-4.2", "faithful-4.2")):
    """Returns random keys of [hypervisor], and the Rules that they mean."""
    preset = rng.choice(presets)
    settings, more = {"sched_preset": preset}, {}
    if rng.random() < 0.4:
        tslice = rng.choice((3000, 5000, 10_000, 29_989))
        tick = max(tslice // 3, 1000)  # as Xen: a third of the slice, in whole us
        if rng.random() < 0.5:
            tick = settings["tick_us"] = rng.choice((1000, 1501, 2503))
        settings["tslice_us"] = tslice
        more = {"tslice": tslice * 1000, "period": tslice * 1000, "tick": tick * 1000}
    if preset == "faithful-4.2" and rng.random() < 0.3:
        settings["ratelimit_us"] = rng.choice((0, 100, 2500))
        more["ratelimit"] = settings["ratelimit_us"] * 1000
    return settings, rules_of(preset, **more)


def in_some_unit(settings, rules, rng):
    """Returns (settings, rules) that count in whole credits, as every preset does that is named
    after a Xen, or in ns."""
    if rules.period % rules.unit == 0 and rng.random() < 0.6:
        return settings, rules
    exact = {"sched_preset": settings["sched_preset"], "credit_unit_us": 0}
    return exact | settings, dataclasses.replace(rules, unit=1)


def scenario(rng):
    """Returns a random Scenario under a preset that is named after a Xen, on one to three pCPUs."""
    cpus = rng.choice((1, 1, 1, 2, 3))
    settings, rules = settings_and_rules(rng)
    vms, pinned = [], rng.random() < 0.5
    for i in range(rng.randint(2, 4 + 2 * cpus)):
        image, cmdline = random_guest(rng)
        vms.append(VmSpec(f"v{i}", image, cmdline, rng.choice((256, 256, 128, 512, 777)),
                          rng.choice((0, 0, 0, 20, 45)), rng.choice((1, 1, 1, 2)),
                          rng.randrange(cpus) if pinned else None))
    end_ns = 2000 * MS
    if rng.random() < 0.06:  # hundreds of thousands of yields a second: a tenth of a second will do
        vms[0].image, vms[0].cmdline = "hostile", "mode=" + rng.choice(("yield", "selfwake"))
        end_ns = 100 * MS
    settings, rules = in_some_unit(settings, rules, rng)
    return Scenario(settings, vms, cpus, end_ns, rules=rules)


def pools(s, m):
    return {"Pool-0": Credit(m, range(s.cpus), s.rules)}


def vm(number, spec):
    return Vm(number, spec.name, spec.weight, spec.cap)


def compare(s, path):
    run = Run(sys.modules[__name__], s, path)
    return run.differences() + account_differences(run, run.pools["Pool-0"])


def account_differences(run, pool):
    """Compares the accounting passes: the credit that there was to divide in each, and the sum of
    credit after it. Returns a list with a sentence about the first difference, or an empty one."""
    unit = pool.r.unit
    ours = [
        (ns, credits(total * unit), credits(balance * unit))
        for ns, total, balance, _ in pool.grants
    ]
    theirs = [(r.ns, r.arg[1], r.arg[2]) for r in run.rec.of(tracestream.ACCOUNT)]
    for a, b in zip(ours, theirs):
        if a != b:
            return [f"accounting (ns, credits, balance): the model has {a}, the simulation {b}"]
    return (
        []
        if len(ours) == len(theirs)
        else [f"{len(ours)} accounting passes in the model, not {len(theirs)}"]
    )
