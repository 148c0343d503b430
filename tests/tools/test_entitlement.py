"""tools/entitlement.py is compared with cases that were worked out by hand."""
import random
from fractions import Fraction as F

import pytest

import entitlement as e


def shares(*specs):
    """specs: (weight, limit in per cent, cpus)"""
    vcpus = [
        e.Vcpu("v", i, F(w), F(limit, 100), frozenset(cpus))
        for i, (w, limit, cpus) in enumerate(specs)
    ]
    return [float(s * 100) for s in e.max_min(vcpus)]


def test_even():
    assert shares((256, 100, {0}), (256, 100, {0})) == [50, 50]


def test_weights():
    assert shares((512, 100, {0}), (256, 100, {0}), (256, 100, {0})) == [50, 25, 25]


def test_small_demand_is_met_and_the_rest_shared():
    # This is the demonstration: two VMs that compute all the time, one of 40 %, one of 1 %. 40 is
    # more than a third of 99, so all three get 33.
    assert shares((256, 100, {0}), (256, 100, {0}), (256, 40, {0}), (256, 1, {0})) == [
        33,
        33,
        33,
        1,
    ]


def test_cap_leaves_the_rest_to_others():
    # Weights of 3:1 would give 75:25. A cap of 40 leaves 60.
    assert shares((3, 40, {0}), (1, 100, {0})) == [40, 60]


def test_nobody_gets_more_than_one_cpu():
    assert shares((1000, 100, {0, 1}), (1, 100, {0, 1})) == [100, 100]


def test_affinities_overlap():
    # a may use pCPU 0, b may use both, c may use pCPU 1. All have the same weight, so each gets
    # 2/3.
    assert shares((1, 100, {0}), (1, 100, {0, 1}), (1, 100, {1})) == [
        float(F(200, 3))] * 3
    # At these shares c with weight 2 would need 4/3, so the levels are a = b = t and c = 2t with t
    # = 1/2. Then c is at its limit of 1 pCPU, and a and b share pCPU 0.
    assert shares((1, 100, {0}), (1, 100, {0, 1}), (2, 100, {1})) == [50, 50, 100]


def test_full_cpu_does_not_hold_back_another():
    # Three vCPUs are on pCPU 0, one is on pCPU 1, and one may use both. The last one uses only pCPU
    # 1: the three get 1/3 each, and the other two get 50 each.
    assert shares((1, 100, {0}), (1, 100, {0}), (1, 100, {0}), (1, 100, {1}), (1, 100, {0, 1})) == [
        float(F(100, 3))] * 3 + [50, 50]


def test_idle_capacity():
    assert shares((1, 10, {0}), (1, 20, {0})) == [10, 20]


def test_no_cpu():
    assert shares((1, 100, set()), (1, 100, {0})) == [0, 100]


def test_of_a_configuration():
    config = {
        "pools": [{"name": "fast", "cpus": [1]}],
        "vms": [
            {"name": "a", "vcpus": 2, "params": {"weight": "512"}},
            {"name": "b", "vcpus": 1, "params": {"cap": "20"}, "cpus_given": False, "cpus": [0, 1]},
            {"name": "c", "vcpus": 1, "pool": "fast", "demand_permille": 400},
            {"name": "d", "vcpus": 1, "start": False},
        ],
    }
    # Pool-0 has pCPU 0. b takes its cap of 20, and a's two vCPUs share the remaining 80.
    assert e.entitlement(config, 2) == {("a", 0): 40, ("a", 1): 40, ("b", 0): 20, ("c", 0): 40}


TURBO = {
    "pools": [{"name": "core", "cpus": [1]}, {"name": "turbo", "cpus": [2], "turbo_of": "core"}],
    "vms": [
        {"name": "both", "vcpus": 1, "pool": "core", "turbo": True},
        {"name": "plain", "vcpus": 1, "pool": "core", "turbo": False},
    ],
}


def of_vms(got):
    sums = {}
    for (vm, _), pct in got.items():
        sums[vm] = sums.get(vm, 0) + pct
    return sums


def test_turbo_is_entitled_in_both_pools_together():
    # This is the introduction of the paper: 100 on the regular core, or 50 and 50. Max-min gives
    # the VM that may use both cores what the other VM cannot use.
    assert of_vms(e.entitlement(TURBO, 3)) == {"both": 100, "plain": 100}
    assert set(e.entitlement(TURBO, 3)) == {("both", 0), ("both", 1), ("plain", 0)}
    assert e.turbo_vms(TURBO) == {"both"}


def test_turbo_by_weight():
    # Three VMs have a core and a turbo core, and one of them cannot use the turbo core. 200 is
    # shared in thirds, as FS says.
    vms = [
        {"name": n, "vcpus": 1, "pool": "core", "turbo": n != "c", "params": {"weight": "256"}}
        for n in "abc"
    ]
    got = of_vms(e.entitlement({**TURBO, "vms": vms}, 3))
    assert all(abs(pct - 200 / 3) < 1e-9 for pct in got.values())
    vms[2]["params"] = {"weight": "128"}  # the weights are 2:2:1
    got = of_vms(e.entitlement({**TURBO, "vms": vms}, 3))
    assert {n: round(pct, 6) for n, pct in got.items()} == {"a": 80, "b": 80, "c": 40}


def test_turbo_cap_is_of_both():
    vms = [{**vm, "params": {"cap": "60"}} if vm["turbo"] else vm for vm in TURBO["vms"]]
    assert of_vms(e.entitlement({**TURBO, "vms": vms}, 3)) == {"both": 60, "plain": 100}


def test_demo_compares_sums():
    import demo  # noqa: E402
    rows = [{"vm": "both", "vcpu": n, "pcpu": n, "cpu_pct": pct, "entitled_pct": 50,
             "switches_per_s": 0, "exits_per_s": 0,
             "wake_us": {"p50": 0, "p99": 0, "max": 0}} for n, pct in enumerate((20, 80))]
    result = {"platform": "x", "vendor": "y", "seconds": 1, "vcpus": rows}
    assert demo.print_table(result, 1.0, {"both"}) == 0
    assert demo.print_table(result, 1.0) == 2
    rows[0]["cpu_pct"] = 10
    assert demo.print_table(result, 1.0, {"both"}) == 1


def test_cpus_chosen_at_boot_are_not_known():
    with pytest.raises(SystemExit):
        e.entitlement({**TURBO, "pools": [{"name": "core", "cpus": [], "chosen_cpus": True}]}, 3)


def test_max_min_property():
    """A vCPU below its limit could get more only at the cost of one that is no richer per
    weight."""
    rnd = random.Random(1)
    for _ in range(150):
        cpus = rnd.randint(1, 4)
        vcpus = [
            e.Vcpu(
                "v",
                i,
                F(rnd.choice([1, 2, 3, 64, 256])),
                F(rnd.randint(1, 100), 100),
                frozenset(rnd.sample(range(cpus), rnd.randint(1, cpus))),
            )
            for i in range(rnd.randint(1, 7))
        ]
        got = e.max_min(vcpus)
        cpus_of = [v.cpus for v in vcpus]
        assert all(0 <= s <= v.limit for s, v in zip(got, vcpus))
        assert not e.max_flow(got, cpus_of)[1]
        tiny = F(1, 10**9)
        for i, v in enumerate(vcpus):
            if got[i] == v.limit:
                continue
            want = [min(s, max(0, s - tiny * len(got))) if j != i
                    and s / vcpus[j].weight > got[i] / v.weight + 2 * tiny
                    else s for j, s in enumerate(got)]
            want[i] += tiny
            assert e.max_flow(want, cpus_of)[1], (vcpus, got, i)
