"""A reference model of "Workload-aware credit scheduler for improving network I/O performance in
virtualization environment": shared credit (SC) and agile credit allocation (ACA), on the model of
Credit.

SC moves credit right after an accounting pass has computed the grants C_i. An I/O-intensive VM
needs up to C_c V_i: one pCPU's credit for a period for each of its V_i queues (or active vCPUs),
but no more than its cap. A VM that computes offers P_i C_i. The sum of the needs or the sum of the
offers moves, whichever is less. It is taken in proportion to what is offered (`prorata`) or from
one VM after the other (`sequential`), and given in proportion to what is needed.

ACA keeps the vCPUs of an I/O-intensive VM on the list of active vCPUs even if they have saved
credit for a whole period, so they are granted credit while they sleep. Their credit stays at that
limit.
"""
import sys

import tracestream

from models import credit
from models.credit import ceil_div
from models.scenario import Run, Scenario, VmSpec, random_guest

MS = 1_000_000


def split(amount, parts):
    """Divides `amount` ns in proportion to `parts`, with nothing left over, and returns the list of
    them. As in Takt the proportions are of whole us, which is less than a hundredth of a credit
    off."""
    given, seen, out, whole = [], 0, 0, sum(part // 1000 for part in parts)
    for part in parts:
        seen += part // 1000
        given.append((ceil_div(amount * seen, whole) if whole else 0) - out)
        out += given[-1]
    return given


class WorkloadAware(credit.Credit):
    """The model of Credit with SC, if `how` is not None, and with ACA, if `aca` is true."""

    def __init__(self, machine, cpus, rules, how, aca):
        super().__init__(machine, cpus, rules)
        self.how, self.aca = how, aca   # how: None, "prorata" or "sequential"
        self.moved = []                 # (ns, VM, ns of credit that it got)

    def add(self, v):
        super().add(v)
        if self.aca and v.vm.io:
            self.activate(v)

    def need(self, vm, got):
        """Returns how much more credit than `got` an I/O-intensive VM needs; 0 for other VMs."""
        if not vm.io:
            return 0
        want = self.limit * (vm.queues or len(vm.active))
        if vm.cap:
            want = min(want, ceil_div(vm.cap * self.limit, 100))
        return max(want - got, 0)

    def in_order(self, shares):
        """Returns the grants as Credit does, after SC has moved credit from VMs that offer to VMs
        that need. The amounts are added to `moved` for the comparison."""
        shares = super().in_order(shares)
        if not self.how:
            return shares
        needs = [self.need(vm, got) for vm, got, _ in shares]
        offers = [0 if vm.io else got * vm.share_pct // 100 for vm, got, _ in shares]
        amount = min(sum(needs), sum(offers))
        if not amount:
            return shares
        if self.how == "prorata":
            taken = [min(t, o) for t, o in zip(split(amount, offers), offers)]
        else:
            taken, left = [], amount
            for offer in offers:
                taken.append(min(left, offer))
                left -= taken[-1]
        given = split(sum(taken), needs)
        change = [plus - minus for plus, minus in zip(given, taken)]
        self.moved += [(self.m.now, vm.number, d) for (vm, _, _), d in zip(shares, change) if d]
        return [(vm, got + d, park) for (vm, got, park), d in zip(shares, change)]

    def peak_and_park(self, vm, overdrawn, total):
        """What an I/O-intensive VM has no use for is kept for it and not handed on."""
        peak, park = super().peak_and_park(vm, overdrawn, total)
        if self.aca and vm.io:
            peak = ceil_div(vm.cap * self.limit, 100) if vm.cap else sys.maxsize
        return peak, park

    def settle(self, v, each, park):
        if self.aca and v.vm.io:
            v.credit = min(v.credit, self.limit - each)
        return super().settle(v, each, park)


# ---- scenarios ----

def scenario(rng):
    """Returns a random Scenario on one to three pCPUs: VMs that the VM file calls I/O-intensive and
    VMs that it does not, with SC, ACA or both."""
    cpus = rng.choice((1, 1, 2, 3))
    settings = {"sched_preset": rng.choice(("faithful-4.0", "faithful-4.1", "faithful-4.2"))}
    rules = credit.rules_of(settings["sched_preset"])
    how, aca = rng.choice((("prorata", 0), ("sequential", 0), (None, 1), ("prorata", 1)))
    settings |= {"share": how or "off", "aca": aca}
    if how or rng.random() < 0.5:  # SC is compared to the ns only
        settings["credit_unit_us"], rules.unit = 0, 1
    vms = []
    for i in range(rng.randint(2, 3 + 2 * cpus)):
        image, cmdline = random_guest(rng)
        if rng.random() < 0.4:
            more = {"io": "io"}
            if rng.random() < 0.3:
                more["queues"] = rng.randint(1, 3)
        else:
            more = {"io": "cpu", "share_pct": rng.choice((0, 30, 50, 100))}
        vms.append(VmSpec(f"v{i}", image, cmdline, rng.choice((256, 256, 128, 512)),
                          rng.choice((0, 0, 0, 0, 30)),
                          rng.choice((1, 1, 1, 2)), None, more))
    s = Scenario(settings, vms, cpus, rules=rules)
    s.how, s.aca = how, aca
    return s


def pools(s, m):
    return {"Pool-0": WorkloadAware(m, range(s.cpus), s.rules, s.how, s.aca)}


def vm(number, spec):
    found = credit.vm(number, spec)
    found.io = spec.more["io"] == "io"
    found.share_pct, found.queues = spec.more.get("share_pct", 0), spec.more.get("queues", 0)
    return found


def compare(s, path):
    """Returns sentences about the picks, the accounting passes, and the first amount of credit that
    differs."""
    run = Run(sys.modules[__name__], s, path)
    pool = run.pools["Pool-0"]
    said = run.differences() + credit.account_differences(run, pool)
    theirs = [(r.ns, r.vm, r.signed(2)) for r in run.rec.of(tracestream.SHARE)]
    for a, b in zip(pool.moved, theirs):
        if a != b:
            return said + [f"moved (ns, VM, ns of credit): the model has {a}, the simulation {b}"]
    if len(pool.moved) != len(theirs):
        said.append(
            f"{len(pool.moved)} amounts moved in the model, {len(theirs)} in the simulation"
        )
    return said
