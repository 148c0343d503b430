"""build/sim -C: if a policy breaks a rule, it says which one, in a sentence."""
import glob
import os
import re
import shlex
import subprocess

import pytest
from conftest import BUILD, ROOT

STRIDE = os.path.join(ROOT, "labs", "stride.c")
CONFIG = """[hypervisor]
sched = stride
[vm a]
image = spin
cmdline = phase_us=0
cpus = 0
[vm b]
image = spin
cmdline = phase_us=0
[vm c]
image = spin
cmdline = phase_us=0
vcpus = 2
[vm naps]
image = waker
cmdline = phase_us=0
"""
ROOMY = """[hypervisor]
sched = stride
[vm one]
image = spin
cmdline = phase_us=0
cpus = 0
[vm naps]
image = waker
cmdline = phase_us=0
[vm part]
image = busy
cmdline = phase_us=0
"""
WAITS = r"at [\d.]+ ms: VM \w+, vCPU \d \(pool Pool-0, policy stride\) "


def check(path, sim=None, *options):
    words = [sim or os.path.join(BUILD, "sim"), "-C", "-w", "100ms", "-t", "1s", *options]
    return subprocess.run([*words, str(path)], cwd=ROOT, capture_output=True, text=True,
                          check=False, timeout=120)


def broken(tmp_path, old, new):
    """Returns the simulation with a fault in labs/stride.c, built as the Makefile builds it."""
    with open(STRIDE, encoding="utf-8") as f:
        text = f.read()
    assert text.count(old) == 1, f"labs/stride.c has changed: {old}"
    source, binary = tmp_path / "stride.c", tmp_path / "sim"
    source.write_text(text.replace(old, new))
    with open(os.path.join(BUILD, "host", "flags"), encoding="utf-8") as f:
        compiler = [w for w in shlex.split(f.read()) if w not in ("-MMD", "-MP", "-Werror")]
    others = [p for p in glob.glob(os.path.join(BUILD, "host", "labs", "*.o"))
              if not p.endswith("stride.o")]
    libraries = [os.path.join(BUILD, name) for name in ("libsim.a", "libhv.a")]
    subprocess.run([*compiler, "-o", str(binary), os.path.join(BUILD, "host/tests/sim/main.o"),
                    str(source), *others, *libraries], cwd=ROOT, check=True)
    return str(binary)


@pytest.mark.parametrize("old, new, said", [
    # The fault is a wake that kicks no pCPU.
    ("*last_of(p));\n    offer(p, v);", "*last_of(p));",
     WAITS + r"has been ready for [\d.]+ ms while pCPU \d, where it may run, has nothing to do: "),
    ("if (v->queued && sched", "if (sched",
     WAITS + r"is to run on pCPU \d although it is blocked: `pick` may take only a vCPU that is "
     r"queued"),
    # The fault is that a sleeping vCPU keeps the pCPU.
    ("    struct sched_vcpu *next = NULL;\n\n    if (current)",
     "    struct sched_vcpu *next = NULL;\n\n"
     "    if (current && current->blocked) return (struct sched_pick){ current, SCHED_NEVER };\n"
     "    if (current)", WAITS + r"has been ready for "),
    ("if (v->queued && sched_may_run(p, v, cpu))",
     "if (!v->blocked && (v->queued || v->on_cpu != cpu))",
     WAITS + r"runs on 2 pCPUs at once: `pick` may take only a vCPU that is queued"),
    ("sched_may_run(p, v, cpu))", "(v->on_cpu == SCHED_NO_CPU || v->on_cpu == cpu))",
     WAITS + r"runs on pCPU 1, which is not in its affinity"),
    ("    sched_move(p, next, cpu);\n", "",
     WAITS + r"runs on pCPU \d but is assigned to pCPU \d: `pick` has to call sched_move\(\)"),
    # The fault is that the policy writes the core's field instead of its own.
    ("if (current) vcpu_of", "if (current) current->since = 0, vcpu_of",
     r"at [\d.]+ ms: pCPU \d was given away for [\d.]+ ms: more than 100 %"),
])
def test_a_broken_policy_is_told_what_it_broke(tmp_path, old, new, said):
    config = tmp_path / "my.cfg"
    config.write_text(ROOMY if "has been ready" in said or "blocked" in said else CONFIG)
    done = check(config, broken(tmp_path, old, new))
    assert done.returncode == 1, done.stderr
    assert re.match("sim: " + said, done.stderr), done.stderr
    # There are the first few messages and their number, not thousands.
    assert len(done.stderr.splitlines()) <= 7


def test_a_vcpu_that_never_runs(tmp_path):
    """No rule forbids that, because a weight may be low. But a vCPU that a policy has lost looks
    just like that."""
    config = tmp_path / "my.cfg"
    config.write_text(CONFIG)
    done = check(config, broken(tmp_path, "if (v->queued && sched",
                                "if (d->in_pool.next != &p->vms && v->queued && sched"))
    assert done.returncode == 0
    assert re.search(r"sim: note: VM naps, vCPU 0 .* was ready for the whole 1 s and never ran",
                     done.stderr), done.stderr


def test_the_worked_example_keeps_the_rules(tmp_path):
    config = tmp_path / "my.cfg"
    config.write_text(CONFIG)
    done = check(config)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^sim: no rule was broken in \d+ events$", done.stderr, re.M)


FILES = [("boot/demo.cfg", 2), ("boot/mixed.cfg", 4), ("boot/pools.cfg", 8)] + [
    (f"labs/{name}.cfg", cpus) for name, cpus in (
        ("evader", 1), ("shared", 4), ("vslicer", 2), ("vslicer-sleeps", 2), ("vturbo", 3),
        ("wakers", 2))]


@pytest.mark.parametrize("path, cpus", FILES)
def test_the_image_s_own_policies_keep_the_rules(path, cpus):
    done = check(path, None, "-p", str(cpus))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("settings", ["sched_preset=faithful-4.2", "sched_preset=sc+aca",
                                      "sched_preset=vslicer", "sched_preset=pool-io"])
def test_their_presets_too(settings):
    done = check("boot/demo.cfg", None, "-p", "2", "-c", settings)
    assert done.returncode == 0, done.stderr


def test_null_dedicates_its_pcpus(tmp_path):
    """A pCPU idles while its vCPU sleeps, and a third vCPU never runs. The policy is made for
    both."""
    config = tmp_path / "my.cfg"
    config.write_text(ROOMY.replace("stride", "null"))
    done = check(config)
    assert done.returncode == 0, done.stderr
