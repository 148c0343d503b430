"""The boot: on machines that lack something, and with faults of the hypervisor itself, which are
made on request."""
import re
import socket
import time

import pytest

from machine import Machine
from system.takt import make_iso, place

HYPERVISOR = "[hypervisor]\nscript = s\nguest_console = log\n{}\n"
HELLO = "[vm hello]\nimage = hello\nmemory = 4M\n"


def boot(platform, name, script="", settings="", vms=HELLO, until=None, timeout=90, cmdline="",
         checked=True,
         **machine):
    """Boots, and waits for the end (or for `until`). Returns what the serial port has printed."""
    directory = place(f"boot-{name}-{platform}")
    iso = make_iso(directory, HYPERVISOR.format(settings) + vms, cmdline, {"s": script},
                   checked=checked)
    m = Machine(platform, iso, directory=directory, **machine)
    m.start()
    try:
        how, _ = m.wait(until, timeout)
        assert how == ("matched" if until else "ended"), f"{how}\n{m.serial()[-3000:]}"
        return m.serial()
    finally:
        m.stop()


def test_guest_runs(platform):
    script = "@300ms create hello\n+0ms wait hello 60s\n+100ms poweroff\n"
    text = boot(platform, "hello", script, vms=HELLO + "start = no\n")
    assert "hello from a VM of Takt" in text
    assert "hello: ends with code 0" in text
    log = [line for line in text.split("boot took")[0].splitlines() if line.startswith("[")]
    # 80 is the width of a terminal
    assert len(log) > 15 and not [line for line in log if len(line) > 80]


def test_a_cpu_without_nx():
    """A guest's CPUID does not show NX, and a guest cannot switch it on."""
    guest = "[vm guest]\nimage = test-msr_policy\nmemory = 4M\ncmdline = platform=qemu\n"
    text = boot("qemu", "no-nx", vms=guest, until="RESULT: .*\n", extra=["-cpu", "max,-nx"])
    assert re.search("RESULT: SUCCESS", text), text[-2000:]


@pytest.mark.parametrize("word, says, function", [
    ("pf", r"exception 14 \(page fault\), error code 2", "page_fault"),
    ("gp", r"exception 13 \(general protection\)", "general_protection"),
    ("ud", r"exception 6 \(invalid opcode\)", "undefined"),
    ("df", r"exception 8 \(double fault\)", "double_fault"),
    ("stack", r"the stack has run into its guard page", "deeper"),
    ("mc", r"a machine check from which the CPU cannot go on", "machine_check"),
    ("assert", r"nr_cpus == 0 does not hold", None),
])
def test_fault_is_reported(word, says, function):
    text = boot("qemu", f"fault-{word}", f"@200ms fault {word}\n")
    report = text[text.index(f"fault on request: {word}"):]
    assert re.search(says, report), report
    if function:
        assert re.search(rf"{function}\+0x", report), report
        # the backtrace reaches the loop
        assert re.search(r"cpu_loop\+0x", report) or word == "stack", report
    assert "PANIC on CPU 0" in report
    assert "Rebooting." in report


@pytest.mark.bochs
def test_fault_on_bochs():
    text = boot("bochs", "fault", "@200ms fault pf\n")
    assert re.search(r"page_fault\+0x[0-9a-f]+\n.*cmd_fault\+0x", text), text[-2000:]
    assert "PANIC on CPU 0" in text


def test_noreboot_stays():
    text = boot("qemu", "noreboot", "@200ms fault ud\n", "noreboot = yes",
                until="Stopped, since noreboot is set")
    assert "Rebooting" not in text


@pytest.mark.long_on("bochs")
@pytest.mark.parametrize("word, says", [
    ("nmi", "NMI that nobody sent"),
    ("stray", "stray interrupt, vector 0xd5"),
    ("storm", "1000 stray interrupts; masking it"),
])
def test_fault_is_survived(platform, word, says):
    text = boot(platform, f"fault-{word}",
                f"@200ms fault {word}\n@400ms create VM.cfg\n@600ms list\n@700ms poweroff\n")
    assert says in text
    assert "PANIC" not in text
    assert text.count("stray interrupt, vector") <= 4


