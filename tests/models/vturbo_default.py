"""Checks vTurbo's shares under the default presets (`hardened` and `turbo`). There is no model of
these presets, so decisions are not compared. Instead, this adds up from the picks of a recording
how long each VM ran in each accounting period. From that follow FS^R (its share of the regular
core) and what it should get in all. This holds only for VMs that compute all the time, because all
VMs have to be active."""
import bisect
import collections

import tracestream

from models import recording
from models.scenario import Scenario, VmSpec
from models.vturbo import section, shares

MS = 1_000_000
WARM_UP, END = 300 * MS, 2100 * MS


def scenario(rng):
    """Returns a random Scenario: two to five VMs that compute, the first and most others with a
    turbo vCPU."""
    vms = []
    for i in range(rng.randint(2, 5)):
        more = {"pool": "core"}
        if i == 0 or rng.random() < 0.6:
            more["turbo"] = "yes"
        vms.append(VmSpec(f"v{i}", weight=rng.choice((256, 256, 128, 512)), cpu=None, more=more))
    pools = section("core", 1, {}) + section("turbo", 2, {"turbo_of": "core"})
    return Scenario({}, vms, 3, END, pools=pools)


def stretches(picks):
    """Yields (begin in ns, end in ns, vCPU) of each time that a vCPU ran."""
    current = {}
    for p in picks:
        begin, who = current.get(p.cpu, (0, None))
        if who is not None:
            yield begin, p.ns, who
        current[p.cpu] = p.ns, p.who
    for begin, who in current.values():
        if who is not None:
            yield begin, END, who


def use(picks, times):
    """Returns, for each two neighbours in the list `times`, {VM: ns that it ran between them}. The
    VM is the upper half of a record's `who`, so a turbo part counts for itself."""
    found = [collections.Counter() for _ in times[1:]]
    for begin, end, who in stretches(picks):
        for i in range(max(bisect.bisect(times, begin) - 1, 0), len(found)):
            if times[i] >= end:
                break
            found[i][who >> 16] += min(end, times[i + 1]) - max(begin, times[i])
    return found


def compare(s, path):
    """Returns a sentence about the first exchange that does not follow from what the VMs ran. If
    all do, returns sentences about VMs whose part of all time is over two points from what their
    weights say. The second check is left out if a FS^R was 0, because that VM has already had more
    than its share."""
    rec = recording.run(path, *s.options())
    number, numbers, weights = 1, [], [vm.weight for vm in s.vms]
    for vm in s.vms:
        numbers.append(number)
        number += 2 if "turbo" in vm.more else 1
    told = {(r.ns, r.arg[0]): (r.arg[1], r.wide(2)) for r in rec.of(tracestream.TURBO)}
    times = sorted({ns for ns, _ in told if ns >= WARM_UP})
    total, clamped = collections.Counter(), False
    for ns, ran in zip(times[1:], use(rec.picks, times)):
        rd, td = ([ran[n | part] for n in numbers] for part in (0, tracestream.TURBO_PART))
        regular, _ = shares(weights, [True] * len(weights), rd, td)
        for n, share, r, t in zip(numbers, regular, rd, td):
            total[n] += r + t
            clamped |= share == 0
            expected = (t // 1000, max(share, 1))
            if told.get((ns, n), expected) != expected:
                return [
                    f"VM {n} at {ns} ns (us on turbo cores, FS^R): {expected}, the simulation has "
                    f"{told[ns, n]}"
                ]
    if clamped:
        return []
    got = [total[n] / sum(total.values()) for n in numbers]
    return [f"VM {n} got {g * 100:.1f} % of all time, by weight {w * 100 / sum(weights):.1f}"
            for n, g, w in zip(numbers, got, weights) if abs(g - w / sum(weights)) > 0.02]
