"""A reference model of vSlicer ("latency-aware virtual machine scheduling via
differentiated-frequency CPU slicing", HPDC 2012): section 3 and Algorithm 1, for VMs that compute
all the time.

Of the vCPUs of a pCPU, m are latency-sensitive (LS) and n are not (NL). T_N is the slice of an NL.
Between two slices of NL each LS runs for T_n = T_N / n, in r = ceil(T_n / request) micro-slices of
T_m = T_n / r. The time between two slices of NL is called T_S. There is one run queue. A vCPU whose
slice is over goes to this place in the queue:
    an NL                              to the tail;
    an LS with some of its T_n left    right before the first NL: it runs again in the same T_S;
    an LS with nothing left            right before the second NL, with a new T_n: it runs in the
                                       next T_S.
With weights, each vCPU has time in proportion to its weight, and the heaviest NL has T_N.

In this model credit plays no part, because each vCPU gets its share in each round. In Takt it plays
one if the first seconds left a vCPU with so much less credit than the others that a round makes it
OVER (without credit). Then picks differ, and only the CPU time and the longest waits are compared.
The first seconds, when not all vCPUs are active yet, are not described by the paper. So the model
begins later, at a slice of an NL, and reads from the recording in which order the others wait then.
"""
import collections

from models import recording
from models.scenario import Scenario, VmSpec

MS = 1_000_000
WARM_UP, MEASURED = 6000 * MS, 4000 * MS

Pick = collections.namedtuple("Pick", "ns who slice")


class Vcpu:
    def __init__(self, who, weight, request):
        self.who, self.weight, self.request = who, weight, request
        self.left = 0           # micro-slices in this T_S

    @property
    def is_ls(self):
        return self.request > 0


class Rounds:
    def __init__(self, vcpus, t_n_of_nl):
        self.t_nl = t_n_of_nl   # T_N
        nl = [v for v in vcpus if not v.is_ls]
        self.n = len(nl)
        self.heaviest = max(v.weight for v in nl)

    def turn(self, v):
        """Returns for how many ns v may run each time that it has its turn: an NL for its slice, an
        LS for its T_n."""
        ns = self.t_nl * v.weight // self.heaviest
        return ns // self.n if v.is_ls else ns

    def slices(self, v):
        """Returns into how many slices a turn of v is cut. What the division leaves over, less than
        a ns for each, is lost."""
        return -(-self.turn(v) // v.request) if v.is_ls else 1

    def slice_of(self, v):
        """Returns the length of a slice of v in ns."""
        return self.turn(v) // self.slices(v)

    def leave(self, v, queue):
        """Puts v, which has used up a slice, to its place in `queue`."""
        if not v.is_ls:
            queue.append(v)
            return
        nl = [i for i, w in enumerate(queue) if not w.is_ls]
        if v.left > 0:
            queue.insert(nl[0] if nl else len(queue), v)
        else:
            v.left = self.slices(v)
            queue.insert(nl[1] if len(nl) > 1 else len(queue), v)

    def picks(self, now, current, queue, end):
        """Yields each Pick from `now` on, when `current`, an NL, is picked and `queue` waits, until
        `end`."""
        for v in queue:
            v.left = self.slices(v)
        while now < end:
            ns = self.slice_of(current)
            yield Pick(now, current.who, ns)
            now += ns
            current.left -= 1
            self.leave(current, queue)
            current = queue.pop(0)


def scenario(rng):
    """Returns a random Scenario: one to three LS and one to four NL on one pCPU, all of which
    compute."""
    ls, nl = rng.randint(1, 3), rng.randint(1, 4)
    tslice = rng.choice((30_000, 30_000, 10_000, 20_011))
    settings = {"sched_preset": "vslicer", "tslice_us": tslice, "ratelimit_us": 0}
    equal = rng.random() < 0.6
    vms = [
        VmSpec(f"v{i}", weight=256 if equal else rng.choice((256, 384, 512)))
        for i in range(ls + nl)
    ]
    for vm in vms[:ls]:
        vm.more["micro_us"] = rng.choice((2000, 5000, 10_000, rng.randint(1000, 20_000)))
    rng.shuffle(vms)
    return Scenario(settings, vms, 1, WARM_UP + MEASURED)


def stretches(picks, start, end):
    """Returns {who: (ns that it ran, its longest wait in ns)} from `start` to `end`."""
    ran, waited, gone, last = collections.Counter(), collections.Counter(), {}, None
    for p, after in zip(picks, [q.ns for q in picks[1:]] + [end]):
        if p.who != last and p.who in gone:
            waited[p.who] = max(waited[p.who], p.ns - gone[p.who])
        ran[p.who] += after - p.ns
        gone[p.who], last = after, p.who
    return {who: (ran[who], waited[who]) for who in ran}


def compare(s, path):
    """Returns sentences about VMs that ran, or waited, for another time than in the model. Sets
    s.exact if all picks are the same."""
    rec = recording.run(path, *s.options())
    vcpus = {n << 16: Vcpu(n << 16, spec.weight, spec.more.get("micro_us", 0) * 1000)
             for n, spec in enumerate(s.vms, 1)}
    model = Rounds(vcpus.values(), s.settings["tslice_us"] * 1000)
    theirs = [Pick(p.ns, p.who, p.slice) for p in rec.picks if p.ns >= WARM_UP]
    while theirs and vcpus[theirs[0].who].is_ls:
        theirs.pop(0)
    if not theirs:
        return ["after the warm-up nobody runs but LS"]
    order = list(dict.fromkeys(p.who for p in theirs))
    waiting = [vcpus[who] for who in order[1:]]
    waiting.sort(key=lambda v: not v.is_ls)
    ours = list(model.picks(theirs[0].ns, vcpus[order[0]], waiting, s.end_ns))
    s.exact = all(a == b for a, b in zip(ours, theirs))
    if s.exact:
        return []
    start = theirs[0].ns
    said, expected = [], stretches(ours, start, s.end_ns)
    for who, (ran, waited) in stretches(theirs, start, s.end_ns).items():
        model_ran, model_waited = expected[who]
        if abs(ran - model_ran) > 2 * model.turn(vcpus[who]):
            said.append(f"VM {who >> 16} ran {ran / MS} ms, in the model {model_ran / MS}")
        if waited > model_waited * 1.25:
            said.append(
                f"VM {who >> 16} waited {waited / MS} ms, in the model at most {model_waited / MS}"
            )
    return said
