"""taktctl against a peer that behaves like the shell on a bad day."""
import importlib.machinery
import importlib.util
import io
import json
import os
import pty
import re
import socket
import subprocess
import sys
import threading
import tty

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAKTCTL = os.path.join(ROOT, "tools", "taktctl")
spec = importlib.util.spec_from_loader("taktctl",
                                       importlib.machinery.SourceFileLoader("taktctl", TAKTCTL))
taktctl = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
spec.loader.exec_module(taktctl)


class Peer(threading.Thread):
    """Listens at a UNIX socket. `answer(tag, line)` returns the bytes to send for a line, or None
    to hang up."""

    def __init__(self, path, answer):
        super().__init__(daemon=True)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen(1)
        self.answer, self.lines, self.raw = answer, [], b""
        self.start()

    def run(self):
        begun = b""
        while True:
            try:
                peer, _ = self.server.accept()
            except OSError:
                return
            with peer:
                try:
                    begun = self.serve(peer, begun)
                except ConnectionError:
                    begun = b""

    def serve(self, peer, begun):
        """Returns the line that was begun, because the shell keeps it when a connection is lost."""
        while data := peer.recv(4096):
            self.raw += data
            peer.sendall(data)  # This is the echo.
            begun += data
            if b"\x03" in begun:  # ^C drops the line.
                begun = begun[begun.rfind(b"\x03") + 1:]
                peer.sendall(b"^C\r\ntakt> ")
            while b"\r" in begun:
                line, _, begun = begun.partition(b"\r")
                line = line.decode()
                self.lines.append(line)
                tag = re.search(r"-j=(\w+)", line)
                reply = self.answer(tag and tag[1], line)
                if reply is None:
                    return begun
                for i in range(0, len(reply), 7):  # The reply comes in pieces that end anywhere.
                    peer.sendall(reply[i:i + 7])
        return begun


def envelope(tag, result=None, **more):
    return (
        b"\x1e"
        + json.dumps({"id": tag, "command": "x", "error": 0, "result": result, **more}).encode()
        + b"\n"
    )


@pytest.fixture
def peer(tmp_path):
    made = []

    def make(answer):
        made.append(Peer(str(tmp_path / "console"), answer))
        return made[0], f"unix:{tmp_path}/console"

    yield make
    for p in made:
        p.server.close()


def test_result_amid_noise(peer):
    def answer(tag, line):
        return (b"\r\n[    1.234567] vm1: a line of the log\r\n\x1e{\"id\": \"cut sho" + b"\n"
                + envelope("999x1", "stale")
                + b"\x1b[K" + envelope(tag, [1, {"a": "b"}]) + b"takt> ")

    p, address = peer(answer)
    with taktctl.Takt(address, 5) as takt:
        assert takt.run("list -x") == [1, {"a": "b"}]
        assert takt.run("vcpu-pin", "a vm", "0", "all") == [1, {"a": "b"}]
    assert p.raw.startswith(b"\x1d\x03")
    assert re.fullmatch(r"list -j=\w+ -x", p.lines[0])
    assert re.fullmatch(r'vcpu-pin -j=\w+ "a vm" 0 all', p.lines[1])
    assert p.lines[0].split()[1] != p.lines[1].split()[1]


