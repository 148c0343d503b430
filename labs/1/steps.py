"""The steps of lab 1. `make grade` boots the grader's guest once and your VM file once, and looks
at what the machines said."""
from grader import Lab

SECONDS = 5  # of virtual time, at most

lab = Lab(1, "first boot, and first guest")


def probe(t, pattern, hint=""):
    return t.says(t.machine("probe", SECONDS), "the log of the grader's machine", pattern, hint)


def first(t, pattern, hint=""):
    return t.says(t.machine("first", SECONDS), "the log of your machine", pattern, hint)


@lab.step(10, "Takt finds the entry of a guest",
          hint="the note in start.asm: lengths 4 and 8, type XEN_ELFNOTE_PHYS32_ENTRY, the name "
               "Xen, and the address of start32 in 64 bits")
def note(t):
    probe(t, r"probe: id \d+, 1 vCPU, 4 MiB, runs")


@lab.step(25, "a guest reaches 64-bit mode",
          hint="PAE in CR4, the tables in CR3, LME in EFER, then paging in CR0, and a far jump to "
               "64-bit code; each table needs the bits P, W and U")
def mode(t):
    probe(t, r"probe: main runs")


@lab.step(15, "all of 4 GiB is mapped, and devices are not cached",
          hint="2048 entries of 2 MiB in four tables: P, W, U and PS, and PCD and PWT in the last "
               "GiB")
def tables(t):
    t.says(t.machine("probe", SECONDS), "the page tables that start.asm has made",
           r"probe: 0 entries are wrong")


@lab.step(10, "your machine has two VMs",
          hint="first.cfg: 16M and two vCPUs for VM first, with name=Ada ticks=60 on its command "
               "line; VM hog with image = spin, 4M and weight = 512; start = no in both, because "
               "the script starts them")
def machine(t):
    first(t, r"first: id \d+, 2 vCPUs, 16 MiB, runs")
    first(t, r"hog: id \d+, 1 vCPU, 4 MiB, runs")
    first(t, r"hog +\d+ +512\b", hint="the weight of VM hog in first.cfg")


@lab.step(10, "your guest says hello",
          hint="hello(): cmdline_str() and vcpu_count(); main() returns the exit code of the VM")
def hello(t):
    first(t, r"first: hello from Ada: 2 vCPUs")
    first(t, r"first: ends with code 7")


@lab.step(15, "it ticks, without drifting away",
          hint="ticks(): sleep_until() a time that is counted from the beginning; a sleep of 10 ms "
               "after each line adds up what the line costs")
def ticks(t):
    # A new VM has no credit before the first accounting pass, so its first ticks may wait for hog.
    # None comes early, and the later ones show what adds up.
    for number in (1, 2):
        found = first(t, rf"first: tick {number} at (\d+)\b")
        t.at_least(f"when tick {number} comes, in ms after the beginning", int(found[1]),
                   10 * number)
    for number in (30, 60):
        found = first(t, rf"first: tick {number} at (\d+)\b")
        t.near(f"when tick {number} comes, in ms after the beginning", int(found[1]),
               10 * number, 1)


@lab.step(10, "it counts on all vCPUs",
          hint="everywhere(): vcpu_start_all() and thread_start() on each; count() adds by an "
               "atomic instruction, and raises `done` at its end")
def counts(t):
    first(t, r"first: 2 threads have counted to 2000\b")


lab.main()
