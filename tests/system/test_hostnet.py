"""The host's own ping and iperf (version 2) talk to guests, through a tap device, an e1000, the
driver domain's bridge and a virtio network device. This runs on QEMU, if the host has a tap device
to give."""
import glob
import os
import re
import shutil
import subprocess
import sys

import clients
import pytest
from hostnet import DEVICES, HostNet, Missing
from machine import Machine

from conftest import ROOT
from system.takt import IODOM, make_iso, place

pytestmark = pytest.mark.alone

CONFIG = "[hypervisor]\ntop = no\nguest_console = log\nscript = net.script\n" + IODOM + """
[vm server]
image = iperf
memory = 8M
cmdline = ip={ip}/24 {words}
net = iodom {link}

[vm client]
image = iperf
memory = 8M
cmdline = ip={client}/24 to={host} {words}
net = iodom
start = no
"""


@pytest.fixture(scope="module")
def net():
    try:
        with HostNet() as n:
            yield n
    except Missing as why:
        pytest.skip(str(why))


def guest(net, name, words="", link="", script="", extra=()):
    """Starts a machine whose server has number 2 of the network, and waits until it is there."""
    directory = place(f"hostnet-{name}")
    config = CONFIG.format(ip=net.guest(2), client=net.guest(3), host=net.address, words=words,
                           link=link)
    iso = make_iso(directory, config, modules={"net.script": script + "@10m list\n"})
    return Machine("qemu", iso, directory=directory, nic=net.nic, extra=extra)


def test_ping(net):
    """Every request is answered, small ones and those that fill a frame. The answer comes after the
    time that the emulated link takes: 5 ms up and 5 ms down."""
    with guest(net, "ping", link="delay=5ms"):
        clients.until_answered(net.guest(2))
        for size in ("56", "1472"):
            said = clients.ping(net.guest(2), "-c", "20", "-i", "0.05", "-s", size)
            assert said["requests"] == said["answers"] == 20 and said["rtt_ms"][0] >= 10, said
        # No machine has this address.
        assert clients.ping(net.guest(9), "-c", "2", "-i", "0.2", "-W", "1")["answers"] == 0


def told(machine, kind):
    """Returns what the server prints about the next connection: [bytes] or [bytes, lost, sent]."""
    how, said = machine.wait(
        rf"server: iperf: {kind} (\d+) bytes in \d+ ns, .*?(?: (\d+) of (\d+) datagrams.*|end 0)\n",
        20,
    )
    assert how == "matched", machine.serial()[-2000:]
    return [int(n) for n in said.groups() if n]


def test_iperf_as_server(net):
    """The clients come one after the other, and then two at once. Each client of UDP gets the
    report on its datagrams."""
    with guest(net, "server") as machine:
        clients.until_answered(net.guest(2))
        for _ in range(3):
            sent = clients.iperf_tcp(net.guest(2), "-n", "500000")["bytes"]
            assert abs(told(machine, "tcp")[0] - sent) <= 128
        for _ in range(3):
            said = clients.iperf_udp(net.guest(2), "-b", "1M", "-t", "0.5")
            assert (
                said["bytes"] == 1470 * (said["sent"] - said["lost"]) > 50000 and said["lost"] < 3
            ), said
            assert told(machine, "udp") == [said["bytes"], said["lost"], said["sent"]]
        both = clients.run(["iperf", "-f", "b", "-c", net.guest(2), "-n", "200000", "-P", "2"], 30)
        assert all(abs(told(machine, "tcp")[0] - 200000) <= 128 for _ in range(2)), both
        assert len(clients.intervals(both)) >= 2, both


@pytest.mark.long
def test_iperf_udp_with_losses(net):
    """Three of ten datagrams are lost. So are some last datagrams and some reports: the client asks
    again until it has a report, which is the same as the first one."""
    with guest(net, "losses", link="loss=30% seed=3") as machine:
        clients.until_answered(net.guest(2))
        for _ in range(5):
            said = clients.iperf_udp(net.guest(2), "-b", "2M", "-t", "0.5")
            assert said["sent"] > 80 and 0.1 < said["lost"] / said["sent"] < 0.5, said
            assert told(machine, "udp") == [said["bytes"], said["lost"], said["sent"]]


