"""Each annotation of the OpenStack cloud provider, by its name: what it does in Octavia, in
Neutron and to the Service's status. docs/service-annotations.md names these tests."""

import dataclasses
import uuid

import pytest

from tests.kit.confs import TAG
from tests.kit.fakes.faults import Answer
from tests.kit.fakes.octavia.kinds import HEALTH_MONITOR
from tests.kit.load_balancer_services import (
    HTTP,
    INTERNAL,
    PREFIX,
    READY,
    UNSUPPORTED,
    balancer,
    belong_to,
    expose,
    floating,
    ingress_of,
    listener,
    marks,
    open_up,
    operators,
    until_condition,
    until_ingress,
    until_reached,
)

CLIENTS, MEMBERS, CONNECT, INSPECT = 11000, 22000, 3300, 440


@pytest.fixture(autouse=True)
def scene(services):
    open_up(services)


async def annotate(services, annotations):
    await services.patch_service(metadata={"annotations": annotations})


async def served(services, annotations, *ports, **spec):
    """A Service with these annotations is reached; its ingress."""
    await expose(services, *ports, annotations=annotations, **spec)
    return await until_reached(services)


async def until_same(services, look, expected):
    async def same():
        return look() == expected

    await services.until(same)


async def test_openstack_internal_load_balancer(services):
    async with services.controller():
        (ingress,) = await served(services, {INTERNAL: "true"})
        assert ingress["ip"] == (await services.service())["spec"]["clusterIP"]
        assert not floating(services)
        await annotate(services, {INTERNAL: "false"})
        (public,) = await until_reached(services, but=[ingress])
        assert public["ip"] in floating(services)
        await annotate(services, {INTERNAL: "true"})
        await until_ingress(services, [ingress["ip"]])
    assert not floating(services)


async def test_internal_with_an_address_of_its_own_has_a_vip_there(services):
    async with services.controller():
        (ingress,) = await served(services, {INTERNAL: "true"}, loadBalancerIP="10.97.3.4")
        assert ingress["ip"] == "10.97.3.4"
        assert balancer(services, "external")["vip_address"] == "10.97.3.4"
        own = (await services.service())["spec"]["clusterIP"]
        await services.patch_service(spec={"loadBalancerIP": own})
        await until_ingress(services, [own])
        await until_same(services, lambda: balancer(services, "external"), None)


@pytest.mark.parametrize(
    ("name", "address"),
    [(None, "10.96.200.200"), ("network-id", "10.96.200.200"), ("network-id", "fd96::abc")],
)
async def test_internal_address_that_may_become_a_cluster_ip_is_refused(services, name, address):
    named = {f"{PREFIX}{name}": services.cloud.services["id"]} if name else {}
    async with services.controller():
        await expose(services, annotations={INTERNAL: "true"} | named, loadBalancerIP=address)
        _reason, message = await until_condition(services, READY, "False")
    assert "may become another Service's ClusterIP" in message
    assert balancer(services, "external") is None


async def test_floating_network_id(services):
    other = services.cloud.add_external_network("other", "203.0.113.0/24")
    services.cloud.add_router(other["id"], services.cloud.services["subnets"][0])
    async with services.controller():
        (ingress,) = await served(services, marks(floating_network_id=other["id"]))
        assert ingress["ip"].startswith("203.0.113.")
        await annotate(services, {f"{PREFIX}floating-network-id": None})
        (moved,) = await until_reached(services, but=[ingress])
    assert moved["ip"].startswith("172.24.")
    assert len(floating(services)) == 1


async def test_floating_network_id_of_a_network_that_is_not_external(services):
    async with services.controller():
        await expose(services, annotations=marks(floating_network_id=services.cloud.pods["id"]))
        _reason, message = await until_condition(services, READY, "False")
    assert "is not external" in message
    assert not floating(services)


async def test_floating_subnet_id(services):
    second = services.cloud.public["subnets"][1]
    async with services.controller():
        (ingress,) = await served(services, marks(floating_subnet_id=second))
    assert ingress["ip"].startswith("172.24.5.")


@pytest.mark.parametrize("pattern", ["gold*", "!silver"], ids=["glob", "not"])
async def test_floating_subnet(services, pattern):
    name_subnets(services)
    async with services.controller():
        (ingress,) = await served(services, marks(floating_subnet=pattern))
    assert ingress["ip"].startswith("172.24.5.")


