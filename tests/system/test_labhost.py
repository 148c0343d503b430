"""tools/labhost with IPMI: OpenIPMI's ipmi_sim plays a BMC, with ipmitool and serial over LAN. The
BMC switches a QEMU on and off, which has the other end of the BMC (ipmi-bmc-extern)."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from conftest import ROOT
from machine import Machine
from system.takt import make_iso, place

pytestmark = [pytest.mark.long,
              pytest.mark.skipif(not (shutil.which("ipmi_sim") and shutil.which("ipmitool")),
                                 reason="needs ipmi_sim and ipmitool: tools/deps.sh lab")]

LAN = """name "takt"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {lan}
    priv_limit admin
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  serial 15 127.0.0.1 {vm} codec VM
  sol "tcp:127.0.0.1:{sol}" 115200
  startcmd "{command}"
  startnow false
  poweroff_wait 0
  kill_wait 5
  user 2 true "admin" "secret" admin 10 none md2 md5 straight
"""
SIMULATION = """mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
mc_enable 0x20
"""
CONFIG = "[hypervisor]\ntop = no\n\n[vm spin]\nimage = spin\nmemory = 4M\n"


def free_ports(n):
    """Returns ports of this host that are free now."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in taken]
    for s in taken:
        s.close()
    return ports


class Rack:
    """A directory with the lab's description, and a running ipmi_sim."""

    def __init__(self, name):
        self.directory = place(f"labhost-{name}")
        shutil.rmtree(self.directory, ignore_errors=True)
        iso = make_iso(self.directory, CONFIG)
        self.lan, vm, sol = free_ports(3)
        machine = Machine("qemu", iso, directory=self.directory, exit_port=False, resets=True,
                          extra=[
            "-chardev", f"socket,id=ipmi,host=127.0.0.1,port={vm},reconnect=1", "-device",
            "ipmi-bmc-extern,id=bmc,chardev=ipmi",
            "-device", "isa-ipmi-kcs,bmc=bmc"])
        command = " ".join(machine.qemu_command())
        command = re.sub("-chardev file,id=com1,[^ ]*",
                         f"-chardev socket,id=com1,host=127.0.0.1,port={sol},server=on,wait=off",
                         command)
        self.write("lan.conf", LAN.format(lan=self.lan, vm=vm, sol=sol, command=command))
        self.write("emu", SIMULATION)
        self.write("password", "secret\n")
        self.write(
            "lab.ini",
            f"[rack1]\npower = ipmi\nbmc = 127.0.0.1\nbmc_port = {self.lan}\nuser = admin\n"
            f"password_file = {self.directory}/password\nserial = sol\nipmi_options = -C 3\n"
            "boot_timeout = 90\n",
        )

    def write(self, name, text):
        with open(os.path.join(self.directory, name), "w", encoding="ascii") as f:
            f.write(text)

    def __enter__(self):
        with open(os.path.join(self.directory, "ipmi_sim.log"), "wb") as log:
            self.bmc = subprocess.Popen(["ipmi_sim", "-c", "lan.conf", "-f", "emu", "-s",
                                         os.path.join(self.directory, "state"), "-n"],
                                        cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log,
                                        stderr=log, start_new_session=True)
        time.sleep(1)
        return self

    def __exit__(self, *_):
        os.killpg(self.bmc.pid, signal.SIGTERM)
        self.bmc.wait(10)

    def labhost(self, *words):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "labhost"), "-c",
                               os.path.join(self.directory, "lab.ini"), "rack1", *words],
                              capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, done.stdout + done.stderr

    def run(self, name, script):
        """Returns (exit status, what was printed, the directory of the results)."""
        out = os.path.join(self.directory, name)
        self.write(name + ".script", script)
        code, said = self.labhost("run", os.path.join(self.directory, name + ".script"), "--out",
                                  out)
        return code, said, out


def test_a_server_by_its_bmc():
    with Rack("ipmi") as rack:
        assert rack.labhost("power", "status") == (0, "off\n")
        code, said, out = rack.run("good",
                                   "@boot\nlist\nsched-credit -d spin -w 512\n@boot\ninfo\nlist\n")
        assert code == 0 and said.endswith("pass\n"), said
        with open(os.path.join(out, "results.jsonl"), encoding="utf-8") as f:
            results = [json.loads(line) for line in f]
        assert [r["command"] for r in results] == ["list", "sched-credit -d spin -w 512", "info",
                                                   "list"]
        assert results[0]["result"][0]["name"] == "spin"
        # The RAM outlived the BMC's reset.
        assert results[2]["result"]["last_session"] == "was reset while it ran"
        code, said, out = rack.run("panic", "@boot\n@timeout 10\nfault pf\nlist\n")
        assert code == 1 and 'the console said "PANIC on CPU"' in said, said
        with open(os.path.join(out, "crash-1.json"), encoding="utf-8") as f:
            assert any("page_fault+0x" in row["line"] for row in json.load(f))
        assert rack.labhost("power", "off")[0] == 0
        end = time.monotonic() + 20
        while rack.labhost("power", "status") != (0, "off\n"):
            assert time.monotonic() < end
            time.sleep(1)
