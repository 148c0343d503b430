#!/usr/bin/env python3
"""Computes from the VM file alone what each vCPU is entitled to: its max-min fair share by weight,
within cap and configured demand.

A vCPU asks for its VM's `demand` (of one pCPU). A VM's weight is shared evenly by its vCPUs, and so
is its cap, and a vCPU never gets more than one pCPU. Within these limits everybody's share rises in
proportion to weight until it meets a limit: its demand, its cap, or pCPUs that are full
("progressive filling", Bertsekas and Gallager, Data Networks, 6.5.2). Affinities may overlap, and a
vCPU can use any mixture of the pCPUs that it may run on. So a flow computation finds which sets of
pCPUs are full. All arithmetic is in fractions, so the result is exact.

A VM with a turbo vCPU is entitled to its share of both pools together (vTurbo's FS): each of its
vCPUs counts as if it could run in either, and what is compared with a measurement is the sum over
the VM, because the VM decides on which of its vCPUs it computes.

  tools/entitlement.py --cpus N FILE.cfg      prints a table (-j: JSON)
"""
import argparse
import json
import os
import subprocess
import sys
from collections import namedtuple
from fractions import Fraction

import sentence

DEFAULT_WEIGHT = 256
DEFAULT_DEMAND = 1000

# limit: a Fraction of one pCPU, the least of demand and cap; cpus: a frozenset of pCPU numbers;
# weight: a Fraction.
Vcpu = namedtuple("Vcpu", "vm vcpu weight limit cpus")


def max_flow(want, cpus_of):
    """Computes a flow from vCPUs (`want[i]` each, to any pCPU of `cpus_of[i]`) into pCPUs of
    capacity 1.

    Returns (flow, reach): flow[i][cpu], and the set of vCPUs of the tight side, which is empty if
    all wants are met. The search is breadth-first for augmenting paths, because there are few
    nodes.
    """
    flow = [dict.fromkeys(cpus, Fraction(0)) for cpus in cpus_of]
    load = dict.fromkeys(set().union(*cpus_of) if cpus_of else (), Fraction(0))
    while True:
        given = [sum(f.values(), Fraction(0)) for f in flow]
        # The nodes are ("v", i) and ("c", cpu). The search goes from vCPUs that lack something to a
        # pCPU that has room.
        parent = {("v", i): None for i in range(len(want)) if given[i] < want[i]}
        queue, end = list(parent), None
        while queue and end is None:
            kind, x = queue.pop(0)
            if kind == "v":
                nexts = [("c", c) for c in cpus_of[x]]
            elif load[x] < 1:
                end = ("c", x)
                break
            else:
                nexts = [("v", i) for i in range(len(want)) if x in flow[i] and flow[i][x] > 0]
            for n in nexts:
                if n not in parent:
                    parent[n] = (kind, x)
                    queue.append(n)
        if end is None:
            return flow, {x for kind, x in parent if kind == "v"}
        path = [end]
        while parent[path[-1]] is not None:
            path.append(parent[path[-1]])
        path.reverse()  # The path is now v, c, v, c ... c.
        room = min(want[path[0][1]] - given[path[0][1]], 1 - load[end[1]])
        for (_, c), (_, i) in zip(path[1::2], path[2::2]):
            room = min(room, flow[i][c])
        for (_, i), (_, c) in zip(path[0::2], path[1::2]):
            flow[i][c] += room
        for (_, c), (_, i) in zip(path[1::2], path[2::2]):
            flow[i][c] -= room
        load[end[1]] += room


def max_min(vcpus):
    """Returns the share of each vCPU, as a list of Fractions of one pCPU."""
    share = [None] * len(vcpus)  # of the vCPUs that are settled
    cpus_of = [v.cpus for v in vcpus]
    for i, v in enumerate(vcpus):
        if not v.cpus:
            share[i] = Fraction(0)

    def wants(level):
        return [share[i] if share[i] is not None
                else min(v.limit, v.weight * level) for i, v in enumerate(vcpus)]

    while None in share:
        free = [i for i in range(len(vcpus)) if share[i] is None]
        level = max(vcpus[i].limit / vcpus[i].weight for i in free)
        # Lower the level until the flow fits. A set of vCPUs that lacks something fills all pCPUs
        # that it may use; at the level that we look for, it only just fills them. Each round finds
        # a tighter set, so the loop ends.
        while True:
            want = wants(level)
            _, lacking = max_flow(want, cpus_of)
            if not lacking:
                break
            room = Fraction(len(set().union(*(cpus_of[i] for i in lacking))))
            level = level_that_fills(room, [(vcpus[i], share[i]) for i in lacking], level)
        # Settle the vCPUs that are at their own limit, and those that cannot get even a little more
        # because they are in a full set.
        flow, _ = max_flow(want, cpus_of)
        stuck = full_set(flow, cpus_of)
        settled = [i for i in free if want[i] == vcpus[i].limit or i in stuck]
        assert settled
        for i in settled:
            share[i] = want[i]
    return share


