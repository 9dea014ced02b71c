"""What ``[policy]`` lets users of a namespace name, and what happens to the rest."""

import uuid

import pytest

from tests.kit.load_balancer_services import (
    DNS,
    INTERNAL,
    READY,
    balancer,
    belong_to,
    expose,
    floating,
    marks,
    open_up,
    operators,
    until_condition,
    until_ingress,
    until_reached,
)

TENANT = "b" * 32
ADDRESS = "172.24.4.88"


@pytest.fixture(autouse=True)
def scene(services):
    open_up(services)


def policy(services, **named):
    """The operator grants these to the namespace, and no others of their kinds."""
    namespace = services.cluster.namespace
    return {
        kind: ",".join(f"{namespace}:{each}" for each in objects)
        for kind, objects in named.items()
    }


def port(cloud):
    named = cloud.add_port(cloud.pods["id"])["id"]
    return named, {"annotations": marks(port_id=named) | {INTERNAL: "true"}}


def network(cloud):
    named = cloud.pods["id"]
    return named, {"annotations": marks(network_id=named) | {INTERNAL: "true"}}


def subnet(cloud):
    asked = marks(subnet_id=cloud.pods["subnets"][0]) | {INTERNAL: "true"}
    return cloud.pods["id"], {"annotations": asked}


def additional_subnet(cloud):
    """Beside the VIP, which is where no annotation has to say."""
    pool = cloud.add_subnet(cloud.services["id"], "10.44.0.0/24")["id"]
    asked = marks(additional_vip_subnet_ids=pool) | {INTERNAL: "true"}
    return cloud.services["id"], {"annotations": asked}


def floating_network(cloud):
    named = cloud.public["id"]
    return named, {"annotations": marks(floating_network_id=named)}


def floating_ip(cloud):
    cloud.add_floating_ip(cloud.public["id"], floating_ip_address=ADDRESS)
    return ADDRESS, {"loadBalancerIP": ADDRESS}


def container(cloud):
    named = f"https://barbican.example:9311/v1/containers/{uuid.uuid4()}"
    cloud.octavia.store.certificates.add(named)
    return named, {"annotations": marks(default_tls_container_ref=named)}


def security_group(cloud):
    named = cloud.add_security_group("clients")["id"]
    return named, {"annotations": marks(vip_sg_ids=named) | {INTERNAL: "true"}}


# (option of [policy], makes the object; what is granted, and what a Service asks for by it)
NAMED = [
    ("ports", port),
    ("networks", network),
    ("networks", subnet),
    ("networks", additional_subnet),
    ("networks", floating_network),
    ("security_groups", security_group),
    ("floating_ips", floating_ip),
    ("tls_containers", container),
]


@pytest.mark.parametrize(("kind", "make"), NAMED)
async def test_what_is_not_granted_is_told_and_costs_no_cluster_ip(services, kind, make):
    named, asked = make(services.cloud)
    async with services.controller(policy=policy(services, **{kind: ["another"]})):
        await expose(services, **asked)
        note = await services.until_event("KuryrNotGranted")
        assert f"[policy] {kind}" in note
        await until_condition(services, READY, "False")
        await services.until_published()
        assert len(services.trees()) == 1
        assert not any(each["tags"] for each in services.cloud.floating_ips.values())
    async with services.controller(policy=policy(services, **{kind: [named]})):
        await until_reached(services)


async def test_what_is_not_granted_any_more_stays_as_it_is(services):
    _named, asked = port(services.cloud)
    async with services.controller():
        await expose(services, **asked)
        ingress = await until_reached(services)
    before = balancer(services, "external")
    async with services.controller(policy={"ports": ""}):
        await services.until_event("KuryrNotGranted")
    assert balancer(services, "external") == before
    assert (await services.service())["status"]["loadBalancer"]["ingress"] == ingress


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("ports", port),
        ("networks", subnet),
        ("security_groups", security_group),
        ("tls_containers", container),
    ],
)
async def test_members_follow_the_pods_where_something_is_not_granted_any_more(
    services, kind, make
):
    _named, asked = make(services.cloud)
    async with services.controller():
        await expose(services, **asked)
        ingress = await until_reached(services)
        before = without_members(services)
    async with services.controller(policy={kind: ""}):
        for address in ("10.62.0.6", "10.62.0.7"):  # nothing of it was asked for yet; it was
            await services.set_slice("a", address, ports=[("http", 8080)])
            await services.cloud.wait_for(lambda now=address: members(services) == [now])
        await services.until_event("KuryrNotGranted")
        await until_condition(services, READY, "False")
        assert (without_members(services), await until_reached(services)) == (before, ingress)
    async with services.controller():
        await until_condition(services, READY, "True")
    assert members(services) == ["10.62.0.7"]


