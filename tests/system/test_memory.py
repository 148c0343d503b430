"""What an idle VM costs in memory beyond its RAM."""
from system.takt import SCRIPTED, Boot, vm

MOST = 80 << 10  # bytes, with its page tables
RAM = 2 << 20
NAMES = "abcdefgh"


def test_an_idle_vm_is_small(platform):
    """The mean of eight VMs counts, because they share slabs of the heap."""
    script = ["@50ms info -j=none"]
    for name in NAMES:
        script += [f"+0ms create {name}", f"+100ms info -j={name}"]
    boot = Boot("memory", SCRIPTED + "".join(vm(name, "waker", "2M", start="no",
                                                cmdline="period_us=1000000")
                                             for name in NAMES), script + ["+0ms poweroff"],
                platform)
    free = [a["result"]["free_frames"] * 4096 for a in boot.answers if a["command"] == "info"]
    assert len(free) == len(NAMES) + 1
    cost = [before - after - RAM for before, after in zip(free, free[1:])]
    print(platform, cost)
    assert sum(cost) <= MOST * len(NAMES), cost