def level_that_fills(room, members, below):
    """Returns the highest level under `below` at which the members together want exactly `room`."""
    marks = sorted(
        {v.limit / v.weight for v, s in members if s is None and v.limit / v.weight < below},
        reverse=True,
    )
    for low in marks + [Fraction(0)]:
        fixed = sum((s if s is not None else v.limit for v, s in members
                     if s is not None or v.limit / v.weight <= low), Fraction(0))
        slope = sum((v.weight for v, s in members if s is None and v.limit / v.weight > low),
                    Fraction(0))
        if slope and fixed + slope * low <= room:
            return (room - fixed) / slope
    raise AssertionError("settled shares alone do not fit")


def full_set(flow, cpus_of):
    """Returns the vCPUs that cannot get more unless another one gets less: no path leads from them
    to a pCPU that has room."""
    load = {}
    for f in flow:
        for c, x in f.items():
            load[c] = load.get(c, Fraction(0)) + x
    good = {c for c, x in load.items() if x < 1}  # pCPUs from which a path leads to room
    grew = True
    while grew:
        grew = False
        for i, f in enumerate(flow):
            if any(c in good for c in cpus_of[i]):
                more = {c for c, x in f.items() if x > 0} - good
                grew |= bool(more)
                good |= more
    return {i for i in range(len(flow)) if not any(c in good for c in cpus_of[i])}


def vcpus_of_config(config, nr_cpus):
    """Returns the vCPUs of a configuration as tools/cfgdump prints it."""
    every = frozenset(range(nr_cpus))
    pools = {p["name"]: frozenset(p["cpus"]) & every for p in config.get("pools", ())}
    turbo = {p["turbo_of"]: p["name"] for p in config.get("pools", ()) if p.get("turbo_of")}
    for p in config.get("pools", ()):
        if p.get("chosen_cpus"):
            sys.exit(
                f"entitlement: the CPUs of pool {p['name']} are chosen at boot; name them to "
                "compute shares"
            )
    taken = (
        frozenset().union(*(c for n, c in pools.items() if n != "Pool-0")) if pools else frozenset()
    )
    pools.setdefault("Pool-0", every - taken)
    out = []
    for vm in config["vms"]:
        if not vm.get("start", True):
            continue
        cpus = pools[vm.get("pool") or "Pool-0"]
        if vm.get("cpus_given"):
            cpus &= frozenset(vm["cpus"])
        params = vm.get("params", {})
        n = vm["vcpus"]
        if vm.get("turbo"):
            n += 1
            cpus |= pools[turbo[vm.get("pool") or "Pool-0"]]
        weight = Fraction(int(params.get("weight", DEFAULT_WEIGHT)), n)
        cap = Fraction(int(params.get("cap", 0)), 100 * n)
        limit = min(Fraction(1), Fraction(vm.get("demand_permille", DEFAULT_DEMAND), 1000))
        if cap:
            limit = min(limit, cap)
        out += [Vcpu(vm["name"], i, weight, limit, cpus) for i in range(n)]
    return out


def entitlement(config, nr_cpus):
    """Returns {(vm, vcpu): per cent of one pCPU}."""
    vcpus = vcpus_of_config(config, nr_cpus)
    return {(v.vm, v.vcpu): float(s * 100) for v, s in zip(vcpus, max_min(vcpus))}


def turbo_vms(config):
    """Returns the names of the VMs for which only the sum over their vCPUs can be compared."""
    return {vm["name"] for vm in config["vms"] if vm.get("turbo")}


def load_config(path, cfgdump=None):
    cfgdump = cfgdump or os.path.join(os.path.dirname(__file__), "..", "build", "cfgdump")
    done = subprocess.run([cfgdump, path], stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(done.returncode)  # cfgdump has said on stderr what is wrong.
    return json.loads(done.stdout)


def main():
    args = argparse.ArgumentParser(description="entitlement of each vCPU of a VM file")
    args.add_argument("--cpus", type=int, default=2, help="number of pCPUs (2)")
    args.add_argument("-j", action="store_true", help="JSON")
    args.add_argument("file")
    args = args.parse_args()
    got = entitlement(load_config(args.file), args.cpus)
    if args.j:
        print(
            json.dumps(
                [{"vm": vm, "vcpu": n, "entitled_pct": round(x, 3)} for (vm, n), x in got.items()]
            )
        )
        return
    for (vm, n), x in got.items():
        print(f"{vm:20} {n:3} {x:8.2f} %")


if __name__ == "__main__":
    sentence.run(main)
