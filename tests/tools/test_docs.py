"""What the documentation quotes is what is in the tree."""
import glob
import os
import re

import size
from conftest import ROOT


def text(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def test_the_worked_example_is_the_policy_that_is_tested():
    code = text("labs", "stride.c")
    blocks = re.findall(r"```c\n(.*?)```", text("docs", "writing-a-policy.md"), re.S)
    assert len(blocks) >= 5
    for block in blocks:
        assert block.rstrip() in code
    assert len(size.lines_of("stride.c", code)) < 60


def test_files_of_labs_that_are_named_are_there():
    for name in set(re.findall(r"labs/[\w-]+\.\w+", text("docs", "policies.md"))):
        assert os.path.exists(os.path.join(ROOT, name)), name


def test_parameters_and_presets_of_the_docs():
    """Every parameter of Credit is in docs/scheduler.md, and so is every preset."""
    source, doc = text("hv", "sched", "credit_params.c"), text("docs", "scheduler.md")
    names = re.findall(r"^    (?:VM|NUM|WORD)\((\w+),", source, re.M) + re.findall(r'PRESET\("([^"]+)"', source)
    assert len(names) > 40
    assert not [n for n in names if f"`{n}`" not in doc and n not in ("ratelimit_exact",)]


def test_scenarios_can_be_run():
    import subprocess
    subprocess.run(["make", "-s", "build/sim"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    for path in glob.glob(os.path.join(ROOT, "labs", "*.cfg")):
        subprocess.run([os.path.join(ROOT, "build", "sim"), "-n", "-p", "8", path], check=True)
