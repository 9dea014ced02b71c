"""L7Routers: further routers, which IngressClasses name as their parameters."""

import pytest

from tests.component.l7.test_ingress import ONE, TWO, two_backends
from tests.kit.confs import CLUSTER
from tests.kit.fakes.faults import answer
from tests.kit.kube.client import KubeRefusal
from tests.kit.kube.objects import make_l7_router
from tests.kit.l7 import parameters_of

OFTEN = {"neutron_defaults": {"sweep_interval": "1"}}
WITH_TLS = {"l7_router": {"tls": "true"}}


@pytest.fixture
async def routed(routers):
    """A stage with two backends, where no L7Router nor class is left behind."""
    await two_backends(routers)
    yield routers
    path = routers.router_path
    if await routers.client.find(path) is not None:
        await routers.client.delete(path)
        meta = {"metadata": {"finalizers": None}}
        if await routers.client.find(path) is not None:
            await routers.client.patch(path, meta)
    for each in await routers.client.list("/apis/networking.k8s.io/v1/ingressclasses"):
        if each["metadata"]["name"] != routers.class_name:
            await routers.delete_class(each["metadata"]["name"])


def floating_ips(routers):
    return {each["floating_ip_address"] for each in routers.cloud.floating_ips.values()}


async def test_ingresses_of_its_class_are_served_at_its_address_and_no_others(routed):
    async with routed.controller():
        name = await routed.add_router()
        await routed.add_ingress("inside", ("a", ("Prefix", "/", "one")), class_name=name)
        await routed.add_ingress("own", ("b", ("Prefix", "/", "two")))
        await routed.until_answered({("a", "/"): ONE, ("b", "/"): 503}, router=routed.other)
        await routed.until_answered({("a", "/"): 503, ("b", "/"): TWO})
        address = await routed.until_address("inside")
        status = await routed.until_router(address=address)
        assert status["floatingIP"] == address
        assert {address, await routed.until_address("own")} == floating_ips(routed)
        [tree], [own] = routed.routers(routed.other), routed.routers()
        assert status["vipAddress"] == tree["vip_address"] != own["vip_address"]
        assert status["loadBalancerID"] in routed.cloud.load_balancers
        assert f"kuryr-l7-router:{CLUSTER}" in own["tags"]
        assert f"kuryr-l7-router:{CLUSTER}" not in tree["tags"]
    assert not await routed.events()


async def test_one_host_can_lead_elsewhere_on_each_router(routed):
    async with routed.controller():
        name = await routed.add_router()
        await routed.add_ingress("inside", ("a", ("Prefix", "/", "one")), class_name=name)
        await routed.add_ingress("own", ("a", ("Prefix", "/", "two")))
        await routed.until_answered({("a", "/"): ONE}, router=routed.other)
        await routed.until_answered({("a", "/"): TWO})
    assert not await routed.events()


async def test_settings_count_for_both_listeners_and_can_change(routed):
    async with routed.controller(**WITH_TLS):
        name = await routed.add_router(
            allowedCIDRs=["10.0.0.0/8"],
            timeoutClientData=90000,
            timeoutMemberConnect=2000,
            connectionLimit=500,
            tlsVersions=["TLSv1.3"],
            tlsCiphers="ECDHE-RSA-AES256-GCM-SHA384",
        )
        await routed.add_secret("cert", "a")
        tls = [{"hosts": ["a"], "secretName": "cert"}]
        rule = ("a", ("Prefix", "/", "one"))
        await routed.add_ingress("inside", rule, class_name=name, tls=tls)
        await routed.until_address("inside")
        [tree] = routed.routers(routed.other)
        plain, secure = sorted(tree["listeners"], key=lambda each: each["protocol_port"])
        for listener in (plain, secure):
            assert listener["allowed_cidrs"] == ["10.0.0.0/8"]
            assert listener["timeout_client_data"] == 90000
            assert listener["timeout_member_connect"] == 2000
            assert listener["connection_limit"] == 500
        assert secure["tls_versions"] == ["TLSv1.3"]
        assert secure["tls_ciphers"] == "ECDHE-RSA-AES256-GCM-SHA384"
        await routed.change_router(timeoutClientData=60000, allowedCIDRs=None)

        async def changed():
            [tree] = routed.routers(routed.other)
            return all(
                (each["timeout_client_data"], each["allowed_cidrs"] or []) == (60000, [])
                for each in tree["listeners"]
            )

        await routed.until(changed)


