"""Runs guest tests: boots an image whose script creates the test VMs one after another, and reads
their results from the log.

What a test needs stands in comments at the top of its file, each on a line of its own (in
tests/guest32, after `;`):
  /* expect: crashed */    Takt has to stop this VM; the default is a RESULT: SUCCESS of its own
  /* expect: crashed, X */ the same, and its report has to have the regular expression X
  /* vcpus: 2 */           virtual CPUs (1)
  /* memory: 4 */          MiB (4)
  /* args: one two */      its command line (empty); `platform=qemu` or the like is appended to it
  /* cpus: 0 */            pCPUs that its VMs may use, as in a VM file (any)
  /* vms: 2 */             that many VMs at once; the second is called NAME-2 and gets `vm=2` in its
                           command line
  /* time: 800 */          virtual ms that it may take (400); on QEMU, whose clock is the host's,
                           several times as many
  /* keys: a = b; c = d */ more lines of its VM file (none)
  /* keys1: a = b */       the same for the first VM alone
  /* only: bochs */        a platform that it makes sense on (all)
  /* devices: nic edu */   what the machine has to have (nothing): nic, a network card at 00:03.0;
                           on QEMU also edu at 00:04.0, e1000e at 00:05.0, igb, two 82576 at 01:00.0
                           and 02:00.0, and iommu, VT-d with all its features
"""
import glob
import os
import re
import subprocess
from collections import namedtuple

from conftest import BUILD, ROOT
from machine import IOMMU, NIC_USER, Machine

DIRECTORY = os.path.join(ROOT, "tests", "guest")
DEFAULTS = {"expect": "success", "vcpus": "1", "memory": "4", "args": "", "vms": "1", "time": "400",
            "only": "",
            "cpus": "", "keys": "", "keys1": "", "devices": ""}
FIRST_MS = 300  # when the first test is created
PER_BOOT = 24
QEMU_DEVICES = {"edu": ["-device", "edu,addr=4.0"], "e1000e": ["-device", "e1000e,addr=5.0"]}
SLACK = {"qemu": 15, "kvm": 15}  # times what a test asks for: the host may be busy

Test = namedtuple("Test", "name expect vcpus memory args vms time only cpus keys keys1 devices")
Result = namedtuple("Result", "verdict text log")  # SUCCESS SKIP ERROR FAILURE CRASH TIMEOUT


def split(keys):
    return [k.strip() for k in keys.split(";") if k.strip()]


def read_test(path):
    values = dict(DEFAULTS)
    with open(path, encoding="utf-8") as f:
        for line in f:
            m = re.match(r"(?:/\*|;)\s*(\w+):\s*(.*?)\s*(?:\*/\s*)?$", line)
            if m and m[1] in values:
                values[m[1]] = m[2]
            elif line.startswith("#include"):
                break
    name = os.path.splitext(os.path.basename(path))[0]
    return Test(name, values["expect"], int(values["vcpus"]), int(values["memory"]), values["args"],
                int(values["vms"]),
                int(values["time"]), values["only"], values["cpus"], split(values["keys"]),
                split(values["keys1"]),
                values["devices"].split())


def all_tests():
    return [
        read_test(p)
        for p in sorted(
            glob.glob(os.path.join(DIRECTORY, "*.c")) + glob.glob(DIRECTORY + "32/*.asm")
        )
    ]


def vm_names(test):
    return [test.name if i == 1 else f"{test.name}-{i}" for i in range(1, test.vms + 1)]


def write_boot(platform, directory, tests, host):
    """The configuration and the script of one boot; `host` are more lines of [hypervisor]. Returns
    (configuration, virtual ms it takes at most)."""
    config = ["[hypervisor]", "seed = 2026", "guest_console = log", "top = no",
              "script = tests.script", "noreboot = no", *host, ""]
    script, worst = [f"@{FIRST_MS}ms list"], FIRST_MS
    for test in tests:
        names, limit = vm_names(test), test.time * SLACK.get(platform, 1)
        for number, vm in enumerate(names, 1):
            args = (test.args
                    + (f" vm={number}" if test.vms > 1 else "") + f" platform={platform}").strip()
            config += [f"[vm {vm}]", f"image = test-{test.name}", f"memory = {test.memory}M",
                       f"vcpus = {test.vcpus}",
                       "start = no", "on_crash = preserve", "debug_exit = yes", "debugcon = yes",
                       f'cmdline = "{args}"'] + ([f"cpus = {test.cpus}"] if test.cpus
                                                 else []) + test.keys
            config += (test.keys1 if number == 1 else []) + [""]
            script.append(f"+0ms create {vm}")
        script += [f"+0ms wait {vm} {limit}ms" for vm in names] + [
            f"+0ms list -j=after-{test.name}"
        ]
        script += [f"+0ms destroy {vm}" for vm in names]
        worst += limit
    script += ["+0ms counters -j=counters", "+50ms poweroff"]
    path = os.path.join(directory, "tests.cfg")
    with open(path, "w", encoding="ascii") as f:
        f.write("\n".join(config) + "\n")
    with open(os.path.join(directory, "tests.script"), "w", encoding="ascii") as f:
        f.write("\n".join(script) + "\n")
    return path, worst


