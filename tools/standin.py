"""A QEMU that stands in for a machine of a lab (tools/labhost, `power = qemu` in lab.ini), so that
a sweep over machines can be tried without any. It runs until it is switched off, also when no
program of this tree runs any more.

Keys in lab.ini, all optional: `directory` (build/lab/NAME) has what belongs to it; `cpus` (2) and
`memory` (256, MiB) are what it has.
"""
import os
import shlex
import signal
import subprocess
import time

import machine as emulator
import sentence

PATIENCE = 10  # seconds until QEMU has ended


class StandIn:
    """What tools/labhost needs of a machine: its power, the address of its console, and the command
    that has it boot a VM file ($VMS)."""

    def __init__(self, machine):
        self.directory = os.path.abspath(machine.get(
            "directory", os.path.join(emulator.BUILD, "lab", machine.name)))
        os.makedirs(self.directory, exist_ok=True)
        self.iso = self.path("takt.iso")
        self.serial = "unix:" + self.path("com1.sock")
        self.install = (f"cd {shlex.quote(emulator.ROOT)} && tools/mkiso.sh "
                        f"{shlex.quote(self.iso)} \"$VMS\"")
        platform = "kvm" if emulator.kvm_nested() else "qemu"
        self.machine = emulator.Machine(platform, self.iso, cpus=machine.getint("cpus", 2),
                                        memory=machine.getint("memory", 256), com1="socket",
                                        directory=self.directory, exit_port=False, resets=True)

    def path(self, name):
        return os.path.join(self.directory, name)

    def pid(self):
        """Returns the process of this stand-in, or None if it is off."""
        try:
            with open(self.path("pid"), encoding="ascii") as f:
                pid = int(f.read())
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as f:
                return pid if self.path("pid") in f.read() else None
        except (FileNotFoundError, ProcessLookupError):
            return None

    def status(self):
        return "on" if self.pid() else "off"

    def set(self, what):
        """Does `on`, `off`, `reset` or `cycle`. Its RAM does not outlive the last two."""
        pid = self.pid()
        if pid and what != "on":
            os.kill(pid, signal.SIGTERM)
            end = time.monotonic() + PATIENCE
            while self.pid() and time.monotonic() < end:
                time.sleep(0.05)
            if self.pid():
                raise sentence.Problem(f"QEMU (process {pid}) does not end")
            pid = None
        if pid or what == "off":
            return
        if not os.path.exists(self.iso):
            raise sentence.Problem(f"{self.iso} is missing: a script's @install makes it")
        done = subprocess.run([*self.machine.qemu_command(), "-daemonize", "-pidfile",
                               self.path("pid")], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise sentence.Problem(f"QEMU did not start: {done.stderr.strip()}")

    def boot_from(self, device):
        if device != "cdrom":
            raise sentence.Problem(f"a stand-in has no bootdev {device}, but cdrom alone")