async def test_floating_subnet_by_a_regular_expression_is_the_operators(services):
    name_subnets(services)
    best = {"load_balancer_class:best": {"floating_subnet": "~^go.d$"}}
    async with services.controller(**best):
        await expose(services, annotations=marks(floating_subnet="~^go.d$"))
        _reason, message = await until_condition(services, READY, "False")
        assert "[load_balancer_class:NAME]" in message
        await annotate(services, marks(**{"class": "best"}) | {f"{PREFIX}floating-subnet": None})
        (ingress,) = await until_reached(services)
    assert ingress["ip"].startswith("172.24.5.")


async def test_floating_subnet_that_is_not_there(services):
    async with services.controller():
        await expose(services, annotations=marks(floating_subnet="bronze"))
        _reason, message = await until_condition(services, READY, "False")
    assert "no subnet of name bronze" in message


@pytest.mark.parametrize("pattern", ["fast,other", "&fast,paid", "!slow"])
async def test_floating_subnet_tags(services, pattern):
    name_subnets(services)
    async with services.controller():
        (ingress,) = await served(services, marks(floating_subnet_tags=pattern))
    assert ingress["ip"].startswith("172.24.5.")


async def test_class(services):
    """Its values go before the annotations'."""
    other = services.cloud.add_external_network("other", "203.0.113.0/24")
    services.cloud.add_router(other["id"], services.cloud.services["subnets"][0])
    gold = {"load_balancer_class:gold": {"floating_network_id": other["id"]}}
    mine = {"class": "gold", "floating_network_id": services.cloud.public["id"]}
    async with services.controller(**gold):
        (ingress,) = await served(services, marks(**mine))
        assert ingress["ip"].startswith("203.0.113.")
        await annotate(services, {f"{PREFIX}class": "lead"})
        _reason, message = await until_condition(services, READY, "False")
    assert "[load_balancer_class:lead]" in message
    assert await ingress_of(services) == [ingress]


async def test_subnet_id(services):
    frontend = services.cloud.add_network("frontend", "10.44.0.0/24")
    services.cloud.add_router(services.cloud.public["id"], frontend["subnets"][0])
    async with services.controller():
        service = await expose(services, annotations=marks(subnet_id=frontend["subnets"][0]))
        (ingress,) = await until_reached(services)
        outer = balancer(services, "external")
        assert outer["vip_subnet_id"] == frontend["subnets"][0]
        assert floating(services) == {ingress["ip"]: outer["vip_address"]}
        assert balancer(services)["vip_address"] == service["spec"]["clusterIP"]
        await annotate(services, {f"{PREFIX}subnet-id": None})
        await until_same(services, lambda: balancer(services, "external"), None)
        assert floating(services) == {ingress["ip"]: service["spec"]["clusterIP"]}


async def test_subnet_id_of_another_project_is_refused(services):
    theirs = services.cloud.add_network("theirs", "10.45.0.0/24", project_id="b" * 32)
    async with services.controller():
        await expose(services, annotations=marks(subnet_id=theirs["subnets"][0]))
        _reason, message = await until_condition(services, READY, "False")
        await services.until_published()
    assert "neither belongs to project" in message
    assert len(services.trees()) == 1


async def test_additional_vip_subnet_ids(services):
    """All VIPs are addresses. They are given once: others make another load balancer."""
    cloud = services.cloud
    frontend = cloud.add_network("frontend", "10.44.0.0/24", "10.45.0.0/24", "10.46.0.0/24")
    first, *others = frontend["subnets"]

    async def addresses():
        return [entry["ip"].rpartition(".")[0] for entry in await ingress_of(services)]

    async def until_addresses(*expected):
        async def told():
            return sorted(await addresses()) == list(expected)

        await services.until(told)

    asked = {INTERNAL: "true"} | marks(subnet_id=first, additional_vip_subnet_ids=others[0])
    async with services.controller():
        await served(services, asked)
        await until_addresses("10.44.0", "10.45.0")
        before = set(cloud.load_balancers)
        await annotate(services, marks(additional_vip_subnet_ids=",".join(others)))
        await until_addresses("10.44.0", "10.45.0", "10.46.0")
        assert len(before - set(cloud.load_balancers)) == 1
        await services.delete_service()
        await services.until_service_gone()
    assert not [port for port in cloud.ports.values() if port["device_id"].startswith("lb-")]


@pytest.mark.parametrize("named", ["first", "IPv6", "elsewhere", "by network-id"])
async def test_additional_vip_subnet_ids_of_another_place_are_refused(services, named):
    cloud = services.cloud
    frontend = cloud.add_network("frontend", "10.44.0.0/24", "10.45.0.0/24", "2a00:44::/64")
    first, second, v6 = frontend["subnets"]
    elsewhere = cloud.add_network("elsewhere", "10.47.0.0/24")["subnets"][0]
    subnets = {"first": first, "IPv6": v6, "elsewhere": elsewhere, "by network-id": second}
    of_network = named == "by network-id"
    place = marks(network_id=frontend["id"]) if of_network else marks(subnet_id=first)
    more = marks(additional_vip_subnet_ids=subnets[named])
    async with services.controller():
        await expose(services, annotations={INTERNAL: "true"} | place | more)
        _reason, message = await until_condition(services, READY, "False")
    assert "additional-vip-subnet-ids" in message
    assert balancer(services, "external") is None