async def test_deleted_router_leaves_nothing_and_its_ingresses_are_told(routed):
    async with routed.controller(**WITH_TLS):
        await routed.until(routed.is_published)
        name = await routed.add_router()
        certificate = await routed.add_secret("cert", "a")
        tls = [{"hosts": ["a"], "secretName": "cert"}]
        rule = ("a", ("Prefix", "/", "one"))
        await routed.add_ingress("inside", rule, class_name=name, tls=tls)
        await routed.until_address("inside")
        await routed.until_shown(certificate)
        await routed.client.delete(routed.router_path)
        await routed.until_no_router()
        await routed.until_no_address("inside")
        assert "there is no L7Router" in await routed.until_event("KuryrIngressUnserved")
        assert not routed.routers(routed.other)
        assert len(floating_ips(routed)) == 1
        assert not routed.cloud.barbican.secrets
        assert routed.routers()


async def test_certificates_of_two_routers_do_not_touch_each_other(routed):
    async with routed.controller(**WITH_TLS):
        name = await routed.add_router()
        certificate = await routed.add_secret("cert", "a")
        tls = [{"hosts": ["a"], "secretName": "cert"}]
        rule = ("a", ("Prefix", "/", "one"))
        await routed.add_ingress("inside", rule, class_name=name, tls=tls)
        await routed.add_ingress("own", rule, tls=tls)
        await routed.until_address("inside")
        await routed.until_address("own")
        assert len(routed.cloud.barbican.secrets) == 2
        await routed.delete_ingress("own")
        await routed.until_shown(certificate)
        assert routed.answer("a", "/", port=443, router=routed.other) == ONE


async def test_ingress_whose_router_is_missing_is_served_nowhere_until_it_is_made(routed):
    async with routed.controller():
        await routed.add_class("early", parameters=parameters_of(routed.namespace))
        await routed.add_ingress("shop", ("a", ("Prefix", "/", "one")), class_name="early")
        assert "there is no L7Router" in await routed.until_event("KuryrIngressUnserved")
        await routed.until_answered({("a", "/"): 503})
        await routed.client.create(make_l7_router(routed.namespace))
        await routed.until_answered({("a", "/"): ONE}, router=routed.other)
        await routed.until_address("shop")


async def test_class_with_other_parameters_is_refused_and_not_served_by_the_own_router(routed):
    async with routed.controller():
        parameters = {"apiGroup": "example.com", "kind": "Other", "name": "x"}
        await routed.add_class("strange", parameters=parameters)
        await routed.add_ingress("shop", ("a", ("Prefix", "/", "one")), class_name="strange")
        note = await routed.until_event("KuryrIngressUnserved")
        assert "parameters can be an L7Router of openstack.org only" in note
        await routed.until_answered({("a", "/"): 503})


async def test_class_that_gets_other_parameters_takes_its_ingresses_along(routed):
    async with routed.controller():
        name = await routed.add_router()
        await routed.add_ingress("shop", ("a", ("Prefix", "/", "one")), class_name=name)
        first = await routed.until_address("shop")
        path = f"/apis/networking.k8s.io/v1/ingressclasses/{name}"
        await routed.client.patch(path, {"spec": {"parameters": None}})
        await routed.until_answered({("a", "/"): ONE})
        await routed.until_answered({("a", "/"): 503}, router=routed.other)

        async def moved():
            return await routed.address("shop") not in (None, first)

        await routed.until(moved)


