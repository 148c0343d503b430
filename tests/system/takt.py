"""A running image, and its shell, for system tests."""
import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import time

import linuxguest
import pytest
import sentence
from conftest import BUILD, ROOT
from machine import Machine


def load_taktctl():
    path = os.path.join(ROOT, "tools", "taktctl")
    loader = importlib.machinery.SourceFileLoader("taktctl", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("taktctl", loader))
    loader.exec_module(module)
    return module


taktctl = load_taktctl()
CommandError = taktctl.CommandError


def make_iso(directory, config, cmdline="", modules=None, hv=None, checked=True, menu=False):
    """Writes the VM file (and modules, {name: text}) to `directory`, builds takt.iso there and
    returns its path.

    A file with an error is refused here, unless `checked` is false: then the image has to refuse
    it. With `menu`, the image has GRUB's menu, as `make iso` makes it.

    TAKT_SHAKE=N in the environment adds N lines of comment to the file. The image needs some time
    to read them, so all that happens after that comes some microseconds later (`make shake`).
    """
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "test.cfg")
    with open(path, "w", encoding="ascii") as f:
        f.write(config + "# a line that takes time\n" * int(os.environ.get("TAKT_SHAKE", "0")))
    command = [os.path.join(ROOT, "tools", "mkiso.sh"), os.path.join(directory, "takt.iso"), path,
               "--cmdline", cmdline]
    if hv:
        command += ["--hv", hv]
    if not checked:
        command += ["--unchecked"]
    if menu:
        command += ["--menu"]
    for name, text in (modules or {}).items():
        file = os.path.join(directory, name)
        with open(file, "w", encoding="ascii") as f:
            f.write(text)
        command += ["--module", f"{name}={file}"]
    subprocess.run(command, cwd=ROOT, check=True)
    return command[1]


def place(name):
    return os.path.join(BUILD, "results", "system", name)


def linux_place(name, *args, **kwargs):
    """Returns the directory of a test with a Linux VM, which has the kernel and the RAM disk that
    linuxguest.make() makes of the other arguments. If they cannot be made, the test is skipped."""
    directory = place(name)
    os.makedirs(directory, exist_ok=True)
    try:
        files = linuxguest.make(*args, **kwargs)
    except sentence.Problem as why:
        pytest.skip(str(why))
    for path in files:
        link = os.path.join(directory, os.path.basename(path))
        if not os.path.lexists(link):
            os.symlink(path, link)
    return directory


def until(what, seconds=15):
    """Asks again and again until what() is true, for `seconds` at most."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not so after {seconds} s"
        time.sleep(0.2)


SCRIPTED = "[hypervisor]\ntop = no\nguest_console = log\nnoreboot = no\nscript = script\n"


def vm(name, image, memory="4M", **keys):
    """Returns a VM's section of a VM file."""
    return f"\n[vm {name}]\nimage = {image}\nmemory = {memory}\n" + "".join(
        f"{k} = {v}\n" for k, v in keys.items()
    )


# A driver domain on a pCPU of its own, with the network card of Machine(nic=...).
IODOM = "\n[pool io]\ncpus = 1\n" + vm("iodom", "iodom", "12M", pool="io", pci="00:03.0",
                                       unsafe_dma="yes")


class Boot:
    """A boot that a script (the VM file's `script = script`), text or lines, drives to its end.

        .serial     all that came over COM1
        .log        the same without the escape sequences for the terminal
        .answers    what its commands answered, in their order:
                    [{"id", "command", "error", "result" or "message"}]
        .results    {tag: result} of the commands with -j=tag that did not fail
    """

    def __init__(self, name, config, script, platform, timeout=None, **machine):
        self.directory = place(f"{name}-{platform}")
        text = script if isinstance(script, str) else "\n".join(script) + "\n"
        iso = make_iso(self.directory, config, modules={"script": text})
        with Machine(platform, iso, directory=self.directory, **machine) as m:
            how, code = m.wait(timeout=timeout or (600 if platform == "bochs" else 90))
            self.serial = m.serial()
        self.log = re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", self.serial)
        # 0: a reset; 3: a panic; negative: a signal ended QEMU
        off = how == "ended" and (platform == "bochs" or code == 1)
        assert off, f"{how}, code {code}: see {self.directory}/serial.txt\n{self.log[-3000:]}"
        self.answers = [json.loads(m[1]) for m in re.finditer("\x1e(\\{.*\\})\n", self.serial)]
        self.results = {a["id"]: a["result"] for a in self.answers if not a["error"]}

    def said(self, what):
        """Returns every match of a regular expression in the log."""
        return re.findall(what, self.log)


def workload(boot, name, run=0):
    """Returns {"took_us": n, "reads": n, ...}: what a VM with guest/workload.h printed at the end
    of its run-th life, which has to have ended with code 0."""
    assert len(boot.said(rf"{name}: ends with code 0\b")) > run, boot.log[-3000:]
    lives = [{}]
    for line in boot.said(rf"\] {name}: \w+: (.*=.*)"):
        values = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)}
        if values.keys() & lives[-1].keys():  # It says each thing once.
            lives.append({})
        lives[-1].update(values)
    return lives[run]


class Linked(taktctl.Takt):
    """taktctl on a socket that is connected already, as Bochs has it."""

    def _open(self, address):
        self.sock = address
        self.sock.setblocking(False)
        return self.sock.fileno()


class Takt:
    """An image that is driven through its console. On Bochs the run cannot be repeated bit for
    bit, because the commands come by the host's clock.

        with Takt("name", config) as takt:
            takt("list")            returns the command's JSON; if the command fails, raises
                                    CommandError with the shell's sentence
    """

    def __init__(self, name, config, cmdline="", platform="qemu", hv=None, **machine):
        directory = place(name)
        self.machine = Machine(platform, make_iso(directory, config, cmdline, hv=hv),
                               directory=directory, com1="socket", **machine)

    def __enter__(self):
        self.machine.start()
        try:
            if self.machine.listener:
                # QEMU keeps what goes through the socket, Bochs does not.
                log = open(self.machine.serial_path, "ab")
                self.link = Linked(self.machine.connect(), 60, log)
                self.link.run("version", timeout=120)
                return self
            how, _ = self.machine.wait(r"takt> ", 60)
            assert how == "matched", f"no shell: {how}\n{self.machine.serial()[-2000:]}"
            self.link = taktctl.Takt("unix:" + self.machine.socket_path)
        except BaseException:
            self.machine.stop()
            raise
        return self

    def __exit__(self, *_):
        self.link.close()
        self.machine.stop()

    def __call__(self, command, timeout=30):
        return self.link.run(command, timeout=timeout)

    def shares(self, seconds=2, warm_up=0.5):
        """Returns {"vm/vcpu": per cent of a pCPU}, measured over some seconds."""
        top = self(f"top -w {warm_up} -d {seconds}", timeout=30 + 4 * (seconds + warm_up))
        return {f"{v['vm']}/{v['vcpu']}": v["cpu_pct"] for v in top["vcpus"]}

    def serial(self):
        return self.machine.serial()
