"""OpenShift's Routes become routes of the L7 router, and learn what has become of them."""

import asyncio
import re

import pytest

from kuryr_k8s.errors import ConfigError
from kuryr_k8s.handlers.l7.ocp_route import OCPRouteHandler
from tests.component.l7.test_ingress import ONE, TWO, two_backends
from tests.component.l7.test_tls import until_secure
from tests.component.l7.test_trouble import SOON
from tests.kit.fakes.faults import answer
from tests.kit.kube.client import KubeRefusal
from tests.kit.l7 import WITH_ROUTES, RouterStage, weights_of
from tests.kit.routes import edge

HAPROXY = "haproxy.router.openshift.io/"
TLS = WITH_ROUTES | {"l7_router": {"tls": "true"}}


def with_options(**options):
    return WITH_ROUTES | {"l7_router": options}


async def test_route_is_served_and_its_status_has_an_entry_of_ours(routers):
    await two_backends(routers)
    async with routers.controller(**WITH_ROUTES):
        await routers.routes.add("shop", "a.com")
        await routers.routes.add("cart", "a.com", "two", path="/cart")
        await routers.until_answered(
            {
                ("a.com", "/"): ONE,
                ("a.com", "/cart"): TWO,
                ("A.com:8080", "/cart/1"): TWO,
                ("a.com", "/cartoon"): ONE,
                ("b.com", "/"): 503,
            }
        )
        assert await routers.routes.until_admitted("shop") == ""
        entry = await routers.routes.entry("shop")
    [condition] = entry.pop("conditions")
    assert entry == {"host": "a.com", "routerName": "kuryr", "wildcardPolicy": "None"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", condition["lastTransitionTime"])
    assert not await routers.events()


async def test_ingresses_are_served_beside_routes(routers):
    await two_backends(routers)
    async with routers.controller(**WITH_ROUTES):
        await routers.routes.add("shop", "a.com")
        await routers.add_ingress("shop", ("b.com", ("Prefix", "/", "two")))
        await routers.until_answered({("a.com", "/"): ONE, ("b.com", "/"): TWO})


async def test_services_share_requests_by_their_weights_whatever_number_of_pods_they_have(
    routers,
):
    await routers.add_backend("one", "10.62.0.5", "10.62.0.6")
    await routers.add_backend("two", "10.62.0.7")
    pool = f"Route {routers.namespace}/shop"

    async def until_weights(expected):
        async def so():
            [tree] = routers.routers()
            return weights_of(tree, pool) == expected

        await routers.until(so)

    async with routers.controller(**WITH_ROUTES):
        await routers.routes.add("shop", "a.com", ("one", 150), ("two", 50))
        await routers.routes.until_admitted("shop")
        await until_weights({"10.62.0.5": 3, "10.62.0.6": 3, "10.62.0.7": 2})
        calls = len(routers.octavia_calls())
        await routers.set_slice("one", "10.62.0.5", ports=[("http", 8080)], service="one")
        await until_weights({"10.62.0.5": 3, "10.62.0.7": 1})
        assert len(routers.octavia_calls()) == calls + 1
        to = {"kind": "Service", "name": "one", "weight": 0}
        await routers.routes.change("shop", to=to)
        await until_weights({"10.62.0.5": 0, "10.62.0.7": 1})
        others = [{"kind": "Service", "name": "two", "weight": 0}]
        await routers.routes.change("shop", alternateBackends=others)
        await routers.until_answered({("a.com", "/"): 503})
        assert await routers.routes.until_admitted("shop") == ""


@pytest.mark.parametrize("target_port", ["admin", 9090, "pods-admin"])
async def test_target_port_names_the_port_of_the_service_or_of_the_pods(routers, target_port):
    await routers.add_service("one", ("http", 80), ("admin", 81), clusterIP="None")
    admin = {"name": "admin", "port": 81, "targetPort": "pods-admin"}
    await routers.patch_service("one", spec={"ports": [{"name": "http", "port": 80}, admin]})
    await routers.set_slice("web", *ONE, ports=[("http", 8080)], service="one")
    await routers.set_slice("admin", *TWO, ports=[("admin", 9090)], service="one")
    async with routers.controller(**WITH_ROUTES):
        await routers.routes.add("shop", "a.com", port={"targetPort": target_port})
        await routers.until_answered({("a.com", "/"): TWO})
        assert await routers.routes.until_admitted("shop") == ""


async def test_without_target_port_the_first_port_is_used_and_that_is_told(routers):
    await routers.add_service("one", ("http", 80), ("admin", 81), clusterIP="None")
    await routers.set_slice("web", *ONE, ports=[("http", 8080)], service="one")
    async with routers.controller(**WITH_ROUTES):
        await routers.routes.add("shop", "a.com")
        await routers.until_answered({("a.com", "/"): ONE})
        told = await routers.routes.until_admitted("shop", reason="PartlyServed")
        assert "several TCP ports" in told
        assert told == await routers.until_event("KuryrRouteUnserved")


async def test_wildcard_policy_is_refused_unless_the_operator_allows_it(routers):
    await two_backends(routers)
    async with routers.controller(**WITH_ROUTES):
        await routers.routes.add("all", "www.a.com", wildcardPolicy="Subdomain")
        told = await routers.routes.until_refused("all", "RouteNotAdmitted")
        assert "[l7_router] route_wildcards" in told
        await routers.until_answered({("www.a.com", "/"): 503})
    async with routers.controller(**with_options(route_wildcards="true")):
        await routers.routes.until_admitted("all")
        await routers.until_answered({("www.a.com", "/"): ONE})


async def test_wildcard_policy_serves_all_hosts_of_the_domain(routers):
    await two_backends(routers)
    async with routers.controller(**with_options(route_wildcards="true")):
        await routers.routes.add("all", "www.a.com", wildcardPolicy="Subdomain")
        await routers.routes.add("one", "x.a.com", "two")
        await routers.until_answered(
            {("y.a.com", "/"): ONE, ("x.a.com", "/"): TWO, ("a.com", "/"): 503}
        )
        await routers.routes.until_admitted("all")
        entry = await routers.routes.entry("all")
        assert (entry["host"], entry["wildcardPolicy"]) == ("www.a.com", "Subdomain")


@pytest.mark.parametrize(
    ("insecure", "plain"),
    [(None, 403), ("None", 403), ("Allow", ONE), ("Redirect", (302, "https://a.com"))],
)
async def test_edge_is_served_over_tls_with_its_own_certificate_and_plain_http_as_it_says(
    routers, insecure, plain
):
    await two_backends(routers)
    tls, certificate = edge("a.com", insecure=insecure)
    async with routers.controller(**TLS):
        await routers.routes.add("shop", "a.com", tls=tls)
        assert await routers.routes.until_admitted("shop") == ""
        await routers.until_shown(certificate)
        await until_secure(routers, {("a.com", "/", 443): ONE, ("a.com", "/", 80): plain})
    assert not await routers.events()


async def test_renewed_certificate_of_a_route_replaces_the_former_one(routers):
    await two_backends(routers)
    tls, certificate = edge("a.com")
    async with routers.controller(**TLS):
        await routers.routes.add("shop", "a.com", tls=tls)
        await routers.until_shown(certificate)
        tls, renewed = edge("a.com")
        await routers.routes.change("shop", tls=tls)
        await routers.until_shown(renewed)
        await routers.routes.delete("shop")

        async def ended():
            return not routers.cloud.barbican.secrets

        await routers.until(ended)


async def test_edge_without_a_certificate_has_that_of_a_secret_or_of_the_router(routers):
    await two_backends(routers)
    default = await routers.add_secret("default", "*.corp")
    certificate = await routers.add_secret("cert", "a.com")
    options = {"tls": "true", "default_certificate": f"{routers.namespace}/default"}
    async with routers.controller(**with_options(**options)):
        tls, _ = edge()
        await routers.routes.add("shop", "x.corp", tls=tls)
        external = tls | {"externalCertificate": {"name": "cert"}}
        await routers.routes.add("other", "a.com", "two", tls=external)
        await routers.routes.until_admitted("shop")
        await routers.routes.until_admitted("other")
        await routers.until_shown(default, certificate)
        await until_secure(routers, {("x.corp", "/", 443): ONE, ("a.com", "/", 443): TWO})


async def test_of_two_certificates_of_a_namespace_for_one_host_the_older_routes_is_shown(routers):
    await two_backends(routers)
    (first, older), (second, younger) = edge("a.com"), edge("a.com")
    async with routers.controller(**TLS):
        await routers.routes.add("a-shop", "a.com", tls=first)
        await routers.routes.add("b-cart", "a.com", "two", path="/cart", tls=second)
        told = await routers.routes.until_admitted("b-cart", reason="PartlyServed")
        whose = f"Route {routers.namespace}/a-shop"
        assert (
            told == f"tls: a.com: the certificate of {whose}, which came first, is shown instead"
        )
        await routers.until_shown(older)
        await until_secure(routers, {("a.com", "/", 443): ONE, ("a.com", "/cart", 443): TWO})
        first, renewed = edge("a.com")
        await routers.routes.change("a-shop", tls=first)
        await routers.until_shown(renewed)
        assert await routers.routes.until_admitted("a-shop") == ""
        await routers.routes.delete("a-shop")
        await routers.until_shown(younger)
        assert await routers.routes.until_admitted("b-cart") == ""


async def test_route_whose_certificate_barbican_does_not_take_says_so_until_it_does(routers):
    await two_backends(routers)
    (first, _), (second, _) = edge("a.com"), edge("b.com")
    async with routers.controller(patience=SOON, **TLS):
        await routers.routes.add("shop", "a.com", tls=first)
        await routers.routes.until_admitted("shop")
        fault = routers.cloud.faults.add(
            action=answer(400), method="POST", path="/secrets$", times=None
        )
        await routers.routes.add("other", "b.com", "two", tls=second)
        told = await routers.routes.until_refused("other", "CertificateNotTaken")
        assert "does not take its certificate" in told
        assert await routers.routes.until_admitted("shop") == ""
        fault.remove()
        await routers.routes.until_admitted("other")


async def test_certificate_for_another_host_closes_the_route_and_that_is_told(routers):
    await two_backends(routers)
    tls, _ = edge("b.com", insecure="Redirect")
    async with routers.controller(**TLS):
        await routers.routes.add("shop", "a.com", tls=tls)
        told = await routers.routes.until_refused("shop", "ExtendedValidationFailed")
        assert "its certificate is not for a.com" in told
        assert told == await routers.until_event("KuryrRouteUnserved")
        await routers.until_answered({("a.com", "/"): 403})


async def test_route_whose_certificate_cannot_be_used_keeps_its_host_and_is_closed(routers):
    await two_backends(routers)
    bad, _ = edge("a.com", insecure="Redirect")
    good, certificate = edge("b.com")
    async with routers.controller(**TLS):
        await routers.routes.add("other", "b.com", "two", tls=good)
        await routers.routes.add("a-shop", "a.com", tls=bad | {"key": "no pem"})
        told = await routers.routes.until_refused("a-shop", "ExtendedValidationFailed")
        assert told == "tls: inline certificate: key has no private key in PEM"
        await routers.routes.add("b-shop", "a.com", "two")
        await routers.routes.until_refused("b-shop", "HostAlreadyClaimed")
        await until_secure(
            routers, {("a.com", "/", 80): 403, ("a.com", "/", 443): 403, ("b.com", "/", 443): TWO}
        )
        await routers.until_shown(certificate)
        await routers.routes.change("a-shop", tls=bad)
        await routers.routes.until_admitted("a-shop")
        await until_secure(routers, {("a.com", "/", 443): ONE})
        await routers.routes.until_refused("b-shop", "HostAlreadyClaimed")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"tls": {"termination": "passthrough"}}, "PassthroughNotSupported"),
        ({"tls": {"termination": "reencrypt"}}, "TLSNotEnabled"),
        ({"tls": {"termination": "edge"}}, "TLSNotEnabled"),
        ({"annotations": {f"{HAPROXY}ip_allowlist": "10.0.0.1"}}, "AnnotationNotSupported"),
    ],
)
async def test_what_cannot_be_had_is_refused_with_a_condition_and_an_event(routers, spec, reason):
    await two_backends(routers)
    async with routers.controller(**WITH_ROUTES):
        await routers.routes.add("shop", "a.com", **spec)
        told = await routers.routes.until_refused("shop", reason)
        assert told == await routers.until_event("KuryrRouteUnserved")
        await routers.until_answered({("a.com", "/"): 503})


