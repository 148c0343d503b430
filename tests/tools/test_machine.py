"""The machines of tools/machine.py themselves."""
from concurrent.futures import ThreadPoolExecutor

import pytest

import machine


@pytest.mark.bochs
def test_bochs_has_its_display_when_the_next_one_starts(tmp_path):
    iso = tmp_path / "empty.iso"
    iso.write_bytes(bytes(1 << 20))
    machines = [machine.Machine("bochs", iso, cpus=1, memory=32, directory=str(tmp_path / str(n))) for n in range(4)]

    def displays(m):
        with m:
            with open(m.dir + "/bochs.log", encoding="utf-8", errors="replace") as log:
                return log.read().count("listening for connections on port")

    with ThreadPoolExecutor(len(machines)) as pool:
        assert list(pool.map(displays, machines)) == [1] * len(machines)
