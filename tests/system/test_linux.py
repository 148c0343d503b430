"""An unmodified Linux in a VM: the kernel that the distribution ships, started with an initial RAM
disk that is made from its packages. The test types what a person would, first to Takt's shell and
then to the shell in the VM. Without a network, and without the packages in build/linux, there is no
kernel, and the tests are skipped."""
import json
import re
import time

import pytest
from machine import Machine

from system.takt import linux_place, make_iso, vm

pytestmark = pytest.mark.long

CONFIG = "[hypervisor]\ntop = no\n{script}" + "[pool io]\ncpus = 1\nsched = null\n" + "".join([
    vm("iodom", "iodom", "24M", pool="io"),
    vm("peer", "netping", net="iodom"),
    vm("hog", "spin", start="no"),
    """
[vm tux]
kernel = vmlinuz
ramdisk = initrd.img
cmdline = console=ttyS0 loglevel=5 address=10.0.0.9/24
memory = 256M
vcpus = {vcpus}
net = iodom
disk = iodom size=8M
rng = iodom
start = no
"""])
TICK = 10_000_000  # ns of the unit of /proc/stat
# The shell also asks the terminal where the cursor is. Takt shows that as text, or as it is for a
# program that draws on the screen.
PROMPT = r"[/~] # ((\\x1b|\x1b)\[6n)?$"
LEAVE = "\x1d"
# On Bochs time is virtual. Takt itself ends the machine if all this takes longer than that.
LIMIT = {"limit": "@180s poweroff\n"}
# Other limits are in the host's time. A busy host, or Bochs, may be that much slower than a quiet
# one.
SLOWEST = 10
BROKEN = re.compile("Kernel panic.*|tux: crashed.*")


class Person:
    """Somebody who reads and types at COM1."""

    def __init__(self, machine):
        self.machine, self.text, self.seen = machine, "", 0
        self.link = machine.connect()
        self.link.settimeout(0.2)
        self.bochs = machine.platform == "bochs"
        self.answers = self.commands = 0

    def receive(self):
        try:
            return self.link.recv(65536)
        except TimeoutError:
            return b""

    def hear(self):
        data = self.receive()
        if self.bochs:  # QEMU keeps what goes through the socket, Bochs does not.
            with open(self.machine.serial_path, "ab") as f:
                f.write(data)
        text = re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", data.decode("utf-8", "replace"))
        self.text += text.replace("\r", "")

    def expect(self, pattern, seconds=60):
        """Waits until a regular expression matches what no earlier call has passed. If the VM
        breaks, or the machine ends, the wait is over at once. Otherwise it takes at most SLOWEST
        times as long as a quiet host would need."""
        end = time.monotonic() + seconds * SLOWEST
        while not (match := re.compile(pattern).search(self.text, self.seen)):
            broken = BROKEN.search(self.text, self.seen)
            assert not broken, f"no {pattern!r}, but {broken[0]!r}: {self.text[-2000:]}"
            assert time.monotonic() < end, f"no {pattern!r}: {self.text[-2000:]}"
            self.machine.raise_if_dead()
            self.hear()
        self.seen = match.end()
        return match

    def takt(self, command):
        """Gives a command to Takt's shell and returns its JSON."""
        self.answers += 1
        verb, _, words = command.partition(" ")
        self.link.sendall(f"{verb} -j=n{self.answers} {words}\r".encode())
        answer = json.loads(self.expect(f'\x1e({{"id": "n{self.answers}".*}})\n')[1])
        assert not answer["error"], answer
        return answer["result"]

    def linux(self, command, seconds=60):
        """Gives a command to the shell in the VM and returns what it prints. Lines of this test
        tell where that begins and ends: a prompt alone may be an older one, and the shell breaks a
        long line that was typed."""
        self.commands += 1
        n, between = self.commands, " " if command.endswith("&") else "; "
        self.link.sendall(f"echo begin-''{n}; {command}{between}echo end-''{n}\r".encode())
        start = self.expect(f"begin-{n}\n").end()
        end = self.expect(f"end-{n}\n", seconds).start()
        self.expect(PROMPT)
        return self.text[start:end]

    def enter(self, options=""):
        self.link.sendall(f"console {options} tux\r".encode())
        self.expect("Connected to tux.*\n")

    def leave(self):
        self.link.sendall(LEAVE.encode())
        self.expect("Disconnected from tux.*\n")


def stolen(person):
    """Returns the nanoseconds that the VM has waited for a pCPU, as Linux counts and as Takt
    counts. Nobody else computes meanwhile, so that the VM does not wait between the two looks. An
    idle CPU of Linux counts what was stolen from it when it wakes, so each of them has to."""
    person.takt("pause hog")
    person.enter()
    person.linux("sleep 1; for c in 0 1; do taskset $((1 << c)) sleep 0.1; done")
    said = person.linux("head -1 /proc/stat")
    person.leave()
    rows = person.takt("vcpu-list tux")
    person.takt("unpause hog")
    return int(said.split()[8]) * TICK, sum(v["runnable_ns"] for v in rows)


def compete(person):
    """Returns what `stolen` counts while tux computes beside a VM that always does."""
    person.takt("create hog")
    before = stolen(person)
    person.enter()
    person.linux("timeout 8 sh -c 'while :; do :; done'")
    person.leave()
    after = stolen(person)
    person.takt("destroy hog")
    return [end - start for start, end in zip(before, after)]