def boot(platform, tests, directory, image="takt.elf", host=()):
    """Boots `image` once with these tests, and with more lines of [hypervisor], and returns the
    serial output and how the machine ended."""
    os.makedirs(directory, exist_ok=True)
    config, worst = write_boot(platform, directory, tests, host)
    iso = os.path.join(directory, "tests.iso")
    subprocess.run([os.path.join(ROOT, "tools", "mkiso.sh"), iso, config, "--guests",
                    os.path.join(BUILD, "guests"),
                    "--hv", os.path.join(BUILD, image)], cwd=ROOT, check=True)
    devices = {d for t in tests for d in t.devices}
    extra = [word for d in sorted(devices) if platform != "bochs"
             for word in QEMU_DEVICES.get(d, [])]
    nic = NIC_USER if "nic" in devices else None
    with Machine(platform, iso, cpus=2, directory=directory, nic=nic, extra=extra,
                 igb=2 if "igb" in devices else 0,
                 iommu=IOMMU if "iommu" in devices else None) as machine:
        how, _ = machine.wait(timeout=30 + worst / 1000 * (12 if platform == "bochs" else 2))
        return re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", machine.serial()), how


def reported(test, text):
    """What is said of its crash: that line of the log, and the lines behind it that are set in."""
    log = "".join(re.findall(r"\[ *\d+\.\d+\] .*\n", text))  # not what the shell says in between
    m = re.search(rf"\] {re.escape(test.name)}: crashed: .*\n(?:.*?\]   .*\n)*", log)
    return m[0] if m else ""


def judge(test, text, how):
    """The result of one test from all that a boot printed."""
    lines = [l for l in text.split("\n") if re.search(rf"\]\s*{re.escape(test.name)}(-\d+)?: ", l)]
    log = "\n".join(lines[-40:])
    crashed = next((l for l in lines if re.search(r"crashed", l)), None)
    results = [re.search(r"RESULT: (SUCCESS|SKIP|ERROR|FAILURE)\s*(.*)", l) for l in lines]
    results = [r for r in results if r]
    expect, _, words = test.expect.partition(", ")
    if expect == "crashed":
        if crashed and words and not re.search(words, reported(test, text)):
            return Result("FAILURE", f"the report does not say {words}", log)
        if crashed:
            return Result("SUCCESS", crashed, log)
        if results:
            return Result("FAILURE", f"was to be stopped, but said {results[0][0]}", log)
    elif crashed:
        return Result("CRASH", crashed, log)
    worst = max(results, key=lambda r: ["SUCCESS", "SKIP", "ERROR", "FAILURE"].index(r[1]),
                default=None)
    if worst and (len(results) >= test.vms or worst[1] != "SUCCESS"):
        return Result(worst[1], worst[2], log)
    if not any("create" in l or "RESULT" in l or l for l in lines) and how != "ended":
        return Result("TIMEOUT", f"the machine did not get as far as this test: {how}",
                      text[-3000:])
    return Result("TIMEOUT",
                  f"{len(results)} of {test.vms} VMs had a result after {test.time} virtual ms",
                  log or text[-3000:])


def run(platform, tests):
    """{test name: Result} for tests that make sense on `platform`, a few boots for all."""
    results = {}
    for n in range(0, len(tests), PER_BOOT):
        some = tests[n:n + PER_BOOT]
        directory = os.path.join(BUILD, "results", "guest", f"{platform}-{n // PER_BOOT}")
        text, how = boot(platform, some, directory)
        for test in some:
            results[test.name] = judge(test, text, how)
    return results