async def test_floating_ip_comes_and_goes_as_the_router_asks(routed):
    async with routed.controller():
        await routed.until(routed.is_published)  # the own router has its floating IP
        await routed.add_router(floatingIP="false")
        [tree] = await routed.until(lambda: _listed(routed))
        await routed.until_router(address=tree["vip_address"])
        assert len(floating_ips(routed)) == 1
        await routed.change_router(floatingIP="true")

        async def outside():
            return (await routed.router_status()).get("floatingIP")

        address = await routed.until(outside)
        assert address in floating_ips(routed)
        await routed.change_router(floatingIP="false")
        status = await routed.until_router(address=tree["vip_address"])
        assert "floatingIP" not in status
        assert address not in floating_ips(routed)


async def _listed(routed):
    return routed.routers(routed.other)


async def test_subnet_and_address_are_those_that_the_router_names(routed):
    subnet = routed.cloud.add_subnet(
        routed.cloud.services["id"], "10.77.0.0/24", name="inside", gateway_ip="10.77.0.1"
    )
    async with routed.controller():
        await routed.add_router(subnet="inside", vipAddress="10.77.0.9", floatingIP="false")
        await routed.until_router(address="10.77.0.9")
    [tree] = routed.routers(routed.other)
    assert tree["vip_subnet_id"] == subnet["id"]


async def test_port_of_a_refused_router_goes_also_in_a_network_of_no_service(routed):
    cloud = routed.cloud
    network = cloud.add_network("inside", "10.77.0.0/24")
    async with routed.controller(patience={"vip_port_confirmed": 0.5}, **OFTEN):
        await routed.until(routed.is_published)
        cloud.octavia.set_quota(cloud.project_id, listener=1)
        await routed.add_router(subnet=network["subnets"][0], floatingIP="false")
        await cloud.wait_for(lambda: _ports_in(cloud, network))
        await routed.until_refused_router("Quota has been met")
        await routed.delete_router()
        await cloud.wait_for(lambda: not _ports_in(cloud, network))


def _ports_in(cloud, network):
    return [port for port in cloud.ports.values() if port["network_id"] == network["id"]]


async def test_router_that_cannot_be_had_says_so_and_holds_up_no_other(routed):
    async with routed.controller():
        name = await routed.add_router(subnet="nowhere")
        await routed.until_refused_router("no subnet of the name nowhere")
        await routed.add_ingress("inside", ("a", ("Prefix", "/", "one")), class_name=name)
        await routed.add_ingress("own", ("b", ("Prefix", "/", "two")))
        await routed.until_answered({("b", "/"): TWO})
        await routed.until_address("own")
        assert await routed.address("inside") is None


@pytest.mark.parametrize(
    ("spec", "change"),
    [({}, {"subnet": "a"}), ({"vipAddress": "10.1.1.1"}, {"vipAddress": "10.1.1.2"})],
)
async def test_place_never_changes(routed, spec, change):
    await routed.add_router(**spec)
    with pytest.raises(KubeRefusal, match="never changes"):
        await routed.change_router(**change)


@pytest.mark.parametrize(
    "spec",
    [
        {"vipAddress": "fd00::1"},
        {"floatingIP": "maybe"},
        {"allowedCIDRs": ["10.0.0.1/8"]},
        {"tlsVersions": ["TLSv9"]},
        {"timeoutClientData": -1},
        {"defaultBackend": {"service": "x"}},
    ],
)
async def test_schema_refuses_what_octavia_could_not_do(routed, spec):
    with pytest.raises(KubeRefusal):
        await routed.add_router(**spec)


async def test_default_backend_takes_the_rest_and_a_missing_one_is_told(routed):
    async with routed.controller(**OFTEN):
        backend = {"namespace": routed.namespace, "service": "two", "port": 80}
        await routed.add_router(defaultBackend=backend)
        await routed.until_answered({("x", "/"): TWO}, router=routed.other)
        await routed.until_answered({("x", "/"): 503})
        await routed.change_router(defaultBackend=backend | {"service": "nothing"})
        await routed.until_refused_router("there is no Service")