def test_sleeping_cpu_is_woken():
    """The pCPU halts with no timer armed. The pCPU that watches it sees that its deadlines pass."""
    text = boot("qemu", "sleep", "@200ms fault sleep\n@1s poweroff\n", vms="", cpus=2)
    assert "CPU 0 slept through its timer; waking it" in text


def test_a_lost_kick_is_repeated():
    """The kick that should tell pCPU 1 of its first VM is lost. pCPU 1 can only be kicked again
    once the pCPU that watches it has sent an NMI instead."""
    script = ("@200ms fault kick\n+0ms create hello\n+0ms wait hello 10s\n"
              "@2600ms counters -j=counts\n+100ms poweroff\n")
    text = boot("qemu", "kick", script, vms=HELLO + "cpus = 1\nstart = no\n", cpus=2)
    assert "hello: ends with code 0" in text
    # On a busy host there may be more than one: an emulated CPU that has to wait answers late.
    assert re.search(r'"kicks_by_nmi", *"value": *[1-9]', text), text[-3000:]


@pytest.mark.long
def test_silent_cpu_is_dumped():
    text = boot("qemu", "hang", "@200ms fault hang\n@11s poweroff\n")
    assert re.search(r"CPU 0 was silent; it is here:(.*\n)+?.*delay_ns\+0x", text), text[-2000:]


def test_no_virtualisation():
    text = boot("qemu", "no-svm", extra=["-cpu", "max,-svm"])
    assert re.search(r"this CPU has neither VT-x nor AMD-V", text), text
    assert "Guests cannot run on this machine." in text


def test_machine_check_in_a_guest():
    """CR4.MCE is set while a guest runs that has cleared it. Otherwise a machine check would shut
    the machine down."""
    directory = place("boot-mce")
    iso = make_iso(directory, HYPERVISOR.format("") + "[vm spin]\nimage = spin\ncpus = 1\n", "",
                   {"s": "@6s poweroff\n"})
    m = Machine("qemu", iso, directory=directory,
                extra=["-monitor", f"unix:{directory}/monitor,server=on,wait=off"])
    m.start()
    try:
        assert m.wait("boot took", 60)[0] == "matched"
        time.sleep(1)
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(f"{directory}/monitor")
            monitor.settimeout(10)

            def ask(command=None):
                answer = b""
                if command:
                    monitor.sendall(command.encode() + b"\n")
                while not answer.endswith(b"(qemu) "):
                    answer += monitor.recv(4096)
                return answer.decode()

            ask()  # the greeting
            for _ in range(100):  # until it stops where the guest runs
                ask("stop")
                if re.search(r"RIP=0000000000[0-9a-f]{6}",
                             ask("info registers -a").split("CPU#1")[1]):
                    break
                ask("cont")
            ask("mce 1 3 0xbe00000000000000 5 0 0")
            ask("cont")
            assert m.wait("powering off|poweroff|Powering", 60)[0] == "matched", m.serial()[-3000:]
    finally:
        m.stop()


def test_absent_serial_port():
    text = boot("qemu", "no-uart", "@300ms poweroff\n", "console = com3")
    assert "console = com3: no serial port answers there: the console stays where it is" in text
    assert "hello from a VM of Takt" in text


def test_console_is_silent():
    """Takt does not wait for a port that does not exist."""
    text = boot("qemu", "none", "@300ms poweroff\n", "console = none")
    assert "VT-x or AMD-V" not in text


def test_many_cpus():
    text = boot("qemu", "cpus", "@1500ms poweroff\n", cpus=16, timeout=180)
    assert re.search(r"\] 16 CPUs", text), text


