"""Random scenarios: VM files that the simulation runs and a reference model plays again, and the
comparison of both. A *pick* is a decision of the scheduler: when, on which pCPU, which vCPU, and
for how long.

A model is a module with
    scenario(rng)              returns a Scenario
    compare(scenario, path)    returns sentences about what differs when the VM file `path` is run
and, if it uses Run, with
    pools(scenario, machine)   returns {pool: policy}: the models of its pools, on that machine
    vm(number, spec)           returns what those policies need to know of a VM
"""
import dataclasses
import os
import random

import tracestream

from models import machine, recording

OUT = os.path.join(recording.ROOT, "build", "results", "models")
MS = 1_000_000


@dataclasses.dataclass
class VmSpec:
    name: str
    image: str = "spin"
    cmdline: str = ""
    weight: int = 256
    cap: int = 0
    vcpus: int = 1
    cpu: int | None = 0     # the one pCPU where it may run; None: any
    more: dict = dataclasses.field(default_factory=dict)

    def text(self):
        keys = {"image": self.image, "cmdline": self.cmdline, "weight": self.weight,
                "cap": self.cap,
                "vcpus": self.vcpus, "cpus": "" if self.cpu is None else self.cpu, **self.more}
        return f"[vm {self.name}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items() if v != "")


@dataclasses.dataclass
class Scenario:
    settings: dict          # of [hypervisor]
    vms: list
    cpus: int = 1
    end_ns: int = 2000 * MS
    switch_ns: int = 2000
    kick_ns: int = 2000
    pools: str = ""         # [pool] sections
    rules: object = None    # what the settings mean to the model
    exact: bool = True      # all picks were the same

    def text(self):
        head = "[hypervisor]\n" + "".join(f"{k} = {v}\n" for k, v in self.settings.items())
        return head + self.pools + "".join(vm.text() for vm in self.vms)

    def options(self):
        return self.cpus, self.end_ns, self.switch_ns, self.kick_ns


def random_guest(rng):
    """Returns (image, command line) of a random guest. Half of these guests compute for ever."""
    image = rng.choice(("spin", "spin", "spin", "spin", "busy", "quick", "waker", "evader"))
    if image == "busy":
        return image, f"percent={rng.randint(3, 80)} period_us={rng.randint(2000, 40000)}"
    if image == "waker":
        return image, f"period_us={rng.randint(1000, 20000)}"
    if image == "evader":
        return image, f"lead_us={rng.randint(100, 500)} nap_us={rng.randint(600, 900)}"
    if image == "quick":
        return "busy", f"percent={rng.randint(3, 80)} period_us={rng.randint(500, 2000)}"
    return image, ""


