"""`make pxe`: machines without a disk boot over the network, by BIOS and by UEFI. Either everything
comes by TFTP, or everything but GRUB comes by HTTP. The servers are QEMU's own for TFTP and
Python's for HTTP."""
import functools
import http.server
import os
import subprocess
import sys
import threading

import pytest

from conftest import ROOT
from machine import Machine
from system.takt import place

CONFIG = """[hypervisor]
script = s
guest_console = log
top = no

[vm hello]
image = hello
memory = 4M
"""
GRUB = {"bios": "boot/grub/i386-pc/core.0", "uefi": "boot/grub/x86_64-efi/core.efi"}
# an address in QEMU's network; what is sent there goes to a port of this host
SERVER = "10.0.2.100"


def make_tree(directory, *options):
    """Makes `make pxe` in `directory`. Returns the tree for the TFTP server."""
    os.makedirs(directory, exist_ok=True)
    config, script, tree = (os.path.join(directory, name) for name in ("pxe.cfg", "s", "pxe"))
    for path, text in ((config, CONFIG), (script, "@500ms list\n@700ms poweroff\n")):
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
    subprocess.run(["make", "-s", "pxe", f"PXE={tree}", f"VMS={config}", *options], cwd=ROOT,
                   check=True)
    return tree


def boot(directory, tree, firmware, *more):
    with Machine("qemu", None, directory=directory, uefi=firmware == "uefi",
                 tftp=(tree, GRUB[firmware], *more)) as m:
        how, code = m.wait(timeout=150)
        text = m.serial()
    assert (how, code) == ("ended", 1), f"{how}, {code}\n{text[-3000:]}"
    return text


@pytest.mark.long
@pytest.mark.parametrize("firmware", ["bios", "uefi"])
def test_all_by_tftp(firmware):
    directory = place(f"pxe-tftp-{firmware}")
    text = boot(directory, make_tree(directory), firmware)
    assert "hello from a VM of Takt" in text


# QEMU starts this for each connection, with the connection as its standard input and output.
RELAY = """import os, socket, sys, threading
server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def upstream():
    while data := os.read(0, 65536):
        server.sendall(data)
    server.shutdown(socket.SHUT_WR)
threading.Thread(target=upstream, daemon=True).start()
while data := server.recv(65536):
    os.write(1, data)
"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files, and remembers which."""

    def log_message(self, *unused):
        self.server.served.append(self.path)


@pytest.mark.long
@pytest.mark.parametrize("firmware", ["bios", "uefi"])
def test_the_rest_by_http(firmware):
    directory = place(f"pxe-http-{firmware}")
    tree = make_tree(directory, f"HTTP={SERVER}")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                         functools.partial(Handler, directory=tree)) as server:
        server.served = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            relay = os.path.join(directory, "relay.py")
            with open(relay, "w", encoding="ascii") as f:
                f.write(RELAY)
            command = f"{sys.executable} {relay} {server.server_port}"
            text = boot(directory, tree, firmware, f"guestfwd=tcp:{SERVER}:80-cmd:{command}")
        finally:
            server.shutdown()
    assert "hello from a VM of Takt" in text
    takt = "takt-efi.elf" if firmware == "uefi" else "takt.elf"
    assert {f"/boot/{name}" for name in (takt, "takt.cfg", "hello", "s")} <= set(
        server.served
    ), server.served
