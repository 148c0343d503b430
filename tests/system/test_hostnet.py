"""The host's own programs talk to guests: tap device - e1000 - driver domain's bridge - virtio network device. On QEMU, where the
host has a tap device to give."""
import glob
import os
import re
import subprocess
import sys

import pytest
from hostnet import DEVICES, HostNet, Missing

from conftest import ROOT
from system.takt import Takt

CONFIG = """\
[hypervisor]
top = no
guest_console = log

[pool io]
cpus = 1

[vm iodom]
image = iodom
memory = 12M
pool = io
pci = 00:03.0
unsafe_dma = yes

[vm server]
image = iperf
memory = 8M
cmdline = ip={ip}/24 {words}
net = iodom {link}
"""


@pytest.fixture(scope="module")
def net():
    try:
        with HostNet() as n:
            yield n
    except Missing as why:
        pytest.skip(str(why))


def guest(net, name, words="", link="", **machine):
    """A machine whose server has number 2 of the network."""
    return Takt(f"hostnet-{name}", CONFIG.format(ip=net.guest(2), words=words, link=link), nic=net.nic, **machine)


def ping(net, n, *words):
    """(sent, received, mean round-trip time in ms) of the host's ping."""
    done = subprocess.run(["ping", "-n", "-q", *words, net.guest(n)], capture_output=True, text=True, timeout=60, check=False)
    counts = re.search(r"(\d+) packets transmitted, (\d+) received", done.stdout)
    mean = re.search(r"= [\d.]+/([\d.]+)/", done.stdout)
    assert counts, done.stdout + done.stderr
    return int(counts[1]), int(counts[2]), float(mean[1]) if mean else None


def test_ping(net):
    """Every request is answered, small ones and such as fill a frame, after what the emulated link takes: 5 ms up and 5 down."""
    with guest(net, "ping", link="delay=5ms"):
        ping(net, 2, "-c", "1", "-w", "10")  # until it is there
        for size in ("56", "1472"):
            sent, received, mean = ping(net, 2, "-c", "20", "-i", "0.05", "-s", size)
            assert sent == received == 20 and mean >= 10, (size, sent, received, mean)
        assert ping(net, 3, "-c", "2", "-i", "0.2", "-W", "1")[1] == 0  # nobody


def test_two_networks_at_a_time(net):
    """Each has a device and a network of its own."""
    with HostNet() as other:
        assert other.name != net.name and other.address != net.address
        assert owners().count(str(os.getpid())) == 2
    assert owners().count(str(os.getpid())) == 1


def owners():
    return [open(path, encoding="ascii").read().strip() for path in glob.glob(f"{DEVICES}/takt*/ifalias")]


def test_left_behind(net):
    """What a process leaves that was killed is taken away by the next."""
    killed = "import os, hostnet; hostnet.HostNet().__enter__(); print(os.getpid()); os.close(1); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-uc", killed], cwd=os.path.join(ROOT, "tools"), stdout=subprocess.PIPE, text=True,
                          check=False)
    assert done.stdout.strip().isdigit()
    with HostNet():
        assert done.stdout.strip() not in owners()


def test_missing():
    """One sentence, where there is no tap device."""
    script = "import hostnet; hostnet.TUN = '/dev/net/nothing'; raise SystemExit(hostnet.main())"
    done = subprocess.run([sys.executable, "-c", script], cwd=os.path.join(ROOT, "tools"), stdout=subprocess.PIPE, text=True,
                          check=False)
    assert done.returncode == 1
    assert done.stdout == "no tap device on this host: /dev/net/nothing is missing (modprobe tun; a container has to be given it)\n"
