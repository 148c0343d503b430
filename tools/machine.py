#!/usr/bin/env python3
"""A machine to boot Takt on: nested KVM, QEMU (AMD-V by TCG) or Bochs (VT-x).

As a module: `Machine(platform, iso, ...)` with start(), wait(), stop(). As a command:

  tools/machine.py platform               prints the best platform that this host has
  tools/machine.py run [options] ISO      is interactive: this terminal is COM1, and Ctrl-A x ends
                                          the machine
  tools/machine.py watch [options] ISO    prints COM1 until --until matches, the machine ends, or
                                          the time is over
  tools/machine.py check [--platform P]   starts the emulator with nothing to boot, to see whether
                                          it works at all
"""
import argparse
import concurrent.futures
import contextlib
import fcntl
import glob
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
import tty

import lastwords
import progress
import sentence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
PLATFORMS = ("kvm", "qemu", "bochs", "icount")
KVM_GET_API_VERSION = 0xAE00
BOCHS_CPU = "corei7_icelake_u"  # the CPU that Bochs plays; `bochs --help cpu` lists all of them
# If other programs take more than this part of a virtual CPU's time, we do not believe what QEMU's
# clock measures.
BUSY = 0.1
# platforms whose clock stands still while the host does something else
VIRTUAL_TIME = ("bochs", "icount")
BOCHS_TIME = 946681200  # what its clock tells at first: the last hour of 1999
BOCHS_HZ = 100_000_000  # `ips` below: one instruction is one tick of the TSC

BOCHSRC = """\
megs: {memory}
romimage: file=/usr/share/bochs/BIOS-bochs-latest, options=fastboot
vgaromimage: file=/usr/share/vgabios/vgabios.bin
cpu: model={model}, count={cpus}, ips={hz}, quantum=1, reset_on_triple_fault=0
display_library: rfb, options="timeout=0"
log: {dir}/bochs.log
panic: action=fatal
com1: enabled=1, {com1}
com2: enabled=1, {com2}
ata0-master: type=cdrom, path={iso}, status=inserted
boot: cdrom
sound: waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy
clock: sync=none, time0={time}
pci: enabled=1, chipset=i440fx{slots}
port_e9_hack: enabled=1
"""
NIC_MAC = "52:54:00:12:34:56"
# What the network card 00:03.0, an e1000, is connected to: networks inside the emulators that
# answer ARP, DHCP and ping.
NIC_USER = {"qemu": "user,restrict=on", "bochs": "ethmod=vnet, ethdev=/nonexistent"}
IOMMU = "intremap=on,eim=on"  # options of intel-iommu: everything that it can do
# The igb behind root port 1, 2 ... has the functions 01:00.0, 02:00.0 ...
IGB_MAC = "52:54:00:00:{:02x}:01"
IGB_USER = "user,restrict=on"


def nvme(path):
    """Returns QEMU's options for an NVMe controller 00:04.0 whose disk is an image of the host. The
    file's name tells its format: FILE.qcow2, else raw. Its first bytes must not, because the guest
    writes those of a raw image, and one in qcow2 may name any other file of the host."""
    try:
        with open(path, "rb"):
            kind = "qcow2" if path.endswith(".qcow2") else "raw"
    except OSError as e:
        raise sentence.Problem(f"the disk image {path} cannot be read: {e.strerror}") from e
    name = os.path.abspath(path).replace(",", ",,")
    return ["-drive", f"if=none,id=disk,format={kind},discard=unmap,file={name}", "-device",
            "nvme,drive=disk,serial=takt,addr=4.0"]


# The firmware prints this when it has looked at all disks. By then the emulator has started all of
# its parts.
NOTHING_TO_BOOT = "No bootable device"
# Lines that Bochs prints whether it fails or not.
BOCHS_CHATTER = re.compile(r"\d+i\[|=+$|\(0\)|Next at t=")
LAST_WORDS = 3  # lines


class Died(SystemExit):
    """The emulator ended by itself. A tool that does not catch this exception ends with its
    sentence."""


