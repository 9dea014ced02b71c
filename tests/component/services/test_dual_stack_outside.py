"""Dual-stack Services that need load balancers outside: one for each address family."""

import pytest

from tests.kit.load_balancer_services import (
    INTERNAL,
    READY,
    balancer,
    expose,
    floating,
    ingress_of,
    listener,
    marks,
    open_up,
    until_condition,
    until_ingress,
    until_reached,
)

DUAL = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
V4, V6 = "192.0.2.0/24", "2001:db8::/32"
FIRST, SECOND = "external", "external/IPv6"


@pytest.fixture(autouse=True)
def scene(services):
    open_up(services)


async def dual(services, annotations, **spec):
    """A Service with endpoints of both families."""
    await services.set_slice("b", "fd62::5", ports=[("http", 8080)], family="IPv6")
    return await expose(services, annotations=annotations, **(DUAL | spec))


def vips(services):
    """Of the load balancers outside: {part of its name: VIP}."""
    found = {part: balancer(services, part) for part in (FIRST, SECOND)}
    return {part: tree["vip_address"] for part, tree in found.items() if tree is not None}


async def until_vips(services, *parts):
    async def there():
        return vips(services).keys() == set(parts)

    await services.until(there)


async def until_addresses(services, count):
    """Wait until the ingress has so many addresses, those of the load balancers; them."""

    async def told():
        found = [entry["ip"] for entry in await ingress_of(services)]
        return found if len(found) == count and found == [*vips(services).values()] else None

    return await services.until(told)


async def test_both_families_have_their_ranges_and_members_and_both_are_addresses(services):
    async with services.controller():
        await dual(services, {INTERNAL: "true"}, loadBalancerSourceRanges=[V4, V6])
        v4, v6 = await until_addresses(services, 2)
        assert (":" in v4, ":" in v6) == (False, True)
        for part, ranges, address in ((FIRST, V4, "10.62.0.5"), (SECOND, V6, "fd62::5")):
            front = listener(services, part)
            assert front["allowed_cidrs"] == [ranges]
            assert [member["address"] for member in front["pool"]["members"]] == [address]
        await services.delete_service()
        await services.until_service_gone()
    assert not vips(services)


async def test_floating_ip_has_a_routed_ipv6_address_beside_it(services):
    cloud = services.cloud
    frontend = cloud.add_network("frontend", "10.44.0.0/24", "2a00:44::/64")
    cloud.add_router(cloud.public["id"], frontend["subnets"][0])
    async with services.controller():
        await dual(services, marks(network_id=frontend["id"]))
        await until_vips(services, FIRST, SECOND)

        async def both():
            return len(await ingress_of(services)) == 2

        await services.until(both)
        public, routed = [entry["ip"] for entry in await ingress_of(services)]
    assert floating(services) == {public: vips(services)[FIRST]}
    assert routed == vips(services)[SECOND]
    assert routed.startswith("2a00:44::")


async def test_family_that_nobody_would_reach_has_no_load_balancer_outside(services):
    """There are no floating IPs of IPv6, and nothing leads to the subnet of Services."""
    async with services.controller():
        await dual(services, marks(proxy_protocol="v2"))
        (ingress,) = await until_reached(services)
        assert floating(services).keys() == {ingress["ip"]}
        await until_condition(services, READY, "True")
    assert vips(services).keys() == {FIRST}


@pytest.mark.parametrize("name", ["subnet-id", "port-id"])
async def test_place_of_one_family_is_outside_in_that_one_alone(services, name):
    cloud = services.cloud
    frontend = cloud.add_network("frontend", "10.44.0.0/24", "2a00:44::/64")
    port = cloud.add_port(frontend["id"], name="mine")
    place = {"subnet-id": frontend["subnets"][0], "port-id": port["id"]}[name]
    asked = marks(**{name: place}) | {INTERNAL: "true"}
    async with services.controller():
        await dual(services, asked)
        await until_reached(services)
        await until_condition(services, READY, "True")
    assert vips(services).keys() == {FIRST}


async def test_second_family_comes_and_goes_with_its_ranges_and_the_first_stays(services):
    async with services.controller():
        await dual(services, {INTERNAL: "true"}, loadBalancerSourceRanges=[V4])
        await until_addresses(services, 1)
        first = set(services.cloud.load_balancers)
        await services.patch_service(spec={"loadBalancerSourceRanges": [V4, V6]})
        await until_addresses(services, 2)
        await services.patch_service(spec={"loadBalancerSourceRanges": [V4]})
        await until_addresses(services, 1)
        assert set(services.cloud.load_balancers) == first


async def test_second_family_comes_and_goes_with_the_service_s_own_and_the_first_stays(services):
    async with services.controller():
        single = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}
        await dual(services, {INTERNAL: "true"} | marks(proxy_protocol="v2"), **single)
        (v4,) = await until_addresses(services, 1)
        await services.patch_service(spec=DUAL)
        assert (await until_addresses(services, 2))[0] == v4
        await services.patch_service(
            spec={**single, "clusterIPs": (await services.service())["spec"]["clusterIPs"][:1]}
        )
        assert await until_addresses(services, 1) == [v4]


async def test_second_family_goes_when_nothing_outside_is_needed_any_more(services):
    async with services.controller():
        service = await dual(services, {INTERNAL: "true"} | marks(proxy_protocol="v2"))
        await until_addresses(services, 2)
        await services.patch_service(
            metadata={"annotations": dict.fromkeys(marks(proxy_protocol=""))}
        )
        await until_ingress(services, service["spec"]["clusterIPs"])
        await until_vips(services)


async def test_trouble_with_the_second_family_holds_up_nothing_else(services):
    cloud = services.cloud
    frontend = cloud.add_network("frontend", "10.44.0.0/24")
    cloud.add_subnet(frontend["id"], "2a00:44::/64", allocation_pools=[])
    async with services.controller():
        await dual(services, {INTERNAL: "true"} | marks(network_id=frontend["id"]))
        await until_reached(services)
        await until_condition(services, READY, "False")
        await until_vips(services, FIRST)
        await services.set_slice("a", "10.62.0.6", ports=[("http", 8080)])

        async def followed():
            members = listener(services, FIRST)["pool"]["members"]
            return [member["address"] for member in members] == ["10.62.0.6"]

        await services.until(followed)
        assert [entry["ip"] for entry in await ingress_of(services)] == [vips(services)[FIRST]]


async def test_first_family_does_not_wait_for_the_second(services):
    async with services.controller():
        services.cloud.octavia.progress.stalled = lambda found: ":" in found["vip_address"]
        await dual(services, {INTERNAL: "true"} | marks(proxy_protocol="v2"))
        (ingress,) = await until_reached(services)
    assert ingress["ip"] == vips(services)[FIRST]


async def test_limits_that_cannot_be_had_close_both_families(services):
    """Of the second one as well: nothing stays open to more than what is asked for."""
    services.cloud.octavia.newest = 28  # it knows no groups
    async with services.controller():
        await dual(services, {INTERNAL: "true"} | marks(proxy_protocol="v2"))
        await until_addresses(services, 2)
        await services.patch_service(
            metadata={
                "annotations": marks(vip_sg_ids=services.cloud.add_security_group("web")["id"])
            }
        )
        await until_ingress(services, [])
        await until_vips(services)
