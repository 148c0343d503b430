"""Finds out how an emulated machine ended, and keeps the evidence.

A machine whose hypervisor takes a triple fault is reset by its CPU: nothing more comes over the
serial line, and QEMU ends with exit code 0, as if a person had closed it. So every QEMU of
tools/machine.py writes a log of its own (`qemu.log`). An interactive one also stops before it ends
or is reset; Witness then looks for the reason. A reset that Takt asked for is carried out.
Otherwise Witness asks for the registers of all CPUs, appends them to that log, and lets QEMU go.
"""
import json
import os
import re
import signal
import socket
import threading
import time

TRIPLE_FAULT = "Triple fault"  # QEMU writes this line when a CPU resets the machine (-d cpu_reset)


def log_options(directory):
    """Options for a QEMU that logs resets, and accesses of the guest that its devices refuse."""
    return ["-d", "cpu_reset,guest_errors", "-D", os.path.join(directory, "qemu.log")]


class Witness(threading.Thread):
    """Waits for the end of an interactive QEMU, over QEMU's machine protocol (QMP).

    `process` is the QEMU, started with options(). `reason` is QEMU's word for why it shut down
    ("guest-reset", "host-qmp-quit" ...), None if it told none.
    """

    def __init__(self, directory, process):
        super().__init__(daemon=True)
        self.directory, self.process, self.reason = directory, process, None

    @staticmethod
    def options(directory):
        """Returns options with which QEMU stops at a shutdown and waits to be told to quit; run()
        tells it."""
        return ["-qmp", f"unix:{os.path.join(directory, 'qmp.sock')},server=on,wait=off",
                "-action", "shutdown=pause"]

    def connect(self):
        while self.process.poll() is None:
            s = socket.socket(socket.AF_UNIX)
            try:
                s.connect(os.path.join(self.directory, "qmp.sock"))
                return s
            except OSError:
                s.close()
                time.sleep(0.05)
        return None

    def keep_registers(self, text):
        with open(os.path.join(self.directory, "qemu.log"), "a", encoding="utf-8") as f:
            f.write("The CPUs when the machine ended:\n" + text)

    def talk(self, link, qmp):
        # This writes to the socket directly. Writing through `qmp` would lose the lines that `qmp`
        # has read ahead.
        def send(command, **arguments):
            link.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")

        send("qmp_capabilities")
        for line in qmp:
            message = json.loads(line)
            if message.get("event") == "SHUTDOWN":
                self.reason = message["data"]["reason"]
                if not message["data"]["guest"]:
                    return  # QEMU does not stop in these cases: the monitor's `quit`, a signal.
                if self.reason == "guest-reset" and not triple_fault(self.directory):
                    self.reason = None  # by `reboot`, or after a panic
                    send("set-action", reboot="reset")
                    send("system_reset")
                    continue
                send("human-monitor-command", **{"command-line": "info registers -a"})
            elif message.get("event") == "RESET":
                send("set-action", reboot="shutdown")
                send("cont")
            elif self.reason and isinstance(message.get("return"), str):
                self.keep_registers(message["return"])
                send("quit")
                # QEMU forgets a command if its sender hangs up before QEMU has come to it.
                for _ in qmp:
                    pass
                return

    def run(self):
        try:
            link = self.connect()
            if link:
                with link, link.makefile("r", encoding="utf-8") as qmp:
                    self.talk(link, qmp)
        except (OSError, ValueError, KeyError):
            pass
        # A QEMU that stopped for its shutdown and could not be told to quit would stay for ever.
        if self.reason:
            try:
                self.process.wait(5)
            except Exception:  # pylint: disable=broad-except
                self.process.terminate()


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def triple_fault(directory):
    """Returns whether a CPU reset the machine by a triple fault outside of all guests. A triple
    fault in a guest is an exit."""
    try:
        with open(os.path.join(directory, "qemu.log"), encoding="utf-8", errors="replace") as f:
            return any(line.startswith(TRIPLE_FAULT) for line in f)
    except OSError:
        return False


def sentence(directory, code, reason=None):
    """Returns the sentence for the person who ran the machine. `code` is QEMU's exit code, as
    subprocess has it; `reason` is Witness.reason."""
    if triple_fault(directory):
        return (
            "The hypervisor ended by a triple fault, so it could say nothing. Please report "
            "qemu.log (what QEMU "
            f"saw, the CPUs' registers) and serial.txt (what Takt had said), both in {directory}."
        )
    if code == 1 or (code == 0 and reason == "guest-shutdown"):
        return "Takt switched the machine off."
    if code == 3:
        return "Takt ended the machine because it could not go on: its last lines say why."
    if code < 0:
        return f"QEMU was ended by {signal_name(-code)}."
    if reason == "host-signal":
        return "QEMU was ended by a signal (SIGINT, SIGHUP or SIGTERM)."
    if code == 0 and reason == "guest-reset":
        return "Takt reset the machine."
    if code == 0:
        return "QEMU was closed (Ctrl-A x, or its monitor's `quit`)."
    return (
        f"QEMU ended with exit code {code}: emulator.log and qemu.log in {directory} may say why."
    )


BOCHS_SAYS = re.compile(r"Bochs is exiting with the following message:\n\[.{6}\] *(.*)")


def of_bochs(said):
    """Returns (exit code, sentence) for a Bochs that ended. `said` is what it wrote on its
    terminal."""
    found = BOCHS_SAYS.search(said)
    why = found[1] if found else "it did not say why"
    if "Shutdown port" in why:
        return 0, "Takt ended the machine: its last line says why."
    if why.startswith("Keyboard error"):
        return 0, ("Takt reset the machine. The firmware of Bochs does not start a second time, "
                   "so Bochs ended; QEMU (PLATFORM=qemu) restarts.")
    if "3rd" in why and "exception" in why:
        return (
            1,
            "The hypervisor ended by a triple fault, so it could say nothing. Please report it.",
        )
    return 1, f"Bochs ended by itself: {why}"
