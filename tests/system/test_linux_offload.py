"""Large frames (offload=yes) between an unmodified Linux and unikernels, in both directions. The
streams have to arrive as they were sent, also at a device without offload, for which the bridge
cuts them."""
import hashlib
import re

import pytest
from machine import Machine

from system.takt import linux_place, make_iso, vm
from system.test_linux import PROMPT, Person

pytestmark = pytest.mark.long

BYTES = 4 << 20
CONFIG = "[hypervisor]\ntop = no\n" + "[pool io]\ncpus = 1\nsched = null\n" + "".join([
    vm("iodom", "iodom", "24M", pool="io"),
    vm("sink", "iperf", "16M", cmdline="ip=10.0.0.2/24 check", net="iodom offload=yes"),
    vm("plain", "iperf", "16M", cmdline="ip=10.0.0.3/24 check", net="iodom"),
    vm("source", "iperf", "16M", cmdline=f"ip=10.0.0.4/24 to=10.0.0.9 tcp={BYTES} len=65520",
       net="iodom offload=yes", start="no"),
    """
[vm tux]
kernel = vmlinuz
ramdisk = initrd.img
cmdline = console=ttyS0 loglevel=5 address=10.0.0.9/24
memory = 256M
net = iodom offload=yes
start = no
"""])
# The stream of netstack/iperf.h.
SEND = "(head -c 4 /dev/zero; yes 0123456789 | tr -d '\\n' | head -c {} | tail -c +5) | nc {} 5001"


def session(person):
    seen = {}
    person.expect("iodom: id")
    person.takt("create tux")
    person.enter()
    person.expect(PROMPT, 120)
    seen["features"] = person.linux("cat /sys/class/net/eth0/device/features").split()[0]
    person.linux(SEND.format(BYTES, "10.0.0.2"), 120)
    person.linux(SEND.format(BYTES, "10.0.0.3"), 120)
    person.link.sendall(b"nc -l -p 5001 | md5sum\r")
    person.leave()
    person.takt("create source")
    person.enter()
    seen["md5"] = person.expect("([0-9a-f]{32})  -", 120)[1]
    person.expect(PROMPT)
    person.leave()
    for name in ("sink", "plain"):
        person.link.sendall(f"console {name}\r".encode())
        seen[name] = person.expect(r"iperf: tcp (.*)\n")[1]
        person.link.sendall(b"\x1d")
        person.expect(f"Disconnected from {name}.*\n")
    person.takt("destroy tux")
    person.link.sendall(b"console iodom\r")
    seen["large"] = person.expect(r"iodom: tux.0:.* in_large=(\d+) out_large=(\d+)").groups()
    return seen


@pytest.fixture(scope="module")
def seen(platform):
    if platform == "bochs":
        pytest.skip("the boot of Linux takes too long there")
    directory = linux_place(f"linux-offload-{platform}", "debian12")
    iso = make_iso(directory, CONFIG)
    with Machine(platform, iso, memory=768, directory=directory, com1="socket") as m:
        return session(Person(m))


def test_linux_takes_the_features(seen):
    """It takes HOST_TSO4 and GUEST_TSO4."""
    assert seen["features"][7] == "1" and seen["features"][11] == "1"


def test_streams_arrive_as_they_were_sent(seen):
    for name in ("sink", "plain"):
        assert re.match(rf"{BYTES} bytes .* 0 wrong, end 0", seen[name]), seen[name]
    stream = b"\0\0\0\0" + (b"0123456789" * (BYTES // 10 + 1))[4:BYTES]
    assert seen["md5"] == hashlib.md5(stream).hexdigest()


def test_frames_are_large(seen):
    """Linux sends large frames, and receives some, in what the driver domain counts. How many there
    are depends on the pieces in which programs write. On QEMU it also depends on the host: if a
    busy host lets little arrive at a time, hardly any frame that is received is a large one."""
    sent, received = seen["large"]
    assert int(sent) > 10 and int(received) > 0, seen["large"]
