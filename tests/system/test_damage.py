"""A fault of the hypervisor itself damages a VM: its second-level tables, or registers that no CPU
accepts at an entry. That VM is stopped with a dump and a reason; the others go on."""
from system.takt import Boot

CONFIG = """\
[hypervisor]
top = no
script = script
""" + "".join(f"""
[vm {name}]
image = spin
memory = 4M
on_crash = preserve
""" for name in ("tables", "registers", "bystander"))
SCRIPT = """\
@300ms fault npt tables
+100ms fault entry registers
+300ms list -j=after
+0ms   poweroff
"""


def test_damage(platform):
    boot = Boot("damage", CONFIG, SCRIPT, platform, timeout=180)
    states = {v["name"]: v["state"] for v in boot.results["after"]}
    assert states == {
        "tables": "crashed",
        "registers": "crashed",
        "bystander": "running",
    }, boot.log[-3000:]
    # QEMU does not report reserved bits when it finds them during the guest's own page walk.
    why = (
        "malformed second-level entry"
        if platform == "bochs"
        else "(malformed|.*a page table has to be in RAM)"
    )
    assert boot.said("tables: crashed: " + why)
    assert boot.said(r"registers: crashed: the CPU refuses to enter it: \S")
    assert boot.said("vCPU 0: rip ")