def free_frames(person):
    """Returns how much memory no VM has. The driver domain gives back what it has of a VM that has
    gone as soon as it runs."""
    time.sleep(2)
    return person.takt("info")["free_frames"]


def session(person):
    """Returns what a person sees, from the start of the VM to its end."""
    seen = {}
    person.expect("peer: id")
    person.expect("iodom: id")
    # Takt takes one frame for good when the first VM of this kind runs, and none for later ones.
    person.takt("create tux")
    person.enter()
    person.expect(PROMPT, 120)
    person.link.sendall(b"poweroff -f\r")
    person.expect("tux: destroyed")
    seen["free"] = [free_frames(person)]
    person.takt("create tux")
    person.enter()
    person.expect(PROMPT, 120)
    seen["answer"] = person.linux("echo $((6*7))")
    seen["facts"] = re.findall(r"fact (\S+) ?(.*)", person.linux("sh /check", 120))
    person.leave()
    seen["stolen"] = compete(person)
    person.enter()
    if not person.bochs:  # Another boot takes too long there.
        person.link.sendall(b"reboot -f\r")
        person.expect("tux: reboots")
        person.expect("tux: id")
        person.enter()
        person.expect(PROMPT, 120)
    person.leave()
    person.takt("shutdown tux")
    seen["button"] = person.expect("tux: (.*)\n")[1]
    person.expect("tux: destroyed")
    seen["free"].append(free_frames(person))
    return seen


@pytest.fixture(scope="module", params=["debian12", "debian13"])
def seen(request, platform):
    directory = linux_place(f"linux-{request.param}-{platform}", request.param)
    bochs = platform == "bochs"
    config = CONFIG.format(vcpus=1 if bochs else 2, script="script = limit\n" if bochs else "")
    iso = make_iso(directory, config, modules=LIMIT if bochs else None)
    with Machine(platform, iso, memory=768, directory=directory, com1="socket") as m:
        return session(Person(m)) | {"platform": platform}


def facts(seen, name):
    return [value for key, value in seen["facts"] if key == name]


def test_shell(seen):
    assert seen["answer"] == "42\n"
    assert ("end", "") in seen["facts"]
    assert facts(seen, "cpus") == ["1" if seen["platform"] == "bochs" else "2"]


def test_devices(seen):
    """Network, disk, random numbers and console work, and each by interrupts."""
    assert facts(seen, "ping") == ["5 packets transmitted, 5 packets received, 0% packet loss"]
    assert facts(seen, "disk") == ["same"]
    # Linux 6.12 lists "none" as well.
    assert facts(seen, "hwrng")[0].split()[0] == "virtio_rng.0"
    assert facts(seen, "hwrng_bytes") == ["64"]
    assert facts(seen, "hwrng_differs") == [""]
    assert facts(seen, "interrupts") == ["4"]
    assert facts(seen, "random") == ["1"]


def test_cpu(seen):
    """Linux finds no performance counters and says so, and it finds AVX."""
    assert "software events only" in facts(seen, "pmu")[0]
    assert facts(seen, "avx") == ["avx"]


# What Linux complains of on every such machine, and why that is right.
EXPECTED = [
    # Configuration space has 256 bytes, which the ports reach, and not the 4 KiB of PCI Express.
    "fail to add MMCONFIG information, can't access extended",
    # The CPU that Bochs plays has no mitigation for it.
    "RETBleed: WARNING: Spectre v2 mitigation leaves CPU vulnerable",
    # The host of QEMU was busy at that moment.
    "hrtimer: interrupt took ",
    "clocksource: Long readout interval, skipping watchdog check",
    # The CPU that QEMU plays has no such interface.
    "amd_pstate: the _CPC object is not present",
    # A rule of Linux, which measures nothing: several CPUs that are not Intel's and do not say that
    # their TSC is invariant (QEMU's do not) have different TSCs.
    "tsc: Marking TSC unstable due to TSCs unsynchronized",
]


def odd(seen):
    """Returns the complaints that guests/linux/complaints has found and that are not expected."""
    return [line for name in ("complaint", "trouble") for line in facts(seen, name)
            if not any(known in line for known in EXPECTED)]


def test_no_complaint(seen):
    """The kernel's log has no line of the level of a warning or above it, and no word of a clock
    that goes wrong, except those that say what is so."""
    assert not odd(seen)


def test_clock(seen):
    """Linux takes KVM's clock, or the TSC where that is invariant. It knows the time of day: on
    Bochs that begins an hour before the year 2000."""
    bochs = seen["platform"] == "bochs"
    assert facts(seen, "clocksource") == ["tsc" if bochs else "kvm-clock"]
    date = int(facts(seen, "date")[0])
    if bochs:
        assert 946681200 <= date < 946681200 + 600
    else:
        assert abs(time.time() - date) < 600


def test_stolen_time(seen):
    """/proc/stat shows what the scheduler has taken, within 1 %."""
    linux, takt = seen["stolen"]
    assert takt > 1_000_000_000
    assert abs(linux - takt) < takt / 100


def test_button(seen):
    """`shutdown` makes Linux switch the VM off. (`destroy` logs no such end.)"""
    assert seen["button"] == "ends with code 0"


def test_ends(seen):
    """When the VM is switched off, from within or by its button, its memory comes back. (It has
    come up again after a reboot from within before that, or session() would have failed.)"""
    assert seen["free"][0] == seen["free"][1]