async def test_annotations_are_honoured_or_told_by_name(routers):
    await two_backends(routers)
    marks = {f"{HAPROXY}balance": "leastconn", f"{HAPROXY}disable_cookies": "true"}
    async with routers.controller(**WITH_ROUTES):
        await routers.routes.add("shop", "a.com", annotations=marks)
        await routers.routes.add("slow", "b.com", "two", annotations={f"{HAPROXY}timeout": "5s"})
        assert await routers.routes.until_admitted("shop") == ""
        told = await routers.routes.until_admitted("slow", reason="PartlyServed")
        assert told == f"annotation {HAPROXY}timeout: 5s: not supported"
        [tree] = routers.routers()
        pools = {
            policy["pool"]["name"].rpartition("/")[2]: policy["pool"]
            for policy in tree["listeners"][0]["policies"]
        }
    assert pools["shop"]["lb_algorithm"] == "LEAST_CONNECTIONS"
    assert not pools["shop"]["session_persistence"]
    assert pools["slow"]["lb_algorithm"] == "ROUND_ROBIN"
    assert pools["slow"]["session_persistence"]["type"] == "HTTP_COOKIE"


async def test_of_two_routes_with_one_host_and_path_the_older_one_is_served_until_it_goes(routers):
    await two_backends(routers)
    async with routers.controller(**WITH_ROUTES):
        await routers.routes.add("a-older", "a.com")
        await routers.routes.until_admitted("a-older")
        await routers.routes.add("b-younger", "a.com", "two")
        told = await routers.routes.until_refused("b-younger", "HostAlreadyClaimed")
        assert f"a.com: Route {routers.namespace}/a-older has the host" in told
        assert routers.answer("a.com", "/") == ONE
        await routers.routes.delete("a-older")
        await routers.routes.until_admitted("b-younger")
        await routers.until_answered({("a.com", "/"): TWO})


