#!/usr/bin/env python3
"""A network between this host and a machine in QEMU: a tap device, so that the host's own programs
reach guests.

    with HostNet() as net:                           # raises Missing if this host has no tap device
        with Machine("qemu", iso, nic=net.nic):      # an e1000, 00:03.0, for the driver domain
            subprocess.run(["ping", net.guest(2)])   # a guest with ip=<that>/24 in its command line

While it is open, nobody else gets the same device and network: takt0 with 10.77.0.0/24, or the next
ones that are free. The host has the address .1 in it. This needs /dev/net/tun, and either root or a
sudo that asks for no password. Started as a command, this file prints what the host is missing and
exits with 1; if nothing is missing, it prints nothing.
"""
import fcntl
import getpass
import os
import shutil
import subprocess

import sentence

TUN = "/dev/net/tun"
DEVICES = "/sys/class/net"
MOST = 256


class Missing(Exception):
    """This host cannot have the network."""


def owner_gone(name):
    """Returns whether the device was left behind by a process that could not clean up. Such a
    process has written its number to the device."""
    try:
        with open(f"{DEVICES}/{name}/ifalias", encoding="ascii") as f:
            pid = f.read().strip()
    except OSError:
        return False
    return name.startswith("takt") and pid.isdigit() and not os.path.exists(f"/proc/{pid}")


class HostNet:
    """The network. name: of the tap device; address: of the host; nic: what Machine() takes."""

    def __init__(self):
        self.name = self.number = None

    @property
    def address(self):
        return self.guest(1)

    def guest(self, n):
        """Returns the address of number n of this network."""
        return f"10.77.{self.number}.{n}"

    @property
    def nic(self):
        return {"qemu": f"tap,ifname={self.name},script=no,downscript=no"}

    @staticmethod
    def _ip(*words):
        sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
        done = subprocess.run([*sudo, "ip", *words], capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL)
        return done.stderr.strip() if done.returncode else None

    def _add(self):
        """Makes the device. Returns its name and its number. Making a device that exists is an
        error, so other processes that make some do no harm."""
        for left in filter(owner_gone, os.listdir(DEVICES)):
            self._ip("link", "delete", left)
        error = None
        for self.number in range(MOST):
            self.name = f"takt{self.number}"
            if os.path.exists(f"{DEVICES}/{self.name}"):
                continue
            error = self._ip("tuntap", "add", "dev", self.name, "mode", "tap", "user",
                             getpass.getuser())
            if not error:
                return
            if "busy" not in error:
                break
        raise Missing(
            f"no tap device on this host: {error or f'takt0 to takt{MOST - 1} are there already'}"
        )

    def __enter__(self):
        if not os.path.exists(TUN):
            raise Missing(
                f"no tap device on this host: {TUN} is missing (modprobe tun; a container has to "
                "be given it)"
            )
        if not shutil.which("ip", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            raise Missing("no tap device on this host: ip is missing (tools/deps.sh clients)")
        if os.geteuid() and not shutil.which("sudo"):
            raise Missing("no tap device on this host: that takes root, and there is no sudo")
        lock = os.open(DEVICES, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Under this lock, no other process deletes a device that was left behind and that we
            # have made anew meanwhile.
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._add()
            self._ip("link", "set", "dev", self.name, "alias", str(os.getpid()))
        finally:
            os.close(lock)
        # The device gets no IPv6 address: with one, the host would send before any guest has asked
        # for something.
        for words in (["link", "set", "dev", self.name, "addrgenmode", "none"],
                      ["address", "add", f"{self.address}/24", "dev", self.name],
                      ["link", "set", "dev", self.name, "up"]):
            error = self._ip(*words)
            if error:
                self.__exit__()
                raise Missing(f"no network on the tap device {self.name}: {error}")
        return self

    def __exit__(self, *_):
        self._ip("link", "delete", self.name)


def main():
    try:
        with HostNet():
            return 0
    except Missing as why:
        print(why)
        return 1


if __name__ == "__main__":
    sentence.run(main)
