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
    config.addinivalue_line("markers", "bochs: runs in Bochs, in virtual time: others beside it do not disturb it")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if hasattr(item, "callspec") and "bochs" in item.callspec.params.values():
            item.add_marker("bochs")
    if not config.getoption("--long"):
        for item in items:
            if "long" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="takes long; make check runs it"))


def pytest_generate_tests(metafunc):
    if "platform" in metafunc.fixturenames:
        metafunc.parametrize("platform", platforms(metafunc.config), scope="session")
