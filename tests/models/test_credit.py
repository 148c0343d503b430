"""The reference model of Credit 3.4 to 4.2 against build/sim: every pick, to the ns, and every
accounting pass."""
import pytest

from models import credit, machine, scenario, units


def test_some_random_scenarios():
    scenario.must_agree(credit, "credit", range(1, 16))


@pytest.mark.long
def test_two_hundred_random_scenarios():
    scenario.must_agree(credit, "credit", range(16, 216))


def test_whole_credits_are_another_schedule():
    """The longest waits differ between the two units, and shares do not, within two points.
    Otherwise comparing in both units would show no more than comparing in one."""
    found = units.ratios(range(94, 99))
    assert any(abs(r[0] - 1) > 0.05 for r in found)
    assert max(r[5] for r in found) < 2


@pytest.mark.parametrize("cpus, vms, expected", (
    (1, ((512, 0, 1), (256, 0, 1)), (200, 100)),
    (2, ((512, 0, 1), (256, 0, 1), (256, 0, 1), (128, 0, 1)), (267, 134, 134, 67)),
    (2, ((256, 50, 1), (256, 0, 1), (256, 0, 1)), (150, 225, 225)),
    (2, ((256, 0, 1), (256, 0, 1), (256, 50, 1)), (200, 200, 150)),
    (2, ((256, 0, 4), (256, 0, 1)), (120, 120)),
))
def test_grants_worked_out_by_hand(cpus, vms, expected):
    """VMs are (weight, cap, active vCPUs), in the order in which accounting visits them; in whole
    credits."""
    m = machine.Machine(cpus, 0, 0)
    pool = credit.Credit(m, range(cpus), credit.rules_of("faithful-4.2", unit=100_000))
    for number, (weight, cap, vcpus) in reversed(list(enumerate(vms))):
        vm = credit.Vm(number, str(number), weight, cap)
        for index in range(vcpus):
            v = machine.Vcpu(vm, index, machine.Spin(), {0})
            pool.add(v)
            pool.activate(v)
    shares, _ = pool.divide()
    each = {vm.number: credit.ceil_div(got, len(vm.active)) for vm, got, _ in shares}
    assert tuple(each[i] for i in range(len(vms))) == expected
