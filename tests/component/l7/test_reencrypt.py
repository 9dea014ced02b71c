"""Pods behind the L7 router get requests over TLS, and are who the user says, or get none."""

import pytest

from tests.component.l7.test_ingress import ONE, TWO, two_backends
from tests.component.l7.test_ocp_route import TLS
from tests.component.l7.test_tls import until_secure
from tests.component.l7.test_trouble import OFTEN, SOON
from tests.kit.fakes.faults import answer
from tests.kit.l7 import pool_of, pools_in
from tests.kit.routes import reencrypt
from tests.kit.tls import make_authority, pem_of

HTTPS = {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}
SERVED = {("a.com", "/", 443): ONE}


def new_authority(name="a CA"):
    """The certificate of a CA, in PEM."""
    return pem_of(make_authority(name)[0])


@pytest.fixture
def checks(routers):
    """Checks after each call of Octavia or Barbican, which return what is wrong, or nothing.

    One is there: pools over TLS name a CA that Barbican has.
    """

    def unverified():
        stored = set(map(routers.cloud.barbican.ref, routers.cloud.barbican.secrets))
        pools = routers.cloud.octavia.store._by_kind["pool"].values()
        return [
            pool["name"]
            for pool in pools
            if pool["tls_enabled"] and pool["ca_tls_container_ref"] not in stored
        ]

    checks, wrong = [unverified], []

    async def look(_request, proceed):
        response = await proceed()
        wrong.extend(found for check in checks if (found := check()))
        return response

    rule = routers.cloud.faults.add(action=look, method=None, path="lbaas|secrets", times=None)
    yield checks
    assert rule.hits
    assert not wrong


@pytest.mark.parametrize(
    ("insecure", "plain"), [(None, 403), ("Allow", ONE), ("Redirect", (302, "https://a.com"))]
)
async def test_route_is_admitted_and_its_pods_get_requests_over_tls_and_show_who_they_are(
    routers, checks, insecure, plain
):
    await two_backends(routers)
    authority = new_authority()
    tls, certificate = reencrypt(authority, "a.com", insecure=insecure)
    async with routers.controller(**TLS):
        await routers.routes.add("shop", "a.com", tls=tls)
        assert await routers.routes.until_admitted("shop") == ""
        await routers.until_shown(certificate)
        await routers.until_trusted(authority)
        await until_secure(routers, SERVED | {("a.com", "/", 80): plain})
    [tree] = routers.routers()
    assert pool_of(tree, f"Route {routers.namespace}/shop over TLS")["tls_enabled"]
    assert not await routers.events()


async def test_another_ca_replaces_the_former_one_without_a_moment_without(routers, checks):
    await two_backends(routers)
    first, second = new_authority("first"), new_authority("second")
    tls, certificate = reencrypt(first, "a.com")
    async with routers.controller(**TLS):
        await routers.routes.add("shop", "a.com", tls=tls)
        await routers.until_trusted(first)
        await routers.routes.until_admitted("shop")
        pools = set(routers.cloud.octavia.store._by_kind["pool"])
        both = (first + second).decode()
        await routers.routes.change("shop", tls=tls | {"destinationCACertificate": both})
        await routers.until_trusted(first + second)
        await routers.routes.change("shop", tls=tls | reencrypt(second)[0])
        await routers.until_trusted(second)
        await routers.until_shown(certificate)
        await until_secure(routers, SERVED)
        assert set(routers.cloud.octavia.store._by_kind["pool"]) == pools


async def test_route_changes_to_edge_and_back_and_leaves_nothing_when_it_goes(routers, checks):
    await two_backends(routers)
    authority = new_authority()
    secure, certificate = reencrypt(authority, "a.com")
    plain = secure | {"termination": "edge", "destinationCACertificate": None}
    async with routers.controller(**TLS):
        await routers.routes.add("shop", "a.com", tls=secure)
        await routers.routes.until_admitted("shop")
        await routers.until_trusted(authority)
        checks.append(lambda: routers.answer("a.com", "/", 443) != ONE)
        await routers.routes.change("shop", tls=plain)
        await routers.until_trusted()
        await routers.until_settled_router(policies=2, pools=1)
        assert not any(pool["tls_enabled"] for pool in pools_in(routers.routers()[0]))
        await routers.routes.change("shop", tls=secure)
        await routers.until_trusted(authority)
        await routers.until_settled_router(policies=2, pools=1)
        assert all(pool["tls_enabled"] for pool in pools_in(routers.routers()[0]))
        await routers.until_shown(certificate)
        checks.pop()
        await routers.routes.delete("shop")

        async def ended():
            return not routers.cloud.barbican.secrets

        await routers.until(ended)
        await routers.until_settled_router(policies=0, pools=0)


