#!/usr/bin/env python3
"""make store-demo: guests, the operator and XenStore's own clients on the host see one tree.

Boots boot/store.cfg in QEMU, takes the machine's second serial port as a UNIX socket
(tools/takt-store), and runs Debian's xenstore-* and Python's pyxs against it, unmodified, while
commands are typed into the shell. Each line printed is one thing that has to hold; exits 0 only if
all of them hold.
"""
import importlib.machinery
import importlib.util
import os
import signal
import subprocess
import sys
import time

import machine
import sentence

CONFIG = os.path.join(machine.ROOT, "boot", "store.cfg")
PATIENCE = 15  # in seconds, for what happens in the machine


def load(name):
    """Returns a tool whose file name has no .py, as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"),
                                                  os.path.join(machine.ROOT, "tools", name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Demo:
    def __init__(self, m, shell, socket):
        self.machine, self.shell, self.failed = m, shell, 0
        self.env = {**os.environ, "XENSTORED_PATH": socket}

    def hold(self, what, true):
        print(f"{'ok    ' if true else 'FAILED'}  {what}", flush=True)
        self.failed += not true

    def xs(self, *command):
        """Returns the output of one of xenstore-utils, or None if it fails."""
        done = subprocess.run(command, env=self.env, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, timeout=PATIENCE,
                              check=False)
        return done.stdout if done.returncode == 0 else None

    def said(self, what):
        return self.machine.wait(what, PATIENCE)[0] == "matched"

    def until(self, what):
        end = time.monotonic() + PATIENCE
        while not what():
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def watch(self, path):
        return subprocess.Popen(["xenstore-watch", path], env=self.env, stdout=subprocess.PIPE,
                                text=True)

    # ---- the checks ----

    def guests(self):
        self.shell.run("store", "write", "/local/domain/1/data/key", "hello")
        self.hold("the operator writes a key, and the guest that watches it sees: hello",
                  self.said("one: storewatch: data/key = hello"))
        self.xs("xenstore-write", "/local/domain/2/data/key", "from the host")
        self.hold("xenstore-write, and the other guest sees: from the host",
                  self.said("two: storewatch: data/key = from the host"))
        self.hold("a guest that asks for micro-slices beyond its ceiling is refused",
                  "request/micro_us: refused" in
                  self.machine.serial())

    def tree(self):
        out = self.xs("xenstore-ls", "/local/domain/1") or ""
        print("".join(f"            {line}\n" for line in out.splitlines()), end="")
        self.hold("xenstore-ls shows the home of VM 1",
                  'name = "one"' in out and 'weight = "256"' in out)
        self.hold("xenstore-read reads its name",
                  self.xs("xenstore-read", "/local/domain/1/name") == "one\n")
        self.xs("xenstore-write", "/demo/a", "1", "/demo/b", "2")
        self.hold("xenstore-write and xenstore-list", self.xs("xenstore-list", "/demo") == "a\nb\n")
        self.hold("xenstore-rm", self.xs("xenstore-rm", "/demo") is not None
                  and self.xs("xenstore-exists", "/demo") is None)

    def scheduler(self):
        weight = "/local/domain/1/sched/weight"
        with self.watch(weight) as watcher:
            first = watcher.stdout.readline()
            self.shell.run("sched-credit", "-d", "one", "-w", "300")
            self.hold("xenstore-watch hears that the shell set a weight",
                      first == watcher.stdout.readline() == weight + "\n")
            watcher.terminate()
        self.hold("xenstore-read reads it", self.xs("xenstore-read", weight) == "300\n")
        self.xs("xenstore-write", weight, "700")
        credit = {vm["name"]: vm for vm in self.shell.run("sched-credit")}
        self.hold("xenstore-write sets a weight, and the scheduler has it",
                  credit["one"]["weight"] == 700)
        refused = self.xs("xenstore-write", weight, "70000") is None
        self.hold("a weight of 70000 is refused, and the old one stays",
                  refused and self.xs("xenstore-read", weight) == "700\n")
        self.xs("xenstore-write", "/takt/host/pool/0/tslice_us", "3000")
        self.hold("the slice of a pool",
                  self.shell.run("sched-credit", "-s")[0]["tslice_us"] == 3000)
        self.xs("xenstore-write", "/local/domain/2/sched/pool", "fast")
        self.hold(
            "the pool of a VM",
            self.until(
                lambda: {v["name"]: v for v in self.shell.run("sched-credit")}["two"]["pool"]
                == "fast"
            ),
        )
        self.xs("xenstore-write", "/local/domain/1/ceiling/micro_us", "1000")
        self.hold("a ceiling",
                  self.xs("xenstore-read", "/local/domain/1/ceiling/micro_us") == "1000\n")

    def pyxs(self):
        import pyxs  # pylint: disable=import-outside-toplevel

        with pyxs.Client(unix_socket_path=self.env["XENSTORED_PATH"]) as c:
            self.hold("pyxs lists VMs", c.list(b"/local/domain") == [b"1", b"2"])
            monitor = c.monitor()
            monitor.watch(b"/demo", b"token")
            events = monitor.wait()
            first = next(events)
            c.write(b"/demo/x", b"y")
            self.hold("pyxs watches",
                      first == (b"/demo", b"token") and next(events) == (b"/demo/x", b"token"))
            c.transaction()
            c.write(b"/demo/x", b"z")
            self.hold("pyxs commits a transaction", c.commit() and c.read(b"/demo/x") == b"z")

    def life(self):
        self.shell.run("destroy", "two")
        self.hold("a VM's home goes with it",
                  self.until(lambda: self.xs("xenstore-list", "/local/domain") == "1\n"))


def main():
    # so that the machine ends when this program does
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = os.path.join(machine.BUILD, "run", "store-demo")
    os.makedirs(directory, exist_ok=True)
    iso, com2, socket = (os.path.join(directory, name) for name in ("store.iso", "com2.sock",
                                                                    "xenstored.sock"))
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso, CONFIG], cwd=machine.ROOT,
                   check=True)
    with machine.Machine("qemu", iso, directory=directory, com1="socket", com2="unix:" + com2) as m:
        how, _ = m.wait("two: id .* runs", 60)
        if how != "matched":
            sys.exit(f"store-demo: the VMs do not run: {how}; see {directory}")
        proxy = subprocess.Popen([os.path.join(machine.ROOT, "tools", "takt-store"), "-s",
                                  "unix:" + com2, "--socket", socket])
        try:
            with load("taktctl").Takt("unix:" + m.socket_path) as shell:
                demo = Demo(m, shell, socket)
                if not demo.until(lambda: demo.xs("xenstore-exists", "/takt") is not None):
                    sys.exit("store-demo: the store does not answer")
                for part in (demo.guests, demo.tree, demo.scheduler, demo.pyxs, demo.life):
                    part()
        finally:
            proxy.terminate()
            proxy.wait()
    print("all of it held" if not demo.failed
          else f"{sentence.count(demo.failed, 'thing')} did not hold")
    return demo.failed > 0


if __name__ == "__main__":
    sentence.run(main)