async def test_status_of_a_changed_route_stays_until_the_change_is_in_place(routers):
    await two_backends(routers)
    async with routers.controller(patience=SOON, **WITH_ROUTES):
        await routers.routes.add("shop", "a.com")
        await routers.routes.until_admitted("shop")
        before = await routers.routes.entry("shop")
        fault = routers.cloud.faults.add(
            action=answer(500), method="POST", path="/l7policies$", times=None
        )
        await routers.routes.change("shop", path="/x/")

        async def struck():
            return fault.hits > 1

        await routers.until(struck)
        assert await routers.routes.entry("shop") == before
        fault.remove()
        await routers.routes.until_admitted("shop", reason="PartlyServed")
        assert routers.answer("a.com", "/x") == ONE


@pytest.mark.parametrize("status", [404, 503], ids=["gone", "down"])
async def test_api_of_routes_that_is_not_there_does_not_hold_up_ingresses(routers, status):
    await two_backends(routers)
    async with routers.controller(**WITH_ROUTES):
        await routers.add_ingress("shop", ("a.com", ("Prefix", "/", "one")))
        await routers.until_address("shop")
        routers.proxy.faults.add(method="GET", path="/routes$", action=answer(status), times=None)
        await routers.delete_ingress("shop")
        await routers.until_answered({("a.com", "/"): 503})


