"""Programs in a Linux VM that use Takt's store by the VM's second serial port (docs/linux.md): the
client `takt-store`, and `takt-collab`, which takes part in the tuning of disk I/O. The manager of
the driver domain has Linux write its dirty pages while the disk is idle. Linux itself would keep
them for half a minute."""
import re
import time

import pytest
from machine import Machine

from system.takt import linux_place, make_iso, vm
from system.test_linux import PROMPT, Person

pytestmark = pytest.mark.long

CONFIG = "[hypervisor]\ntop = no\n[pool io]\ncpus = 1\nsched = null\n" + "".join([
    vm("iodom", "iodom", "48M", pool="io", cmdline="collab ssd0=bw=50M,lat=100us"),
    """
[vm tux]
kernel = vmlinuz
ramdisk = initrd.img
cmdline = console=ttyS0 loglevel=5
memory = 256M
disk = iodom size=32M on=ssd0
start = no
"""])
MIB = 8
PAGES = MIB << 20 >> 12
# Commands in here have less than 70 characters: the shell in the VM breaks its line after 80.


def dirty(person):
    """Returns how many pages Linux has yet to write."""
    return int(person.linux("awk '/^Dirty/ { print $2 }' /proc/meminfo")) // 4


def nodes(person, path):
    return {row["name"]: row["value"] for row in person.takt(f"store ls {path}")}


def burst(person):
    """Has Linux write to the disk, and returns how many pages are dirty right then and after 4 s. A
    program keeps the disk open, as Linux writes all of it when the last one closes it."""
    person.linux("exec 3<>/dev/vda")
    person.linux(f"dd if=/dev/zero of=/dev/vda conv=notrunc bs=64k count={MIB * 16} 2>/dev/null")
    at_once = dirty(person)
    time.sleep(4)
    return at_once, dirty(person)


def session(person):
    seen = {}
    person.expect("iodom: id")
    person.takt("create tux")
    tux = int(person.expect(r"tux: id (\d+)")[1])
    person.enter()
    person.expect(PROMPT, 120)
    # The client.
    seen["domid"] = person.linux("takt-store read domid").strip(), str(tux)
    seen["wrote"] = person.linux("takt-store write data/a 'two words'; echo $?")
    seen["ls"] = person.linux("takt-store ls").split()
    seen["denied"] = person.linux("takt-store read /takt/host/uptime_s")
    seen["missing"] = person.linux("takt-store read data/none")
    seen["cut"] = person.linux("printf 'half a packet' > /dev/ttyS1; takt-store read data/a")
    person.linux("takt-store write data/b $(head -c 1500 /dev/zero | tr '\\0' x)")
    seen["long"] = person.linux("takt-store read data/b | wc -c")
    person.linux("takt-store watch data > /tmp/watch &")
    time.sleep(1)
    seen["busy"] = person.linux("takt-store read domid")
    person.leave()
    seen["a"] = nodes(person, f"/local/domain/{tux}/data")["a"]
    person.takt(f"store write /local/domain/{tux}/data/c 1")
    person.enter()
    seen["watch"] = person.linux("cat /tmp/watch")
    person.linux("kill %1; wait")
    # Tuning of disk I/O. First without it.
    seen["without"] = burst(person)
    person.linux("sync; takt-collab > /tmp/collab &")
    time.sleep(2)
    seen["with"] = burst(person)
    seen["collab"] = person.linux("cat /tmp/collab")
    person.leave()
    seen["keys"] = nodes(person, f"/local/domain/{tux}/io/disk/0")
    person.takt("destroy tux")
    return seen


@pytest.fixture(scope="module")
def seen(platform):
    if platform == "bochs":
        pytest.skip("a boot of Linux takes minutes there")
    directory = linux_place(f"linux-store-{platform}", "debian12")
    iso = make_iso(directory, CONFIG)
    with Machine(platform, iso, memory=768, directory=directory, com1="socket") as m:
        found = session(Person(m))
    print(found)
    return found


def test_client(seen):
    """Values go both ways. The store gives the VM the rights that it has, and no more."""
    assert seen["domid"][0] == seen["domid"][1]
    assert seen["wrote"] == "0\n"
    assert seen["a"] == "two words"
    assert {"name", "domid", "data", "io"} <= set(seen["ls"])
    assert "uptime_s: Permission denied" in seen["denied"]
    assert "data/none: No such file or directory" in seen["missing"]


def test_port(seen):
    """What one program has left does not disturb the next one, long values come whole, and the port
    takes one program at a time."""
    assert seen["cut"] == "two words\n"
    assert seen["long"] == "1501\n"
    assert "the store cannot be reached: Device or resource busy" in seen["busy"]


def test_watch(seen):
    """A watch fires once when it is made, and then when the operator writes below it."""
    assert seen["watch"].split() == ["data", "data/c"]


def test_flush(seen):
    """The manager has Linux write its dirty pages while the device is idle."""
    assert seen["without"][0] > PAGES / 2
    assert seen["without"][1] > PAGES / 2
    assert seen["with"][1] < 64
    # What becomes dirty after takt-collab has counted is written by the same sync(). So these
    # numbers are less than all pages, on a busy host by much.
    flushed = [int(n) for n in re.findall(r"flush \d+: (\d+) dirty pages", seen["collab"])]
    assert sum(flushed) > PAGES / 4
    assert seen["keys"]["flush_now"] == "0"
