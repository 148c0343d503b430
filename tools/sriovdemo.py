#!/usr/bin/env python3
"""make sriov-demo: VMs with virtual functions of two network cards, confined by VT-d.

Boots boot/sriov-demo.cfg on QEMU (AMD-V by TCG, intel-iommu, two 82576 on one hub) with a script,
and checks what was printed. Driver domains have the physical functions. After that another machine
shows how the scheduler uses the reports of the drivers (tools/sriovsched.py). Each line that begins
with ok is one thing that has to hold; exits 0 only if all of them hold.
"""
import json
import os
import re
import signal
import subprocess
import sys

import machine
import sentence
import sriovsched

CONFIG = os.path.join(machine.ROOT, "boot", "sriov-demo.cfg")
PATIENCE = 240  # in seconds of wall-clock time
SCRIPT = """\
@1500ms create one
+0ms create two
+1000ms list
+0ms create bridged
+0ms wait bridged 20s
+0ms create three
+0ms pci-list -j=three three
+0ms wait three 30s
+2000ms create heir
+0ms pci-list -j=heir heir
+0ms wait heir 30s
+0ms create outside
+0ms wait outside 20s
+0ms create wild
+0ms wait wild 8s
+2000ms create three
+0ms wait three 30s
+0ms list -j=end
+10ms poweroff
"""
LOAD = r"{}: load: tcp (\d+) bytes in \d+ ns, end 0"
ECHO = r"{}: load: echo (\d+) requests, (\d+) answers"


class Demo:
    """What a boot has printed, and which of the checks hold."""

    def __init__(self, serial):
        self.log = re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", serial)
        self.answers = {
            a["id"]: a for a in (json.loads(m[1]) for m in re.finditer("\x1e(\\{.*\\})\n", serial))
        }
        self.failed = 0

    def result(self, tag):
        answer = self.answers.get(tag, {})
        return answer.get("result") if not answer.get("error") else None

    def said(self, what):
        return re.findall(what, self.log)

    def hold(self, what, true):
        print(f"{'ok    ' if true else 'FAILED'}  {what}", flush=True)
        self.failed += not true

    def echoes(self, vm):
        return any(int(sent) > 10 and sent == got for sent, got in self.said(ECHO.format(vm)))

    def judge(self):
        owners = self.said(r"iodom2?: iodom: network card (0[12]:00\.0): igb, a port of the bridge")
        self.hold("two driver domains have a physical function each",
                  sorted(owners) == ["01:00.0", "02:00.0"])
        self.hold("no VM needs unsafe_dma: VT-d confines what was given to it",
                  "unsafe_dma" not in self.log)
        for vm in ("one", "two"):
            self.hold(f"VM {vm} has the network by a virtual function",
                      self.said(rf"{vm}: net: .* by igbvf"))
        self.hold("a VM behind the bridge reaches one with a virtual function",
                  self.said("bridged: netping: 160 sent, 0 lost, 0 wrong"))
        self.hold("a stream between two virtual functions of a card",
                  self.said(LOAD.format("three")) and self.echoes("three"))
        first, second = ([d["bdf"] for d in self.result(tag) or []] for tag in ("three", "heir"))
        self.hold(f"a VM is destroyed, and its virtual function {', '.join(first)} is another's",
                  first and first == second)
        # This is done by datagrams, because QEMU's user network hears all that is on the hub, and
        # refuses connections to any address.
        self.hold(
            "who reaches a virtual function of the other card by it",
            self.said(r"heir: load: the server says \d+ bytes in .* 0 of \d+ datagrams lost")
            and self.echoes("heir"),
        )
        self.hold("and the outside is reached", self.echoes("outside"))
        caught = self.said(r"wild: crashed: (PCI device .*)")
        self.hold(f"a VM that programs a wild address is stopped: {caught[0] if caught else ''}",
                  caught and not self.said("nobody minded"))
        self.hold(
            "the others go on",
            len(self.said(LOAD.format("three"))) == 2
            and {"iodom", "iodom2", "one", "two"}
            <= {vm["name"] for vm in self.result("end") or []},
        )


def main():
    # so that the machine ends when this program does
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = os.path.join(machine.BUILD, "run", "sriov-demo")
    os.makedirs(directory, exist_ok=True)
    iso, script = os.path.join(directory, "sriov.iso"), os.path.join(directory, "script")
    with open(script, "w", encoding="ascii") as f:
        f.write(SCRIPT)
    subprocess.run(
        [
            os.path.join(machine.ROOT, "tools", "mkiso.sh"),
            iso,
            CONFIG,
            "--module",
            f"script={script}",
        ],
        cwd=machine.ROOT,
        check=True,
    )
    try:
        m = machine.Machine("qemu", iso, directory=directory, igb=2, iommu=machine.IOMMU)
    except ValueError as error:
        sys.exit(f"sriov-demo: {error}")
    with m:
        how, _ = m.wait(timeout=PATIENCE)
    demo = Demo(m.serial())
    demo.judge()
    if how == "ended":
        sriovsched.show(demo.hold)
    if demo.failed or how != "ended":
        print(f"{sentence.count(demo.failed, 'thing')} did not hold ({how}); see {directory}")
        return 1
    print("all of it held")
    return 0


if __name__ == "__main__":
    sentence.run(main)