async def test_additional_vip_subnet_ids_that_this_octavia_does_not_know(services):
    """The Service is reached at its first VIP."""
    services.cloud.octavia.newest = 25
    frontend = services.cloud.add_network("frontend", "10.44.0.0/24", "10.45.0.0/24")
    first, second = frontend["subnets"]
    asked = {INTERNAL: "true"} | marks(subnet_id=first, additional_vip_subnet_ids=second)
    async with services.controller():
        (ingress,) = await served(services, asked)
        _reason, message = await until_condition(services, UNSUPPORTED, "True")
    assert ingress["ip"].startswith("10.44.0.")
    assert "needs version 2.26" in message


async def test_network_id(services):
    frontend = services.cloud.add_network("frontend", "10.44.0.0/24")
    async with services.controller():
        (ingress,) = await served(services, marks(network_id=frontend["id"]) | {INTERNAL: "true"})
    assert ingress["ip"].startswith("10.44.0.")
    assert balancer(services, "external")["vip_address"] == ingress["ip"]


async def test_network_id_with_an_address_of_one_of_its_subnets(services):
    frontend = services.cloud.add_network("frontend", "10.44.0.0/24", "10.45.0.0/24")
    internal = marks(network_id=frontend["id"]) | {INTERNAL: "true"}
    async with services.controller():
        (ingress,) = await served(services, internal, loadBalancerIP="10.45.0.9")
        assert ingress["ip"] == balancer(services, "external")["vip_address"] == "10.45.0.9"
        await services.patch_service(spec={"loadBalancerIP": "10.46.0.9"})
        _reason, message = await until_condition(services, READY, "False")
    assert "10.46.0.9 is in no subnet" in message


async def test_port_id(services):
    frontend = services.cloud.add_network("frontend", "10.44.0.0/24")
    port = services.cloud.add_port(frontend["id"], name="mine")
    async with services.controller():
        (ingress,) = await served(services, marks(port_id=port["id"]) | {INTERNAL: "true"})
        assert ingress["ip"] == port["fixed_ips"][0]["ip_address"]
        await services.delete_service()
        await services.until_service_gone()
    assert port["id"] in services.cloud.ports  # it is the user's


async def test_port_id_of_another_project_is_refused(services):
    port = services.cloud.add_port(services.cloud.pods["id"], project_id="b" * 32)
    async with services.controller():
        await expose(services, annotations=marks(port_id=port["id"]))
        _reason, message = await until_condition(services, READY, "False")
    assert "is not of project" in message


@pytest.mark.parametrize(
    "use",
    [
        {"device_owner": "trunk:subport"},  # attached: it has no device_id
        {"tags": [TAG]},  # a nested Pod's, not attached yet
        {"device_id": "vm", "device_owner": "compute:nova"},
    ],
    ids=["subport", "pod", "server"],
)
async def test_port_id_that_is_in_use_is_refused(services, use):
    port = services.cloud.add_port(services.cloud.pods["id"])
    services.cloud.store.change("port", port, use)
    async with services.controller():
        await expose(services, annotations=marks(port_id=port["id"]))
        _reason, message = await until_condition(services, READY, "False")
    assert f"port {port['id']} is in use by" in message
    assert balancer(services, "external") is None


async def test_connection_limit(services):
    async with services.controller():
        await served(services, marks(connection_limit=7))
        assert listener(services)["connection_limit"] == 7
        await annotate(services, marks(connection_limit=8))
        await until_same(services, lambda: listener(services)["connection_limit"], 8)
        await annotate(services, {f"{PREFIX}connection-limit": None})
        await until_same(services, lambda: listener(services)["connection_limit"], -1)


async def test_keep_floatingip(services):
    async with services.controller():
        (ingress,) = await served(services, marks(keep_floatingip="true"))
        await services.delete_service()
        await services.until_service_gone()
    (kept,) = services.cloud.floating_ips.values()
    assert kept["floating_ip_address"] == ingress["ip"]
    assert (kept["port_id"], kept["description"], kept["tags"]) == (None, "", [])


