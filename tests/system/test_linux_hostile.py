"""Linux VMs that do harm, or come to harm. Root in a VM attacks what the VM has
(guests/linux/hostile.c), and its neighbour on the same pCPU keeps its half. VMs are destroyed at
any moment of their boot, and their memory comes back each time. Like test_linux.py, this is skipped
if there is no kernel."""
import random
import re
import time

import pytest

from system.takt import Takt, linux_place, vm

pytestmark = pytest.mark.long

IODOM = vm("iodom", "iodom", "24M")
TUX = """
[vm tux]
kernel = vmlinuz
ramdisk = initrd.img
cmdline = console=ttyS0 {words}
memory = 192M
pool = one
net = iodom
disk = iodom size=8M
on_crash = preserve
start = no
"""
HEAD = "[hypervisor]\ntop = no\nguest_console = log\n[pool one]\ncpus = 1\n"
# reboot=t lets Linux end itself by a triple fault.
ATTACK = (HEAD + IODOM + vm("victim", "spin", "2M", pool="one")
          + TUX.format(words="loglevel=3 job=attack iomem=relaxed reboot=t"))
SOAK = HEAD + IODOM + "start = no\n" + TUX.format(words="loglevel=7 address=10.0.0.9/24")
TOLERANCE = 2.0  # points of the pCPU that both share
SEED = 20


def boot(name, config):
    """Returns a machine with Linux in a VM `tux` that does not start by itself."""
    linux_place(name, "debian12")
    return Takt(name, config, memory=768)


def soon(takt, what, seconds):
    """Takes in what Takt prints until what() is true, for `seconds` at most."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not so after {seconds} s: {takt.serial()[-1000:]}"
        takt.link.listen(0.2)


def said(takt, pattern, seconds):
    soon(takt, lambda: re.search(pattern, takt.serial()), seconds)


def states(takt):
    return {v["name"]: v["state"] for v in takt("list")}


@pytest.mark.alone
def test_neighbour_keeps_its_share():
    shares = {}
    with boot("linux-hostile", ATTACK) as takt:
        takt("create tux", timeout=120)
        for what in ("calls", "ports", "msrs", "virtio"):
            said(takt, rf"tux: hostile: {what} begins", 240)
            shares[what] = takt.shares(seconds=8, warm_up=1)["victim/0"]
        # Linux has survived its own attacks, and now ends itself.
        said(takt, "tux: crashed: .*\n", 240)
        text = takt.serial()
        shares["alone"] = takt.shares(seconds=4)["victim/0"]
        assert states(takt) == {"iodom": "running", "victim": "running", "tux": "crashed"}
        takt("destroy tux", timeout=120)
    print(shares, re.findall("tux: crashed: .*", text))
    done = dict(re.findall(r"tux: hostile: (\w+) ends after (\d+)", text))
    assert len(done) == 4 and all(int(n) > 1000 for n in done.values()), done
    assert "tux: crashed: triple fault" in text
    # A hostile VM that sleeps leaves the victim more.
    assert all(share >= 50 - TOLERANCE for share in shares.values()), shares
    assert shares["alone"] >= 100 - TOLERANCE, shares


def free_memory(takt):
    info = takt("info")
    return info["free_frames"], info["heap_bytes"]


def printed(takt):
    """Returns how many lines Linux has printed since the machine started."""
    return takt.serial().count("] tux: ")


def one_life(takt, lines):
    """Makes Linux, and destroys it when it has printed so many lines."""
    before = printed(takt)
    takt("create tux", timeout=300)
    soon(takt, lambda: printed(takt) - before >= lines, 300)
    takt("destroy tux", timeout=300)


def whole_life(takt):
    """Destroys Linux when it has found its disk. Returns how many lines it has printed."""
    takt("create tux", timeout=300)
    said(takt, r"tux: .*virtio_blk.* \[vda\]", 300)
    takt("destroy tux", timeout=300)
    return printed(takt)


def test_destroyed_at_any_moment(request):
    """Takt keeps nothing of a VM that was destroyed while it booted (`--boots 200` for more)."""
    chance = random.Random(SEED)
    with boot("linux-soak", SOAK) as takt:
        # The store keeps the directories that the first driver domain made.
        takt("create iodom", timeout=60)
        takt("destroy iodom", timeout=60)
        empty = free_memory(takt)
        takt("create iodom", timeout=60)
        alone = free_memory(takt)
        # The first VM that it serves makes the driver domain keep a chunk of 2 MiB and a page
        # table until it ends itself. So the state to come back to is that after one Linux VM.
        lines = whole_life(takt)
        first = free_memory(takt)
        print(empty, alone, first, lines)
        for n in range(request.config.getoption("--boots")):
            at = chance.randrange(lines)
            one_life(takt, at)
            # The driver domain gives its part back as soon as it runs.
            soon(takt, lambda: free_memory(takt) == first, 60)
            print(n + 1, at, free_memory(takt), flush=True)
        assert states(takt) == {"iodom": "running"}
        takt("destroy iodom", timeout=60)
        soon(takt, lambda: free_memory(takt) == empty, 60)
