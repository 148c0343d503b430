"""Random scenarios: VM files that the simulation runs and a model plays again, and what is compared.

A model is a module with
    scenario(rng)              returns a Scenario
    pools(scenario, machine)   returns {pool: policy}: the models of its pools, on that machine
    check(run)                 what else is to be compared than the picks, yields sentences
"""
import dataclasses
import os
import random

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
        keys = {"image": self.image, "cmdline": self.cmdline, "weight": self.weight, "cap": self.cap,
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

    def text(self):
        head = "[hypervisor]\n" + "".join(f"{k} = {v}\n" for k, v in self.settings.items())
        return head + self.pools + "".join(vm.text() for vm in self.vms)

    def options(self):
        return self.cpus, self.end_ns, self.switch_ns, self.kick_ns


def random_guest(rng):
    """(image, command line): half of them compute for ever."""
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
    """A scenario in the simulation (rec) and in a model (m, pools)."""

    def __init__(self, model, scenario, path):
        self.scenario = scenario
        self.rec = recording.run(path, *scenario.options())
        self.m = machine.Machine(scenario.cpus, scenario.kick_ns, scenario.switch_ns)
        self.pools = model.pools(scenario, self.m)
        self.vms = []
        for number, spec in enumerate(scenario.vms, 1):
            self.vms.append(self._vm(model, number, spec))
        for cpu in range(scenario.cpus):
            self.m.kick(cpu)
        for v in self.m.vcpus:
            self.m.start(v)
        self.m.run_until(0)
        self.m.mark()  # as build/sim does after a warm-up of 0 ns
        self.m.run_until(scenario.end_ns)

    def _vm(self, model, number, spec):
        pool = self.pools[spec.more.get("pool", "Pool-0")]
        vm = model.vm(number, spec)
        for index in range(spec.vcpus):
            who = number << 16 | index
            guest = machine.Script(self.rec.first_wake.get(who), self.rec.steps[who])
            allowed = set(pool.cpus) if spec.cpu is None else {spec.cpu}
            v = machine.Vcpu(vm, index, guest, allowed)
            v.who = who
            vm.vcpus.append(v)
            self.m.add(v, self.rec.first_cpu.get(who, min(allowed)))
            pool.add(v)
        return vm

    def first_difference(self):
        """A sentence about the first pick that is not the same, None if all are."""
        ours = [(ns, cpu, v.who if v else None) for ns, cpu, v in self.m.picks]
        theirs = [(p.ns, p.cpu, p.who) for p in self.rec.picks]
        for i, (a, b) in enumerate(zip(ours, theirs)):
            if a != b:
                return f"pick {i}: the model has {told(a)}, the simulation {told(b)}"
        if len(ours) != len(theirs):
            return f"the model has {len(ours)} picks, the simulation {len(theirs)}"
        return None

    def printed_differences(self):
        """What build/sim -j prints of each vCPU, against the model: share, longest wait, switches."""
        seconds = self.scenario.end_ns / 1e9
        byname = {(v.vm.name, v.index): v for v in self.m.vcpus}
        for row in self.rec.printed["vcpus"]:
            v = byname[row["vm"], row["vcpu"]]
            mine = {"cpu_pct": self.m.ran(v) / seconds / 1e7, "wait_max_ms": self.m.longest_wait(v) / 1e6,
                    "switches_per_s": v.switches / seconds}
            for key, value in mine.items():
                if abs(value - row[key]) > (0.051 if key == "switches_per_s" else 0.00051):
                    yield f"{v}: {key}: the model has {value:.3f}, the simulation prints {row[key]}"


def told(pick):
    ns, cpu, who = pick
    return f"{'idle' if who is None else f'VM {who >> 16} vCPU {who & 0xffff}'} on pCPU {cpu} at {ns} ns"


def by_hand(name, seed, path, scenario):
    shown = " ".join(recording.options(*scenario.options()))
    return (f"{name}, seed {seed}: build/sim {shown} {os.path.relpath(path, recording.ROOT)}\n"
            f"    again: tests/models/run.py {name} {seed}\n")


def differences(model, name, seed):
    """Plays one scenario. Returns (sentences about what differs, the Run)."""
    s = model.scenario(random.Random(f"{name} {seed}"))
    os.makedirs(OUT, exist_ok=True)
    path = os.path.join(OUT, f"{name}-{seed}.cfg")
    with open(path, "w", encoding="utf-8") as f:
        f.write(s.text())
    run = Run(model, s, path)
    said = [d for d in [run.first_difference()] if d]
    if not said:
        said = list(run.printed_differences())
    said += model.check(run)
    if said:
        said.insert(0, by_hand(name, seed, path, s))
    else:
        os.unlink(path)
    return said, run


def must_agree(model, name, seeds):
    for seed in seeds:
        said, _ = differences(model, name, seed)
        assert not said, "\n".join(said[:12])