async def test_keep_floatingip_when_another_takes_its_place(services):
    made = services.cloud.add_floating_ip(services.cloud.public["id"])
    async with services.controller():
        (ingress,) = await served(services, marks(keep_floatingip="true"))
        await services.patch_service(spec={"loadBalancerIP": made["floating_ip_address"]})
        await until_ingress(services, [made["floating_ip_address"]])
    assert floating(services)[ingress["ip"]] is None


@pytest.mark.parametrize(
    ("text", "protocol"), [("true", "PROXY"), ("v1", "PROXY"), ("v2", "PROXYV2")]
)
async def test_proxy_protocol(services, text, protocol):
    async with services.controller():
        (ingress,) = await served(services, marks(proxy_protocol=text))
    outer, inner = listener(services, "external"), listener(services)
    assert (outer["protocol"], outer["pool"]["protocol"]) == ("TCP", protocol)
    assert inner["pool"]["protocol"] == "TCP"  # who is in the cluster speaks to Pods
    assert ingress["ipMode"] == "Proxy"


async def test_x_forwarded_for(services):
    async with services.controller():
        (ingress,) = await served(services, marks(x_forwarded_for="true"))
    outer, inner = listener(services, "external"), listener(services)
    assert (outer["protocol"], outer["pool"]["protocol"]) == ("HTTP", "HTTP")
    assert outer["insert_headers"] == {"X-Forwarded-For": "true"}
    assert (inner["protocol"], inner["insert_headers"]) == ("TCP", {})
    assert ingress["ipMode"] == "Proxy"


async def test_lb_method(services):
    async with services.controller():
        await served(services, marks(lb_method="LEAST_CONNECTIONS"))
        assert listener(services)["pool"]["lb_algorithm"] == "LEAST_CONNECTIONS"
        await annotate(services, {f"{PREFIX}lb-method": None})
        method = "ROUND_ROBIN"
        await until_same(services, lambda: listener(services)["pool"]["lb_algorithm"], method)


async def test_lb_method_that_the_provider_does_not_know(services):
    """The ClusterIP is served as if nobody had asked for it."""
    async with services.controller():
        await served(services, marks(lb_method="LEAST_CONNECTIONS"))
        await annotate(services, marks(lb_method="SOURCE_IP_PORT"))
        note = await services.until_event("KuryrPortRefused")
        assert "SOURCE_IP_PORT" in note
        method = "ROUND_ROBIN"
        await until_same(services, lambda: listener(services)["pool"]["lb_algorithm"], method)
        await services.set_slice("a", "10.62.0.9", ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {("10.62.0.9", 8080): 1}})


async def test_lb_method_that_is_refused_takes_no_other_annotation_away(services):
    async with services.controller():
        await served(services, marks(lb_method="LEAST_CONNECTIONS", timeout_client_data=12345))
        await annotate(services, marks(lb_method="SOURCE_IP_PORT", timeout_member_data=23456))
        note = await services.until_event("KuryrPortRefused")
        assert "SOURCE_IP_PORT" in note
        await until_same(
            services, lambda: listener(services)["pool"]["lb_algorithm"], "ROUND_ROBIN"
        )
        await until_same(services, lambda: listener(services)["timeout_member_data"], 23456)
        assert listener(services)["timeout_client_data"] == 12345


@pytest.mark.parametrize(
    "name",
    [
        "timeout-client-data",
        "timeout-member-connect",
        "timeout-member-data",
        "timeout-tcp-inspect",
    ],
)
async def test_timeouts(services, name):
    """One that is taken away is Octavia's own again."""
    field = name.replace("-", "_")
    async with services.controller():
        await served(services, None)
        default = listener(services)[field]
        await annotate(services, {f"{PREFIX}{name}": "12345"})
        await until_same(services, lambda: listener(services)[field], 12345)
    async with services.controller():
        await annotate(services, {f"{PREFIX}{name}": None})
        await until_same(services, lambda: listener(services)[field], default)


async def test_enable_health_monitor(services):
    ports = (HTTP, ("dns", 53, "UDP"), ("sip", 5060, "SCTP"))
    async with services.controller():
        await served(services, marks(enable_health_monitor="true"), *ports)

        def monitors():
            return [part["pool"]["health_monitor"] for part in balancer(services)["listeners"]]

        found = {monitor["type"]: monitor for monitor in monitors()}
        assert found.keys() == {"TCP", "UDP-CONNECT", "SCTP"}
        assert found["TCP"] == {
            "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1, "max_retries_down": 3,
            "http_method": None, "url_path": None, "expected_codes": None,
        }  # fmt: skip
        await annotate(services, marks(enable_health_monitor="false"))
        await until_same(services, monitors, [None, None, None])


