#!/usr/bin/env python3
"""make kut: runs KVM's unit tests (kvm-unit-tests) as guests, and compares with what is known.

Each test is a small kernel that uses one part of a PC (page tables, LAPIC, exceptions ...) and
prints what it found. KVM is judged by them; here each of them is the kernel of a VM of its own. The
source is not part of this project: it is fetched with git at the commit below, or KUT=DIR names a
clone of it.

tests/kut.txt has a line for each test that does not pass on each platform, with the reason. Prints
a table, writes build/results/kut-PLATFORM.json, and exits 0 only if all results are as that file
says. Bochs is slow, so the tests that only measure are left out there.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

import experiment
import machine
import sentence

URL = "https://gitlab.com/kvm-unit-tests/kvm-unit-tests.git"
COMMIT = "1da1819e49fc4938985edca67df669099b4c87a7"
HOME = os.path.join(machine.BUILD, "kut")
KNOWN = os.path.join(machine.ROOT, "tests", "kut.txt")
CPUS = 2
# Tests in one boot, one after the other. Bochs takes long for each.
TOGETHER = {"bochs": 4, "qemu": 12}
SECONDS = {"bochs": 20, "qemu": 180}  # virtual time that a test gets
WALL = 3600     # seconds of the host's time that a boot gets
DEFAULT_MEMORY = 128  # MiB, QEMU's default
VERDICTS = ("pass", "skip", "fail", "crash", "hang")
CLOCK_ROUNDS = 100_000  # of kvmclock_test; the list's 10,000,000 take an emulator minutes
DAY = 86400
SKIPPED = 38   # the exit code of a test that has skipped everything

# Files of tests that are not run, because a VM of Takt has not what they are about.
NOT_RUN = {
    "vmx": "nested virtualization is not offered",
    "svm": "nested virtualization is not offered",
    "svm_npt": "nested virtualization is not offered",
    "hyperv_clock": "it tests an interface of Hyper-V",
    "hyperv_connections": "it tests an interface of Hyper-V",
    "hyperv_stimer": "it tests an interface of Hyper-V",
    "hyperv_synic": "it tests an interface of Hyper-V",
    "intel-iommu": "guests have no IOMMU",
    "vmware_backdoors": "it tests an interface of VMware",
}
# The same on one platform.
NOT_RUN_ON = {
    "bochs": {
        "vmexit": "it measures, in more rounds than Bochs does in 20 s",
        "asyncpf": "it needs a machine of more than 2 GiB, which Bochs is not",
        "cet": "it needs a machine of more than 2 GiB, which Bochs is not",
    },
    "qemu": {},
}


def source():
    """Returns the directory of the tests' source."""
    given = os.environ.get("KUT")
    if given:
        if not os.path.exists(os.path.join(given, "x86", "unittests.cfg")):
            raise sentence.Problem(f"KUT={given}: it is no clone of kvm-unit-tests: it has no file "
                                   "x86/unittests.cfg")
        return os.path.abspath(given)
    path = os.path.join(HOME, "source")
    if not os.path.exists(path):
        done = subprocess.run(["git", "clone", "-q", URL, path + ".new"], check=False,
                              capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["git failed"])[-1]
            raise sentence.Problem(f"cannot fetch {URL}: {last}: give a clone of it as KUT=DIR")
        os.rename(path + ".new", path)
    subprocess.run(["git", "-C", path, "checkout", "-q", COMMIT], check=True)
    return path


def build(path):
    """Builds the tests outside their source, and returns the directory that has them."""
    out = os.path.join(HOME, "build")
    os.makedirs(out, exist_ok=True)
    log = os.path.join(HOME, "build.log")
    with open(log, "w", encoding="utf-8") as f:
        for command in ([os.path.join(path, "configure"), "--arch=x86_64"], ["make", "-j2"]):
            if subprocess.run(command, cwd=out, stdout=f, stderr=f, check=False).returncode:
                raise sentence.Problem(f"the tests in {path} cannot be built: see {log}")
    return out


