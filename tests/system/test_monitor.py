"""Labels of the I/O monitor, and event routes that change at run time, in a running image."""
import pytest

from system.takt import CommandError, Takt, until

pytestmark = pytest.mark.alone

CONFIG = """\
[hypervisor]
top = no
io_window_ms = 200

[vm reporter]
image = test-io_report
memory = 4M
cmdline = "every=20 ms=3000 quiet=100000"

[vm quiet]
image = waker
memory = 4M
cmdline = period_us=1000
route = running
"""


@pytest.fixture(scope="module")
def takt():
    with Takt("monitor", CONFIG, cpus=2) as t:
        yield t


def vm_class(takt, name):
    return next((v["class"] for v in takt("vcpu-list") if v["vm"] == name), None)


def test_label_comes_and_goes(takt):
    until(lambda: vm_class(takt, "reporter") == "io")
    assert vm_class(takt, "quiet") == ""  # The VM's own alarms do not count.
    until(lambda: vm_class(takt, "reporter") == "")


def test_route_is_a_parameter_of_a_vm(takt):
    assert takt("param -d quiet route")[0]["value"] == "running"
    takt("param -d quiet route spread")
    assert takt("param -d quiet route")[0]["value"] == "spread"
    with pytest.raises(CommandError):
        takt("param -d quiet route nowhere")
    with pytest.raises(CommandError):
        takt("param io_window_ms 0")
