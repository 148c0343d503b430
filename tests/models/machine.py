"""A machine in virtual time for the reference models: pCPUs, vCPUs and an event loop.

The machine does not know how vCPUs are scheduled. It does what tests/sim/sim.c does around
hv/sched: a kick (an interrupt by which a pCPU is asked to decide again) takes `kick_ns`, a switch
to another vCPU takes `switch_ns` (charged to the vCPU that comes), the registers of the vCPU that
leaves are saved half-way, and events of the same instant happen in the order in which they were
planned. `burst` is what a guest computes at a stretch.

A policy is an object with these methods (credit.py has one):
    wake(v)       v became runnable: it woke up or, with boost=False, it is no longer parked
    remove(v)     v is runnable, waits, and must not wait any longer: it was parked
    yielded(v)    v, which runs, gives the rest of its slice away
    place(v)      returns the pCPU on which v had better be
    decide(cpu)   returns (vCPU or None, slice in ns or None) for pCPU number `cpu`
"""
import collections
import heapq

RUNNING, RUNNABLE, BLOCKED, OFFLINE = range(4)


class Timer:
    """A function that is to be called at a planned time (Machine.at())."""

    __slots__ = ("fn", "seq")

    def __init__(self, fn):
        self.fn = fn
        self.seq = None  # None: not planned


class Vcpu:
    """One vCPU. What a policy remembers of it is added by that policy."""

    def __init__(self, vm, index, guest, affinity):
        self.vm, self.index, self.guest, self.affinity = vm, index, guest, affinity
        self.cpu = None         # the pCPU where it runs or waits
        self.blocked = True     # it sleeps
        self.parked = False     # its VM's cap is used up
        # it runs where it had better not: it is to be taken off and put elsewhere
        self.migrating = False
        self.saved = True       # no pCPU holds its registers any more, or the one where it runs
        self.on = False         # it is the current one of its pCPU
        self.state = BLOCKED
        self.since = 0          # of its state
        self.time = [0, 0, 0, 0]
        self.wait_max = 0       # longest stretch of being runnable
        self.switches = 0       # how often it was switched to
        self.remaining = 0      # ns that it still computes before it sleeps; None: for ever
        self.starts = 0         # how often it has begun or gone on to compute since it woke
        self.started = None     # since when it computes
        self.done = None        # the timer of the end of that

    @property
    def runnable(self):
        """Whether v runs, or would run if a pCPU took it."""
        return not self.blocked and not self.parked and not self.migrating

    def __str__(self):
        return f"{self.vm.name}.{self.index}"


class Pcpu:
    """One pCPU: which vCPU it runs, and whether it was kicked or is switching."""

    def __init__(self, number):
        self.number = number
        self.current = None     # None: idle
        self.kicked = self.switching = False
        self.kick = self.slice = None


