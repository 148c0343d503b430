"""One pytest item for each guest test and platform; all that are selected for a platform share its
boots."""
import os
import re

import pytest
from conftest import BUILD, platforms

import guest.runner as runner

pytestmark = pytest.mark.alone


def pytest_generate_tests(metafunc):
    if "guest_test" not in metafunc.fixturenames:
        return
    pairs = [(p, t) for p in platforms(metafunc.config) for t in runner.all_tests() if not t.only
             or p in t.only.split()]
    metafunc.parametrize("place,guest_test", pairs, ids=[f"{t.name}-{p}" for p, t in pairs])


@pytest.fixture(scope="session")
def results(request):
    """The Result of a test: when first asked, of all that are selected; who asks again has it run
    again, alone."""
    done = {}

    def get(platform, test):
        if platform not in done:
            chosen = [i.callspec.params for i in request.session.items
                      if "guest_test" in getattr(i, "fixturenames", ())]
            done[platform] = runner.run(platform,
                                        [p["guest_test"] for p in chosen if p["place"] == platform])
        if test.name not in done[platform]:
            done[platform] = {**done[platform], **runner.run(platform, [test])}
        return done[platform].pop(test.name)
    return get


def test_guest(results, place, guest_test):
    result = results(place, guest_test)
    if result.verdict == "SKIP":
        pytest.skip(result.text)
    if result.verdict != "SUCCESS":
        pytest.fail(f"{result.verdict}: {result.text}\n{result.log}", pytrace=False)


def checked_boot(platform, tests, name, host):
    """Boots the image that checks each entry; returns what it printed, {guest: broken rules}, and
    how many entries it checked."""
    text, how = runner.boot(platform, tests, os.path.join(BUILD, "results", "guest", name),
                            "takt-checked.elf", host)
    assert how == "ended", text[-2000:]
    broken, guest = {}, None
    for line in text.split("\n"):
        created = re.search(r"create (\S+)", line)
        guest = created[1] if created else guest
        rule = re.search(r"an entry breaks a rule: (.*)", line)
        if rule:
            broken.setdefault(guest, set()).add(rule[1])
    return text, broken, int(re.search(r'"entries_checked", *"value": *(\d+)', text)[1])


CHECKED_SLACK = 6  # times what a test asks for: the checks of each entry take virtual time, too


def check_entries(platform, name, host=()):
    """Runs all tests that need no device in the image that checks each entry, with more lines of
    [hypervisor]. Yields for each boot its tests and what it printed."""
    some = [t._replace(time=CHECKED_SLACK * t.time) for t in runner.all_tests() if not t.devices
            and (not t.only or platform in t.only.split())]
    for n in range(0, len(some), runner.PER_BOOT):
        tests = some[n:n + runner.PER_BOOT]
        text, broken, checked = checked_boot(platform, tests, f"{platform}-{name}-{n}", host)
        assert checked > 1000 and not broken
        yield tests, text


@pytest.mark.long
def test_each_entry_keeps_the_rules(platform):
    """Neither the manuals nor KVM would refuse a VMCS or VMCB that a guest test enters."""
    for _ in check_entries(platform, "checked"):
        pass


@pytest.mark.long
@pytest.mark.bochs
def test_apic_virtualization():
    """Guests cannot tell that the CPU delivers their interrupts. In all other tests it does not."""
    for tests, text in check_entries("bochs", "apicv", ["apicv = on"]):
        assert "apicv = on: the CPU delivers" in text
        results = {t.name: runner.judge(t, text, "ended") for t in tests}
        wrong = {name: r for name, r in results.items() if r.verdict not in ("SUCCESS", "SKIP")}
        assert not wrong
