"""The machines of tools/machine.py themselves."""
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import ROOT

import lastwords
import machine
import sentence

ABORTS = """#!/bin/sh
echo '00000000000i[PLUGIN] loaded plugin libbx_speaker.so'
echo '*** buffer overflow detected ***: terminated' >&2
kill -ABRT $$
"""


@pytest.fixture
def dying_bochs(tmp_path, monkeypatch):
    """A Bochs that ends as Bochs 2.7 did on machines without a sound card."""
    path = tmp_path / "bin" / "bochs"
    path.parent.mkdir()
    path.write_text(ABORTS)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


def assert_told(sentence):
    words = "*** buffer overflow detected ***: terminated"
    assert f"Bochs was ended by SIGABRT; its last words: {words} (see " in sentence, sentence
    assert "libbx_speaker" not in sentence and "Traceback" not in sentence, sentence


def test_a_dead_emulator_is_told_by_its_last_words(dying_bochs, tmp_path):
    with pytest.raises(machine.Died) as told:
        machine.Machine("bochs", tmp_path / "no.iso", directory=str(tmp_path)).start()
    assert_told(str(told.value))


@pytest.mark.parametrize("words",
                         [["tools/machine.py", "run", "--platform", "bochs", "boot/demo.cfg"],
                                   ["tools/machine.py", "check", "--platform", "bochs"]])
def test_a_command_tells_of_it_in_a_sentence(dying_bochs, words):
    """Any file will do for an image, because it is never read."""
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True,
                          check=False,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert_told(done.stderr)


def test_tests_are_not_begun_with_a_dead_emulator(dying_bochs):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--platform",
               "bochs", "tests/guest"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "no test was run, as bochs does not work here" in done.stdout + done.stderr
    assert_told(done.stdout + done.stderr)


def test_emulators_live_long_enough_to_look_for_a_disk(platform, tmp_path):
    machine.check(platform, str(tmp_path))


HOLDER = """
import sys, time, machine
m = machine.Machine("qemu", sys.argv[1] + "/empty.iso", directory=sys.argv[1])
print(m.start().process.pid, flush=True)
time.sleep(60)
"""


def test_no_emulator_outlives_the_program_that_started_it(tmp_path):
    (tmp_path / "empty.iso").write_bytes(bytes(1 << 20))
    with subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE,
                          text=True, cwd=os.path.join(ROOT, "tools")) as program:
        emulator = int(program.stdout.readline())
        time.sleep(1)
        assert os.path.exists(f"/proc/{emulator}")
        program.kill()
    for _ in range(100):
        if not os.path.exists(f"/proc/{emulator}"):
            return
        time.sleep(0.1)
    os.kill(emulator, signal.SIGKILL)
    pytest.fail("the emulator goes on")


def test_bochs_leaves_the_sound_card_alone(tmp_path):
    machine.check("bochs", str(tmp_path))
    with open(tmp_path / "bochs.log", encoding="utf-8", errors="replace") as log:
        drivers = {line.rpartition("libbx_sound")[2].strip() for line in log
                   if "libbx_sound" in line}
    assert drivers == {"dummy.so"}


@pytest.mark.bochs
def test_bochs_has_its_display_when_the_next_one_starts(tmp_path):
    iso = tmp_path / "empty.iso"
    iso.write_bytes(bytes(1 << 20))
    machines = [
        machine.Machine("bochs", iso, cpus=1, memory=32, directory=str(tmp_path / str(n)))
        for n in range(4)
    ]

    def displays(m):
        with m:
            with open(m.dir + "/bochs.log", encoding="utf-8", errors="replace") as log:
                return log.read().count("listening for connections on port")

    with ThreadPoolExecutor(len(machines)) as pool:
        assert list(pool.map(displays, machines)) == [1] * len(machines)


@pytest.mark.parametrize("code, reason, log, words", [
    (1, "guest-shutdown", "", "Takt switched the machine off"),
    (3, None, "", "its last lines say why"),
    (0, "guest-reset", "CPU Reset (CPU 0)\n", "Takt reset the machine"),
    (0, "guest-reset", "CPU Reset (CPU 0)\nTriple fault\n", "by a triple fault"),
    (0, "host-qmp-quit", "", "QEMU was closed"),
    (0, "host-signal", "", "by a signal"),
    (-9, None, "", "by SIGKILL"),
    (134, None, "", "exit code 134"),
    (1, None, None, "Takt switched the machine off"),  # a QEMU that wrote no log
])
def test_the_end_of_a_machine_in_a_sentence(tmp_path, code, reason, log, words):
    if log is not None:
        (tmp_path / "qemu.log").write_text(log)
    said = lastwords.sentence(str(tmp_path), code, reason)
    assert words in said and said.endswith("."), said
    assert lastwords.triple_fault(str(tmp_path)) == ("triple" in words)


@pytest.mark.parametrize("message, code, words", [
    ("[UNMAP ] Shutdown port: shutdown requested", 0, "Takt ended the machine"),
    ("[BIOS  ] Keyboard error:21", 0, "Takt reset the machine"),
    ("[CPU0  ] exception(): 3rd (13) exception with no resolution", 1, "by a triple fault"),
    ("[CDROM ] image is gone", 1, "Bochs ended by itself: image is gone"),
])
def test_the_end_of_bochs_in_a_sentence(message, code, words):
    got, told = lastwords.of_bochs(
        f"=====\nBochs is exiting with the following message:\n{message}\n=====\n"
    )
    assert got == code and words in told, told