def listed(path):
    """Yields {"name", "file", "smp", "args", "memory", "groups"} for each test for x86-64 that
    x86/unittests.cfg lists."""
    with open(os.path.join(path, "x86", "unittests.cfg"), encoding="utf-8") as f:
        text = f.read()
    # A value in """...""" may have several lines.
    text = re.sub(r'"""(.*?)"""', lambda m: m[1].replace("\n", " "), text, flags=re.S)
    for part in re.split(r"(?m)^\[", text)[1:]:
        name, _, rest = part.partition("]")
        keys = dict(re.findall(r"(?m)^(\w+) *= *(.*?) *$", rest))
        if keys.get("arch", "x86_64") != "x86_64":
            continue
        more = keys.get("qemu_params", "") + " " + keys.get("extra_params", "")
        memory = re.search(r"-m (\d+)", more)
        yield {"name": name, "file": keys["file"], "smp": int(keys.get("smp", "1")),
               "args": shlex.split(keys.get("test_args", "''").strip())[0:1],
               "memory": int(memory[1]) if memory else DEFAULT_MEMORY,
               "groups": keys.get("groups", "").split()}


def arguments(test, platform):
    """Returns the arguments of a test. kvmclock_test takes rounds, the time of day, and by how many
    seconds the guest's may differ; it may start long after this."""
    if test["name"] != "kvmclock_test":
        return test["args"]
    now = machine.BOCHS_TIME if platform == "bochs" else int(time.time())
    return [f"{CLOCK_ROUNDS} {now} {DAY}"]


def vm_file(tests, platform):
    """Returns the VM file for these tests. None of the VMs starts by itself."""
    parts = ["[hypervisor]\ntop = no\nguest_console = log\nnoreboot = no\nscript = script\n"]
    for t in tests:
        words = " ".join([t["file"]] + arguments(t, platform))
        parts.append(f"[vm {t['name']}]\nkernel = {t['file']}\nramdisk = {t['name']}.env\n"
                     f'cmdline = "{words}"\nmemory = {t["memory"]}M\nvcpus = {t["smp"]}\n'
                     "debug_exit = yes\nstart = no\n")
    return "\n".join(parts)


def script(tests, seconds):
    lines = []
    for t in tests:
        lines += [f"+0ms create {t['name']}", f"+0ms wait {t['name']} {seconds}s",
                  f"+0ms destroy {t['name']}"]
    return "\n".join(lines + ["+200ms poweroff"]) + "\n"


def boot(platform, tests, number, flats):
    """Runs these tests in one boot. Returns what the machine printed."""
    directory = os.path.join(HOME, f"{platform}-{number}")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)

    def write(name, text):
        with open(os.path.join(directory, name), "w", encoding="ascii") as f:
            f.write(text)

    for t in tests:
        subprocess.run(["objcopy", "-S", os.path.join(flats, "x86", t["file"]),
                        os.path.join(directory, t["file"])], check=True)
        # Without a test device that tells them, the tests take these numbers from here.
        write(f"{t['name']}.env", f"NR_CPUS={t['smp']}\nMEMSIZE={t['memory']}\n"
                                  f"MEMLIMIT={t['memory']}\n")
    write("kut.cfg", vm_file(tests, platform))
    write("script", script(tests, SECONDS[platform]))
    iso = os.path.join(directory, "kut.iso")
    subprocess.run([os.path.join(machine.ROOT, "tools", "mkiso.sh"), iso,
                    os.path.join(directory, "kut.cfg")], cwd=machine.ROOT, check=True)
    memory = max(t["memory"] for t in tests) + 192
    with machine.Machine(platform, iso, cpus=CPUS, memory=memory, directory=directory) as m:
        how, _ = m.wait(timeout=WALL)
        if how != "ended":
            raise sentence.Problem(f"the machine in {directory} did not switch itself off in "
                                   f"{WALL} s")
        return m.serial()


