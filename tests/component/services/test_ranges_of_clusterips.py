"""The API server's range of ClusterIPs, held against the subnets of Services in Neutron.

The server of these tests has 10.96.0.0/16 and fd96::/112.
"""

import asyncio

import pytest

from tests.kit.fakes.faults import answer
from tests.kit.kube.client import KubeRefusal

HTTP = ("http", 80)
OUTSIDE = [{"start": "10.97.0.2", "end": "10.97.255.254"}]
UNFIT = {
    "gateway among them": (
        {"gateway_ip": "10.96.0.1", "allocation_pools": OUTSIDE},
        "the gateway 10.96.0.1 of subnet",
    ),
    "first address in an allocation pool": (
        {
            "gateway_ip": "10.97.0.1",
            "allocation_pools": [{"start": "10.96.0.1", "end": "10.96.0.9"}],
        },
        "10.96.0.1 to 10.96.0.9",
    ),
    "in no subnet": (
        {
            "cidr": "10.98.0.0/16",
            "gateway_ip": "10.98.0.1",
            "allocation_pools": [{"start": "10.98.0.2", "end": "10.98.0.9"}],
        },
        "part of none of its subnets (10.98.0.0/16, fd96::/64)",
    ),
}


@pytest.fixture
def first_subnet(services):
    """Of IPv4, as Neutron has it."""
    return services.cloud.store.get("subnet", services.cloud.services["subnets"][0])


@pytest.mark.parametrize("older", [False, True], ids=["ServiceCIDR", "default/kubernetes"])
@pytest.mark.parametrize("what", UNFIT)
async def test_unfit_range_holds_up_the_start_until_it_is_mended(
    services, first_subnet, what, older, capsys
):
    changes, expected = UNFIT[what]
    before = dict(first_subnet)
    first_subnet |= changes
    if older:
        _have_no_ranges(services)
    async with services.controller(leading=False, patience={"start_retry": 0.1}) as app:

        async def told():
            lines = capsys.readouterr().out.splitlines()
            return next((line for line in lines if expected in line), None)

        line = await services.until(told)
        assert "waiting for Kubernetes: [neutron_defaults] service_subnet: " in line
        assert ("10.96.0.1" if older else "10.96.0.0/16") in line
        assert not app.leading.is_set()
        first_subnet |= before
        async with asyncio.timeout(60):
            await app.leading.wait()


async def test_older_kubernetes_without_ranges_is_served(services):
    _have_no_ranges(services)
    async with services.controller():
        await services.add_service("web", HTTP)
        await services.until_published()


def _have_no_ranges(services):
    services.proxy.faults.add(path="/servicecidrs", times=None, action=answer(404))


@pytest.fixture
async def added(services):
    """A range that is added to the server's, in none of the subnets."""
    path, name = "/apis/networking.k8s.io/v1/servicecidrs", services.cluster.namespace
    body = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": name},
        "spec": {"cidrs": ["10.99.0.0/24"]},
    }
    made = await services.client.request("POST", path, body)
    # what kube-controller-manager says of it
    ready = {"type": "Ready", "status": "True", "reason": "", "message": ""}
    ready["lastTransitionTime"] = made["metadata"]["creationTimestamp"]
    await services.client.patch(f"{path}/{name}/status", {"status": {"conditions": [ready]}})
    yield made
    await services.client.delete(f"{path}/{name}")


async def test_range_that_is_added_is_told_and_stops_nothing(services, added):
    async with services.controller():
        await services.add_service("web", HTTP, clusterIP="10.96.70.7")
        await services.until_published()

        async def told():
            path = "/apis/events.k8s.io/v1/namespaces/default/events"
            return [
                event["note"]
                for event in await services.client.list(path)
                if event["regarding"].get("uid") == added["metadata"]["uid"]
                and event["reason"] == "KuryrServiceRangeUnfit"
            ]

        (note,) = await services.until(told)
    assert "10.99.0.0/24, which is part of none" in note


async def test_address_outside_of_the_services_subnets_is_told_once(services, added):
    async with services.controller():

        async def added_service():
            try:
                return await services.add_service("web", HTTP, clusterIP="10.99.0.7")
            except KubeRefusal:
                return None  # the server has not heard of the range yet

        await services.until(added_service)
        note = await services.until_event("KuryrRefused")
        assert "10.99.0.7 is in none of the subnets of Services" in note
        await services.patch_service(metadata={"labels": {"looked": "again"}})
        await services.add_service("other", HTTP, clusterIP="10.96.70.8")
        await services.until_published("other")
        assert [reason for reason, _ in await services.events()] == ["KuryrRefused"]
        await services.delete_service()
        await services.until_service_gone()  # the range is held by its addresses