def test_a_test_whose_machine_takes_a_triple_fault_is_told(tmp_path):
    m = machine.Machine("qemu", tmp_path / "no.iso", directory=str(tmp_path))
    (tmp_path / "serial.txt").write_text("what Takt said")
    (tmp_path / "qemu.log").write_text("Triple fault\n")
    m.process = subprocess.Popen(["true"])
    m.process.wait()
    with pytest.raises(machine.Died, match="by a triple fault"):
        m.wait()


class FakeQemu:
    """The end of a QEMU as Witness sees it: its QMP socket, and a process that ends when it is told
    to quit."""

    def __init__(self, directory, guest, answers):
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(directory / "qmp.sock"))
        self.server.listen()
        self.guest, self.answers, self.asked, self.ended = guest, answers, [], threading.Event()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with self.server.accept()[0] as link, link.makefile("r") as commands:
            link.sendall(b'{"QMP": {}}\n')
            for line in commands:
                self.asked.append(json.loads(line)["execute"])
                if not self.answer(link):
                    break
        if not self.guest:
            self.ended.set()

    def answer(self, link):
        """Answers what was asked last. Returns False if it says no more."""
        said, asked = [{"return": {}}], self.asked[-1]
        if asked == "qmp_capabilities":
            reason = "guest-reset" if self.guest else "host-signal"
            said.append({"event": "SHUTDOWN", "data": {"guest": self.guest, "reason": reason}})
        elif not self.answers:
            return False
        elif asked == "quit":
            link.settimeout(0.2)
            try:
                hung_up = not link.recv(1)  # Then QEMU forgets the command.
            except TimeoutError:
                hung_up = False
            if not hung_up:
                self.ended.set()
            return False
        elif asked == "system_reset":
            said.append({"event": "RESET", "data": {}})
        elif asked == "human-monitor-command":
            said = [{"return": "RIP=0000000000001234"}]
        link.sendall("".join(json.dumps(x) + "\n" for x in said).encode())
        # This is as if the machine had been ended from outside, which is not what is tested.
        return asked != "cont"

    def poll(self):
        return 0 if self.ended.is_set() else None

    def wait(self, timeout):
        if not self.ended.wait(0.2 if not self.answers else timeout):
            raise TimeoutError

    def terminate(self):
        self.asked.append("terminate")
        self.ended.set()


def witnessed(directory, guest=True, answers=True):
    qemu = FakeQemu(directory, guest, answers)
    witness = lastwords.Witness(str(directory), qemu)
    witness.start()
    witness.join(20)
    assert not witness.is_alive()
    return qemu, witness


def test_registers_are_kept_before_qemu_is_let_go(tmp_path):
    (tmp_path / "qemu.log").write_text("Triple fault\n")
    qemu, witness = witnessed(tmp_path)
    assert qemu.asked == ["qmp_capabilities", "human-monitor-command", "quit"]
    assert qemu.ended.is_set(), "Witness hung up before QEMU had come to quit"
    assert witness.reason == "guest-reset"
    assert "RIP=0000000000001234" in (tmp_path / "qemu.log").read_text()


def test_a_machine_that_takt_resets_goes_on(tmp_path):
    (tmp_path / "qemu.log").write_text("CPU Reset (CPU 0)\n")
    qemu, witness = witnessed(tmp_path)
    assert qemu.asked == ["qmp_capabilities", "set-action", "system_reset", "set-action", "cont"]
    assert witness.reason is None


def test_a_qemu_that_does_not_answer_is_ended(tmp_path):
    (tmp_path / "qemu.log").write_text("Triple fault\n")
    qemu, _ = witnessed(tmp_path, answers=False)
    assert qemu.asked[-1] == "terminate"


def test_a_qemu_that_ends_by_itself_is_left_alone(tmp_path):
    qemu, witness = witnessed(tmp_path, guest=False)
    assert qemu.asked == ["qmp_capabilities"] and witness.reason == "host-signal"


def test_kvm_remaps_interrupts_only_outside_the_kernel(tmp_path):
    """QEMU refuses to start with KVM's own IOAPIC and an IOMMU that remaps interrupts."""
    def accelerator(**more):
        command = machine.Machine(
            "kvm", tmp_path / "no.iso", directory=str(tmp_path), **more
        ).qemu_command()
        # Otherwise there is no CPUID leaf 40000010h.
        assert command[command.index("-cpu") + 1] == "host,migratable=off"
        return command[command.index("-accel") + 1]

    assert accelerator() == "kvm"
    assert accelerator(iommu=machine.IOMMU) == "kvm,kernel-irqchip=split"


def test_the_format_of_a_disk_image(tmp_path):
    """The image's name tells its format, and not its first bytes, which a guest may have written. A
    comma in the name is for QEMU."""
    for name, kind in (("a,b.img", "raw"), ("c.qcow2", "qcow2")):
        path = tmp_path / name
        path.write_bytes(b"QFI\xfb\0\0\0\3")
        words = machine.nvme(str(path))[1].split(",", 4)
        assert f"format={kind}" in words
        assert words[-1] == f"file={tmp_path}/{name}".replace(",", ",,")
    with pytest.raises(sentence.Problem, match="none.img cannot be read: No such file"):
        machine.nvme(str(tmp_path / "none.img"))
