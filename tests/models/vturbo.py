"""A reference model of vTurbo ("accelerating virtual machine I/O processing using designated
turbo-sliced core", USENIX ATC 2013): the shares of section 3 and Table 1, on two pools of the model
of Credit.

The turbo pool has slices, ticks and accounting periods of 0.1 ms. A VM's turbo vCPU is the part of
the VM in that pool, and is charged separately. Once in an accounting period of the regular pool,
the two pools exchange how much each VM i used in the last period: rd_i on regular and td_i on turbo
cores. With the weights w_i and their sum W this gives
    C = sum (rd + td),  FS_i = C w_i / W,  FS^R_i = max(0, FS_i - td_i)
and the regular pool divides its credit in proportion to FS^R until the next exchange. The turbo
pool divides its credit by weight among the VMs that are active there. That is the paper's FS^T, if
its W is the sum over those VMs; with the sum over all VMs row 2 of its Table 1 would be wrong.
"""
import sys

import tracestream

from models import credit
from models.scenario import Run, Scenario, VmSpec, random_guest

MS = 1_000_000
vm_of_spec = credit.vm


def shares(weights, active, rd, td):
    """Returns ([FS^R of each VM], [FS^T of each VM]). For FS^R weights are summed over the VMs that
    are active in either pool, for FS^T over those that used the turbo cores (td > 0)."""
    whole = sum(w for w, a in zip(weights, active) if a)
    on_turbo = sum(w for w, t in zip(weights, td) if t)
    total = sum(rd) + sum(td)
    regular = [max(total * w // whole - t, 0) for w, t in zip(weights, td)]
    turbo = [sum(td) * w // on_turbo if t else 0 for w, t in zip(weights, td)]
    return regular, turbo


class Turbo(credit.Credit):
    """The turbo pool, and what both pools have in common: use is counted."""

    def burn(self, v, at_tick=False):
        before = v.credit
        super().burn(v, at_tick)
        v.vm.used += before - v.credit


class Regular(Turbo):
    def __init__(self, machine, cpus, rules):
        super().__init__(machine, cpus, rules)
        self.exchanges = []     # (ns, VM number, td, FS^R)

    def weight(self, vm):
        """Returns FS^R of the last exchange, in us and at least 1, or the VM's weight before the
        first one."""
        return max(vm.share // 1000, 1) if vm.share else super().weight(vm)

    def account(self):
        if self.active:
            self.exchange()
        super().account()

    def exchange(self):
        """Computes FS^R of each VM from what all VMs used on both kinds of cores since the last
        exchange. The counts begin again at 0. FS^R of VMs with a turbo vCPU is added to `exchanges`
        for the comparison."""
        for c in self.m.pcpus:
            if c.current:
                self.m.policy[c.number].burn(c.current)
        turbo_parts = [vm.turbo or Absent for vm in self.vms]
        td = [t.used for t in turbo_parts]
        active = [bool(vm.active or t.active) for vm, t in zip(self.vms, turbo_parts)]
        regular, _ = shares([vm.weight for vm in self.vms], active, [vm.used for vm in self.vms],
                            td)
        for vm, t, share in zip(self.vms, td, regular):
            vm.share = max(share, 1)
            vm.used = 0
            if vm.turbo:
                vm.turbo.used = 0
                self.exchanges.append((self.m.now, vm.number, t, vm.share))


class Absent:
    """The turbo part of a VM that has none."""
    used, active = 0, ()


# ---- scenarios ----

REGULAR = {"sched_preset": "faithful-4.0", "credit_unit_us": 0}
TURBO = {"turbo_of": "core", "sched_preset": "faithful-4.0", "tslice_us": 100, "tick_us": 100,
         "period_us": 100,
         "boost": "off", "credit_unit_us": 0}


def section(name, cpus, keys):
    """Returns a [pool] section of a VM file: on pCPUs `cpus`, with these keys."""
    return f"[pool {name}]\ncpus = {cpus}\n" + "".join(f"{k} = {v}\n" for k, v in keys.items())


def scenario(rng):
    """Returns a random Scenario: two to five VMs on one regular core, most with a turbo vCPU on one
    turbo core."""
    vms = []
    for i in range(rng.randint(2, 5)):
        image, cmdline = random_guest(rng)
        more = {"pool": "core"}
        if rng.random() < 0.7:
            more["turbo"] = "yes"
        vms.append(VmSpec(f"v{i}", image, cmdline, rng.choice((256, 256, 128, 512)), cpu=None,
                          more=more))
    pools_text = section("core", 1, REGULAR) + section("turbo", 2, TURBO)
    return Scenario({}, vms, 3, 400 * MS, pools=pools_text)


class NoBoost(Turbo):
    """A turbo pool with `boost = off`: a vCPU that wakes stays in its class."""

    def wake(self, v, boost=True):
        super().wake(v, False)


def pools(_s, m):
    t = MS // 10
    return {"Pool-0": credit.Credit(m, [0], credit.rules_of("faithful-4.2")),
            "core": Regular(m, [1], credit.rules_of("faithful-4.0", unit=1)),
            "turbo": NoBoost(m, [2],
                             credit.rules_of("faithful-4.0", tslice=t, tick=t, period=t, unit=1))}


def vm(number, spec):
    found = vm_of_spec(number, spec)
    found.used, found.share = 0, 0
    return found


def compare(s, path):
    """Returns sentences about the picks, and about the first exchange that differs."""
    run = Run(sys.modules[__name__], s, path)
    said = run.differences()
    ours = run.pools["core"].exchanges
    theirs = [(r.ns, r.arg[0], r.arg[1], r.wide(2)) for r in run.rec.of(tracestream.TURBO)]
    ours = [(ns, number, td // 1000, share) for ns, number, td, share in ours]
    for a, b in zip(ours, theirs):
        if a != b:
            return said + [
                f"exchange (ns, VM, us on turbo cores, FS^R): the model has {a}, the simulation {b}"
            ]
    if len(ours) != len(theirs):
        said.append(f"{len(ours)} shares in the model, {len(theirs)} in the simulation")
    return said
