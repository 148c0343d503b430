#!/usr/bin/env python3
"""make linux-demo: two unmodified Linux VMs with network and disk, beside two unikernels that
compute.

The kernel, nginx, iperf3, fio and ab are those of the distribution's packages
(tools/linuxguest.py), and boot/linux-demo.cfg is the machine. The VM `load` measures the VM `web`
by iperf3 and ab, and its own disk by fio, which also checks what it reads. If this host has a tap
device to give (tools/hostnet.py), its own programs then measure `web`, too.

Prints a table, writes build/results/linux-demo-PLATFORM.json, and exits with 0 only if each part
worked: what was measured depends on this host and is not judged, but nothing may be lost or wrong.

  tools/linuxdemo.py [--platform auto|qemu|kvm|bochs] [--release debian12|debian13]
"""
import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

import hostnet
import linuxguest
import machine
import netdemo
import sentence

BASE = os.path.join(machine.ROOT, "boot", "linux-demo.cfg")
PCPUS, MEMORY = 3, 1536
SCRIPT = """\
+0ms create web
+0ms create load
+5s create busy-1
+0ms create busy-2
+15s vcpu-list -j=vcpus
"""
# On Bochs time is virtual: Takt itself ends the machine if all this takes longer than that.
LIMIT = "@120s poweroff\n"
WALL = {"bochs": 7200, "qemu": 240, "kvm": 120}  # s of the host's time
# On Bochs a second takes long, and its CPU executes 100 million instructions a second.
WORDS = {"bochs": "seconds=1 requests=100 mib=1", "qemu": "seconds=2 requests=200 mib=2",
         "kvm": "seconds=5 requests=2000 mib=24"}
CARD = "pci = 00:03.0\nunsafe_dma = yes\n"  # in BASE: the network card of Machine(nic=...)
PAGE = 4096  # bytes that nginx serves
STOP = 9     # the port by which somebody ends `web`
BUSY = ("busy-1", "busy-2")
# What `load` and `web` leave last, in any order.
LAST = ("load: ends with code 0", "web: ends with code 0", r"web: demo stolen_s \S+\s")


class Results:
    """What came out: {name: value}, and what did not work."""

    def __init__(self):
        self.values, self.failed = {}, []

    def hold(self, name, value, true, unit=""):
        """Notes a result, and whether it is one that shows that all is well."""
        self.values[name] = value
        if not true:
            self.failed.append(name)
        print(f"{'ok    ' if true else 'FAILED'}  {name:<36} {value} {unit}", flush=True)


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return 0.0


def guest_results(text, results, requests):
    """Judges what the VM `load` has printed."""
    said = dict(re.findall(r"load: demo (\w+) (\S+)", text))
    results.hold("iperf3, load to web", number(said.get("iperf3_mbps")),
                 number(said.get("iperf3_mbps")) > 0, "Mb/s")
    results.hold("fio, random writes of 4 KiB", number(said.get("fio_write_iops")),
                 number(said.get("fio_write_iops")) > 0, "a second")
    results.hold("fio, reads that verify them", number(said.get("fio_read_iops")),
                 number(said.get("fio_read_iops")) > 0, "a second")
    results.hold("fio, exit status", said.get("fio_exit", "none"), said.get("fio_exit") == "0")
    results.hold("ab, requests to nginx", number(said.get("ab_per_s")),
                 number(said.get("ab_per_s")) > 0, "a second")
    complete, failed = said.get("ab_complete", "0"), said.get("ab_failed", "all")
    results.hold("ab, answers that were right", complete,
                 (complete, failed, said.get("ab_bytes")) == (requests, "0", str(PAGE)),
                 f"of {requests}")


def host_results(address, results):
    """Measures `web` by this host's own programs. Those that are not installed are left out."""
    for name, command, pattern, unit in (
            ("ping, host to web", ["ping", "-c", "5", "-i", "0.2", address], r"(\d) received",
             "of 5"),
            ("ab, host to nginx", ["ab", "-q", "-n", "100", "-c", "8", f"http://{address}/"],
             r"Requests per second: *([\d.]+)", "a second"),
            ("iperf3, host to web", ["iperf3", "-f", "m", "-t", "3", "-c", address],
             r"([\d.]+) Mbits/sec +receiver", "Mb/s")):
        if not shutil.which(command[0]):
            print(f"linux-demo: {name}: left out, as {command[0]} is not installed here")
            continue
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120, check=False)
        found = re.search(pattern, done.stdout)
        lost = re.search(r"Failed requests: +[1-9]", done.stdout)
        results.hold(name, number(found[1]) if found else 0.0,
                     done.returncode == 0 and found and number(found[1]) > 0 and not lost, unit)