async def test_older_ingress_keeps_its_host_and_path(routers):
    await two_backends(routers)
    async with routers.controller(**WITH_ROUTES):
        await routers.add_ingress("shop", ("a.com", ("Prefix", "/", "one")))
        await routers.until_address("shop")
        await routers.routes.add("shop", "a.com", "two")
        told = await routers.routes.until_refused("shop", "HostAlreadyClaimed")
        assert f"Ingress {routers.namespace}/shop has the host" in told
        assert routers.answer("a.com", "/") == ONE


async def test_entries_of_other_routers_stay_and_an_unchanged_status_is_not_written_again(routers):
    await two_backends(routers)
    other = {"host": "a.com", "routerName": "default", "wildcardPolicy": "None"}
    await routers.routes.add("shop", "a.com")
    status = {"status": {"ingress": [other]}}
    await routers.client.patch(f"{routers.routes.path('shop')}/status", status)
    async with routers.controller(**WITH_ROUTES):
        await routers.routes.until_admitted("shop")
    found = (await routers.routes.find("shop"))["status"]["ingress"]
    assert [each["routerName"] for each in found] == ["default", "kuryr"]
    assert found[0] == other
    before = (await routers.routes.find("shop"))["metadata"]["resourceVersion"]
    async with routers.controller(**WITH_ROUTES):
        await routers.until(routers.is_published)
        await routers.routes.add("more", "b.com")
        await routers.routes.until_admitted("more")
        assert (await routers.routes.find("shop"))["metadata"]["resourceVersion"] == before