async def test_enable_health_monitor_as_the_operator_decides_where_nothing_is_said(services):
    async with services.controller(octavia_defaults={"enable_health_monitor": "true"}):
        await served(services, None)
        assert listener(services)["pool"]["health_monitor"]["type"] == "TCP"


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("health-monitor-delay", "delay"),
        ("health-monitor-timeout", "timeout"),
        ("health-monitor-max-retries", "max_retries"),
        ("health-monitor-max-retries-down", "max_retries_down"),
    ],
)
async def test_health_monitor(services, name, field):
    async with services.controller():
        await served(services, marks(enable_health_monitor="true") | {f"{PREFIX}{name}": "4"})
        assert listener(services)["pool"]["health_monitor"][field] == 4
        await annotate(services, {f"{PREFIX}{name}": "5"})

        def value():
            return listener(services)["pool"]["health_monitor"][field]

        await until_same(services, value, 5)


def monitor(services):
    return listener(services)["pool"]["health_monitor"]


async def test_health_monitor_type(services):
    """It asks for a monitor where nothing else is said; another type is another monitor."""

    def types():
        found = [part["pool"]["health_monitor"] for part in balancer(services)["listeners"]]
        return {found_monitor["type"] if found_monitor else None for found_monitor in found}

    async with services.controller():
        await served(services, marks(health_monitor_type="HTTP"), HTTP, ("dns", 53, "UDP"))
        assert types() == {"HTTP", "UDP-CONNECT"}
        await annotate(services, marks(health_monitor_type="HTTPS"))
        await until_same(services, types, {"HTTPS", "UDP-CONNECT"})
        await annotate(services, {f"{PREFIX}health-monitor-type": None})
        await until_same(services, types, {None})


@pytest.mark.parametrize(
    ("name", "field", "text", "other", "default"),
    [
        ("http-method", "http_method", "HEAD", "OPTIONS", "GET"),
        ("url-path", "url_path", "/healthz", "/ready?all=1", "/"),
        ("expected-codes", "expected_codes", "200,202", "200-299", "200"),
    ],
)
async def test_health_monitor_requests(services, name, field, text, other, default):
    """They are changed in the monitor that there is, which goes on."""
    annotation = f"{PREFIX}health-monitor-{name}"
    async with services.controller():
        await served(services, marks(health_monitor_type="HTTP") | {annotation: text})
        assert monitor(services)[field] == text
        (made,) = services.cloud.octavia.store.of(HEALTH_MONITOR)
        for asked, value in ((other, other), (None, default)):
            await annotate(services, {annotation: asked})
            await until_same(services, lambda: monitor(services)[field], value)
        assert list(services.cloud.octavia.store.of(HEALTH_MONITOR)) == [made]


OVN = {
    "kubernetes": {"endpoints_driver_octavia_provider": "ovn"},
    "octavia_defaults": {"lb_algorithm": "SOURCE_IP_PORT", "member_mode": "L2"},
}


async def test_clusterip_is_served_where_more_than_the_algorithm_is_refused(services):
    async def refuse_timeouts(request, proceed):
        body = await request.text()
        if "23456" in body and "LEAST_CONNECTIONS" not in body:
            raise Answer(400, message="no such timeout")
        return await proceed()

    services.cloud.faults.add(method="POST", path="/lbaas/", times=None, action=refuse_timeouts)
    async with services.controller(**OVN):
        asked = marks(lb_method="LEAST_CONNECTIONS", timeout_client_data=23456)
        await services.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
        await services.add_service("web", HTTP, type="LoadBalancer", annotations=asked)
        await services.until_members({("TCP", 80): {("10.62.0.5", 8080): 1}})
        assert "no such timeout" in await services.until_event("KuryrPortRefused")


@pytest.mark.parametrize("part", ["", "external"])
async def test_health_monitor_type_that_the_provider_does_not_know(services, part):
    """With ovn, there is no monitor; all else is as requested."""
    asked = marks(health_monitor_type="HTTP", connection_limit=7)
    if part:
        asked |= {INTERNAL: "true"} | marks(subnet_id=services.cloud.pods["subnets"][0])
    async with services.controller(**OVN):
        await expose(services, annotations=asked)
        _reason, message = await until_condition(services, UNSUPPORTED, "True")
        assert "does not support HTTP health monitor type" in message
        await until_reached(services)
        front = listener(services, part)
        assert (front["connection_limit"], front["pool"]["health_monitor"]) == (7, None)
        await annotate(services, marks(health_monitor_type="TCP"))
        await until_same(services, lambda: (monitor(services) or {}).get("type"), "TCP")
        await until_condition(services, UNSUPPORTED, None)