async def test_default_certificate_needs_tls(routed):
    async with routed.controller():
        secret = {"namespace": routed.namespace, "name": "cert"}
        await routed.add_router(defaultCertificate=secret)
        await routed.until_refused_router("it needs [l7_router] tls")


async def test_router_that_is_made_again_gets_its_address_again(routed):
    lower = routed.cloud.add_port(routed.cloud.services["id"])
    async with routed.controller(**OFTEN):
        await routed.add_router()
        status = await routed.until_router()
        routed.cloud.remove_port(lower["id"])  # any router would get that address now
        routed.cloud.octavia.remove(status["loadBalancerID"])

        async def made_again():
            found = (await routed.router_status()).get("loadBalancerID")
            return found not in (None, status["loadBalancerID"])

        await routed.until(made_again)
        again = await routed.until_router()
    assert [again[name] for name in ("vipAddress", "floatingIP")] == [
        status[name] for name in ("vipAddress", "floatingIP")
    ]


async def test_router_whose_finalizer_somebody_removed_is_swept(routed):
    async with routed.controller(**OFTEN):
        await routed.add_router()
        await routed.until_router()
    await routed.client.patch(routed.router_path, {"metadata": {"finalizers": None}})
    await routed.client.delete(routed.router_path)
    await routed.until_no_router()
    async with routed.controller(**OFTEN):

        async def swept():
            return not routed.routers(routed.other) and len(floating_ips(routed)) == 1

        await routed.until(swept)
        assert routed.routers()


async def test_router_that_is_swept_takes_its_certificates_along(routed):
    async with routed.controller(**OFTEN, **WITH_TLS):
        name = await routed.add_router()
        certificate = await routed.add_secret("cert", "a")
        tls = [{"hosts": ["a"], "secretName": "cert"}]
        rule = ("a", ("Prefix", "/", "one"))
        await routed.add_ingress("inside", rule, class_name=name, tls=tls)
        await routed.until_shown(certificate)
        await routed.until_address("inside")
    await routed.client.patch(routed.router_path, {"metadata": {"finalizers": None}})
    await routed.client.delete(routed.router_path)
    await routed.until_no_router()
    async with routed.controller(**OFTEN, **WITH_TLS):
        await routed.cloud.wait_for(lambda: not routed.routers(routed.other))
        await routed.cloud.wait_for(lambda: not routed.cloud.barbican.secrets)


async def test_router_that_a_cache_lacks_is_not_swept(routed):
    async with routed.controller(**OFTEN) as app:
        await routed.add_router()
        await routed.until_router()
        [handler] = [each for each in app.handlers if hasattr(each, "_objects")]
        await routed.lose(handler._objects.cache, routed.router_path, until="list")
        assert routed.routers(routed.other)


async def test_fault_of_octavia_leaves_the_status_as_it_is(routed):
    async with routed.controller():
        await routed.add_router()
        status = await routed.until_router()
        fault = routed.cloud.faults.add(
            action=answer(500), method="PUT", path="/listeners/", times=None
        )
        await routed.change_router(timeoutClientData=1000)

        async def tried():
            return fault.hits > 1

        await routed.until(tried)
        assert await routed.router_status() == status


async def test_floating_ip_that_a_router_left_can_be_taken_again(routed):
    known = routed.cloud.add_floating_ip(routed.cloud.public["id"])
    address = known["floating_ip_address"]
    async with routed.controller():
        for _ in range(2):
            await routed.add_router(floatingIP=address)
            await routed.until_router(address=address)
            await routed.delete_router()
            await routed.delete_class(f"{routed.class_name}-routed")
            assert not known["port_id"]
            assert not known["tags"]