@pytest.mark.parametrize(
    ("authority", "reason", "told"),
    [
        (
            b"no pem",
            "ExtendedValidationFailed",
            "destinationCACertificate has no certificates",
        ),
        (b"", "NoDestinationCA", "reencrypt needs the certificate of the CA"),
    ],
)
async def test_route_whose_pods_nobody_can_verify_is_refused_in_words(
    routers, checks, authority, reason, told
):
    await two_backends(routers)
    tls, _ = reencrypt(authority, "a.com", insecure="Allow")
    async with routers.controller(**TLS):
        await routers.routes.add("shop", "a.com", tls=tls)
        message = await routers.routes.until_refused("shop", reason)
        assert told in message
        assert message == await routers.until_event("KuryrRouteUnserved")
        await routers.until_answered({("a.com", "/"): 503})
        good = new_authority()
        await routers.routes.change("shop", tls=tls | reencrypt(good)[0])
        await routers.routes.until_admitted("shop")
        await routers.until_trusted(good)


async def test_route_is_closed_while_barbican_does_not_store_its_ca(routers):
    await two_backends(routers)
    authority = new_authority()
    tls, certificate = reencrypt(authority, "a.com", insecure="Allow")
    async with routers.controller(patience=SOON, **TLS):

        async def refuse(request, proceed):
            is_full = len(routers.cloud.barbican.secrets) == 1  # the CA comes second
            return await (answer(500)(request, proceed) if is_full else proceed())

        fault = routers.cloud.faults.add(
            action=refuse, method="POST", path="/secrets$", times=None
        )
        await routers.routes.add("shop", "a.com", tls=tls)
        await until_secure(routers, {("a.com", "/", 443): 403, ("a.com", "/", 80): 403})
        assert not pools_in(routers.routers()[0])
        await routers.routes.until_refused("shop", "CertificateNotTaken")
        fault.remove()
        await routers.routes.until_admitted("shop")
        await routers.until_shown(certificate)
        await routers.until_trusted(authority)
        await until_secure(routers, SERVED | {("a.com", "/", 80): ONE})


async def test_route_whose_new_ca_barbican_does_not_store_tells_that_the_former_one_counts(
    routers, checks
):
    await two_backends(routers)
    first, second = new_authority("first"), new_authority("second")
    tls, certificate = reencrypt(first, "a.com")
    async with routers.controller(patience=SOON, **TLS):
        await routers.routes.add("shop", "a.com", tls=tls)
        await routers.routes.until_admitted("shop")
        await routers.until_trusted(first)
        checks.append(lambda: routers.answer("a.com", "/", 443) != ONE)
        routers.cloud.barbican.quota = 2
        changed = tls | {"destinationCACertificate": second.decode()}
        await routers.routes.change("shop", tls=changed)
        message = await routers.routes.until_admitted("shop", reason="PartlyServed")
        assert "its new destinationCACertificate, so that the former one counts" in message
        assert message == await routers.until_event("KuryrRouteUnserved")
        await routers.until_trusted(first)
        await routers.until_shown(certificate)
        routers.cloud.barbican.quota = -1
        assert await routers.routes.until_admitted("shop") == ""
        await routers.until_trusted(second)
        assert len(await routers.events()) == 1