def test_pools_of_the_configuration():
    """Each pool gets its CPUs and Pool-0 gets the rest. There is no message about CPUs that the
    file does not ask for."""
    text = boot("qemu", "pools", "@200ms cpupool-list\n@400ms poweroff\n", cpus=4,
                vms="[pool a]\ncpus = 2\n[pool b]\ncpus = 1,9\n" + HELLO)
    assert re.findall(r"\n(Pool-0|a|b) +\d+ +\S+ +\d+ +(\S+)", text.replace("\r", "")) == [
        ("Pool-0", "0,3"), ("a", "2"), ("b", "1")], text
    assert re.findall(
        r"takt.cfg:\d+:8: pool (\S+) names CPU (\d+), but the machine's are 0 to 3", text
    ) == [("b", "9")]


def test_too_little_memory(platform):
    """A guest that does not fit is refused, and the others run. The live table shows the message,
    because the table covers the log."""
    script = "@200ms top -d 0.1\n@500ms poweroff\n"
    text = boot(platform, "ram", script, vms=HELLO + "[vm huge]\nimage = spin\nmemory = 1G\n",
                memory=64)
    assert re.search(r"VM huge cannot be made", text), text
    assert re.search(r"Takt, up \d+ s; 1 VM could not be made: dmesg; any key", text), text
    assert "hello from a VM of Takt" in text


def test_bad_configuration():
    text = boot("qemu", "config", vms="[vm x]\nimage = hello\nmemory = much\n", checked=False)
    assert re.search(r"takt.cfg:\d+:\d+: ", text), text
    assert "The configuration cannot be used." in text


def test_a_cpu_without_xsave():
    """Westmere and K10 have no XSAVE. The FPU is switched by FXSAVE, and guests see neither XSAVE
    nor AVX."""
    guests = "".join(f"[vm fpu{n}]\nimage = test-fpu\nmemory = 4M\ncpus = 0\n" for n in (1, 2))
    text = boot("qemu", "no-xsave", "@4s poweroff\n", vms=guests, extra=["-cpu", "max,-xsave"])
    assert "XSAVE                  no" in text
    assert text.count("RESULT: SUCCESS") == 2, text[-2000:]


@pytest.mark.long
@pytest.mark.bochs
def test_westmere():
    """This model has no XSAVE, no TSC deadline, and a preemption timer that does not work."""
    text = boot("bochs", "westmere", "@300ms poweroff\n", model="corei5_arrandale_m520", cpus=2)
    assert "XSAVE                  no" in text
    assert "it is broken: APIC timer ends slices" in text
    assert "hello from a VM of Takt" in text


@pytest.mark.bochs
def test_a_tsc_that_is_behind():
    """Firmware has written one CPU's TSC. Takt mends it by IA32_TSC_ADJUST, and nothing else is
    affected."""
    text = boot("bochs", "tsc", "@300ms poweroff\n", "boot_fault = tsc", cpus=2)
    assert re.search(r"CPU 1: its TSC is \d+ ticks behind the first CPU's", text), text
    assert "] 2 CPUs" in text
    assert "hello from a VM of Takt" in text


@pytest.mark.bochs
def test_a_tsc_that_stays_behind():
    """Takt does not use this CPU: a vCPU that moved to it would see time go back."""
    text = boot("bochs", "tsc-stuck", "@300ms poweroff\n", "boot_fault = tsc-stuck", cpus=2)
    assert re.search(r"APIC id 1 has a TSC that cannot be set right: it is not used", text), text
    assert re.search(r"\] 1 CPU\b", text)
    assert "hello from a VM of Takt" in text


NUMA = ["-smp", "8,sockets=2,cores=2,threads=2", "-object", "memory-backend-ram,id=m0,size=128M",
        "-object", "memory-backend-ram,id=m1,size=128M",
        "-numa", "node,cpus=0-3,memdev=m0", "-numa", "node,cpus=4-7,memdev=m1"]


