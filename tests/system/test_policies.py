"""The papers' mechanisms from the shell of a running image, and a policy that is not in it by
default."""
import os
import subprocess
import time

import pytest

from conftest import BUILD, ROOT
from system.takt import CommandError, Takt, until

pytestmark = pytest.mark.alone

CONFIG = """\
[hypervisor]
top = no
seed = 7

[pool core]
cpus = 1

[pool turbo]
turbo_of = core
cpus = random:1

[vm both]
image = spin
memory = 4M
pool = core
turbo = yes
weight = 512

[vm plain]
image = spin
memory = 4M
pool = core

[vm late]
image = spin
memory = 4M
pool = core
start = no
"""


@pytest.fixture(scope="module")
def takt():
    with Takt("policies", CONFIG, cpus=4) as t:
        until(lambda: [v["state"] for v in t("list")] == ["running"] * 2)
        yield t


def pool(takt, name):
    return takt(f"cpupool-list {name}")[0]


def refused(takt, command, why):
    with pytest.raises(CommandError, match=why):
        takt(command)


def test_the_pair_is_made_at_boot(takt):
    turbo = pool(takt, "turbo")
    assert turbo["turbo_of"] == "core" and turbo["nr_cpus"] == 1 and turbo["cpus"] in ("2", "3")
    assert pool(takt, "core")["turbo"] == "turbo"
    vcpus = [v for v in takt("vcpu-list both")]
    assert [(v["pool"], v["class"]) for v in vcpus] == [("turbo", "turbo"), ("core", "")]
    assert str(vcpus[0]["cpu"]) == turbo["cpus"] and vcpus[1]["cpu"] == 1


def test_turbo_use_is_shown_and_charged(takt):
    """Both VMs compute on every vCPU. The VM that has a whole turbo core leaves nearly all of the
    regular core to the other one."""
    time.sleep(1)
    top = takt("top -w 0.5 -d 2", timeout=60)["vcpus"]
    both = [v for v in top if v["vm"] == "both"]
    plain = next(v for v in top if v["vm"] == "plain")
    assert both[0]["class"] == "turbo" and both[0]["turbo_pct"] > 80
    assert both[1]["cpu_pct"] < plain["cpu_pct"]
    assert sum(v["entitled_pct"] for v in both) + plain["entitled_pct"] == pytest.approx(200, abs=1)


def test_number_of_turbo_cores_changes(takt):
    spare = "3" if pool(takt, "turbo")["cpus"] == "2" else "2"
    takt(f"cpupool-cpu-remove Pool-0 {spare}")
    takt(f"cpupool-cpu-add turbo {spare}")
    assert pool(takt, "turbo")["nr_cpus"] == 2
    takt(f"cpupool-cpu-remove turbo {spare}")
    takt(f"cpupool-cpu-add Pool-0 {spare}")
    assert pool(takt, "turbo")["nr_cpus"] == 1


def test_settings_of_the_shell(takt):
    takt("create late")
    takt("sched-credit -s -p core --slicer vslicer --boost off")
    takt("sched-credit -d plain --micro-us 5000")
    until(lambda: takt("vcpu-list late")[0]["class"] == "NL")
    ls = takt("vcpu-list plain")[0]
    assert ls["class"] == "LS" and 0 < ls["micro_us"] <= 5000
    takt("sched-credit -s -p core --policy hardened")
    takt("sched-credit -d plain --micro-us 0")
    takt("destroy late")


def test_refusals_change_nothing(takt):
    shown = ("sched-credit", "sched-credit -s -p core", "sched-credit -s -p turbo", "cpupool-list")
    before = [takt(c) for c in shown]
    refused(takt, "sched-credit -s -p core --share prorata",
            "share and aca must be off")
    refused(takt, "sched-credit -s -p turbo --slicer edf", "slicer must be off")
    refused(takt, "sched-credit -s -p core --policy faithful-3.4", "debit must be time")
    refused(takt, "sched-credit -d plain --weight 300 --share-pct 101",
            "share_pct must be a whole number from 0 to 100")
    refused(takt, "sched-credit -d plain --no-such 1", "has no parameter no_such")
    refused(takt, "cpupool-turbo turbo", "has VMs")
    refused(takt, "cpupool-destroy turbo", "turbo is in use|half of a pair")
    refused(takt, "cpupool-migrate both Pool-0", "has a turbo vCPU")
    refused(takt, "cpupool-create x turbo_of=core", "in a pair already")
    refused(takt, "vcpu-pin both 0 1", "its pool has none of these")
    assert [takt(c) for c in shown] == before


def test_a_pair_made_and_ended_by_command(takt):
    takt("cpupool-create slow")
    takt("cpupool-cpu-remove Pool-0 " + ("3" if pool(takt, "turbo")["cpus"] == "2" else "2"))
    takt("cpupool-create fast turbo_of=slow cpus=cache:1")
    assert takt("sched-credit -s -p fast")[0]["tslice_us"] == 100
    takt("cpupool-turbo fast")
    assert pool(takt, "slow")["turbo"] == ""
    takt("cpupool-turbo fast slow")
    takt("cpupool-turbo fast")
    takt("cpupool-destroy fast")
    takt("cpupool-destroy slow")


@pytest.mark.long
def test_a_policy_of_labs_runs_in_the_image():
    subprocess.run(["make", "-s", "-j2", "B=build/labs", "LABS=labs/stride.c",
                    "build/labs/takt.elf", "build/labs/cfgdump"],
                   cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    config = "[hypervisor]\ntop = no\nsched = stride\n" + "".join(
        f"[vm {name}]\nimage = spin\nmemory = 4M\ncpus = 0\nweight = {weight}\n"
        for name, weight in (("light", 256), ("heavy", 768)))
    with Takt("labs", config, hv=os.path.join(BUILD, "labs", "takt.elf"), cpus=2) as t:
        until(lambda: all(v["switches"] for v in t("vcpu-list")))
        assert t("cpupool-list")[0]["sched"] == "stride"
        shares = t.shares(seconds=3)
        assert shares["heavy/0"] / shares["light/0"] == pytest.approx(3, rel=0.15)
