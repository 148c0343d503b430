"""The host's web clients, curl and ab, get pages from a guest through a network card of the driver
domain. tshark judges what went over the wire. This runs on QEMU, if the host has a tap device to
give."""
import os
import re
import socket
import subprocess
import time

import pytest
from hostnet import HostNet, Missing

from system.takt import Takt, place, until, vm

pytestmark = pytest.mark.alone

CONFIG = "[hypervisor]\ntop = no\nguest_console = log\n\n[pool io]\ncpus = 1\n" + vm(
    "iodom", "iodom", "12M", pool="io", pci="00:03.0", unsafe_dma="yes")
CAPTURE = place("httpd") + "/frames.pcap"


def run(*words, timeout=180):
    done = subprocess.run(words, capture_output=True, timeout=timeout, check=False)
    assert done.returncode == 0, (words, done.stdout[-1000:], done.stderr[-1000:])
    return done.stdout


@pytest.fixture(scope="module")
def server():
    """Yields the address of a guest that serves pages. All frames between host and card go to
    CAPTURE."""
    try:
        with HostNet() as net:
            config = CONFIG + vm("web", "httpd", "8M",
                                 cmdline=f"ip={net.guest(2)}/24 name=Alice workers=5", net="iodom")
            os.makedirs(place("httpd"), exist_ok=True)
            dump = ["-object", f"filter-dump,id=dump,netdev=nic,file={CAPTURE}"]
            with Takt("httpd", config, nic=net.nic, extra=dump):
                until(
                    lambda: subprocess.run(
                        ["ping", "-c1", "-W1", net.guest(2)], capture_output=True, check=False
                    ).returncode
                    == 0
                )
                yield net.guest(2)
    except Missing as why:
        pytest.skip(str(why))


def page(size):
    return (b"0123456789" * (size // 10 + 1))[:size]


@pytest.mark.parametrize("size", [0, 1, 1460, 16381, 300_003])
def test_curl_gets_every_byte(server, size):
    assert run("curl", "-sSf", f"http://{server}/{size}") == page(size)


def test_curl_keeps_its_connection(server):
    """There is one connection for two pages. A HEAD gets an answer without its body, the front page
    names the VM, and other pages do not exist."""
    pages = [word for size in (1000, 20) for word in ("-o", "/dev/null", f"http://{server}/{size}")]
    made = run("curl", "-sSf", "-w", "%{num_connects},", *pages)
    assert made == b"1,0,"
    assert b"Content-Length: 5000\r\n" in run("curl", "-sSfI", f"http://{server}/5000")
    assert b"Alice" in run("curl", "-sSf", f"http://{server}/")
    assert run("curl", "-s", "-w", "%{http_code}", "-o", "/dev/null",
               f"http://{server}/nothing") == b"404"


def test_ab(server):
    """200 requests come over four connections that stay open. Beside them, one connection reads
    nothing, and one never ends its request."""
    with socket.create_connection((server, 80), 10) as greedy, socket.create_connection(
        (server, 80), 10
    ) as slow:
        greedy.sendall(b"GET /100000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        slow.sendall(b"GET / HT")
        report = run("ab", "-q", "-n", "200", "-c", "3", "-k", f"http://{server}/10000",
                     timeout=120).decode()
    number = {k.strip(): int(v) for k, v in re.findall(r"^([A-Z][\w\s-]+):\s+(\d+)", report, re.M)}
    assert (
        number["Complete requests"] == number["Keep-Alive requests"] == 200
        and number["Failed requests"] == 0
    ), report
    assert number["HTML transferred"] == 200 * 10000 and "Non-2xx" not in report, report


def test_no_malformed_segment(server):
    """tshark finds nothing malformed in what the server sent, and every checksum is right. What the
    host sent is not looked at: Linux writes 0xffff where a TCP checksum is 0, and tshark calls that
    a fault."""
    for _ in range(6):  # A server that was started anew for this test has traffic, too.
        run("curl", "-sSf", "-o", "/dev/null", f"http://{server}/300003")
    size = 0
    # A reader in the middle of a frame would find it cut short.
    while size != os.path.getsize(CAPTURE):
        size = os.path.getsize(CAPTURE)
        time.sleep(0.5)
    sums = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-o",
            "udp.check_checksum:TRUE"]
    tshark = ["tshark", "-n", "-r", CAPTURE, *sums]
    bad = ("_ws.malformed || tcp.checksum.status == Bad || ip.checksum.status == Bad || "
           "tcp.segment.error")
    segments = run(*tshark, "-Y", f"tcp && ip.src == {server}").splitlines()
    assert len(segments) > 1000 and run(*tshark, "-Y", "tcp.checksum.status == Unverified") == b""
    assert run(*tshark, "-Y", f"ip.src == {server} && ({bad})") == b""
