"""guests/report.c: the store, the log and the results of guests reach a collector on the host,
through the driver domain and QEMU's network."""
import os
import re
import socket
import threading

import pytest

from machine import Machine
from system.takt import IODOM, make_iso, place

CONFIG = "[hypervisor]\ntop = no\nguest_console = log\nscript = s\n" + IODOM + """
[vm report]
image = report
memory = 8M
cmdline = ip=10.0.2.15/24 to=10.0.2.2 port={port} period_s=1
net = iodom
observer = {observer}

[vm spin]
image = spin
memory = 4M
"""
SCRIPT = "@1s store write /local/domain/3/data/result 42\n@60s poweroff\n"


class Collector:
    """A TCP server that keeps the lines that its connections bring, one connection after the
    other."""

    def __init__(self):
        self.lines, self.new, self.connections = [], threading.Condition(), 0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        # The pattern of a line after which it ends a connection, and how many lines had come then.
        self.hang_up_at, self.hung_up = None, 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                link, _ = self.server.accept()
            except OSError:
                return
            self.connections += 1
            with link, link.makefile("r", encoding="ascii", errors="replace") as f:
                try:
                    for line in f:
                        with self.new:
                            self.lines.append(line.rstrip("\n"))
                            last = self.hang_up_at and re.search(self.hang_up_at, line)
                            if last:
                                self.hang_up_at, self.hung_up = None, len(self.lines)
                            self.new.notify_all()
                        if last:
                            break
                except OSError:
                    pass

    def wait(self, pattern, seconds=150, after=0):
        """Waits until a matching line has come, with `after` other lines before it."""
        with self.new:
            assert self.new.wait_for(
                lambda: any(re.search(pattern, line) for line in self.lines[after:]), seconds
            ), f"no {pattern} in\n" + "\n".join(self.lines[-50:])

    def close(self):
        self.server.close()


@pytest.fixture
def collector():
    c = Collector()
    yield c
    c.close()


def boot(name, collector, observer="yes"):
    directory = place(f"report-{name}")
    os.makedirs(directory, exist_ok=True)
    iso = make_iso(directory, CONFIG.format(port=collector.port, observer=observer),
                   modules={"s": SCRIPT})
    return Machine("qemu", iso, directory=directory, nic={"qemu": "user"})


def test_what_a_collector_gets(collector):
    collector.hang_up_at = " end of this report"
    with boot("all", collector):
        collector.wait(r"^\d+ log \[ *\d+\.\d+\] .*boot took")
        collector.wait(r"^\d+ log \[.*spin: id 3")
        collector.wait(r"^\d+ /takt/host/counter/kicks \d+$")
        collector.wait(r"^\d+ /local/domain/3/name spin$")
        collector.wait(r"^\d+ /local/domain/3/data/result 42$")
        collector.wait(r"^\d+ /local/domain/3/cpu_ms [1-9]\d\d+$")
        collector.wait(r"^[5-9] end of this report$")
        # If the network was late, that may be the first report that came. Then it ended the
        # connection.
        collector.wait(r" end of this report$", after=collector.hung_up)
    logged = [line.split(" ", 2)[2] for line in collector.lines if re.match(r"\d+ log ", line)]
    # Each line comes once, although the connection was lost.
    assert len(logged) == len(set(logged)) > 20
    assert collector.connections > 1


@pytest.mark.long
def test_who_is_no_observer_sees_its_own_home(collector):
    with boot("own", collector, observer="no"):
        collector.wait(r"^\d+ /local/domain/2/name report$")
        collector.wait(r"^[3-9] end of this report")
    assert not [line for line in collector.lines if "/domain/3" in line or "/takt/host" in line
                or " log " in line]