class Machine:
    def __init__(self, cpus, kick_ns, switch_ns):
        self.now, self.here = 0, 0  # ns; the pCPU whose event is being handled
        self.kick_ns, self.switch_ns = kick_ns, switch_ns
        self.heap, self.seq = [], 0
        self.vcpus = []
        # (ns, pCPU, vCPU or None, slice in ns): what decide() said, each time
        self.picks = []
        self.pcpus = [Pcpu(n) for n in range(cpus)]
        self.policy = [None] * cpus
        for c in self.pcpus:
            c.kick = Timer(lambda c=c: self._kicked(c))
            c.slice = Timer(lambda c=c: self.kick(c.number))

    # ---- time ----

    def at(self, when, timer, cpu):
        """Plans `timer` for `when`, on pCPU `cpu`; a plan that it had is forgotten."""
        timer.seq = self.seq
        heapq.heappush(self.heap, (max(when, self.now), self.seq, cpu, timer))
        self.seq += 1

    def run_until(self, end):
        """Lets all events up to `end` happen, in the order of their times; then it is `end`. A plan
        that was forgotten in the meantime is passed over."""
        heap = self.heap
        while heap and heap[0][0] <= end:
            when, seq, cpu, timer = heapq.heappop(heap)
            if timer.seq != seq:
                continue
            timer.seq = None
            self.now, self.here = when, cpu
            timer.fn()
        self.now = end

    # ---- what a policy may ask for ----

    def kick(self, cpu):
        """Has pCPU `cpu` decide again: at once if the event that is being handled is its own, else
        `kick_ns` later. If it is switching, it decides at the end of the switch."""
        c = self.pcpus[cpu]
        if c.kicked:
            return
        c.kicked = True
        if not c.switching:
            self.at(self.now + (0 if cpu == self.here else self.kick_ns), c.kick, cpu)

    def park(self, v):
        """Keeps v from running and waiting until unpark()."""
        v.parked = True
        if v.on:
            self.kick(v.cpu)
        elif not v.blocked:
            self.policy[v.cpu].remove(v)
            self._state(v)

    def unpark(self, v):
        """Lets v, which was parked, wait and run again."""
        v.parked = False
        if not v.on and not v.blocked:
            self._state(v)
            self.policy[v.cpu].wake(v, boost=False)

    # ---- vCPUs ----

    def add(self, v, cpu):
        """Takes v into the machine, on pCPU `cpu`."""
        v.cpu = cpu
        v.done = Timer(lambda: self._burst_over(v))
        v.alarm = Timer(lambda: self._alarm(v))
        self.vcpus.append(v)

    def start(self, v):
        """Begins v's guest. v wakes up now or at the time that the guest says; None stands for
        never."""
        when = v.guest.begin(v)
        if when is None or when > self.now:
            if when is not None:
                self.at(when, v.alarm, v.cpu)
            return
        self.wake(v)

    def wake(self, v):
        """Ends v's sleep. Unless something else keeps it from running, it begins to wait."""
        v.blocked = False
        if v.on or v.parked or v.migrating:
            return
        self._state(v)
        self.policy[v.cpu].wake(v)

    def _state(self, v):
        """Sets v.state to what holds for v now, and counts the time in the state before."""
        if v.on:
            state = RUNNING
        elif v.blocked:
            state = BLOCKED
        elif v.parked:
            state = OFFLINE
        else:
            state = RUNNABLE
        if state == v.state:
            return
        ns = self.now - v.since
        v.time[v.state] += ns
        if v.state == RUNNABLE and ns > v.wait_max:
            v.wait_max = ns
        v.state, v.since = state, self.now

    def mark(self):
        """Begins the measurement: sets the times and counts of all vCPUs to 0."""
        for v in self.vcpus:
            v.time = [0, 0, 0, 0]
            v.since = self.now
            v.wait_max = v.switches = 0

    def ran(self, v):
        """Returns for how many ns v has run since mark()."""
        return v.time[RUNNING] + (self.now - v.since if v.state == RUNNING else 0)

    def longest_wait(self, v):
        """Returns the longest time in ns for which v was runnable without running, since mark()."""
        return max(v.wait_max, self.now - v.since if v.state == RUNNABLE else 0)

    # ---- guests ----

    def _compute(self, v):
        """v begins its burst, or goes on with it. Its timer `done` will fire at the end of the
        burst."""
        v.started = self.now
        v.starts += 1
        if v.remaining is not None:
            self.at(self.now + v.remaining, v.done, v.cpu)

    def _stop(self, v):
        """Stops v's computing, and takes what it has computed off its burst."""
        if v.started is None:
            return
        if v.remaining is not None:
            v.remaining -= min(self.now - v.started, v.remaining)
        v.started = None
        v.done.seq = None

    def _burst_over(self, v):
        """v has computed its burst to the end. Its guest says what it does next: it computes
        another one, yields, or sleeps until a time or for ever. After the last two its pCPU decides
        again. If the guest says that the burst is not over (Script), v stays as it is, with nothing
        left to compute, until it is preempted."""
        self._stop(v)
        if not v.guest.is_over(v):
            v.started, v.remaining = self.now, 0
            return
        what, arg = v.guest.next(v, self.now)
        v.starts = 0
        if what == "compute":
            v.remaining = arg
            self._compute(v)
            return
        if what == "yield":
            v.remaining = arg
            self.policy[v.cpu].yielded(v)
        else:
            v.blocked = True
            if arg is not None:
                self.at(arg, v.alarm, v.cpu)
        self._decide(self.pcpus[v.cpu])

    def _alarm(self, v):
        """Wakes v at the time that its guest asked for."""
        self.here = v.cpu
        v.guest.woke(v, self.now)
        self.wake(v)

    # ---- pCPUs ----

    def _kicked(self, c):
        if c.kicked and not c.switching:
            self._decide(c)

    def _decide(self, c):
        """Has pCPU c run the vCPU that its policy says. If that is not the one that ran, the switch
        begins, which _saved() and _arrive() continue."""
        c.kicked = False
        c.kick.seq = None
        prev = c.current
        if prev:
            self._stop(prev)
        v, ns = self.policy[c.number].decide(c.number)
        self.picks.append((self.now, c.number, v, ns))
        c.current = v
        if v is None:
            c.slice.seq = None
        else:
            self.at(self.now + ns, c.slice, c.number)
        if v is prev:
            if v and not v.blocked:
                self._compute(v)
            return
        if prev:
            prev.on = False
            self._state(prev)
        if v:
            v.on = True
            v.switches += 1
            self._state(v)
        c.switching = True
        if prev:
            prev.saved = False
        self.at(self.now + self.switch_ns // 2, Timer(lambda: self._saved(c, prev)), c.number)

    def _saved(self, c, prev):
        """The first half of a switch is over: the registers of `prev` are saved, so that any pCPU
        may run it now."""
        self.here = c.number
        if prev:
            prev.saved = True
            if prev.migrating:
                self._migrate(prev)
        rest = self.switch_ns - self.switch_ns // 2
        self.at(self.now + rest, Timer(lambda: self._arrive(c)), c.number)

    def _migrate(self, v):
        """Moves v, which was taken off its pCPU for that, to the pCPU where it had better be."""
        v.migrating = False
        v.cpu = self.policy[v.cpu].place(v)
        if v.runnable:
            self._state(v)
            self.policy[v.cpu].wake(v)

    def _arrive(self, c):
        """The switch is over: the new vCPU computes, and a kick that came during the switch is
        handled."""
        c.switching = False
        if c.current:
            self._compute(c.current)
        if c.kicked:
            self.at(self.now, c.kick, c.number)


# ---- guests ----

class Spin:
    """A guest that computes for ever."""

    def begin(self, v):
        v.remaining = None
        return 0


class Periodic:
    """A guest that wakes each `period` ns, from `phase` on, and computes for `work` ns. If it has
    missed several periods, it computes for all of them."""

    def __init__(self, period, work, phase=0):
        self.period, self.work, self.due = period, work, phase

    def begin(self, v):
        v.remaining = self.work
        return self.due

    def is_over(self, _v):
        return True

    def next(self, _v, now):
        self.due += self.period
        return ("compute", self.work) if self.due <= now else ("sleep", self.due)

    def woke(self, v, _now):
        v.remaining = self.work


class Script:
    """It does what it was seen to do. A step is (ns of computing, in how many stretches, "sleep",
    when it woke then or None) or (ns, stretches, "yield", None). After the last it computes for
    ever.

    The stretches decide only when a burst is over at the very ns of a preemption: whether the guest
    fell asleep right before that, or as soon as it ran again (a guest that sleeps by the clock
    may)."""

    def __init__(self, first_wake, steps):
        self.first, self.steps = first_wake, collections.deque(steps)

    def _burst(self):
        return self.steps[0][0] if self.steps else None

    def begin(self, v):
        v.remaining = self._burst()
        return self.first

    def is_over(self, v):
        return v.starts >= self.steps[0][1]

    def next(self, _v, _now):
        _, _, what, arg = self.steps.popleft()
        return what, self._burst() if what == "yield" else arg

    def woke(self, v, _now):
        v.remaining = self._burst()