def kvm_nested():
    """Returns whether a guest of this host can use VT-x or AMD-V. The device node alone does not
    tell."""
    for module in ("kvm_intel", "kvm_amd"):
        try:
            with open(f"/sys/module/{module}/parameters/nested", encoding="ascii") as f:
                if f.read().strip() not in ("Y", "1"):
                    continue
            fd = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            return fcntl.ioctl(fd, KVM_GET_API_VERSION) == 12
        except OSError:
            return False
        finally:
            os.close(fd)
    return False


def choose(platform="auto"):
    if platform in ("", "auto"):
        return "kvm" if kvm_nested() else "qemu"
    if platform not in PLATFORMS:
        sys.exit(f"PLATFORM={platform} is not known: kvm, qemu, bochs or icount")
    if platform == "kvm" and not kvm_nested():
        sys.exit(
            "PLATFORM=kvm: this host has no nested KVM (/sys/module/kvm_*/parameters/nested, "
            "/dev/kvm)"
        )
    return platform


def qemu_has(device):
    """Returns whether this host's QEMU knows the device."""
    done = subprocess.run(["qemu-system-x86_64", "-device", "help"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True,
                          stdin=subprocess.DEVNULL, check=False)
    return f'name "{device}"' in done.stdout


def waited(path="/proc/self/schedstat"):
    """Returns the nanoseconds that a thread has run and that it has waited for a CPU (Linux,
    scheduler/sched-stats.rst)."""
    with open(path, encoding="ascii") as f:
        ran, waiting, _ = map(int, f.read().split())
    return ran, waiting


def spin(seconds):
    """Computes for this many seconds. Returns the part of the time that this process waited for a
    CPU of the host."""
    end, (ran, waiting) = time.monotonic() + seconds, waited()
    while time.monotonic() < end:
        pass
    ran, waiting = (now - before for now, before in zip(waited(), (ran, waiting)))
    return waiting / (ran + waiting)


def host_busy(cpus, seconds=0.5):
    """Returns the part of its time (0 to 1) that one of `cpus` virtual CPUs would wait for the host
    now, at worst."""
    try:
        with concurrent.futures.ProcessPoolExecutor(cpus) as pool:
            return max(pool.map(spin, [seconds] * cpus))
    except OSError:
        return 0.0  # A kernel without schedstat cannot tell.


def busy_host(cpus):
    """Returns a sentence if other programs of this host take so much time that what is measured on
    QEMU may be wrong, or None if they do not."""
    took = host_busy(min(cpus, 2 * (os.cpu_count() or 1)))
    if took < BUSY:
        return None
    return (f"This host is busy: a virtual CPU would wait {took:.0%} of its time, while QEMU's "
            "clock goes on.")


def warn_if_busy(platform, cpus):
    """Warns the person who will watch shares on this platform if the shares cannot be right. On
    Bochs they can, because its time is virtual."""
    told = None if platform in VIRTUAL_TIME else busy_host(cpus)
    if told:
        print(f"{told}\nSo the shares may be wrong. PLATFORM=bochs runs in virtual time.",
              flush=True)


def bochs_version():
    done = subprocess.run(["bochs", "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True,
                          errors="replace", stdin=subprocess.DEVNULL, check=False)
    m = re.search(r"Emulator (\d+)\.(\d+)", done.stdout)
    return (int(m[1]), int(m[2])) if m else (2, 7)


# The kernel ends the emulator when this program ends, in whatever way. So a time limit of CI, or a
# make that is killed, leaves no emulator behind that would go on to write into its directory.
LEASH = ["setpriv", "--pdeathsig", "KILL", "--"]


class Machine:
    """One machine. Its serial output is in `dir`/serial.txt.

    com1    "socket": `dir`/com1.sock talks to COM1 (QEMU); "stdio": COM1 is this terminal; "none":
            the machine has no COM1 (QEMU)
    com2    a path: COM2's output goes there; QEMU also takes unix:PATH, a socket
    hz      how many instructions Bochs executes in a virtual second
    model   the CPU that Bochs plays
    ticks   Bochs ends after so many ticks of its clock, wherever the machine is then
    nic     the machine has a network card: NIC_USER or the like, {"qemu": a -netdev without its id,
            "bochs": options of e1000}
    igb     how many 82576 (SR-IOV) the machine has, each behind a root port of its own. All are on
            one hub with `igb_net`, a -netdev without its id; None: with nothing else
    iommu   IOMMU or the like, options of intel-iommu, "intremap=on|off,eim=on|off"; None: there is
            none
    exit_port  QEMU has the port by which Takt ends it with an exit code. A real machine has no such
            port; there Takt uses ACPI
    tftp    (DIR, FILE[, MORE]): the machine has no disk, and boots FILE from its network, on which
            QEMU's own TFTP server offers DIR. MORE: further options of -netdev user
    kernel  what tools/mkiso.sh --memory-disk makes, in place of `iso` (QEMU)
    shift   with icount an instruction takes 2^shift ns of virtual time
    resets  QEMU starts again after a reset, with its RAM as it was. Otherwise QEMU ends
    """

    def __init__(self, platform, iso, cpus=2, memory=256, directory=None, com1="file", com2=None,
                 uefi=False, gdb=False,
                 extra=(), hz=BOCHS_HZ, nic=None, igb=0, igb_net=IGB_USER, iommu=None,
                 model=BOCHS_CPU,
                 exit_port=True, resets=False, tftp=None, kernel=None, shift=0, ticks=None):
        self.platform, self.iso = platform, os.path.abspath(iso or "")
        self.cpus, self.memory, self.com1, self.com2 = cpus, memory, com1, com2
        self.uefi, self.gdb, self.extra, self.hz = uefi, gdb, list(extra), hz
        self.nic, self.igb, self.igb_net, self.iommu, self.model = nic, igb, igb_net, iommu, model
        self.exit_port, self.resets, self.tftp = exit_port, resets, tftp
        self.kernel, self.shift, self.ticks = kernel, shift, ticks
        if (igb or iommu) and platform == "bochs":
            raise ValueError("Bochs has neither igb nor an IOMMU: take QEMU")
        if igb and not qemu_has("igb"):
            raise ValueError(
                "this host's QEMU has no igb (7.2 has none, 8.0 and newer have it): install a "
                "newer one, "
                "in Debian 12 qemu-system-x86 of bookworm-backports"
            )
        self.dir = os.path.abspath(directory
                                   or os.path.join(BUILD, "run", f"{platform}-{os.getpid()}"))
        self.serial_path = os.path.join(self.dir, "serial.txt")
        self.socket_path = os.path.join(self.dir, "com1.sock")
        self.process = self.listener = None
        self.seen = 0  # how much of the serial output wait() has passed

    # ---- command lines ----

    def qemu_command(self):
        # KVM's IOAPIC in the kernel cannot remap interrupts, and QEMU refuses to start with both.
        # With "split" the IOAPIC is QEMU's. Without migratable=off the guest has no invariant TSC,
        # and so it has no leaf 40000010h.
        kvm = "kvm,kernel-irqchip=split" if self.iommu else "kvm"
        accel = {
            "kvm": ["-accel", kvm, "-cpu", "host,migratable=off"],
            "qemu": ["-accel", "tcg,thread=multi", "-cpu", "max"],
            "icount": [
                "-accel",
                "tcg",
                "-icount",
                f"shift={self.shift},sleep=off",
                "-cpu",
                "EPYC,-x2apic",
            ],
        }[self.platform]
        command = ["qemu-system-x86_64", "-M", "q35", *accel, "-smp", str(self.cpus), "-m",
                   str(self.memory),
                   "-nodefaults", "-no-user-config", "-display", "none", "-vga", "std",
                   *self.boot_options()]
        if not self.resets:
            command += ["-no-reboot"]
        if self.exit_port:
            command += ["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]
        command += lastwords.log_options(self.dir)
        if self.com1 == "stdio":
            command += lastwords.Witness.options(self.dir)
            command += ["-chardev", f"stdio,id=com1,mux=on,signal=off,logfile={self.serial_path}",
                        "-mon", "chardev=com1"]
        elif self.com1 == "socket":
            command += [
                "-chardev",
                f"socket,id=com1,path={self.socket_path},server=on,wait=off,"
                f"logfile={self.serial_path}",
            ]
        else:
            command += ["-chardev", f"file,id=com1,path={self.serial_path}"]
        command += ["-serial", "chardev:com1" if self.com1 != "none" else "none"]
        if self.com2:
            socket_at = self.com2.partition("unix:")[2]
            command += ["-serial", f"unix:{socket_at},server=on,wait=off" if socket_at
                        else f"file:{self.com2}"]
        if self.uefi:
            code, variables = "/usr/share/OVMF/OVMF_CODE_4M.fd", os.path.join(self.dir, "vars.fd")
            shutil.copy("/usr/share/OVMF/OVMF_VARS_4M.fd", variables)
            command += ["-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={code}",
                        "-drive", f"if=pflash,format=raw,unit=1,file={variables}"]
        if self.gdb:
            command += ["-s", "-S"]
        if self.nic:
            command += ["-netdev", self.nic["qemu"] + ",id=nic", "-device",
                        f"e1000,netdev=nic,addr=3.0,mac={NIC_MAC}"]
        return command + self.sriov() + self.extra

    def boot_options(self):
        if self.kernel:
            return ["-kernel", self.kernel]
        if not self.tftp:
            return ["-cdrom", self.iso, "-boot", "d"]
        directory, file, *more = self.tftp
        netdev = ",".join([f"user,id=boot,tftp={os.path.abspath(directory)},bootfile={file}",
                           *more])
        return ["-netdev", netdev, "-device", "virtio-net-pci,netdev=boot,bootindex=0", "-boot",
                "n"]

    def sriov(self):
        """Returns the options of QEMU that SR-IOV needs. The IOMMU comes first, because QEMU wants
        it before the devices that it translates for."""
        options = ["-device", f"intel-iommu,{self.iommu}"] if self.iommu else []
        for n in range(1, self.igb + 1):
            options += ["-netdev", f"hubport,id=igb{n},hubid=0",
                        "-device",
                        f"pcie-root-port,id=rp{n},bus=pcie.0,addr={7 + n:x}.0,chassis={n},slot={n}",
                        "-device", f"igb,bus=rp{n},netdev=igb{n},mac={IGB_MAC.format(n)}"]
        if self.igb and self.igb_net:
            options += ["-netdev", self.igb_net + ",id=hubnet", "-netdev",
                        "hubport,id=hubup,hubid=0,netdev=hubnet"]
        return options

    def bochs_command(self):
        com1 = f"mode=file, dev={self.serial_path}"
        if self.com1 in ("stdio", "socket"):
            self.listener = socket.create_server(("127.0.0.1", 0))
            com1 = f"mode=socket-client, dev=127.0.0.1:{self.listener.getsockname()[1]}"
        version = bochs_version()
        rc, script = os.path.join(self.dir, "bochsrc"), os.path.join(self.dir, "dbg")
        with open(rc, "w", encoding="ascii") as f:
            f.write(BOCHSRC.format(memory=self.memory, cpus=self.cpus, hz=self.hz, dir=self.dir,
                                   com1=com1, iso=self.iso, time=BOCHS_TIME,
                                   model=self.model, slots=", slot2=e1000" if self.nic else "",
                                   com2=f"mode=file, dev={self.com2}" if self.com2
                                   else "mode=null"))
            if self.nic:
                f.write(f"e1000: enabled=1, mac={NIC_MAC}, {self.nic['bochs']}\n")
        with open(script, "w", encoding="ascii") as f:
            f.write(f"sb {self.ticks}\nc\nq\n" if self.ticks else "c\n")
        # Time on several CPUs is exact only in the loop of Bochs' debugger. Version 2.7 always uses
        # that loop, 3.0 has to be told.
        return (
            ["bochs", "-q", "-f", rc]
            + (["-debugger"] if version >= (3, 0) else [])
            + ["-rc", script]
        )

    # ---- start and end ----

    def start(self):
        """Starts the emulator, and removes first what an earlier run has left."""
        os.makedirs(self.dir, exist_ok=True)
        stale = [os.path.join(self.dir, name) for name in ("qmp.sock", "qemu.log")]
        for path in [self.serial_path, self.socket_path] + stale:
            if os.path.exists(path):
                os.unlink(path)
        open(self.serial_path, "wb").close()
        command = self.bochs_command() if self.platform == "bochs" else self.qemu_command()
        with open(os.path.join(self.dir, "command"), "w", encoding="utf-8") as f:
            f.write(" ".join(command) + "\n")
        stdio = self.com1 == "stdio" and self.platform != "bochs"
        with open(os.path.join(self.dir, "emulator.log"), "wb") as log, self.display():
            self.process = subprocess.Popen(LEASH + command,
                                            stdin=None if stdio else subprocess.DEVNULL,
                                            stdout=None if stdio else log,
                                            stderr=None if stdio else subprocess.STDOUT,
                                            start_new_session=not stdio,
                                            cwd=self.dir)
        self.raise_if_dead()
        return self

    @contextlib.contextmanager
    def display(self):
        """Holds a lock while Bochs starts, until it has the port for its display. At its start,
        Bochs looks for a free port; if two find the same port at the same time, one of them
        ends."""
        if self.platform != "bochs":
            yield
            return
        path = os.path.join(self.dir, "bochs.log")
        if os.path.exists(path):
            os.unlink(path)
        with open(os.path.join(tempfile.gettempdir(), f"takt-bochs-{os.getuid()}.lock"),
                  "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
            end = time.monotonic() + 20
            while self.process.poll() is None and time.monotonic() < end:
                if os.path.exists(path):
                    with open(path, encoding="utf-8", errors="replace") as log:
                        if "listening for connections on port" in log.read():
                            return
                time.sleep(0.02)

    def connect(self, timeout=20):
        """Returns a socket that is connected to COM1 (com1="socket")."""
        end = time.monotonic() + timeout
        if self.listener:
            self.listener.settimeout(0.2)
        while self.listener:
            try:
                return self.listener.accept()[0]
            except TimeoutError:
                self.raise_if_dead()
                if time.monotonic() > end:
                    raise
        while True:
            s = socket.socket(socket.AF_UNIX)
            try:
                s.connect(self.socket_path)
                return s
            except OSError:
                s.close()
                self.raise_if_dead()
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def serial(self):
        with open(self.serial_path, "rb") as f:
            return f.read().decode("utf-8", "replace").replace("\r", "")

    def log(self):
        """Returns what the emulator itself has printed."""
        with open(os.path.join(self.dir, "emulator.log"), "rb") as f:
            return f.read().decode("utf-8", "replace")

    def death(self):
        """Returns the sentence that says how the emulator failed, or None if it runs or its guest
        ended it.

        A guest that ends its machine has printed something on COM1 before. So the emulator has
        failed if a signal ended it, or if it ended while COM1 was empty. And the hypervisor has
        failed if it reset the machine by a triple fault.
        """
        code = self.process.poll() if self.process else None
        if code == 0 and lastwords.triple_fault(self.dir):
            return f"machine: {lastwords.sentence(self.dir, code)}"
        if code is None or (code >= 0
                            and (self.com1 == "none" or os.path.getsize(self.serial_path))):
            return None
        if code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code} before the machine had said a word"
        return (f"machine: {self.emulator()} {how}; its last words: {self.last_words()} (see "
                f"{self.dir}/emulator.log)")

    def emulator(self):
        return "Bochs" if self.platform == "bochs" else "QEMU"

    def last_words(self):
        """Returns the last lines that the emulator itself has printed, as one line."""
        said = [
            line.strip()
            for line in self.log().splitlines()
            if line.strip() and not BOCHS_CHATTER.match(line)
        ]
        return "; ".join(said[-LAST_WORDS:]) or "none"

    def wait(self, until=None, timeout=60, echo=None):
        """Waits until the regular expression `until` matches serial output that no earlier wait()
        has passed.

        Returns ("matched", match), ("ended", exit code) or ("timeout", None). Raises Died if the
        emulator failed.
        """
        if echo:
            return self.wait_shown(until, timeout, echo)
        with progress.Line(f"{self.emulator()} runs"):
            return self.wait_shown(until, timeout, None)

    def wait_shown(self, until, timeout, echo):
        """Waits for the pattern `until` on the serial port, and copies what comes to `echo`.
        Returns ("matched", match), ("ended", exit status) or ("timeout", None)."""
        end = time.monotonic() + timeout
        pattern = re.compile(until) if until else None
        echoed = self.seen
        while True:
            code = self.process.poll()
            text = self.serial()
            if echo and len(text) > echoed:
                echo.write(text[echoed:])
                echo.flush()
                echoed = len(text)
            match = pattern.search(text, self.seen) if pattern else None
            if match:
                self.seen = match.end()
                return "matched", match
            if code is not None:
                self.raise_if_dead()
                return "ended", code
            if time.monotonic() > end:
                return "timeout", None
            time.sleep(0.05)

    def raise_if_dead(self):
        sentence = self.death()
        if sentence:
            self.stop()
            raise Died(sentence)

    def host_took(self):
        """Returns the largest part of its running time (0 to 1) that a thread of the emulator
        waited for a CPU of the host."""
        worst = 0.0
        for task in glob.glob(f"/proc/{self.process.pid}/task/*/schedstat"):
            try:
                ran, waiting = waited(task)
            except (OSError, ValueError):
                continue
            if ran > 1e9:  # It is a CPU, not a helper thread.
                worst = max(worst, waiting / (ran + waiting))
        return worst

    def stop(self):
        """Ends the machine. Everything that it wrote stays in `dir`."""
        if self.listener:
            self.listener.close()
        if not self.process or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


def check(platform, directory=None, timeout=60):
    """Starts the emulator with nothing to boot. Returns when its firmware has found that there is
    nothing; raises Died if the emulator ends before.

    timeout: wall-clock seconds.
    """
    directory = directory or os.path.join(BUILD, "run", f"check-{platform}")
    os.makedirs(directory, exist_ok=True)
    iso, said = os.path.join(directory, "empty.iso"), os.path.join(directory, "firmware.txt")
    for path, size in ((iso, 1 << 20), (said, 0)):
        with open(path, "wb") as f:
            f.truncate(size)
    debugcon = ["-chardev", f"file,id=firmware,path={said}", "-device",
                "isa-debugcon,iobase=0x402,chardev=firmware"]
    m = Machine(platform, iso, cpus=1, memory=32, directory=directory, extra=debugcon)
    if platform == "bochs":
        said = os.path.join(directory, "bochs.log")
    end = time.monotonic() + timeout
    with m:
        while time.monotonic() < end:
            ended = m.process.poll() is not None
            with open(said, encoding="utf-8", errors="replace") as f:
                if NOTHING_TO_BOOT in f.read():
                    return
            if ended:
                m.raise_if_dead()
            time.sleep(0.05)
    raise Died(
        f"machine: {m.emulator()} did not get through its firmware in {timeout} s (see {directory})"
    )


def proxy(machine):
    """Makes this terminal COM1 of a Bochs machine. Ctrl-A x ends the machine, as in QEMU. Returns
    whether it was ended in this way."""
    link = machine.connect()
    saved = termios.tcgetattr(0) if os.isatty(0) else None
    prefix = False
    try:
        if saved:
            tty.setraw(0)
        with open(machine.serial_path, "ab") as log:
            watched = [0, link]
            while True:
                ready, _, _ = select.select(watched, [], [])
                if link in ready:
                    data = link.recv(4096)
                    if not data:
                        return False
                    log.write(data)
                    log.flush()
                    os.write(1, data)
                if 0 in ready:
                    data = os.read(0, 64)
                    if not data:
                        watched = [link]
                    for b in data:
                        if prefix and b in b"xX":
                            return True
                        if b == 1 and not prefix:
                            prefix = True
                            continue
                        prefix = False
                        link.send(bytes([b]))
    finally:
        if saved:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)
        link.close()


def run(machine):
    """Runs the machine interactively. Returns the exit code for the shell."""
    print(
        f"PLATFORM={machine.platform}, {machine.cpus} CPUs, {machine.memory} MiB; Ctrl-A x ends "
        "the machine",
        flush=True,
    )
    saved = termios.tcgetattr(0) if os.isatty(0) else None
    with machine:
        try:
            if machine.platform == "bochs":
                if proxy(machine):
                    print("\nBochs was closed (Ctrl-A x).", flush=True)
                    return 0
                machine.process.wait(10)  # It has closed the line, and is ending.
                machine.raise_if_dead()
                code, told = lastwords.of_bochs(machine.log())
                print(f"\n{told}", flush=True)
                return code
            witness = lastwords.Witness(machine.dir, machine.process)
            witness.start()
            code = machine.process.wait()
            witness.join(1)
            # Takt also ends it with 1, but never without having printed something.
            if code == 1 and not machine.serial():
                raise sentence.Problem(
                    "QEMU did not start: its own words are above, its command is in "
                    + os.path.join(machine.dir, "command")
                )
            print(f"\n{lastwords.sentence(machine.dir, code, witness.reason)}", flush=True)
            if lastwords.triple_fault(machine.dir):
                return 1
            # 1: Takt itself ended the machine.
            return 0 if code == 1 and machine.serial() else code
        except KeyboardInterrupt:
            return 130
        finally:
            machine.stop()
            if saved:
                termios.tcsetattr(0, termios.TCSADRAIN, saved)


def main():
    parser = argparse.ArgumentParser(description="boot an image on this host's best platform")
    parser.add_argument("verb", choices=["platform", "run", "watch", "check"])
    parser.add_argument("iso", nargs="?")
    parser.add_argument("--platform", default="auto")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--memory", type=int, default=256, help="MiB")
    parser.add_argument("--dir", help="where serial.txt, bochs.log and the like go")
    parser.add_argument("--com2", help="file for the output of COM2; QEMU: or unix:PATH, a socket")
    parser.add_argument("--nic", action="store_true",
                        help="a network card 00:03.0 at a network inside the emulator")
    parser.add_argument("--igb", type=int, default=0, metavar="N",
                        help="so many igb (SR-IOV) behind root ports, on one network")
    parser.add_argument("--nvme", metavar="FILE",
                        help="QEMU: an NVMe controller 00:04.0 with this image: .qcow2, else raw")
    parser.add_argument("--iommu", nargs="?", const=IOMMU, metavar="OPTIONS",
                        help=f"an intel-iommu, as it is: {IOMMU}")
    parser.add_argument("--uefi", action="store_true")
    parser.add_argument("--no-exit-port", action="store_true",
                        help="QEMU: Takt ends the machine by ACPI, as it ends a real one")
    parser.add_argument("--gdb", action="store_true", help="QEMU waits for gdb at :1234")
    parser.add_argument("--ticks", type=int,
                        help="Bochs: ends after so many ticks of its clock (100 million a second)")
    parser.add_argument("--until", help="regular expression that ends `watch` with success")
    parser.add_argument("--timeout", type=float, default=120, help="wall-clock seconds")
    args = parser.parse_intermixed_args()
    platform = choose(args.platform)
    if args.verb == "platform":
        print(platform)
        return 0
    if args.verb == "check":
        check(platform)
        return 0
    if not args.iso:
        parser.error("the image to boot is missing: `make iso` writes build/takt.iso")
    if not os.path.isfile(args.iso):
        raise sentence.Problem(f"{args.iso}: there is no such image: `make iso` makes one")
    if args.nvme and platform == "bochs":
        raise sentence.Problem("Bochs has no NVMe controller: --nvme needs QEMU")
    machine = Machine(platform, args.iso, cpus=args.cpus, memory=args.memory, directory=args.dir,
                      uefi=args.uefi, gdb=args.gdb,
                      com1="stdio" if args.verb == "run" else "file", com2=args.com2,
                      nic=NIC_USER if args.nic else None, igb=args.igb, iommu=args.iommu,
                      exit_port=not args.no_exit_port, ticks=args.ticks,
                      extra=nvme(args.nvme) if args.nvme else ())
    if args.verb == "run":
        warn_if_busy(platform, args.cpus)
        return run(machine)
    with machine:
        how, what = machine.wait(args.until, args.timeout, echo=sys.stdout)
    if how == "matched" or (how == "ended" and not args.until):
        return 0
    print(f"\nmachine: {how}{'' if what is None else f' ({what})'}; see {machine.dir}",
          file=sys.stderr)
    if how == "ended" and platform != "bochs":
        print(lastwords.sentence(machine.dir, what), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sentence.run(main)
