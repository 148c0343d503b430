import os
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
sys.path[:0] = [os.path.join(ROOT, "tools"), os.path.join(ROOT, "tests")]


def pytest_addoption(parser):
    parser.addoption("--platform", action="append",
                     help="qemu, bochs or kvm; may be repeated (qemu and bochs)")
    parser.addoption("--stress", type=int, default=60, metavar="SECONDS",
                     help="how long test_linux_stress.py has Linux under stress (60)")
    parser.addoption("--boots", type=int, default=4,
                     help="how many Linux VMs test_linux_hostile.py destroys (4)")
    parser.addoption("--long", action="store_true", help="also the tests that take long")


def platforms(config):
    return config.getoption("--platform") or ["qemu", "bochs"]


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes long; only with --long")
    config.addinivalue_line("markers", "long_on(platform): takes long there")
    config.addinivalue_line("markers", "bochs: runs in Bochs, in virtual time")
    config.addinivalue_line(
        "markers", "alone: judges times or shares by the host's clock: nothing may run beside it"
    )


BOOTING = ("guest", "system")  # directories whose tests boot machines


def boots(arguments):
    """Returns whether one of these arguments of pytest selects tests that boot machines."""
    tests = os.path.join(ROOT, "tests")
    selected = [os.path.abspath(a.partition("::")[0]) for a in arguments]
    return any(path == tests or os.path.relpath(path, tests).split(os.sep)[0] in BOOTING
               for path in selected)


def pytest_sessionstart(session):
    """Ends the run with one sentence if an emulator does not work here: else each test that boots
    it would fail."""
    config = session.config
    if hasattr(config, "workerinput") or config.option.collectonly or not boots(config.args):
        return  # the process that started this worker of xdist has already done it
    import machine
    for platform in platforms(config):
        try:
            machine.check(platform)
        except (machine.Died, OSError) as e:
            pytest.exit(f"no test was run, as {platform} does not work here: {e}", returncode=3)


def pytest_collection_modifyitems(config, items):
    for item in items:
        params = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if "bochs" in params:
            item.add_marker("bochs")
        if any(mark.args[0] in params for mark in item.iter_markers("long_on")):
            item.add_marker("long")
    if not config.getoption("--long"):
        for item in items:
            if "long" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="takes long; make check runs it"))


def pytest_generate_tests(metafunc):
    if "platform" in metafunc.fixturenames:
        metafunc.parametrize("platform", platforms(metafunc.config), scope="session")