@pytest.mark.parametrize("kind", ("tcp", pytest.param("udp", marks=pytest.mark.long)))
def test_iperf_as_client(net, kind):
    """The host's server understands the guest's client, and the client understands the server's
    report."""
    words = "tcp=500000" if kind == "tcp" else "udp_ms=500 udp_rate=2000000"
    server = subprocess.Popen(["iperf", "-s", "-f", "b", "-B", net.address,
                               *(["-u"] if kind == "udp" else [])], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        with guest(net, f"client-{kind}", words, script="@2s create client\n") as machine:
            how, code = machine.wait(r"client: ends with code (\d+)", 40)
            text = machine.serial()
    finally:
        server.terminate()
        heard = server.communicate(timeout=10)[0]
    assert how == "matched" and code[1] == "0", text[-2000:]
    last = clients.intervals(heard)[-1]
    if kind == "tcp":
        assert abs(last["bytes"] - 500000) <= 128, heard
    else:
        sent = 1 + int(re.search(r"client: iperf: udp (\d+) datagrams of 1470 bytes", text)[1])
        said = re.search(
            r"client: iperf: the server says (\d+) bytes in \d+ ns, (\d+) of (\d+) datagrams lost",
            text,
        )
        assert [last["bytes"], last["lost"], last["sent"]] == [int(n) for n in said.groups()], heard
        assert last["sent"] == sent, heard  # Datagrams that were sent before ARP's answer are lost.


BAD = " || ".join(["_ws.malformed",
                   *(f'{p}.checksum.status == "Bad"' for p in ("ip", "icmp", "tcp", "udp"))])


def frames(capture, which):
    """Returns the frames of that kind that tshark sees. tshark verifies every checksum."""
    checks = [w for p in ("ip", "tcp", "udp") for w in ("-o", f"{p}.check_checksum:TRUE")]
    done = subprocess.run(["tshark", "-n", "-r", capture, *checks, "-Y", which],
                          capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is missing (tools/deps.sh clients)")
def test_nothing_is_malformed(net):
    """This looks at what QEMU has seen at the network card, of ping, TCP and UDP. The reports of
    the server are among it, and tshark would notice a frame that was spoilt."""
    capture = os.path.join(place("hostnet-capture"), "card.pcap")
    with guest(net, "capture",
               extra=["-object", f"filter-dump,id=capture,netdev=nic,file={capture}"]):
        clients.until_answered(net.guest(2))
        clients.ping(net.guest(2), "-c", "10", "-i", "0.05", "-s", "1000")
        clients.iperf_tcp(net.guest(2), "-n", "300000")
        clients.iperf_udp(net.guest(2), "-b", "2M", "-t", "0.5")
    server = f"ip.src == {net.guest(2)}"
    assert (
        len(frames(capture, f"tcp && {server}")) > 20
        and len(frames(capture, f"icmp && {server}")) >= 10
    )
    assert (
        len(frames(capture, f"udp && {server}")) >= 1
        and len(frames(capture, f"tcp && ip.dst == {net.guest(2)}")) > 200
    )
    assert not frames(capture, f"{server} && ({BAD})")  # Linux sends 0xffff for a TCP checksum of 0
    with open(capture, "rb") as f:
        spoilt = bytearray(f.read())
    spoilt[-1] ^= 1  # It is the last frame, a report.
    with open(capture + ".spoilt", "wb") as f:
        f.write(spoilt)
    assert len(frames(capture + ".spoilt", f"{server} && ({BAD})")) == 1


def test_two_networks_at_a_time(net):
    """Each network has a device and addresses of its own."""
    with HostNet() as other:
        assert other.name != net.name and other.address != net.address
        assert owners().count(str(os.getpid())) == 2
    assert owners().count(str(os.getpid())) == 1


def owners():
    """Returns the processes whose devices exist. Devices of others come and go."""
    found = []
    for path in glob.glob(f"{DEVICES}/takt*/ifalias"):
        try:
            with open(path, encoding="ascii") as f:
                found.append(f.read().strip())
        except OSError:
            pass
    return found


def test_left_behind(net):
    """What a killed process leaves behind is removed by the next one."""
    killed = ("import os, hostnet; hostnet.HostNet().__enter__(); print(os.getpid()); "
              "os.close(1); os.kill(os.getpid(), 9)")
    done = subprocess.run([sys.executable, "-uc", killed], cwd=os.path.join(ROOT, "tools"),
                          stdout=subprocess.PIPE, text=True,
                          check=False)
    assert done.stdout.strip().isdigit()
    with HostNet():
        assert done.stdout.strip() not in owners()


def test_missing():
    """There is one sentence where there is no tap device."""
    script = "import hostnet; hostnet.TUN = '/dev/net/nothing'; raise SystemExit(hostnet.main())"
    done = subprocess.run([sys.executable, "-c", script], cwd=os.path.join(ROOT, "tools"),
                          stdout=subprocess.PIPE, text=True,
                          check=False)
    assert done.returncode == 1
    assert (
        done.stdout
        == "no tap device on this host: /dev/net/nothing is missing (modprobe tun; a container has "
           "to be given it)\n"
    )
