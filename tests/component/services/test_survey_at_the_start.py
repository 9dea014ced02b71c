"""A controller that starts beside many Services first learns what Octavia has."""

import aiohttp
import pytest

from tests.component.services.web import UP, run
from tests.kit.fakes.faults import Hang, answer
from tests.kit.load_balancer_services import READY, expose, open_up, until_condition

RUNNING = "kuryr_load_balancer_survey_running"
OBJECTS = "kuryr_load_balancer_survey_objects"
CHECK = "load balancers known"


async def test_start_that_takes_long_is_shown_and_changes_nothing(services, controller_url):
    options, url = controller_url
    async with services.controller():
        await run(services)
        await services.add_service("second", ("http", 81))
        await services.until_published("second")
    before = await services.more_state()
    services.cloud.calls.clear()
    services.proxy.calls.clear()
    hang = Hang(applied=True)
    services.cloud.faults.add(
        method="GET", path="/lbaas/pools$", when=lambda it: "project_id" in it.query, action=hang
    )

    async def ready():
        async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as answer:
            return f"[+] {CHECK}" in await answer.text()

    async with services.controller(**options) as app:
        await hang.reached.wait()
        assert not await ready()
        assert app.registry.get_sample_value(RUNNING) == 1
        assert app.registry.get_sample_value(OBJECTS) >= 2, "the load balancers, by now"
        hang.release()
        await services.until(ready)
        assert app.registry.get_sample_value(RUNNING) == 0
        assert app.registry.get_sample_value(OBJECTS) == 6, "with a listener and a pool each"
        # what is changed now is seen
        await services.set_slice("b", "10.62.0.7", ports=[("http", 8080)], service="second")
        await services.until_shown({("10.62.0.7", 8080)}, name="second")
    writes = services.octavia_calls()
    assert [method for method, _path in writes] == ["PUT"], "of the new member"
    after = await services.more_state()
    assert after["status of services"] == before["status of services"]
    assert services.members() == UP | {("TCP", 81): {("10.62.0.7", 8080): 1}}


@pytest.mark.parametrize(
    ("status", "reason"), [(500, "OpenStackFailed"), (403, "OpenStackRefused")]
)
async def test_outage_at_the_start_is_told_and_ends(services, status, reason):
    open_up(services)
    services.cloud.faults.add(
        method="GET", path="/lbaas/loadbalancers$", times=None, action=answer(status)
    )
    soon = {"first_refused": 0.1, "refused": 0.2, "sweep_retry": 0.2}

    async def told():
        return reason in {each for each, _note in await services.events()}

    async with services.controller(patience=soon):
        await expose(services)
        await services.until(told)
        if status == 403:  # what may pass by itself is no condition
            assert (await until_condition(services, READY, "False"))[0] == reason
        services.cloud.faults.clear()
        await until_condition(services, READY, "True")
        await services.until_members({("TCP", 80): {("10.62.0.5", 8080): 1}})