async def test_routes_without_the_labels_are_not_ours_and_one_that_loses_them_is_let_go(routers):
    await two_backends(routers)
    options = with_options(route_labels="router=kuryr,zone=a")
    labels = {"router": "kuryr", "zone": "a", "more": "x"}
    async with routers.controller(**options):
        await routers.routes.add("other", "b.com", "two", labels={"router": "kuryr"})
        await routers.routes.add("shop", "a.com", labels=labels)
        await routers.routes.until_admitted("shop")
        assert routers.answer("b.com", "/") == 503
        assert await routers.routes.entry("other") is None
        patch = {"metadata": {"labels": {"zone": None}}}
        await routers.client.patch(routers.routes.path("shop"), patch)
        await routers.until_answered({("a.com", "/"): 503})

        async def let_go():
            return await routers.routes.entry("shop") is None

        await routers.until(let_go)


async def test_route_without_a_host_gets_one_in_the_domain_of_the_operator(routers):
    await two_backends(routers)
    host = f"shop-{routers.namespace}.apps.com"
    options = with_options(route_domain="apps.com", route_canonical_hostname="router.apps.com")
    async with routers.controller(**options):
        await routers.routes.add("shop")
        await routers.routes.add("front", "", "two", subdomain="front")
        await routers.until_answered({(host, "/"): ONE, ("front.apps.com", "/"): TWO})
        await routers.routes.until_admitted("shop")
        await routers.routes.until_admitted("front")
        shop, front = await routers.routes.find("shop"), await routers.routes.entry("front")
    assert shop["spec"]["host"] == host
    assert shop["metadata"]["annotations"]["openshift.io/host.generated"] == "true"
    assert front["host"] == "front.apps.com"
    assert front["routerCanonicalHostname"] == "router.apps.com"


async def test_route_without_a_host_is_refused_where_there_is_no_domain(routers):
    await two_backends(routers)
    async with routers.controller(**WITH_ROUTES):
        await routers.routes.add("shop")
        told = await routers.routes.until_refused("shop", "NoHost")
        assert "[l7_router] route_domain" in told
        await routers.routes.delete("shop")
        await routers.routes.add("shop", "a.com")
        await routers.routes.until_admitted("shop")


async def test_missing_service_is_told_and_served_when_it_comes(routers):
    async with routers.controller(**WITH_ROUTES):
        await routers.routes.add("shop", "a.com")
        told = await routers.routes.until_admitted("shop", reason="PartlyServed")
        assert f"there is no Service {routers.namespace}/one" in told
        await routers.add_backend("one", *ONE)
        await routers.until_answered({("a.com", "/"): ONE})
        assert await routers.routes.until_admitted("shop") == ""


async def test_route_that_a_cache_lacks_keeps_its_routes(routers):
    await two_backends(routers)
    async with routers.controller(**WITH_ROUTES) as app:
        await routers.routes.add("shop", "a.com")
        await routers.routes.until_admitted("shop")
        [cache] = [each._routes for each in app.handlers if isinstance(each, OCPRouteHandler)]
        await routers.lose(cache, routers.routes.path("shop"), until="list")
        assert routers.answer("a.com", "/") == ONE


async def test_router_that_people_delete_is_told_to_no_route_any_more(routers):
    await two_backends(routers)
    async with routers.controller(**WITH_ROUTES) as app:
        await routers.routes.add("shop", "a.com")
        await routers.routes.until_admitted("shop")
        [handler] = [each for each in app.handlers if isinstance(each, OCPRouteHandler)]
        handler._routing.release()

        async def gone():
            return not routers.routers() and await routers.routes.entry("shop") is None

        await routers.until(gone)


