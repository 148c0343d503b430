"""Compares the reference model of shared credit (SC) and agile credit allocation (ACA) with
build/sim: every decision, every accounting pass, and every amount of credit that is moved."""
import pytest

from models import credit, machine, scenario, workload


def test_some_random_scenarios():
    scenario.must_agree(workload, "workload", range(1, 25))


@pytest.mark.long
def test_two_hundred_random_scenarios():
    scenario.must_agree(workload, "workload", range(25, 225))


@pytest.mark.parametrize("io_vms, percent, how, io_gets, others_get", (
    (1, 50, "prorata", 300, [85.7] * 7),
    (1, 100, "prorata", 300, [85.7] * 7),
    (1, 50, "sequential", 300, [56.25] * 3 + [93.75] + [112.5] * 3),
    (1, 100, "sequential", 300, [0, 37.5] + [112.5] * 5),
    (3, 50, "prorata", 206.25, [56.25] * 5),
    (3, 100, "prorata", 300, [0] * 5),
))
def test_the_testbed_of_the_paper(io_vms, percent, how, io_gets, others_get):
    """The example of the paper: eight VMs of equal weight on three pCPUs. Numbers are credits of
    100 us."""
    m = machine.Machine(3, 0, 0)
    pool = workload.WorkloadAware(m, range(3), credit.rules_of("faithful-4.2", unit=1), how, False)
    for number in reversed(range(8)):
        vm = credit.Vm(number, str(number))
        vm.io, vm.share_pct, vm.queues = number < io_vms, percent, 0
        v = machine.Vcpu(vm, 0, machine.Spin(), {0, 1, 2})
        pool.add(v)
        pool.activate(v)
    shares, _ = pool.divide()
    got = [ns / 100_000 for _, ns, _ in shares]
    assert got == pytest.approx([io_gets] * io_vms + others_get, abs=0.05)