def machine_results(serial, results):
    """Judges what Takt itself says: the time of the unikernels, which compute all the time, and how
    the Linux VMs ended; and what these say of the time that the others took."""
    answers = {a["id"]: a.get("result")
               for a in map(json.loads, re.findall("\x1e(\\{.*\\})\n", serial))}
    rows = {v["vm"]: v for v in answers.get("vcpus") or ()}
    for vm in BUSY:
        runs, waits = (rows.get(vm, {}).get(key, 0) for key in ("running_ns", "runnable_ns"))
        results.hold(f"{vm}, share of a CPU", round(runs / max(1, runs + waits), 2), runs > 0)
    stolen = dict(re.findall(r"(load|web): demo stolen_s (\S+)", netdemo.plain(serial)))
    for vm in ("load", "web"):
        seconds = number(stolen.get(vm))
        results.hold(f"{vm}, stolen time in /proc/stat", seconds, seconds > 0, "s")
    ends = re.findall(r"(load|web): ends with code 0", serial)
    results.hold("VMs that switched themselves off", len(set(ends)), len(set(ends)) == 2, "of 2")


def make_image(directory, platform, release, net):
    """Returns the path of the boot image, and the words that say how much is measured."""
    os.makedirs(directory, exist_ok=True)
    guest = net.guest if net else "10.0.0.{}".format
    words = WORDS[platform] + ("" if net else " stop=yes")
    with open(BASE, encoding="ascii") as f:
        text = f.read().format(web=guest(2), load=guest(3), words=words)
    if not net:
        text = text.replace(CARD, "")
    kernel, initrd = linuxguest.make(release, programs="demo")
    paths = [os.path.join(directory, "linux-demo." + kind) for kind in ("cfg", "script", "iso")]
    script = SCRIPT + LIMIT if platform == "bochs" else SCRIPT
    for path, content in zip(paths, (text, script)):
        with open(path, "w", encoding="ascii") as f:
            f.write(content)
    command = [os.path.join(machine.ROOT, "tools", "mkiso.sh"), paths[2], paths[0]]
    for name, path in (("linux-demo.script", paths[1]), ("vmlinuz", kernel),
                       ("initrd.img", initrd)):
        command += ["--module", f"{name}={path}"]
    subprocess.run(command, cwd=machine.ROOT, check=True)
    return paths[2], re.search(r"requests=(\d+)", words)[1]


def until_all(m, patterns, seconds):
    """Waits until the machine has printed all that the regular expressions match, or has ended, but
    at most so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        text = netdemo.plain(m.serial())
        if all(re.search(p, text) for p in patterns) or m.wait(timeout=1)[0] == "ended":
            return


def demo(platform, release, net, results):
    directory = os.path.join(machine.BUILD, "run", f"linux-demo-{platform}")
    iso, requests = make_image(directory, platform, release, net)
    with machine.Machine(platform, iso, cpus=PCPUS, memory=MEMORY, directory=directory,
                         nic=net.nic if net else None) as m:
        how, _ = m.wait(r"load: demo measured", WALL[platform])
        if how != "matched":
            raise sentence.Problem(f"the VMs did not come to their end ({how}): see "
                                   f"{m.serial_path}")
        guest_results(netdemo.plain(m.serial()), results, requests)
        if net:
            host_results(net.guest(2), results)
            with socket.create_connection((net.guest(2), STOP), 10):
                pass
        until_all(m, LAST, WALL[platform])
        machine_results(m.serial(), results)
    os.unlink(iso)


def main():
    parser = argparse.ArgumentParser(description="Linux VMs beside unikernels")
    parser.add_argument("--platform", default="auto", choices=["auto", *WALL])
    parser.add_argument("--release", default="debian12", choices=linuxguest.RELEASES)
    args = parser.parse_args()
    platform = machine.choose(args.platform)
    results = Results()
    with contextlib.ExitStack() as stack:
        net = None
        try:
            if platform != "bochs":
                net = stack.enter_context(hostnet.HostNet())
        except hostnet.Missing as why:
            print(f"linux-demo: {why}: this host measures nothing", file=sys.stderr)
        demo(platform, args.release, net, results)
    if platform != "bochs":
        print("The clock is the host's here: these figures are worth as much as the host was idle.")
    netdemo.write_results(f"linux-demo-{platform}",
                          netdemo.provenance(platform, release=args.release)
                          | {"results": results.values, "failed": results.failed})
    return 1 if results.failed else 0


if __name__ == "__main__":
    sentence.run(main)