def verdict(name, log):
    """Returns (verdict, what the test says of it) from the log of its boot."""
    said = re.findall(rf"(?m)^\[ *[\d.]+\] {re.escape(name)}: (.*)$", log)
    ends = [re.fullmatch(r"ends with code (\d+)", line) for line in said]
    code = next((int(m[1]) for m in ends if m), None)
    fails = [line[len("FAIL: "):] for line in said if line.startswith("FAIL: ")]
    crashed = [line for line in said if line.startswith("crashed: ")]
    skips = [line[len("SKIP: "):] for line in said if line.startswith("SKIP: ")]
    passes = sum(line.startswith("PASS: ") for line in said)
    if crashed:
        return "crash", crashed[0][len("crashed: "):]
    if fails:
        return "fail", f"{len(fails)} of {len(fails) + passes}: {'; '.join(fails[:2])}"
    if code is None:
        return "hang", "it did not end in time"
    # The tests' exit codes: 0, or 38 (19 << 1) if all was skipped; others are failures.
    if code == SKIPPED or (skips and not passes):
        return "skip", "; ".join(skips[:1])
    if code:
        return "fail", f"it ended with code {code}"
    return "pass", ""


def known():
    """Returns {(name, platform): (verdicts, why)} of tests/kut.txt. A line is `name platform
    verdict: why`, where the platform may be `all`. Verdicts that depend on how fast this host is
    are written `hang/pass`."""
    found = {}
    with open(KNOWN, encoding="ascii") as f:
        for n, line in enumerate(f, 1):
            if not line.strip() or line.startswith("#"):
                continue
            m = re.fullmatch(r"(\S+) +(\S+) +(\S+): (.+)", line.strip())
            if not m or m[2] not in ("all", *SECONDS) or set(m[3].split("/")) - set(VERDICTS):
                raise sentence.Problem(f"{KNOWN}:{n}: expected a name, a platform, a verdict (one "
                                       f"of {', '.join(VERDICTS)}), a colon and a reason")
            for platform in ("qemu", "bochs") if m[2] == "all" else (m[2],):
                found[m[1], platform] = (m[3], m[4])
    return found


def report(platform, results):
    """Prints the table and writes it. Returns how many results are not as they are known."""
    expected = known()
    rows, odd = [], 0
    print(f"{'test':32} {'result':6} {'known':6} why, or what the test says")
    for name, (what, detail) in results.items():
        want, why = expected.get((name, platform), ("pass", ""))
        right = what in want.split("/")
        odd += not right
        print(f"{name:32} {what:6} {'' if right else want:6} {why if right else detail}")
        rows.append({"test": name, "result": what, "known": want, "why": why, "detail": detail})
    path = os.path.join(machine.BUILD, "results", f"kut-{platform}.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"platform": platform, "provenance": experiment.commit(), "tests": rows}, f,
                  indent=1)
        f.write("\n")
    counts = ", ".join(f"{sum(r['result'] == v for r in rows)} {v}" for v in VERDICTS)
    print(f"{sentence.count(len(rows), 'test')} on {platform}: {counts}; {odd} not as known")
    return odd


def clean(text):
    return re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", text)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--platform", default="qemu", choices=sorted(SECONDS))
    p.add_argument("--only", nargs="*", help="names of tests")
    p.add_argument("--again", action="store_true", help="judges the logs of the last run once more")
    args = p.parse_args()
    path = source()
    flats = build(path)
    left_out = NOT_RUN | NOT_RUN_ON[args.platform]
    tests = [t for t in listed(path) if t["file"].partition(".")[0] not in left_out
             and os.path.exists(os.path.join(flats, "x86", t["file"]))
             and (not args.only or t["name"] in args.only)]
    if not tests:
        raise sentence.Problem(f"no test is called {' or '.join(args.only or ['anything'])}")
    results = {}
    together = TOGETHER[args.platform]
    for n in range(0, len(tests), together):
        part = tests[n:n + together]
        if args.again:
            with open(os.path.join(HOME, f"{args.platform}-{n // together}", "serial.txt"),
                      encoding="utf-8", errors="replace") as f:
                log = f.read().replace("\r", "")
        else:
            log = boot(args.platform, part, n // together, flats)
        results |= {t["name"]: verdict(t["name"], clean(log)) for t in part}
    sys.exit(1 if report(args.platform, results) else 0)


if __name__ == "__main__":
    sentence.run(main)
