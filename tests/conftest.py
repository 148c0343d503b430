import os
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
sys.path[:0] = [os.path.join(ROOT, "tools"), os.path.join(ROOT, "tests")]


def pytest_addoption(parser):
    parser.addoption("--platform", action="append", help="qemu, bochs or kvm; may be repeated (qemu and bochs)")
    parser.addoption("--long", action="store_true", help="also the tests that take long")


def platforms(config):
    return config.getoption("--platform") or ["qemu", "bochs"]


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes long; only with --long")
    config.addinivalue_line("markers", "long_on(platform): takes long there")
    config.addinivalue_line("markers", "bochs: runs in Bochs, in virtual time")
    config.addinivalue_line("markers", "alone: judges times or shares by the host's clock: nothing may run beside it")


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
