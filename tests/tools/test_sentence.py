"""tools/sentence.py: a tool that cannot do its work says so in one sentence, not in a traceback."""
import glob
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from conftest import ROOT

import sentence

TOOLS = sorted(p for p in glob.glob(os.path.join(ROOT, "tools", "*"))
               if os.path.isfile(p) and open(p, "rb").read(2) == b"#!"
               and b"python" in open(p, "rb").readline())
OWN = "import sys; sys.path.insert(0, 'tools'); import sentence, socket, subprocess\n"


def tool(*words, **more):
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True,
                          check=False, stdin=subprocess.DEVNULL, timeout=60, **more)


def assert_one_sentence(done, what, code=1):
    assert done.returncode == code, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and re.search(what, done.stderr), done.stderr


def test_every_tool_ends_with_it():
    assert len(TOOLS) > 15
    for path in TOOLS:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        if '__name__ == "__main__"' in text:
            assert text.rstrip().endswith("sentence.run(main)"), path


READERS = [("trace-picture.py", ["{}", "out.png"]), ("trace2json.py", ["{}"]),
           ("trace2xen.py", ["{}"]), ("event-times.py", ["{}"]), ("replay.py", ["{}"])]


@pytest.mark.parametrize("name, words", READERS)
def test_a_file_that_is_not_there_or_not_a_trace(name, words, tmp_path):
    noise = tmp_path / "noise"
    noise.write_bytes(os.urandom(5000))
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    for path, why in ((tmp_path / "none", "none: No such file"),
                      (tmp_path, f"{tmp_path.name}: Is a directory"),
                      (noise, "noise is not a trace: no frame of a trace stream in it"),
                      (empty, "empty is not a trace")):
        done = tool(os.path.join("tools", name), *(w.format(path) for w in words))
        assert_one_sentence(done, f"^{name[:-3]}: .*{why}")


def test_a_vm_file_that_is_not_there():
    done = tool("tools/entitlement.py", "/nonexistent.cfg")
    assert done.returncode == 2
    assert done.stderr == "cfgdump: /nonexistent.cfg cannot be read: No such file or directory\n"


def test_an_image_that_is_not_there():
    done = tool("tools/machine.py", "run", "--platform", "qemu", "/nonexistent.iso")
    assert_one_sentence(done,
                        "machine: /nonexistent.iso: there is no such image: `make iso` makes one")


def test_a_qemu_that_does_not_start(tmp_path):
    """QEMU then ends with 1, as it does when Takt switches the machine off."""
    (tmp_path / "empty.iso").write_bytes(b"")
    done = tool("tools/machine.py", "run", "--platform", "qemu", "--dir", str(tmp_path / "run"),
                "--com2", f"unix:{tmp_path}/none/socket", str(tmp_path / "empty.iso"))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "switched the machine off" not in done.stdout + done.stderr
    assert (
        f"machine: QEMU did not start: its own words are above, its command is in {tmp_path}/run/"
        in done.stderr
    ), done.stderr


def test_a_module_that_this_python_lacks(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('as in a Python not of apt')\n")
    trace = tmp_path / "trace"
    subprocess.run(["make", "-s", "build/unit/stream_dump"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    with open(trace, "wb") as f:
        subprocess.run([os.path.join(ROOT, "build/unit/stream_dump")], input=bytes(32), stdout=f,
                       check=True)
    done = tool("tools/trace-picture.py", str(trace), "out.png",
                env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert_one_sentence(done, f"needs the Python module matplotlib, which {sys.executable} "
                        "does not have: install python3-matplotlib with apt "
                        "and start this program with /usr/bin/python3")


@pytest.mark.parametrize("body, what", [
    ("subprocess.run(['no-such-program'], check=True)",
     "no-such-program: there is no such file, or no such prog"),
    ("subprocess.run(['sh', '-c', 'exit 3'], check=True)", "^-c: sh failed with exit status 3$"),
    ("subprocess.run(['sh', '-c', 'kill -9 $$'], check=True)", "^-c: sh was ended by signal 9$"),
    ("subprocess.run(['sh', '-c', 'echo odd >&2; exit 1'], check=True, capture_output=True)",
     "exit status 1: odd$"),
    ("raise sentence.Problem('it is late')", "^-c: it is late$"),
    ("socket.create_connection(('127.0.0.1', 1), 5)", "Connection refused"),
])
def test_what_a_person_can_mend(body, what):
    assert_one_sentence(tool("-c", OWN + f"def main():\n    {body}\nsentence.run(main)"), what)


def test_a_mistake_of_the_tool_itself_keeps_its_traceback():
    done = tool("-c", OWN + "def main():\n    return {}['key']\nsentence.run(main)")
    assert done.returncode == 1 and "Traceback" in done.stderr and "KeyError" in done.stderr


def test_exit_status():
    assert tool("-c", OWN + "sentence.run(lambda: 5)").returncode == 5
    assert tool("-c", OWN + "sentence.run(lambda: None)").returncode == 0


def test_who_reads_the_output_has_enough():
    body = f"{OWN}\ndef main():\n    for i in range(100000): print(i)\nsentence.run(main)"
    shell = f"{sys.executable} -c \"{body}\" | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", shell], cwd=ROOT, capture_output=True,
                          text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (sentence.BROKEN_PIPE, "0\n", "")


def test_interrupted(tmp_path):
    """Ctrl-C comes while the tool waits for an answer that does not come."""
    path = str(tmp_path / "console")
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(1)
    process = subprocess.Popen([sys.executable, "tools/taktctl", "-t", "60", "-s", f"unix:{path}",
                                "list"], cwd=ROOT, stderr=subprocess.PIPE, text=True,
                               # Where tests run in the background, Ctrl-C is ignored.
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    peer, _ = server.accept()
    peer.recv(100)
    time.sleep(0.3)  # The command is on its way, or sent.
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (sentence.INTERRUPTED, "\ntaktctl: interrupted\n")
    peer.close()
    server.close()
