"""The reference model of vTurbo against build/sim: every pick in both pools, and every exchange of
shares."""
import pytest

from models import scenario, vturbo, vturbo_default


def test_some_random_scenarios():
    scenario.must_agree(vturbo, "vturbo", range(1, 9))


@pytest.mark.long
def test_two_hundred_random_scenarios():
    scenario.must_agree(vturbo, "vturbo", range(9, 209))


def test_some_random_scenarios_under_the_default_presets():
    scenario.must_agree(vturbo_default, "vturbo_default", range(1, 6))


@pytest.mark.long
def test_fifty_random_scenarios_under_the_default_presets():
    scenario.must_agree(vturbo_default, "vturbo_default", range(6, 56))


@pytest.mark.parametrize("rd, td, regular, turbo", (
    ((50, 50), (0, 0), [50, 50], [0, 0]),
    ((50, 50), (0, 100), [100, 0], [0, 100]),
    ((50, 50), (50, 50), [50, 50], [50, 50]),
    ((50, 50), (15, 55), [70, 30], [35, 35]),
    ((34, 33, 33), (0, 0, 100), [66, 66, 0], [0, 0, 100]),  # not in the table: nothing below 0
))
def test_table_1(rd, td, regular, turbo):
    n = len(rd)
    assert vturbo.shares([256] * n, [True] * n, rd, td) == (regular, turbo)
