"""A guest seen from outside: a core file of a VM, and gdb on a VM that runs. gdb itself reads both.
On Bochs (VT-x) and QEMU (AMD-V)."""
import re
import shutil
import subprocess
import threading

import pytest

import coredump
import gdbstub
from conftest import BUILD
from system.takt import Takt, taktctl, until, vm

pytestmark = pytest.mark.skipif(not shutil.which("gdb"), reason="there is no gdb here")

CONFIG = "[hypervisor]\ntop = no\n" + vm("busy", "busy") + vm("two", "busy", vcpus=2)
ELF = f"{BUILD}/guests/busy.elf"
SECONDS = 200  # of the host, for one gdb


@pytest.fixture(scope="module")
def takt(platform):
    with Takt(f"debug-{platform}", CONFIG, platform=platform) as running:
        until(lambda: [vm["state"] for vm in running("list")] == ["running"] * 2, 60)
        yield running


def gdb(*words):
    done = subprocess.run(["gdb", "-nx", "-batch", *words], check=False, capture_output=True,
                          text=True, timeout=SECONDS)
    return done.stdout + done.stderr


def debugged(takt, name, *commands):
    """Returns what gdb says to these commands while it is connected to the VM."""
    told, ready = [], threading.Event()

    def tell(sentence):
        told.append(sentence.rsplit(":", 1)[1])
        ready.set()

    takt.link.timeout = 30
    server = threading.Thread(target=gdbstub.serve, args=(takt.link.run, name, 0,
                                                          taktctl.CommandError, tell))
    server.start()
    assert ready.wait(30)
    words = [word for command in commands for word in ("-ex", command)]
    try:
        return gdb("-ex", "set remotetimeout 60", "-ex", f"target remote 127.0.0.1:{told[0]}",
                   *words, ELF)
    finally:
        server.join(60)
        assert not server.is_alive()


@pytest.mark.long_on("bochs")  # 4 MiB over a serial line
def test_core(takt, tmp_path):
    """The backtrace has the names of the guest's functions, from where it was to main()."""
    path = str(tmp_path / "core")
    takt.link.timeout = 30
    coredump.dump(takt.link.run, "busy", path)
    said = gdb("-ex", "bt", "-ex", "info threads", ELF, path)
    assert re.search(r"#\d .* main \(", said) and "LWP 1" in said, said
    assert takt("list busy")[0]["state"] == "running"


def test_breakpoint_and_steps(takt):
    """The VM stops where it was told to, makes two steps, and runs on when gdb has gone."""
    said = debugged(takt, "busy", "break time_ns", "continue", "bt", "print $rip", "stepi", "stepi",
                    "print $rip", "info threads", "delete", "detach")
    assert re.search(r"Breakpoint 1[.\d]*, time_ns", said), said
    assert re.search(r"#\d .* main \(", said)
    first, last = (int(at, 16) for at in re.findall(r"\$\d = .*?0x([0-9a-f]+)", said)[:2])
    assert first != last and last - first < 64
    assert takt("list busy")[0]["state"] == "running"
    assert takt("debug busy")["on"] is False


def test_threads(takt):
    """Each vCPU is a thread, and gdb makes one of them step while the other waits."""
    said = debugged(takt, "two", "thread 2", "print $rip", "stepi", "print $rip", "info threads",
                    "detach")
    assert "(vCPU 0 of two)" in said and "(vCPU 1 of two)" in said, said
    assert "Switching to thread 2" in said
    assert takt("list two")[0]["state"] == "running"


def test_a_guest_runs_on(takt):
    """After all that the guest still computes: its vCPU runs."""
    before = takt("vcpu-list busy")[0]["running_ns"]
    until(lambda: takt("vcpu-list busy")[0]["running_ns"] > before + 1_000_000, 60)
