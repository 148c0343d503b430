"""One pytest item for each guest test and platform; all that are selected for a platform share its boots."""
import pytest
from conftest import platforms

import guest.runner as runner

pytestmark = pytest.mark.alone


def pytest_generate_tests(metafunc):
    pairs = [(p, t) for p in platforms(metafunc.config) for t in runner.all_tests() if not t.only or p in t.only.split()]
    metafunc.parametrize("place,guest_test", pairs, ids=[f"{t.name}-{p}" for p, t in pairs])


@pytest.fixture(scope="session")
def results(request):
    """The Result of a test: when first asked, of all that are selected; who asks again has it run again, alone."""
    done = {}

    def get(platform, test):
        if platform not in done:
            chosen = [i.callspec.params for i in request.session.items if "guest_test" in getattr(i, "fixturenames", ())]
            done[platform] = runner.run(platform, [p["guest_test"] for p in chosen if p["place"] == platform])
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
