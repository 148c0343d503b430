"""Front ends and back ends come and go in every order, while the back end writes into the front
end's RAM. They leave no page behind."""
from system.takt import SCRIPTED, Boot, vm

CONFIG = SCRIPTED + vm("back", "test-dev_front_ends", cmdline='"vm=2 forever"', start="no") \
    + vm("front", "test-dev_front_ends", "6M", cmdline='"vm=1 forever"', net="back some options",
         start="no")


def one_round(ms):
    """Returns a script. The back end is there at its beginning and at its end. Each step has this
    many ms, in which the two find each other."""
    return ["+0ms create front", f"+{ms}ms destroy front",  # The back end goes on.
            "+0ms create front", f"+{ms}ms devices -j=runs", "+0ms destroy back",
            "+0ms devices -j=waits",
            "+0ms create back", f"+{ms}ms devices -j=broken",  # Its driver has not looked yet.
            "+0ms destroy front", "+0ms create front", f"+{ms}ms destroy back",
            "+0ms destroy front",
            "+0ms create back", f"+{ms}ms list"]


def test_no_page_is_left(platform):
    # On Bochs the two find each other in 30 to 40 ms of virtual time, of which making a VM takes up
    # to 16. Other versions of Bochs and other compilers need some more.
    rounds, ms = (2, 120) if platform == "bochs" else (5, 200)
    script = ["@300ms create back"] + (one_round(ms) + ["+0ms info -j=info"]) * (rounds + 1)
    script += ["+0ms poweroff"]
    boot = Boot("devices", CONFIG, script, platform, timeout=300)
    assert not boot.said("PANIC|: crashed|create: |destroy: "), f"see {boot.directory}/serial.txt"
    infos = [a["result"] for a in boot.answers if a["command"] == "info"]
    left = [(info["free_frames"], -info["heap_bytes"]) for info in infos]
    assert len(left) == rounds + 1
    seen = [a for a in boot.answers if a["command"] == "devices"]
    assert len(seen) == 3 * (rounds + 1)
    if platform == "qemu":
        # The host decides how far the two get in their time, so a round may be the first one that
        # needs something for good. What every round leaves behind shows in all of them.
        for what in zip(*left):
            assert any(after >= before for before, after in zip(what, what[1:])), left
        return
    assert left[0] == left[-1], left
    assert not boot.said("wrong:|RESULT"), f"see {boot.directory}/serial.txt"
    for a in seen:
        device, = a["result"]
        assert device["state"] == a["id"], device
        assert (device["vm"], device["number"], device["type"], device["back"]) == (
            "front",
            0,
            "net",
            "back",
        )
        if a["id"] == "runs":
            assert device["queues"] == 1 and device["notifies"] == 1 and device["interrupts"] == 1