async def test_key_of_a_route_is_stored_in_barbican_and_in_no_log_and_no_event(routers, capsys):
    await two_backends(routers)
    tls, certificate = edge("a.com")
    async with routers.controller(**TLS, DEFAULT={"debug": "true"}):
        await routers.routes.add("shop", "a.com", tls=tls)
        await routers.until_shown(certificate)
        await routers.routes.change("shop", tls=tls | {"certificate": "no pem"})
        told = await routers.routes.until_refused("shop", "ExtendedValidationFailed")
        assert told == await routers.until_event("KuryrRouteUnserved")
        await routers.until_shown()
    secret = tls["key"].splitlines()[1]
    logged = "".join(capsys.readouterr())
    assert "DEBUG" in logged
    assert "certificate has no certificates" in logged
    assert secret not in logged + told


async def test_host_belongs_to_the_namespace_of_the_oldest_route(routers, whole_server):
    """The controller sees all namespaces."""
    await two_backends(routers)
    other = await routers.cluster.add_namespace(f"{routers.namespace}-other")
    mark = {"test": routers.namespace}
    stage = RouterStage(
        routers.cluster, routers.cloud, whole_server, routers.load_conf, options=routers.options
    )
    async with stage.controller(**with_options(route_labels=f"test={routers.namespace}")):
        await stage.routes.add("older", "a.com", path="/x", labels=mark)
        await stage.routes.until_admitted("older")
        await asyncio.sleep(1.1)  # creations are told to the second
        await stage.routes.add("younger", "a.com", namespace=other, path="/y", labels=mark)
        told = await stage.routes.until_refused("younger", "HostAlreadyClaimed", namespace=other)
        assert f"Route {stage.namespace}/older has the host" in told
        await stage.routes.delete("older")
        await stage.routes.until_admitted("younger", namespace=other, reason="PartlyServed")


async def test_handler_without_the_router_is_an_error_of_the_configuration(routers):
    handlers = "vif,kuryrport,lbaas_spec,loadbalancer,ocp_route"
    with pytest.raises(ExceptionGroup) as raised:
        async with routers.controller(kubernetes={"enabled_handlers": handlers}):
            pass
    assert raised.group_contains(ConfigError, match="ocp_route needs l7_router")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"path": "x"}, "spec.path"),
        ({"host": "A_b"}, "spec.host"),
        ({"host": "", "wildcardPolicy": "Subdomain"}, "needs a host"),
        ({"path": "/x", "tls": {"termination": "passthrough"}}, "there is no path"),
        ({"tls": {"termination": "passthrough", "insecureEdgeTerminationPolicy": "Allow"}},
         "cannot be Allow"),
        ({"tls": {"termination": "edge", "destinationCACertificate": "x"}}, "edge"),
        ({"tls": {"termination": "edge", "key": "x", "externalCertificate": {"name": "x"}}},
         "either here or in a Secret"),
        ({"to": {"kind": "Job", "name": "x"}}, "spec.to.kind"),
        ({"to": {"name": "x", "weight": 257}}, "spec.to.weight"),
        ({"alternateBackends": [{"name": "x"}] * 4}, "at most 3"),
        ({"port": {"targetPort": 70000}}, "1 to 65535"),
        ({"port": {"targetPort": ""}}, "1 to 65535"),
    ],
)  # fmt: skip
async def test_crd_refuses_what_openshift_refuses(routers, spec, told):
    with pytest.raises(KubeRefusal, match=told):
        await routers.routes.add("shop", spec.pop("host", "a.com"), **spec)


@pytest.mark.parametrize(
    ("former", "changed"),
    [
        ({"host": "a.com"}, {"host": "b.com"}),
        ({"host": "a.com"}, {"host": ""}),
        ({"host": "a.com"}, {"host": None}),
        ({"host": ""}, {"host": "b.com"}),
        ({"host": "", "subdomain": "a"}, {"host": "b.com"}),
        ({"host": "", "subdomain": "a"}, {"subdomain": "b"}),
        ({"host": "", "subdomain": "a"}, {"subdomain": None}),
        ({"host": ""}, {"subdomain": "b"}),
    ],
)
async def test_old_route_cannot_be_changed_to_the_host_of_another(routers, former, changed):
    """Being older, it would have that host."""
    await routers.routes.add("shop", former.pop("host"), **former)
    await routers.routes.change("shop", path="/x")
    with pytest.raises(KubeRefusal, match="never changes"):
        await routers.routes.change("shop", **changed)