def test_nothing_is_typed_without_a_prompt(tmp_path):
    """A boot loader may read the line. It takes letters and Enter for keys of its own."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "grub"))
        server.listen(1)
        with taktctl.Takt(f"unix:{tmp_path}/grub", 0.3) as takt:
            grub, _ = server.accept()
            with grub:
                grub.sendall(b"GNU GRUB  version 2.06")
                with pytest.raises(taktctl.ConsoleError,
                                   match="shows no prompt, so nothing was typed"):
                    takt.run("metrics")
                assert grub.recv(4096) == b"\x1d\x03"
                grub.sendall(b"\r\ntakt> ")
                with pytest.raises(taktctl.ConsoleError, match="no answer in time"):
                    takt.run("info")
                assert re.fullmatch(rb"(\x1d\x03)+info -j=\w+\r", grub.recv(4096))


def test_output_does_not_wait_for_the_next_command(peer):
    """What the machine prints while a program waits is taken in, however much that is."""
    much = 1 << 20  # more than the socket holds
    _, address = peer(lambda tag, line: envelope(tag) + b"takt> " + bytes(much))
    log = io.BytesIO()
    with taktctl.Takt(address, 5, log) as takt:
        takt.run("list")
        for _ in range(60):
            if log.getvalue().count(0) < much:
                takt.listen(1)
        assert log.getvalue().count(0) == much


def test_error_is_told(peer):
    _, address = peer(lambda tag, line: envelope(tag, None, error=-2, message="there is no VM x"))
    with taktctl.Takt(address, 5) as takt, pytest.raises(taktctl.CommandError,
                                                         match="there is no VM x") as e:
        takt.run("pause x")
    assert e.value.error == -2


def test_timeout_then_late_answer_is_not_taken(peer):
    tags = []

    def answer(tag, line):
        tags.append(tag)
        if len(tags) == 1:
            # The answer is cut, and its rest never comes.
            return b"\x1e{\"id\": \"" + tag.encode() + b"\", "
        return b"\n" + envelope(tags[0], "late") + envelope(tag, "right")

    _, address = peer(answer)
    with taktctl.Takt(address, 5) as takt:
        with pytest.raises(taktctl.ConsoleError, match="no answer"):
            takt.run("info", timeout=0.3)
        assert takt.run("info") == "right"


def test_connection_lost_mid_command(peer):
    calls = []

    def answer(tag, line):
        calls.append(line)
        return None if len(calls) == 1 else envelope(tag, "ok")

    _, address = peer(answer)
    with taktctl.Takt(address, 5) as takt, pytest.raises(taktctl.ConsoleError):
        takt.run("destroy vm1")
    with taktctl.Takt(address, 5) as takt:
        assert takt.run("info") == "ok"
    assert len(calls) == 2  # A command is never sent twice.


def test_half_typed_line_of_somebody_is_dropped(peer):
    p, address = peer(lambda tag, line: envelope(tag, "ok"))
    dead = socket.socket(socket.AF_UNIX)
    dead.connect(address[5:])
    dead.sendall(b"destroy ")
    dead.recv(8)
    dead.close()
    with taktctl.Takt(address, 5) as takt:
        assert takt.run("info") == "ok"
    assert [line.split()[0] for line in p.lines] == ["info"]


def test_what_the_shell_cannot_read_is_refused(peer):
    p, address = peer(lambda tag, line: envelope(tag))
    with taktctl.Takt(address, 5) as takt:
        for words in (["list", "a\nb"], ["list", "x" * 256], ["list", "\x1e"], ["list", "'\""],
                      ["list", "ä"]):
            with pytest.raises(ValueError):
                takt.run(*words)
    assert p.lines == []


def test_pty(tmp_path):
    ours, theirs = pty.openpty()
    tty.setraw(theirs)

    def shell():
        got = b""
        while b"\x03" not in got:
            got += os.read(ours, 100)
        os.write(ours, b"^C\r\ntakt> ")
        while b"\r" not in got:
            got += os.read(ours, 100)
        os.write(ours, envelope(re.search(rb"-j=(\w+)", got)[1].decode(), 42))

    threading.Thread(target=shell, daemon=True).start()
    log = io.BytesIO()
    with taktctl.Takt(os.ttyname(theirs), 5, log) as takt:
        assert takt.run("info") == 42
    assert b"42" in log.getvalue()


def command_line(address, *words, stdin=""):
    return subprocess.run([sys.executable, TAKTCTL, "-t", "3", "-s", address, *words], input=stdin,
                          capture_output=True, text=True,
                          check=False)


def test_command_line(peer, tmp_path):
    _, address = peer(lambda tag, line: envelope(tag, error=-22, message="no") if "bad" in line
                      else envelope(tag, line.split()[0]))
    done = command_line(address, "list", "-x")
    assert (done.returncode, done.stdout) == (0, '"list"\n')
    done = command_line(address, "-", stdin="list\n\ninfo\n")
    assert (done.returncode, done.stdout) == (0, '"list"\n"info"\n')
    done = command_line(address, "bad")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no\n")
    assert command_line(f"unix:{tmp_path}/nobody", "list").returncode == 3
    assert command_line(address).returncode == 2


TOP = {"seconds": 1.0, "pcpus": [{"cpu": 0}],
       "vcpus": [{"vm": "a,b", "vcpu": 0, "wake_us": {"p50": 1.5, "p99": 2}},
                                                       {"vm": "c", "vcpu": 1,
                                                        "wake_us": {"p50": 3, "p99": 4}}]}


def run_taktctl(address, *words):
    return subprocess.run([sys.executable, TAKTCTL, "-s", address, *words], capture_output=True,
                          text=True, timeout=30, check=False)


def test_csv(peer):
    """There is one heading, however often the command is run. The values of an object have names of
    their own."""
    p, address = peer(lambda tag, line: envelope(tag, TOP))
    done = run_taktctl(address, "--csv", "-n", "2", "top", "-d", "1")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(p.lines) == 2 and p.lines[0].endswith(" -d 1"), done.stderr
    assert lines[0] == "time,vm,vcpu,wake_us.p50,wake_us.p99" and len(lines) == 5
    assert [re.sub(r"^\d+\.\d{3},", "", line) for line in lines[1:3]] == [
        '"a,b",0,1.5,2',
        "c,1,3,4",
    ]


def test_csv_of_what_is_no_table(peer):
    _, address = peer(lambda tag, line: envelope(tag, "text"))
    done = run_taktctl(address, "--csv", "x")
    assert (done.returncode, done.stdout) == (2, "") and "is no table" in done.stderr


def test_metrics_that_cannot_be_had(peer):
    """An older image, or one that is going down, gives a sentence, and nothing that looks like
    metrics."""
    _, address = peer(lambda tag,
                      line: envelope(tag, None, error=-2, message="there is no command info"))
    done = run_taktctl(address, "metrics")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "there is no command info\n")


def test_json_is_asked_for_once(peer):
    """A second -j would replace the tag by which the answer is recognized, and taktctl would wait
    for ever."""
    p, address = peer(lambda tag, line: envelope(tag, line.count("-j")))
    assert run_taktctl(address, "top", "-j", "-w", "1", "-j=mine", "-d", "2").stdout == "1\n"
    assert re.fullmatch(r"top -j=\w+ -w 1 -d 2", p.lines[0])


def test_metrics_takes_no_arguments(peer):
    p, address = peer(lambda tag, line: envelope(tag))
    done = run_taktctl(address, "metrics", "extra")
    assert (done.returncode, done.stdout) == (2, "") and "metrics takes no arguments" in done.stderr
    assert p.raw == b""


def test_help_of_taktctl_itself():
    said = subprocess.run([sys.executable, TAKTCTL, "--help"], capture_output=True, text=True,
                          check=True).stdout
    for words in ("unix:PATH, tcp:HOST:PORT", "how long to wait", "so many times", "as CSV",
                  "taktctl metrics"):
        assert words in " ".join(said.split()), said


def on_a_terminal(address, *words):
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, TAKTCTL, "-t", "3", "-s", address, *words],
                          stdout=theirs, check=False)
    os.write(theirs, b"END")  # so that there is something to read
    said = b""
    while not said.endswith(b"END"):
        said += os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0
    return said.decode().replace("\r", "")[:-3]


def test_a_person_reads_text(peer):
    results = {"help": [{"name": "trace", "usage": "start|stop", "help": "records\nstart  begins"}],
               "pause": None, "info": {"cpus": 2}}
    _, address = peer(lambda tag, line: envelope(tag, results[line.split()[0]]))
    assert on_a_terminal(address, "help", "trace") == "trace start|stop\nrecords\nstart  begins\n"
    assert on_a_terminal(address, "pause", "x") == ""
    assert on_a_terminal(address, "info") == '{\n  "cpus": 2\n}\n'
    assert run_taktctl(address, "pause", "x").stdout == "null\n"  # A program reads JSON.