def test_places():
    """CPUs are numbered by socket, core and thread. A VM's RAM is on the node of its CPU."""
    vms = "[vm there]\nimage = spin\nmemory = 64M\ncpus = 7\nstart = no\n"
    script = "@1s topology\n+0ms nodes\n+0ms create there\n+0ms nodes\n+0ms poweroff\n"
    text = boot("qemu", "places", script, vms=vms, extra=NUMA)
    places = re.findall(r"\n +(\d+) +(\d+) +(\d+) +(\d+) +\d+ +(\d+) +(\d+)", text)
    assert [tuple(map(int, p)) for p in places] == [
        (cpu, cpu // 4, cpu // 2 % 2, cpu % 2, cpu // 4, cpu) for cpu in range(8)], text
    before, after = [
        dict(re.findall(r"\n +(\d) +(\d+)(?=\n)", part)) for part in text.split("nodes\n")[1:]
    ]
    assert int(before["1"]) - int(after["1"]) in (64, 65), text
    assert abs(int(after["0"]) - int(before["0"])) <= 1, text


# Node 2 has memory and no CPU. It is nearer to node 1 than node 0 is.
THREE_NODES = [
    "-smp", "4,sockets=2,cores=2", *sum((["-object", f"memory-backend-ram,id=m{i},size=96M"]
                                         for i in range(3)), []),
    "-numa", "node,cpus=0-1,memdev=m0", "-numa", "node,cpus=2-3,memdev=m1",
    "-numa", "node,memdev=m2", "-numa", "dist,src=0,dst=1,val=30",
    "-numa", "dist,src=0,dst=2,val=40", "-numa", "dist,src=1,dst=2,val=20",
]


def free_mib(text):
    """Returns what each `nodes` command printed: MiB by node."""
    return [{int(node): int(mib) for node, mib in re.findall(r"\n +(\d) +(\d+)(?=\n)", part)}
            for part in text.replace("\r", "").split("nodes\n")[1:]]


def test_a_node_without_memory_borrows():
    """RAM that a VM's node does not have comes from the nearest node. A pool is a node, and a pool
    that wants a number of CPUs is told that it gets fewer."""
    vms = ("[pool any]\ncpus = random:3\n[pool north]\ncpus = node:1\n"
           "[pool nowhere]\ncpus = node:2\n"
           "[vm large]\nimage = spin\nmemory = 128M\npool = north\nstart = no\n")
    script = "@1s cpupool-list\n+0ms nodes\n+0ms create large\n+0ms nodes\n+0ms poweroff\n"
    text = boot("qemu", "borrow", script, vms=vms, memory=288, extra=THREE_NODES)
    assert re.findall(r"\n(Pool-0|any|north|nowhere) +(\d+) ", text) == [
        ("Pool-0", "1"), ("any", "1"), ("north", "2"), ("nowhere", "0")], text
    assert "pool any wants 3 CPUs and has 1: other pools have the rest" in text, text
    assert "pool nowhere has no CPUs: there is none in node 2 that it can have" in text, text
    before, after = free_mib(text)
    assert after.get(1, 0) <= 1, text
    assert abs(before[1] + before[2] - after.get(1, 0) - after[2] - 128) <= 2, text
    assert abs(before[0] - after[0]) <= 2, text


def test_numa_split():
    """As with xl, each node gets a pool, if there is only Pool-0."""
    script = ("@1s cpupool-numa-split\n+0ms cpupool-list\n+0ms cpupool-numa-split\n"
              "+0ms poweroff\n")
    text = boot("qemu", "numa-split", script, vms=HELLO, extra=NUMA).replace("\r", "")
    assert re.findall(r"\n(Pool-\S+) +\d+ +\S+ +\d+ +(\S+)", text) == [
        ("Pool-0", "0-3"), ("Pool-node1", "4-7")], text
    assert "there are other pools than Pool-0" in text, text


def runs_behind(name, first, cpus, timeout):
    """Boots a machine of so many CPUs, and lets a VM run to its end that may use none of the CPUs
    before `first`. On a busy host some CPUs do not answer in time and are left out, so there have
    to be more than `first`."""
    vms = f"[vm behind]\nimage = hello\nmemory = 4M\ncpus = ^0-{first - 1}\nstart = no\n"
    script = "@0ms create behind\n+0ms wait behind 600s\n+100ms pcpu-list\n+1s poweroff\n"
    text = boot("qemu", name, script, "top = no", vms=vms, timeout=timeout, memory=2048,
                extra=["-smp", str(cpus)])
    assert "behind: ends with code 0" in text, text
    guests = {int(cpu): float(s)
              for cpu, s in re.findall(r"\n +(\d+) Pool-0 +(\d+\.\d+) ", text)}
    assert len(guests) > first, text
    assert {cpu for cpu, seconds in guests.items() if seconds} <= set(range(first, cpus)), text
    assert any(guests.values()), text


@pytest.mark.long
def test_cpus_of_the_second_word():
    """A VM runs on a CPU that is not in the first word of a set of CPUs."""
    runs_behind("many-72", 64, 72, 600)


@pytest.mark.long
def test_255_cpus():
    """As many as xAPIC can name. They halt until the boot CPU is ready."""
    runs_behind("many-255", 192, 255, 900)


@pytest.mark.long
def test_256_vms():
    """As many as a file may have. Each wakes twice a second, and they all run at a time."""
    vms = "".join(f"[vm v{i}]\nimage = waker\nmemory = 2M\ncmdline = period_us=500000 report_s=99\n"
                  for i in range(256))
    text = boot("qemu", "256-vms", "@30s list\n+1s poweroff\n", "top = no", vms=vms, timeout=600,
                memory=1024)
    assert "256 VMs; boot took" in text
    listed = text.split("list\n")[1]
    assert len(set(re.findall(r"\n(v\d+) +\d+ +2 ", listed))) == 256, listed


def test_without_smt():
    text = boot("qemu", "smt", "@1s topology\n@1200ms poweroff\n", "smt = no", extra=NUMA)
    assert "] 4 CPUs" in text
    assert re.findall(r"\n +(\d+) +(\d+) +(\d+) +(\d+) +\d+ +\d+ +(\d+)", text) == [
        ("0", "0", "0", "0", "0"), ("1", "0", "1", "0", "2"), ("2", "1", "0", "0", "4"),
        ("3", "1", "1", "0", "6")]


def test_a_limit_of_cpus():
    """Whole sockets are left out: all CPUs that are used are on the boot CPU's node."""
    text = boot("qemu", "max-cpus", "@1s topology\n@1200ms poweroff\n", "max_cpus = 4", extra=NUMA)
    assert "Takt uses 4 CPUs at most: 4 are left out" in text, text
    assert "] 4 CPUs" in text
    assert re.findall(r"\n +(\d+) +(\d+) +\d+ +\d+ +\d+ +\d+ +(\d+)", text) == [
        ("0", "0", "0"), ("1", "0", "1"), ("2", "0", "2"), ("3", "0", "3")]


def test_bad_parameters():
    """The file was not checked before (PXE, a stick). The image reports everything that its
    policies do not accept, and where it stands."""
    vms = ("[pool p]\ncpus = 1\nsched_preset = nosuch\n[vm x]\nimage = hello\nmemory = 4M\n"
           "weight = much\n")
    text = boot("qemu", "parameters", vms=vms, checked=False)
    assert re.search(r'takt.cfg:7:16: credit has no preset "nosuch": expected hardened, ',
                     text), text
    assert 'takt.cfg:11:10: weight must be a whole number from 1 to 65535, not "much"' in text, text
    assert "The configuration cannot be used." in text


@pytest.mark.long
def test_uefi():
    text = boot("qemu", "uefi", "@500ms poweroff\n", uefi=True, timeout=180)
    assert re.search(r"screen: \d+ columns, \d+ rows, drawn", text), text
    assert "hello from a VM of Takt" in text
