"""Virtual functions in virtual time: the second machine of make sriov-demo
(tools/sriovsched.py)."""
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import sriovsched
from conftest import BUILD


@pytest.mark.long
def test_virtual_functions_in_virtual_time_repeat():
    """Two boots run side by side, so that each disturbs the other. Their output is the same to the
    last byte. An interrupt that comes twice would stop a stream, but only if it comes at a bad
    time. So test_vendors.c is what shows that none does."""
    policies = ("faithful-4.2", "sc")
    commands = sriovsched.script(1, policies)
    directories = [os.path.join(BUILD, "run", f"vf-time-{n}") for n in (1, 2)]
    with ThreadPoolExecutor(2) as side_by_side:
        (how, first), (_, second) = side_by_side.map(lambda d: sriovsched.boot(d, commands),
                                                     directories)
    assert how == "ended" and first == second
    said = sriovsched.Said(first, policies)
    assert said.found["sc"][0] > sriovsched.GAIN * said.found["faithful-4.2"][0] > 1, said.found