class Run:
    """A scenario that was run in the simulation (its recording is `rec`) and in a model (`m` is the
    machine, `pools` are the schedulers)."""

    def __init__(self, model, scenario, path):
        """Runs the VM file `path`, which has the text of `scenario`, in build/sim. Then runs the
        same VMs in `model`: their guests follow scripts from the recording."""
        self.scenario = scenario
        self.rec = recording.run(path, *scenario.options())
        self.m = machine.Machine(scenario.cpus, scenario.kick_ns, scenario.switch_ns)
        self.pools = model.pools(scenario, self.m)
        self.vms = []
        number = 1
        for spec in scenario.vms:
            self.vms.append(self._vm(model, number, spec))
            number += 2 if self.vms[-1].turbo else 1  # the turbo part takes a number, too
        for cpu in range(scenario.cpus):
            self.m.kick(cpu)
        for v in self.m.vcpus:
            self.m.start(v)
        self.m.run_until(0)
        self.m.mark()  # as build/sim does after a warm-up of 0 ns
        self.m.run_until(scenario.end_ns)

    def _vm(self, model, number, spec):
        """Makes VM `number` of the model as `spec` says, with its vCPUs and, if it has one, its
        turbo part."""
        pool = self.pools[spec.more.get("pool", "Pool-0")]
        vm = model.vm(number, spec)
        pool.vms.append(vm)
        for index in range(spec.vcpus):
            self._vcpu(vm, pool, number << 16 | index, spec.cpu)
        if spec.more.get("turbo") == "yes":
            vm.turbo = model.vm(number, spec)
            self._vcpu(vm.turbo, self.pools["turbo"], (number | tracestream.TURBO_PART) << 16, None)
        return vm

    def _vcpu(self, vm, pool, who, cpu):
        """Makes the vCPU that records call `who`. With `cpu` it may run only there, else in all of
        the pool."""
        guest = machine.Script(self.rec.first_wake.get(who), self.rec.steps[who])
        allowed = set(pool.cpus) if cpu is None else {cpu}
        v = machine.Vcpu(vm, who & 0xFFFF, guest, allowed)
        v.who = who
        vm.vcpus.append(v)
        self.m.add(v, self.rec.first_cpu.get(who, min(allowed)))
        pool.add(v)

    def first_difference(self):
        """Returns a sentence about the first pick that is not the same, or None if all are the
        same."""
        ours = [(ns, cpu, v.who if v else None, for_ns) for ns, cpu, v, for_ns in self.m.picks]
        theirs = [
            (p.ns, p.cpu, p.who, p.slice if p.who is not None else None) for p in self.rec.picks
        ]
        for i, (a, b) in enumerate(zip(ours, theirs)):
            if a != b:
                return f"pick {i}: the model has {told(a)}, the simulation {told(b)}"
        if len(ours) != len(theirs):
            return f"the model has {len(ours)} picks, the simulation {len(theirs)}"
        return None

    def differences(self):
        """Returns sentences about what differs: the first pick, or else what build/sim prints."""
        first = self.first_difference()
        return [first] if first else list(self.printed_differences())

    def printed_differences(self):
        """Yields sentences about what build/sim -j prints of each vCPU, if it is not what the model
        has: its share, its longest wait, how often it was switched to."""
        seconds = self.scenario.end_ns / 1e9
        in_order = []
        for vm in self.vms:
            in_order += (vm.turbo.vcpus if vm.turbo else []) + vm.vcpus
        for v, row in zip(in_order, self.rec.printed["vcpus"], strict=True):
            mine = {"cpu_pct": self.m.ran(v) / seconds / 1e7,
                    "wait_max_ms": self.m.longest_wait(v) / 1e6,
                    "switches_per_s": v.switches / seconds}
            for key, value in mine.items():
                if abs(value - row[key]) > (0.051 if key == "switches_per_s" else 0.00051):
                    yield f"{v}: {key}: the model has {value:.3f}, the simulation prints {row[key]}"


def told(pick):
    """Returns a pick in words."""
    ns, cpu, who, for_ns = pick
    if who is None:
        return f"nobody on pCPU {cpu} at {ns} ns"
    return f"VM {who >> 16} vCPU {who & 0xffff} on pCPU {cpu} at {ns} ns for {for_ns} ns"


def by_hand(name, seed, path, scenario):
    """Returns two lines that say how to run this scenario again by hand."""
    shown = " ".join(recording.options(*scenario.options()))
    return (f"{name}, seed {seed}: build/sim {shown} {os.path.relpath(path, recording.ROOT)}\n"
            f"    again: tests/models/run.py {name} {seed}\n")


def differences(model, name, seed):
    """Plays one scenario. Returns (sentences about what differs, and first how to see it by hand;
    Scenario)."""
    s = model.scenario(random.Random(f"{name} {seed}"))
    os.makedirs(OUT, exist_ok=True)
    path = os.path.join(OUT, f"{name}-{seed}.cfg")
    with open(path, "w", encoding="utf-8") as f:
        f.write(s.text())
    said = model.compare(s, path)
    if said:
        return [by_hand(name, seed, path, s)] + said, s
    os.unlink(path)
    return [], s


def must_agree(model, name, seeds):
    """Returns the Scenarios, all of which agree."""
    found = []
    for seed in seeds:
        said, s = differences(model, name, seed)
        assert not said, "\n".join(said[:12])
        found.append(s)
    return found
