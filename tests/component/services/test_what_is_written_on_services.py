"""Annotations and statuses of Services, and Events: what the controller writes, and what not."""

import pytest

from tests.kit.fakes.faults import Answer, delay
from tests.kit.load_balancer_services import (
    HTTP,
    ID,
    READY,
    UNSUPPORTED,
    expose,
    marks,
    open_up,
    operators,
    until_condition,
    until_ingress,
    until_reached,
)
from tests.kit.service_stage import CUT, STATE

ANNOTATIONS_LIMIT = 256 * 1024  # bytes of all together, by the API server


@pytest.fixture(autouse=True)
def scene(services):
    open_up(services)


async def test_load_balancer_that_the_user_names_meanwhile_is_not_overwritten(services):
    named = operators(services)
    cloud = services.cloud
    cloud.faults.add(method="POST", path="/floatingips", times=1, action=delay(1.0))
    async with services.controller():
        await expose(services, ("http", 8888))
        await cloud.wait_for(
            lambda: any(
                "floatingips" in call.what and call.method == "POST" for call in cloud.calls
            )
        )
        await services.patch_service(metadata={"annotations": marks(load_balancer_id=named)})
        await until_ingress(services, [cloud.load_balancers[named]["vip_address"]])
    assert (await services.service())["metadata"]["annotations"][ID] == named


async def test_state_that_has_no_room_is_published_without_members(services):
    async with services.controller():
        await services.add_service("web", HTTP, type="LoadBalancer")
        await services.until_published()
        others = {"mine": "x" * (ANNOTATIONS_LIMIT - 6000)}
        await services.client.patch(
            services.endpoints_path(), {"metadata": {"annotations": others}}
        )
        addresses = [f"10.62.0.{number}" for number in range(1, 41)]
        await services.set_slice("a", *addresses, ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {(address, 8080): 1 for address in addresses}})

        async def cut():
            annotations = (await services.endpoints())["metadata"]["annotations"]
            return annotations.get(CUT) == "0 of 40"

        await services.until(cut)


async def test_state_that_cannot_be_published_at_all_holds_up_no_status(services):
    async def refuse_states(request, proceed):
        if STATE in await request.text():
            raise Answer(500)
        return await proceed()

    services.proxy.faults.add(method="PATCH", path="/endpoints/", times=None, action=refuse_states)
    async with services.controller():
        await expose(services)
        await until_reached(services)
        await until_condition(services, READY, "True")
        assert "HTTP 500" in await services.until_event("KubernetesFailed")


async def test_unchanged_a_restarted_controller_tells_nothing_again(services):
    async with services.controller():
        await services.add_service("web", HTTP, internalTrafficPolicy="Local")
        await until_condition(services, UNSUPPORTED, "True")
    told = await services.events()
    assert [reason for reason, _ in told] == ["KuryrInternalTrafficPolicyIgnored"]
    async with services.controller():
        await services.patch_service(spec={"sessionAffinity": "ClientIP"})

        async def looked_at():
            (tree,) = services.trees()
            return tree["listeners"][0]["pool"]["session_persistence"]

        await services.until(looked_at)
        await services.add_service("second", HTTP, internalTrafficPolicy="Local")
        await until_condition(services, UNSUPPORTED, "True", "second")
    assert len(await services.events()) == len(told) + 1