async def test_operators_need_no_grant_for_the_address_of_a_router(routed):
    known = routed.cloud.add_floating_ip(routed.cloud.public["id"])
    address = known["floating_ip_address"]
    async with routed.controller(policy={"floating_ips": "somebody:*"}):
        await routed.add_router(floatingIP=address)
        await routed.until_router(address=address)


async def test_router_keeps_its_floating_ip_though_no_external_network_is_set_any_more(routed):
    async with routed.controller():
        await routed.add_router()
        status = await routed.until_router()
        await routed.until(routed.is_published)
    before = floating_ips(routed)
    none = {"neutron_defaults": {"external_svc_net": "", "external_svc_subnet": ""}}
    async with routed.controller(**none):
        await routed.change_router(timeoutClientData=1000)
        await routed.until_timeout(1000)
        assert (await routed.until_router())["floatingIP"] == status["floatingIP"]
        assert floating_ips(routed) == before


async def test_floating_ip_without_an_external_network_is_refused(routed):
    none = {"neutron_defaults": {"external_svc_net": "", "external_svc_subnet": ""}}
    async with routed.controller(**none):
        await routed.add_router(floatingIP="172.24.4.200")
        await routed.until_refused_router("external_svc_net is not set")


async def test_flavor_counts_however_its_id_is_written(routed):
    flavor = "11111111-2222-4333-8444-abcdefabcdef"
    routed.cloud.octavia.store.flavors[flavor] = "amphora"
    async with routed.controller(**OFTEN):
        await routed.add_router(flavorID=flavor.upper().replace("-", ""))
        status = await routed.until_router()
        await routed.change_router(timeoutClientData=1000)
        await routed.until_timeout(1000)
        [tree] = routed.routers(routed.other)
        assert tree["flavor_id"] == flavor
        assert (await routed.until_router())["loadBalancerID"] == status["loadBalancerID"]


async def test_limit_of_connections_ends_when_it_is_not_asked_for_any_more(routed):
    async with routed.controller():
        await routed.add_router(connectionLimit=5)
        await routed.until_router()

        async def limits():
            [tree] = routed.routers(routed.other)
            return {each["connection_limit"] for each in tree["listeners"]}

        assert await limits() == {5}
        await routed.change_router(connectionLimit=None)

        async def ended():
            return await limits() == {-1}

        await routed.until(ended)


async def test_subnet_stays_that_of_the_router_whatever_has_its_name_by_now(routed):
    services = routed.cloud.services["id"]
    subnet = routed.cloud.add_subnet(services, "10.77.0.0/24", name="inside")
    async with routed.controller():
        await routed.add_router(subnet="inside", floatingIP="false")
        status = await routed.until_router()
    subnet["name"] = "renamed"
    routed.cloud.add_subnet(services, "10.78.0.0/24", name="inside")
    async with routed.controller():
        await routed.change_router(timeoutClientData=1000)
        await routed.until_timeout(1000)
        assert (await routed.until_router())["loadBalancerID"] == status["loadBalancerID"]


async def test_ingress_of_a_router_that_is_made_anew_does_not_get_the_address_of_the_former_one(
    routed,
):
    async with routed.controller():
        name = await routed.add_router()
        await routed.add_ingress("shop", ("a", ("Prefix", "/", "one")), class_name=name)
        await routed.until_address("shop")
        status = await routed.until_router()
        fault = routed.cloud.faults.add(
            action=answer(500), method="POST", path="/loadbalancers$", times=None
        )
        await routed.client.patch(routed.router_path, {"metadata": {"finalizers": None}})
        await routed.client.delete(routed.router_path)
        await routed.until_no_router()
        await routed.until_no_address("shop")
        routed.cloud.octavia.remove(status["loadBalancerID"])
        await routed.client.create(make_l7_router(routed.namespace))

        async def tried():
            return fault.hits > 1

        await routed.until(tried)
        assert await routed.address("shop") is None
        fault.remove()
        await routed.until_address("shop")
