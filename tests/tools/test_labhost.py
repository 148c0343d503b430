"""tools/labhost against a server that is a model: a Redfish BMC, a console on a TCP port, and
behind it a shell. The shell answers as Takt's does, and panics, restarts or falls silent when a
script asks for that."""
import base64
import fcntl
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

import pytest

from conftest import ROOT

BOOT_TIME = 0.3  # seconds from power-on until the model's shell is there


class Server:
    """The model. Tests look at `on`, `boots` and `commands` (all that was typed, without info)."""

    def __init__(self):
        self.on, self.booted, self.boots, self.commands = False, 0.0, 0, []
        self.link = self.silent = None
        # Seconds for which a new connection carries nothing, as with serial over LAN.
        self.opening = 0.0
        self.open_from = 0.0
        self.tricks = []  # what the next "trick" commands do: panic, restart, silence, hang up
        self.requests = []
        self.top = {}  # what `top` answers
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()
        model = self

        class Bmc(http.server.BaseHTTPRequestHandler):
            def answer(self, value=None, code=200):
                text = json.dumps(value).encode() if value is not None else b""
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):
                if base64.b64decode(self.headers["Authorization"].split()[1]) != b"admin:secret":
                    self.answer({}, 401)
                elif self.path == "/redfish/v1/Systems":
                    self.answer({"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]})
                else:
                    self.answer({"PowerState": "On" if model.on else "Off"})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                model.requests.append((self.path, body))
                if self.path.endswith("ComputerSystem.Reset"):
                    model.power(body["ResetType"])
                self.answer(code=204)

            do_PATCH = do_POST

            def log_message(self, *unused):
                pass

        self.bmc = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bmc)
        threading.Thread(target=self.bmc.serve_forever, daemon=True).start()

    def close(self):
        self.bmc.shutdown()
        self.bmc.server_close()
        self.listener.close()
        self.hang_up()

    def hang_up(self):
        if self.link:
            self.link.close()

    def say(self, text):
        if time.monotonic() < self.open_from:
            return
        try:
            self.link.sendall(text.encode())
        except (OSError, AttributeError):
            pass  # Nothing listens.

    def power(self, what):
        self.on = what != "ForceOff"
        if self.on:
            self.start()

    def start(self):
        self.booted, self.silent = time.time() + BOOT_TIME, False
        self.boots += 1
        self.say("\r\n[    0.000000] Takt, a small hypervisor\r\n")

    def serve(self):
        while True:
            try:
                self.link, _ = self.listener.accept()
            except OSError:
                return
            buffer, self.open_from = b"", time.monotonic() + self.opening
            try:
                while data := self.link.recv(1000):
                    if b"\x03" in data and self.hears():
                        self.say("\r\ntakt> ")
                    buffer += data.replace(b"\x1d\x03", b"")
                    while b"\r" in buffer:
                        line, _, buffer = buffer.partition(b"\r")
                        self.typed(line.decode())
            except OSError:
                pass

    def hears(self):
        return self.on and not self.silent and time.time() >= self.booted

    def typed(self, line):
        if not self.hears():
            return
        tag = re.search(r"-j=(\S+)", line)[1]
        command = line.replace(f" -j={tag}", "")
        if command != "info":
            self.commands.append(command)
        answer = {"id": tag, "command": command, "error": 0, "result": {"said": command}}
        if command == "info":
            answer["result"] = {"uptime_s": time.time() - self.booted}
        elif command == "dmesg":
            answer["result"] = [{"line": "[    0.000000] Takt, a small hypervisor"},
                                {"line": "[    1.000000] a: 7 packets"}]
        elif command.startswith("top "):
            answer["result"] = self.top
        elif command == "crash":
            answer["result"] = [{"line": "its last words"}]
        elif command.startswith("bad"):
            answer = {"id": tag, "command": command, "error": -2, "message": "no VM is called x"}
        elif command == "trick" and self.tricks:
            trick = self.tricks.pop(0)
            if trick.startswith("say "):
                self.say(f"\x1e{json.dumps(answer)}\n")
                threading.Timer(0.3, self.say, [trick[4:] + "\r\n"]).start()
                return
            if trick == "hang up":
                self.hang_up()
                return
            if trick == "panic":
                self.say("[    9.000000] PANIC on CPU 0: a test\r\n")
            if trick != "silence":
                self.start()
            if trick == "panic":
                self.booted += 3  # The panic can be read before the restart.
            self.silent = trick == "silence"
            return
        self.say(f"\x1e{json.dumps(answer)}\n")


class Lab:
    def __init__(self, directory, server):
        self.directory, self.server, self.out = directory, server, directory / "out"
        self.boot_timeout, self.extra = 10, ""

    def start(self, *words):
        (self.directory / "pw").write_text("secret\n")
        (self.directory / "lab.ini").write_text(
            f"[rack1]\npower = redfish\nbmc = http://127.0.0.1:{self.server.bmc.server_port}\n"
            "user = admin\n"
            f"password_file = {self.directory}/pw\nserial = tcp:127.0.0.1:{self.server.port}\n"
            f"boot_timeout = {self.boot_timeout}\n{self.extra}"
        )
        return subprocess.Popen([sys.executable, os.path.join(ROOT, "tools", "labhost"), "-c",
                                 str(self.directory / "lab.ini"), *words], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def call(self, *words):
        """Returns (exit status, standard output, standard error)."""
        tool = self.start(*words)
        said, wrong = tool.communicate(timeout=60)
        return tool.returncode, said, wrong

    def script(self, text):
        (self.directory / "script").write_text(text)
        return ["rack1", "run", str(self.directory / "script"), "--out", str(self.out)]

    def run(self, text, *more):
        return self.call(*self.script(text), *more)

    def stopped_at(self, words, what):
        """Starts labhost, and kills it when it has printed `what`. Returns all that it had
        printed."""
        tool, said = self.start(*words), ""
        for line in tool.stdout:
            said += line
            if what in line:
                tool.kill()
                break
        tool.communicate()
        assert what in said, said
        return said

    def results(self):
        return [json.loads(line) for line in (self.out / "results.jsonl").read_text().splitlines()]

    def verdict(self):
        return json.loads((self.out / "verdict.json").read_text())


@pytest.fixture
def lab(tmp_path):
    server = Server()
    yield Lab(tmp_path, server)
    server.close()


def test_power(lab):
    assert lab.call("rack1", "power", "status") == (0, "off\n", "")
    assert lab.call("rack1", "power", "on")[0] == 0
    assert lab.call("rack1", "power", "status")[1] == "on\n"
    lab.call("rack1", "power", "off")
    assert not lab.server.on


def test_a_script_passes(lab):
    lab.extra = "bootdev = pxe\n"
    code, said, wrong = lab.run("# first\n@boot\nlist\n\n@sleep 0.1\nsched-credit -d a -w 512\n")
    assert (code, wrong) == (0, "") and said.endswith("pass\n")
    assert lab.server.commands == ["list", "sched-credit -d a -w 512"]
    assert [(r["line"], r["result"]["said"]) for r in lab.results()] == [
        (3, "list"),
        (6, "sched-credit -d a -w 512"),
    ]
    assert lab.verdict()["verdict"] == "pass" and lab.verdict()["boots"] == 1
    assert ("/redfish/v1/Systems/1",
            {"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}}) \
        in lab.server.requests
    assert "Takt, a small hypervisor" in (lab.out / "console.log").read_text()
    assert lab.run("# first\n@boot\nlist\n\n@sleep 0.1\nsched-credit -d a -w 512\n")[0] == 0
    assert lab.server.boots == 1  # There is a verdict already.


def test_a_console_that_opens_slowly(lab):
    """Serial over LAN takes seconds to open. A program that opened it anew each second would never
    receive anything."""
    lab.server.opening = 3
    code, _, wrong = lab.run("@boot\nlist\n")
    assert (code, wrong) == (0, "")


@pytest.mark.parametrize("line, why", [
    ("bad command", ":3: bad command: no VM is called x"),
    ("@until 0.3 RESULT: .*", ":3: the console did not say"),
    ("@never small hyper\n@sleep 0.1\nlist", None),
])
def test_a_script_fails(lab, line, why):
    code, said, _ = lab.run(f"@boot\nlist\n{line}\n")
    assert lab.server.boots == 1
    if why:
        assert code == 1 and why in said and lab.verdict()["verdict"] == "fail"
    else:
        assert code == 0  # It was printed before the shell came.


def test_what_is_to_come_and_what_never(lab):
    lab.server.tricks = ["say RESULT: SUCCESS"]
    assert lab.run("@boot\ntrick\n@until 20 RESULT: \\w+\nlist\n")[0] == 0
    lab.out = lab.directory / "out2"
    lab.server.tricks = ["say RESULT: FAILURE"]
    code, said, _ = lab.run("@boot\n@never RESULT: FAIL\\w*\ntrick\n@sleep 2\nlist\n")
    assert code == 1 and 'the console said "RESULT: FAILURE"' in said


def test_a_panic_fails_and_its_last_words_are_kept(lab):
    lab.server.tricks = ["panic"]
    code, said, _ = lab.run("@boot\ntrick\nlist\n")
    assert code == 1 and 'the console said "PANIC on CPU"' in said
    assert json.loads((lab.out / "crash-1.json").read_text()) == [{"line": "its last words"}]
    assert "list" not in lab.server.commands


@pytest.mark.long
def test_a_restart_is_forgiven_once(lab):
    lab.server.tricks = ["restart"]
    script = "@boot\nlist\n@timeout 2\ntrick\nvcpu-list\n"
    assert lab.run(script)[0] == 0
    assert lab.server.commands == ["list", "trick", "crash", "list", "trick", "vcpu-list"]
    assert lab.verdict()["restarts"] == 1 and (lab.out / "crash-1.json").exists()
    lab.out = lab.directory / "out2"
    lab.server.tricks = ["restart"]
    code, said, _ = lab.run(script, "--retries", "0")
    assert code == 1 and ":4: the machine restarted by itself" in said


@pytest.mark.long
def test_only_from_the_last_boot(lab):
    lab.server.tricks = ["restart"]
    assert lab.run("@boot\nlist\n@boot\n@timeout 2\ntrick\n")[0] == 0
    assert lab.server.commands == ["list", "trick", "crash", "trick"]


@pytest.mark.long
def test_a_lost_console_begins_anew(lab):
    lab.server.tricks = ["hang up"]
    assert lab.run("@boot\nlist\ntrick\n")[0] == 0
    assert lab.server.commands == ["list", "trick", "list", "trick"]
    assert lab.server.boots == 2


def test_it_goes_on_where_it_was_stopped(lab):
    words = lab.script("@boot\nlist\n@never oops\n@sleep 1000\nvcpu-list\n")
    lab.stopped_at(words, "@sleep")
    assert lab.server.commands == ["list"]
    state = json.loads((lab.out / "state.json").read_text())
    assert state["step"] == 3
    state["step"] = 4  # The 1000 seconds are over.
    (lab.out / "state.json").write_text(json.dumps(state))
    assert lab.call(*words)[0] == 0
    assert lab.server.commands == ["list", "vcpu-list"] and lab.server.boots == 1


@pytest.mark.long
def test_after_a_stop_a_new_session_is_not_gone_on_with(lab):
    words = lab.script("@boot\nlist\n@sleep 1000\n")
    lab.stopped_at(words, "@sleep")
    time.sleep(2.5)  # Two boots that are less than this apart cannot be told apart.
    lab.server.start()
    time.sleep(2 * BOOT_TIME)  # Its shell answers.
    said = lab.stopped_at(words, "@sleep")
    assert "not in the session of before any more" in said
    assert lab.server.commands == ["list", "list"] and lab.server.boots == 3


def test_an_answer_with_the_log_is_no_restart(lab):
    assert lab.run("@boot\ndmesg\nlist\n")[0] == 0
    assert lab.server.boots == 1


def installs(lab, command):
    """Gives the lab a way to install VM files, and the test two of them."""
    for name in ("a", "b"):
        (lab.directory / f"{name}.cfg").write_text(f"# {name}\n")
    lab.extra = f"install = {command}\n"


def test_a_vm_file_is_installed_before_the_boot(lab):
    installs(lab, f'cat "$VMS" >> {lab.directory}/installed')
    assert lab.run("@install a.cfg\n@boot\nlist\n@install b.cfg\n@boot\nvcpu-list\n")[0] == 0
    assert (lab.directory / "installed").read_text() == "# a\n# b\n"
    assert lab.server.commands == ["list", "vcpu-list"] and lab.server.boots == 2


def test_an_install_that_fails(lab):
    code, _, wrong = lab.run("@install a.cfg\n@boot\n")
    assert code == 3 and "[rack1] has no install, so it cannot be given a.cfg" in wrong
    lab.out = lab.directory / "out2"
    installs(lab, "echo no room >&2; false")
    code, said, _ = lab.run("@install a.cfg\n@boot\n")
    assert code == 1 and ":1: install failed with exit status 1: no room" in said
    assert lab.server.boots == 0


@pytest.mark.long
def test_after_a_restart_the_vm_file_is_installed_again(lab):
    installs(lab, f'cat "$VMS" >> {lab.directory}/installed')
    lab.server.tricks = ["restart"]
    assert lab.run("@install a.cfg\n@boot\n@install b.cfg\n@boot\n@timeout 2\ntrick\n")[0] == 0
    assert (lab.directory / "installed").read_text() == "# a\n# b\n# b\n"


def hold(lab, name):
    """Returns the open file of a lock, as another run holds it."""
    lock = open(lab.directory / f"lab.ini.{name}.lock", "wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def test_a_machine_has_one_run_at_a_time(lab):
    with hold(lab, "rack1"):
        code, _, wrong = lab.run("@boot\n")
    assert code == 3 and "another run has rack1" in wrong and lab.server.boots == 0


def test_any_is_a_machine_that_is_free_and_can_be_reached(lab):
    """[rack2] has no BMC, [rack3] is in use, and so is [rack1] at first."""
    lab.extra = ("[rack2]\npower = redfish\nbmc = http://127.0.0.1:1\nuser = admin\n"
                 f"password_file = {lab.directory}/pw\nserial = tcp:127.0.0.1:1\n"
                 "[rack3]\npower = command\nserial = tcp:127.0.0.1:1\n")
    words = ["any", *lab.script("@boot\nlist\n")[1:]]
    with hold(lab, "rack3"):
        with hold(lab, "rack1"):
            tool = lab.start(*words)
            assert any("all machines" in line for line in tool.stdout)
        _, wrong = tool.communicate(timeout=60)
    assert tool.returncode == 0 and "rack2 is left out" in wrong
    assert lab.verdict()["machine"] == "rack1" and lab.server.boots == 1


def test_another_script_is_refused(lab):
    assert lab.run("@boot\nlist\n")[0] == 0
    code, _, wrong = lab.run("@boot\nvcpu-list\n")
    assert code == 2 and "holds a run of another script" in wrong


@pytest.mark.parametrize("text, why", [
    ("list\n", ":1: expected @boot as the first step"),
    ("@boot\n@sleep\n", ":2: @sleep takes 1 argument"),
    ("@boot\n@sleep soon\n", ":2: could not convert"),
    ("@boot\n@until 5\n", ":2: @until takes 2 arguments"),
    ("@boot\n@until 5 (\n", ":2: missing )"),
    ("@boot\n@poweroff\n", ":2: expected one of @install @boot @sleep"),
    ("@install\n@boot\n", ":1: @install takes 1 argument"),
    ("@install a.cfg\nlist\n@boot\n", ":1: expected @boot as the first step, or @install"),
    ("@boot\n@install a.cfg\nlist\n", ":2: expected @boot after @install"),
    ("@boot\n@install a.cfg\n", ":2: expected @boot after @install"),
])
def test_scripts_that_are_none(lab, text, why):
    code, _, wrong = lab.run(text)
    assert code == 2 and why in wrong, wrong
    assert lab.server.boots == 0


@pytest.mark.long
def test_no_shell_and_no_bmc(lab):
    lab.boot_timeout = 2
    # Closing it would let the waiting accept() take one more connection.
    lab.server.listener.shutdown(socket.SHUT_RDWR)
    code, said, _ = lab.run("@boot\nlist\n")
    assert code == 1 and "no shell of Takt 2 s after power-on" in said
    lab.server.bmc.shutdown()
    lab.server.bmc.server_close()
    lab.out = lab.directory / "out2"
    code, _, wrong = lab.run("@boot\nlist\n")
    assert code == 3 and "Connection refused" in wrong and not (lab.out / "verdict.json").exists()


@pytest.mark.parametrize("text, why", [
    ("", "has no machine [rack1]"),
    ("[rack1]\npower = steam\n", "power: expected ipmi, redfish, command or qemu, not steam"),
    ("[rack1]\npower = ipmi\nserial = sol\nbmc = x\n", "user is missing"),
    ("[rack1]\npower = command\n", "serial is missing"),
    ("[rack1]\npower = command\nserial = tcp:x:1\nbootdev = tape\n",
     "bootdev: expected pxe, disk or cdrom, not tape"),
])
def test_labs_that_are_none(tmp_path, text, why):
    (tmp_path / "lab.ini").write_text(text)
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "labhost"), "-c",
                           str(tmp_path / "lab.ini"), "rack1",
                           "power", "status"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and why in done.stderr


def test_power_by_commands(tmp_path):
    (tmp_path / "lab.ini").write_text(
        f"[desk]\npower = command\nserial = tcp:x:1\npower_status = cat {tmp_path}/state\n"
        f"power_on = echo on > {tmp_path}/state\npower_off = false\n"
    )
    tool = [sys.executable, os.path.join(ROOT, "tools", "labhost"), "-c", str(tmp_path / "lab.ini"),
            "desk", "power"]
    assert subprocess.run([*tool, "on"], check=False).returncode == 0
    assert (
        subprocess.run([*tool, "status"], capture_output=True, text=True, check=False).stdout
        == "on\n"
    )
    done = subprocess.run([*tool, "off"], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "power_off failed with exit status 1" in done.stderr
    done = subprocess.run([*tool, "cycle"], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "has no power_cycle" in done.stderr