async def test_health_monitor_type_without_a_port_of_tcp(services):
    async with services.controller():
        await expose(services, ("dns", 53, "UDP"), annotations=marks(health_monitor_type="HTTP"))
        _reason, message = await until_condition(services, READY, "False")
    assert "health-monitor-type" in message


async def test_vip_sg_ids(services):
    one, two = (services.cloud.add_security_group(name)["id"] for name in ("one", "two"))

    def groups():
        outer = balancer(services, "external")
        return None if outer is None else set(outer["vip_sg_ids"])

    async with services.controller():
        (ingress,) = await served(services, marks(vip_sg_ids=f"{one},{two}"))
        assert (groups(), balancer(services)["vip_sg_ids"]) == ({one, two}, [])
        assert floating(services) == {ingress["ip"]: balancer(services, "external")["vip_address"]}
        await annotate(services, marks(vip_sg_ids=two))
        await until_same(services, groups, {two})
        ranges = {"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}}
        await services.patch_service(
            metadata={"annotations": {f"{PREFIX}vip-sg-ids": None}}, **ranges
        )
        await until_same(services, groups, set())
        await until_same(
            services, lambda: listener(services, "external")["allowed_cidrs"], ["192.0.2.0/24"]
        )


async def test_vip_sg_ids_come_before_the_address_leads_there(services):
    """Until the VIP has its groups, the address leads nowhere."""
    group = services.cloud.add_security_group("web")["id"]
    async with services.controller():
        (ingress,) = await served(services, None)
        services.cloud.octavia.progress.pending = float("inf")
        await annotate(services, marks(vip_sg_ids=group))
        await until_same(services, lambda: floating(services), {ingress["ip"]: None})
        await until_same(services, lambda: len(services.cloud.load_balancers), 2)
        services.cloud.octavia.progress.pending = 0
        for load_balancer in tuple(services.cloud.load_balancers):
            services.cloud.octavia.progress.finish(load_balancer)

        def led():
            outer = balancer(services, "external")
            return outer is not None and floating(services)[ingress["ip"]] == outer["vip_address"]

        await until_same(services, led, True)


async def test_vip_sg_ids_of_another_project_are_refused(services):
    theirs = services.cloud.add_security_group("theirs", project_id="b" * 32)["id"]
    async with services.controller():
        await expose(services, annotations=marks(vip_sg_ids=theirs))
        _reason, message = await until_condition(services, READY, "False")
    assert f"there is no security group {theirs}" in message  # that our account can see
    assert balancer(services, "external") is None


@pytest.mark.parametrize("provider", ["ovn", "default"])
async def test_vip_sg_ids_that_the_provider_would_ignore_are_refused(services, provider):
    """ovn accepts them, and lets everybody in. The ClusterIP is served."""
    group = services.cloud.add_security_group("web")["id"]
    services.cloud.octavia._balancers.default_provider = "ovn"
    options = OVN | {"kubernetes": {"endpoints_driver_octavia_provider": provider}}
    async with services.controller(**options):
        await expose(services, annotations=marks(vip_sg_ids=group))
        _reason, message = await until_condition(services, READY, "False")
        assert "provider ovn ignores security groups of a VIP" in message
        await services.until_published()
        await until_same(services, lambda: balancer(services, "external"), None)
        assert (floating(services), len(listener(services)["pool"]["members"])) == ({}, 1)


async def test_vip_that_cannot_have_its_vip_sg_ids_goes(services):
    """Nothing stays open to more clients than the groups would let in."""
    group = services.cloud.add_security_group("web")["id"]
    services.cloud.octavia.newest = 28
    elsewhere = {INTERNAL: "true"} | marks(subnet_id=services.cloud.pods["subnets"][0])
    async with services.controller():
        await served(services, elsewhere)
        await annotate(services, marks(vip_sg_ids=group))
        await until_ingress(services, [])
        await until_same(services, lambda: balancer(services, "external"), None)
        await annotate(services, {f"{PREFIX}vip-sg-ids": None})
        await until_reached(services)


async def test_vip_sg_ids_on_the_load_balancer_of_another_owner_are_refused(services):
    group = services.cloud.add_security_group("web")["id"]
    asked = marks(vip_sg_ids=group, load_balancer_id=operators(services))
    async with services.controller():
        await expose(services, annotations=asked)
        _reason, message = await until_condition(services, READY, "False")
    assert "vip-sg-ids" in message
    assert "load-balancer-id" in message


async def test_vip_sg_ids_that_this_octavia_does_not_know(services):
    group = services.cloud.add_security_group("web")["id"]
    services.cloud.octavia.newest = 28
    async with services.controller():
        await expose(services, annotations=marks(vip_sg_ids=group))
        _reason, message = await until_condition(services, READY, "False")
    assert "needs version 2.29" in message


async def test_flavor_id(services):
    flavor = str(uuid.uuid4())
    services.cloud.octavia.store.flavors[flavor] = "amphora"
    async with services.controller():
        await served(services, marks(flavor_id=flavor))
    assert balancer(services, "external")["flavor_id"] == flavor
    assert balancer(services)["flavor_id"] is None


async def test_availability_zone(services):
    services.cloud.octavia.store.zones.add("zone-1")
    async with services.controller():
        await served(services, marks(availability_zone="zone-1"))
    assert balancer(services, "external")["availability_zone"] == "zone-1"


def containers(services, count):
    """References of containers that there are."""
    made = [f"https://barbican.example/v1/containers/{uuid.uuid4()}" for _ in range(count)]
    services.cloud.octavia.store.certificates.update(made)
    return made


async def test_default_tls_container_ref(services):
    (ref,) = containers(services, 1)
    async with services.controller():
        (ingress,) = await served(services, marks(default_tls_container_ref=ref))
    outer, inner = listener(services, "external"), listener(services)
    assert (outer["protocol"], outer["pool"]["protocol"]) == ("TERMINATED_HTTPS", "HTTP")
    assert outer["default_tls_container_ref"] == ref
    assert inner["protocol"] == "TCP"
    assert ingress["ipMode"] == "Proxy"


async def test_sni_container_refs(services):
    default, one, two = containers(services, 3)
    tls = marks(default_tls_container_ref=default)
    async with services.controller():
        await served(services, tls | marks(sni_container_refs=f"{one},{two}"))

        def further():
            return set(listener(services, "external")["sni_container_refs"])

        assert further() == {one, two}
        assert listener(services)["sni_container_refs"] == []
        await annotate(services, marks(sni_container_refs=two))
        await until_same(services, further, {two})
        await annotate(services, {f"{PREFIX}sni-container-refs": None})
        await until_same(services, further, set())


async def test_sni_container_refs_without_a_certificate_of_its_own(services):
    (ref,) = containers(services, 1)
    async with services.controller():
        await expose(services, annotations=marks(sni_container_refs=ref))
        _reason, message = await until_condition(services, READY, "False")
    assert "there is no TLS without default-tls-container-ref" in message


async def test_sni_container_refs_that_is_not_there(services):
    """What serves already goes on, and its members follow the Pods."""
    (default,) = containers(services, 1)
    async with services.controller():
        await served(services, marks(default_tls_container_ref=default))
        before = listener(services, "external")
        await annotate(services, marks(sni_container_refs="https://barbican.example/none"))
        _reason, message = await until_condition(services, READY, "False")
        assert "https://barbican.example/none" in message
        assert listener(services, "external") == before
        await services.set_slice("a", "10.62.0.6", ports=[("http", 8080)])

        def members():
            return [each["address"] for each in listener(services, "external")["pool"]["members"]]

        await until_same(services, members, ["10.62.0.6"])
        await annotate(services, {f"{PREFIX}sni-container-refs": None})
        await until_condition(services, READY, "True")


@pytest.mark.parametrize(
    ("name", "field", "text", "value"),
    [
        ("tls-versions", "tls_versions", "TLSv1.3", ["TLSv1.3"]),
        ("tls-ciphers", "tls_ciphers", "ECDHE+AESGCM", "ECDHE+AESGCM"),
    ],
)
async def test_tls_versions_and_ciphers(services, name, field, text, value):
    """When nobody asks for them any more, they are Octavia's own again, in the same listener."""
    (default,) = containers(services, 1)
    tls = marks(default_tls_container_ref=default)
    async with services.controller():
        await served(services, tls)
        own = listener(services, "external")
        for asked, expected in ((text, value), (None, own[field])):
            await annotate(services, {f"{PREFIX}{name}": asked})
            await until_same(services, lambda: listener(services, "external")[field], expected)
        assert listener(services, "external") == own


async def test_tls_versions_that_this_octavia_does_not_know(services):
    (default,) = containers(services, 1)
    services.cloud.octavia.newest = 16
    tls = marks(default_tls_container_ref=default, tls_versions="TLSv1.3")
    async with services.controller():
        await expose(services, annotations=tls)
        _reason, message = await until_condition(services, READY, "False")
        assert "needs version 2.17" in message
        assert "tls-versions" in message


async def test_client_ca_tls_container_ref(services):
    """Who names an authority and says nothing else has clients show certificates."""
    default, authority, revoked = containers(services, 3)
    tls = marks(default_tls_container_ref=default, client_ca_tls_container_ref=authority)
    names = ("client_authentication", "client_ca_tls_container_ref", "client_crl_container_ref")

    def asked():
        outer = listener(services, "external")
        return tuple(outer[name] for name in names)

    async with services.controller():
        await served(services, tls)
        assert asked() == ("MANDATORY", authority, None)
        more = marks(client_crl_container_ref=revoked, client_authentication="OPTIONAL")
        await annotate(services, more)
        await until_same(services, asked, ("OPTIONAL", authority, revoked))
        nothing = dict.fromkeys([*more, f"{PREFIX}client-ca-tls-container-ref"])
        await annotate(services, nothing)
        await until_same(services, asked, ("NONE", None, None))


async def test_default_tls_container_ref_of_a_service_of_another_project_is_refused(services):
    """Octavia could read it: it is asked in our name."""
    ref = f"https://barbican.example/v1/containers/{uuid.uuid4()}"
    cloud, other = services.cloud, services.cloud.add_project("other")
    cloud.octavia.store.certificates.add(ref)
    cloud.keystone.users[cloud.kuryr.id] = dataclasses.replace(
        cloud.kuryr, roles=(*cloud.kuryr.roles, "admin")
    )
    await belong_to(services, other)
    driver = {"service_project_driver": "annotation"}
    policy = {"projects": f"{services.cluster.namespace}:{other}"}
    async with services.controller(kubernetes=driver, policy=policy):
        await expose(services, annotations=marks(default_tls_container_ref=ref))
        _reason, message = await until_condition(services, READY, "False")
    assert f"whether project {other} may use it" in message
    assert (balancer(services)["project_id"], balancer(services, "external")) == (other, None)


async def test_hostname(services):
    async with services.controller():
        (ingress,) = await served(services, marks(hostname="web.example.org"))
        assert (ingress["hostname"], "ip" in ingress) == ("web.example.org", False)
        (address,) = floating(services)
        await until_written(services, "load-balancer-address", address)


async def test_load_balancer_id_and_load_balancer_address_are_written_back(services):
    async with services.controller():
        (ingress,) = await served(services, None)
        (balancer_id,) = services.cloud.load_balancers
        await until_written(services, "load-balancer-id", balancer_id)
        await until_written(services, "load-balancer-address", ingress["ip"])
        await services.patch_service(spec={"loadBalancerSourceRanges": ["192.0.2.0/24"]})
        await until_same(services, lambda: len(services.cloud.load_balancers), 2)
        outer = next(
            candidate for candidate in services.cloud.load_balancers if candidate != balancer_id
        )
        await until_written(services, "load-balancer-id", outer)
    assert not await services.events()


@pytest.mark.parametrize("name", ["member-subnet-id", "node-selector"])
async def test_without_a_meaning(services, name):
    async with services.controller():
        await served(services, {f"{PREFIX}{name}": "anything=at-all"})
        assert name in await services.until_event("KuryrAnnotationIgnored")


async def test_load_balancer_source_ranges(services):
    name = "service.beta.kubernetes.io/load-balancer-source-ranges"
    async with services.controller():
        await served(services, {name: "192.0.2.0/24, 198.51.100.0/24"})
        cidrs = listener(services, "external")["allowed_cidrs"]
    assert cidrs == ["192.0.2.0/24", "198.51.100.0/24"]


async def test_of_another_type_they_have_no_meaning(services):
    async with services.controller():
        await services.add_service("web", HTTP, annotations=marks(connection_limit=7, flavor_id=1))
        await services.until_published()
        assert listener(services)["connection_limit"] == -1
    assert not await services.events()


async def test_our_own_timeouts_have_one_with_every_type(services):
    own = "openstack.org/kuryr-timeout-client-data"
    async with services.controller():
        await services.add_service("web", HTTP, annotations={own: "7000"})
        await services.until_published()
        assert listener(services)["timeout_client_data"] == 7000
        await annotate(services, {own: "soon"})
        assert own in await services.until_event("KuryrRefused")
        await services.set_slice("a", "10.62.0.9", ports=[("http", 8080)])
        await services.until_members({("TCP", 80): {("10.62.0.9", 8080): 1}})
        assert listener(services)["timeout_client_data"] == 7000


async def until_written(services, name, text):
    async def written():
        return (await services.service())["metadata"]["annotations"].get(PREFIX + name) == text

    await services.until(written)


def name_subnets(services):
    names = zip(
        services.cloud.public["subnets"],
        (("silver", ["slow"]), ("gold", ["fast", "paid"])),
        strict=True,
    )
    for subnet_id, (name, tags) in names:
        services.cloud.subnets[subnet_id] |= {"name": name, "tags": tags}
