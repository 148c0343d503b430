"""The steps of lab 2. `make grade` boots the two guests once, and looks at what they said."""
from grader import Lab

SECONDS = 6  # of virtual time, at most

lab = Lab(2, "one exit end to end: a CPUID leaf and a hypercall")


def line(t, pattern, hint=""):
    """Checks that one of the guests has printed a line."""
    return t.says(t.machine("boot", SECONDS), "the log of the machine", pattern, hint)


@lab.step(20, "a hypercall arrives, and its result comes back",
          hint="decode_vmcall(): e->reason; exit_hypercall() in takt/hv/vcpu/hypercall.c says what "
               "it needs")
def arrives(t):
    line(t, r"probe: version 10000")
    line(t, r"probe: time grows 1")


@lab.step(10, "the hypervisor knows who calls",
          hint="decode_vmcall(): e->hc.cpl is the CPL of the guest, and e->hc.mode the size of its "
               "code; mode_now() and vmx_current_cpl() tell them")
def who(t):
    line(t, r"probe: at CPL 3 -1\b")
    line(t, r"probe: from 32-bit code ffffffff\b")


@lab.step(15, "the leaf is there",
          hint="varying() in cpuid.c: a case for MINE_CPUID, and TAKT_CPUID_BASE tells which leaf "
               "is the highest")
def leaf(t):
    line(t, r"probe: highest leaf 40000005")
    line(t, r"probe: leaf 656e696d 1 0\b")


@lab.step(10, "the leaf counts exits",
          hint="v->exits: all exits of this vCPU; log_exit() in takt/hv/vcpu/run.c counts them")
def counts(t):
    found = line(t, r"probe: 100 CPUIDs, exits (\d+)")
    t.near("exits of 100 CPUIDs; timers add some", int(found[1]), 102, 2)


@lab.step(15, "the hypercall adds bytes up",
          hint="a row in the table of calls_init(), with .buffer; guestmem_at() tells where the "
               "guest's memory is for the hypervisor")
def sums(t):
    line(t, r"probe: sums are off by 0 0 0\b")


@lab.step(15, "memory that is not the guest's, and memory in two pieces",
          hint="exit_hypercall() checks a call with .buffer; *room of guestmem_at() says how many "
               "bytes lie together")
def memory(t):
    line(t, r"probe: behind the RAM -14\b", hint=".buffer in the table of calls_init()")
    line(t, r"probe: too long -22\b", hint=".buffer in the table of calls_init()")
    line(t, r"probe: two chunks, off by 0\b")


@lab.step(10, "your guest uses both",
          hint="mine.c: CPUID changes four registers; VMCALL has its number in EAX, and the "
               "arguments in RBX and RCX")
def guest(t):
    line(t, r"mine: sign mine")
    line(t, r"mine: sum 124716\b")
    found = line(t, r"mine: cost of 50 (\d+)")
    t.near("exits of 50 hypercalls; timers add some", int(found[1]), 60, 10)


lab.main()