def members(services):
    """The addresses of the members of all listeners of the load balancer outside."""
    return [
        member["address"]
        for listener in balancer(services, "external")["listeners"]
        for member in listener["pool"]["members"]
    ]


def without_members(services):
    tree = balancer(services, "external")
    return tree | {
        "listeners": [
            listener | {"pool": listener["pool"] | {"members": []}}
            for listener in tree["listeners"]
        ]
    }


async def test_address_that_the_service_has_needs_no_grant(services):
    _named, asked = floating_ip(services.cloud)
    async with services.controller():
        await expose(services, **asked)
        await until_reached(services)
    async with services.controller(policy={"floating_ips": ""}):
        await services.set_slice("a", "10.62.0.6", ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {("10.62.0.6", 8080): 1}})
        await until_condition(services, READY, "True")
    assert list(floating(services)) == [ADDRESS]


@pytest.mark.parametrize("kind", ["ports", "networks", "tls_containers"])
async def test_grant_of_an_id_reaches_what_is_another_projects(services, kind):
    cloud = services.cloud
    cloud.promote("admin")
    theirs = cloud.add_network("theirs", "10.45.0.0/24", project_id=TENANT)
    their_port = cloud.add_port(theirs["id"], project_id=TENANT)["id"]
    reference, _asked = container(cloud)
    named, asked = {
        "ports": (their_port, marks(port_id=their_port)),
        "networks": (theirs["id"], marks(subnet_id=theirs["subnets"][0])),
        "tls_containers": (reference, marks(default_tls_container_ref=reference)),
    }[kind]
    other = cloud.add_project("other")
    options = policy(services, projects=[other], **{kind: [named]})
    await belong_to(services, other)
    driver = {"service_project_driver": "annotation"}
    async with services.controller(kubernetes=driver, policy=options):
        await expose(services, annotations=asked | {INTERNAL: "true"})
        await until_reached(services)
    assert balancer(services, "external")["project_id"] == other


async def test_what_a_class_names_needs_no_grant(services):
    frontend = services.cloud.add_network("frontend", "10.44.0.0/24")
    group = {"load_balancer_class:gold": {"network_id": frontend["id"]}}
    asked = marks(**{"class": "gold"}) | {INTERNAL: "true"}
    async with services.controller(policy={"networks": ""}, **group):
        await expose(services, annotations=asked)
        (ingress,) = await until_reached(services)
    assert ingress["ip"].startswith("10.44.0.")


async def test_class_with_a_subnet_grants_no_other_subnet_of_its_network(services):
    frontend = services.cloud.add_network("frontend", "10.44.0.0/24", "10.45.0.0/24")
    first, second = frontend["subnets"]
    group = {"load_balancer_class:gold": {"subnet_id": first}}
    asked = marks(**{"class": "gold"}, additional_vip_subnet_ids=second) | {INTERNAL: "true"}
    async with services.controller(policy={"networks": ""}, **group):
        await expose(services, annotations=asked)
        note = await services.until_event("KuryrNotGranted")
        assert "[policy] networks" in note
        assert len(services.trees()) == 1
    options = policy(services, networks=[frontend["id"]])
    async with services.controller(policy=options, **group):
        ingress = await until_reached(services)
    assert len(ingress) == 2


async def test_operators_load_balancer_is_used_only_where_it_is_granted(services):
    shared = operators(services)
    own = {("TCP", 22)}
    async with services.controller(policy={"load_balancers": ""}):
        await expose(services, DNS, annotations=marks(load_balancer_id=shared))
        note = await services.until_event("KuryrNotGranted")
        assert "[policy] load_balancers" in note
        await services.until_published()
    assert on(services, shared) == own
    async with services.controller(policy=policy(services, load_balancers=[shared])):
        await until_reached(services)
    assert on(services, shared) == own | {("UDP", 53)}
    async with services.controller(policy={"load_balancers": "elsewhere:*"}):
        await services.cloud.wait_for(lambda: on(services, shared) == own)
        await until_ingress(services, [])


def on(services, load_balancer_id):
    """{(protocol, port)} of the listeners of the load balancer."""
    tree = services.cloud.octavia.tree(load_balancer_id)
    return {(each["protocol"], each["protocol_port"]) for each in tree["listeners"]}