async def test_ca_in_barbican_that_somebody_deletes_is_stored_again_before_anything_else_changes(
    routers,
):
    await two_backends(routers)
    authority = new_authority()
    tls, _ = reencrypt(authority, "a.com")
    barbican = routers.cloud.barbican
    async with routers.controller(**TLS, **OFTEN):
        await routers.routes.add("shop", "a.com", tls=tls)
        await routers.routes.until_admitted("shop")
        await routers.until_trusted(authority)
        [lost] = [key for key, each in barbican.secrets.items() if each["payload"] == authority]
        del barbican.secrets[lost]
        await routers.until_trusted(authority)
        # a real Octavia would never have ended another change
        await routers.routes.add("other", "b.com", "two")
        await routers.routes.until_admitted("other")
        await until_secure(routers, SERVED | {("b.com", "/", 80): TWO})


async def test_ca_of_a_route_that_the_rules_cannot_hold_is_stored_once(routers):
    await two_backends(routers)
    tls, _ = reencrypt(new_authority(), "a.com")
    barbican = routers.cloud.barbican
    listings = routers.cloud.faults.add(
        action=_as_usual, method="GET", path="/secrets", times=None
    )
    async with routers.controller(**TLS, **OFTEN):
        await routers.routes.add("shop", "a.com", tls=tls, path=f"/{'a' * 300}")
        assert "longer than" in await routers.routes.until_refused("shop", "RouteNotAdmitted")

        async def stored():
            return barbican.secrets

        await routers.until(stored)
        before, listed = dict(barbican.secrets), listings.hits

        async def reviewed():
            return listings.hits > listed + 2

        await routers.until(reviewed)
        assert barbican.secrets == before


async def _as_usual(_request, proceed):
    return await proceed()


async def test_restart_stores_and_changes_nothing(routers):
    await two_backends(routers)
    authority = new_authority()
    tls, certificate = reencrypt(authority, "a.com")
    async with routers.controller(**TLS):
        await routers.routes.add("shop", "a.com", tls=tls)
        await routers.routes.until_admitted("shop")
        await routers.until_shown(certificate)
        await routers.until_trusted(authority)
    before = len(routers.octavia_calls()), dict(routers.cloud.barbican.secrets)
    async with routers.controller(**TLS):
        await routers.until(routers.is_published)
        await routers.routes.add("other", "b.com", "two")
        await routers.routes.until_admitted("other")
    # a pool, its members, and the policy of the other with its rule
    assert len(routers.octavia_calls()) == before[0] + 4
    assert routers.cloud.barbican.secrets == before[1]


@pytest.mark.parametrize("newest", [30, 20, 12])
async def test_router_that_is_made_anew_has_its_pools_over_tls_at_once(routers, checks, newest):
    routers.cloud.octavia.newest = newest  # of its API
    await two_backends(routers)
    authority = new_authority()
    tls, _ = reencrypt(authority, "a.com")
    await routers.routes.add("shop", "a.com", tls=tls)
    async with routers.controller(**TLS):
        await routers.routes.until_admitted("shop")
        await routers.until_trusted(authority)
        await until_secure(routers, SERVED)
        assert routers.octavia_calls() == [("POST", "/loadbalancers")]


async def test_ingresses_that_differ_in_the_protocol_of_one_port_have_two_pools(routers):
    await two_backends(routers)
    async with routers.controller():
        await routers.add_ingress("secure", ("a", ("Prefix", "/", "one")), annotations=HTTPS)
        await routers.add_ingress("plain", ("b", ("Prefix", "/", "one")))
        assert await routers.until_address("secure")
        assert await routers.until_address("plain")
        await routers.until_answered({("a", "/"): ONE, ("b", "/"): ONE})
        [tree] = routers.routers()
    name = f"{routers.namespace}/one:80"
    secure, plain = pool_of(tree, f"{name} over TLS"), pool_of(tree, name)
    assert (secure["tls_enabled"], secure["ca_tls_container_ref"]) == (True, None)
    assert not plain["tls_enabled"]
    assert not await routers.events()


async def test_annotation_for_the_pods_certificates_is_refused_by_name(routers):
    await two_backends(routers)
    verify = "nginx.ingress.kubernetes.io/proxy-ssl-verify"
    async with routers.controller():
        marks = HTTPS | {verify: "on"}
        await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")), annotations=marks)
        note = await routers.until_event("KuryrIngressUnserved")
        assert note == f"annotation {verify}: on: not supported"
