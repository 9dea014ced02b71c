"""What an OpenShift Route claims of the L7 router, and what is refused."""

import pytest

from kuryr_k8s.model.certificate import Certificate, UnusableCertificate
from kuryr_k8s.model.ocp_route import OCPRoute
from kuryr_k8s.model.ocp_route_claims import claim_of
from kuryr_k8s.model.routes import Host, Path, SecretName
from tests.kit.routes import edge, make_route, reencrypt
from tests.kit.tls import make_authority, make_pair, pem_of

HAPROXY = "haproxy.router.openshift.io/"
CA = pem_of(make_authority()[0])


def read(name="shop", host="a.com", *to, **spec):
    item = make_route(name, host, *to, namespace="ns", **spec)
    item["metadata"] |= {"uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01"}
    return OCPRoute.read(item)


def claim(*to, name="shop", host="a.com", domain="", with_tls=True, with_wildcards=True, **spec):
    return claim_of(
        read(name, host, *to, **spec),
        domain=domain,
        with_tls=with_tls,
        with_wildcards=with_wildcards,
    )


def test_route_leads_its_host_and_the_paths_below_its_own_to_its_service():
    found = claim("one", host="A.com", path="/x")
    [route] = found.routes
    assert (route.host, route.path) == (Host("a.com"), Path.prefix("/x"))
    [pool] = found.backends
    assert route.action.pool == str(pool) == "Route ns/shop"
    [(backend, weight)] = pool.shares
    assert (backend.service, backend.port, weight) == ("one", "", 100)
    assert (pool.algorithm, pool.by_cookie) == ("ROUND_ROBIN", True)  # as of OpenShift's router
    assert found.is_of_namespace
    assert not found.problems
    assert not found.secured


def test_services_have_their_weights_and_100_where_there_is_none():
    [pool] = claim(("one", 0), "two", ("three", 256), port={"targetPort": 8080}).backends
    assert [(part.service, part.port, weight) for part, weight in pool.shares] == [
        ("one", "8080", 0), ("two", "8080", 100), ("three", "8080", 256)
    ]  # fmt: skip


def test_wildcard_policy_makes_all_hosts_of_the_domain_its_own():
    found = claim(host="www.a.com", wildcardPolicy="Subdomain")
    assert found.routes[0].host == Host("*.a.com")


@pytest.mark.parametrize(
    ("name", "spec", "host"),
    [
        ("shop", {}, "shop-ns.apps.com"),
        ("my.shop", {}, "my-shop-ns.apps.com"),
        ("shop", {"subdomain": "front"}, "front.apps.com"),
    ],
)
def test_route_without_a_host_gets_one_in_the_domain_of_the_router(name, spec, host):
    found = claim(name=name, host="", domain="apps.com", **spec)
    assert found.routes[0].host == Host(host)


@pytest.mark.parametrize(
    ("insecure", "is_plain_too", "redirect"),
    [(None, False, None), ("None", False, None), ("Allow", True, None), ("Redirect", False, 302)],
)
def test_edge_is_secured_with_its_own_certificate_and_says_what_becomes_of_plain_http(
    insecure, is_plain_too, redirect
):
    tls, _ = edge("a.com", insecure=insecure)
    found = claim(tls=tls)
    [(host, certificate)] = found.secured
    assert host == Host("a.com")
    assert isinstance(certificate, Certificate)
    assert (certificate.source, certificate.names) == ("u", {"a.com"})
    assert (found.is_plain_too, found.redirect) == (is_plain_too, redirect)


def test_edge_without_a_certificate_has_that_of_a_secret_or_of_the_router():
    tls, _ = edge()
    assert claim(tls=tls).secured == ((Host("a.com"), None),)
    external = tls | {"externalCertificate": {"name": "cert"}}
    assert claim(tls=external).secured == ((Host("a.com"), SecretName("ns", "cert")),)


@pytest.mark.parametrize(
    ("insecure", "is_plain_too", "redirect"),
    [(None, False, None), ("Allow", True, None), ("Redirect", False, 302)],
)
def test_reencrypt_is_secured_as_edge_is_and_has_a_pool_of_its_own_with_the_ca(
    insecure, is_plain_too, redirect
):
    tls, _ = reencrypt(CA, "a.com", insecure=insecure)
    found = claim(tls=tls)
    [(_, certificate)] = found.secured
    [pool] = found.backends
    assert (pool.authority.source, pool.authority.bundle) == ("u-ca", CA)
    assert certificate.source == "u"
    assert (found.is_plain_too, found.redirect) == (is_plain_too, redirect)
    assert found.routes[0].action.pool == str(pool)
    assert str(pool) != str(claim(tls=edge("a.com")[0]).backends[0])
    assert not found.problems


def test_reencrypt_without_a_certificate_has_that_of_a_secret_or_of_the_router():
    tls, _ = reencrypt(CA)
    assert claim(tls=tls).secured == ((Host("a.com"), None),)
    external = tls | {"externalCertificate": {"name": "cert"}}
    assert claim(tls=external).secured == ((Host("a.com"), SecretName("ns", "cert")),)


def test_no_text_about_a_route_shows_its_key():
    tls, _ = edge("a.com")
    route = read(tls=tls)
    shown = repr(route) + repr(claim_of(route))
    assert tls["key"].splitlines()[1] not in shown


OTHER, OTHER_KEY = (text.decode() for text in make_pair("a.com"))


@pytest.mark.parametrize(
    ("tls", "told"),
    [
        ({"key": "x"}, "key has no private key in PEM"),
        ({"key": OTHER_KEY}, "its key is not that of the certificate"),
        ({"certificate": "x"}, "certificate has no certificates in PEM"),
        ({"certificate": "x" * 70000}, "certificate has more than 65536 characters"),
        ({"caCertificate": "x"}, "caCertificate has no certificates in PEM"),
        ({"caCertificate": "x" * 70000}, "caCertificate has more than 65536 characters"),
        ({"caCertificate": OTHER + OTHER[:-30]}, "caCertificate has a certificate that cannot"),
    ],
)
def test_route_whose_certificate_cannot_be_used_keeps_its_host(tls, told):
    found = claim(tls=edge("a.com")[0] | tls)
    assert found.refusal is None
    assert [route.host for route in found.routes] == [Host("a.com")]
    [(host, certificate)] = found.secured
    assert host == Host("a.com")
    assert isinstance(certificate, UnusableCertificate)
    assert told in str(certificate)
    assert certificate.__traceback__ is None  # it would keep the key


@pytest.mark.parametrize(
    ("spec", "reason", "told"),
    [
        ({"host": ""}, "NoHost", "route_domain"),
        ({"host": "a_b.com"}, "InvalidHost", "a_b.com"),
        ({"host": "*.a.com"}, "InvalidHost", "no name in DNS"),
        ({"host": "a", "wildcardPolicy": "Subdomain"}, "InvalidHost", "no domain"),
        ({"wildcardPolicy": "Subdomain", "with_wildcards": False}, "RouteNotAdmitted",
         "wildcard routes are not allowed: the operator sets [l7_router] route_wildcards"),
        ({"wildcardPolicy": "Other"}, "ExtendedValidationFailed", "wildcardPolicy: Other"),
        ({"tls": {"termination": "passthrough"}}, "PassthroughNotSupported", "passthrough"),
        ({"tls": {"termination": "reencrypt"}}, "NoDestinationCA",
         "reencrypt needs the certificate of the CA"),
        ({"tls": reencrypt(b"x")[0]}, "ExtendedValidationFailed",
         "spec.tls: destinationCACertificate has no certificates in PEM"),
        ({"tls": reencrypt(b"x" * 70000)[0]}, "ExtendedValidationFailed",
         "destinationCACertificate has no certificates in PEM"),
        ({"tls": reencrypt(CA)[0], "with_tls": False}, "TLSNotEnabled", "[l7_router] tls"),
        ({"tls": reencrypt(CA, insecure="Disable")[0]}, "ExtendedValidationFailed", "Disable"),
        ({"tls": {"termination": "other"}}, "ExtendedValidationFailed", "other"),
        ({"tls": edge(insecure="Disable")[0]}, "ExtendedValidationFailed", "Disable"),
        ({"tls": {"termination": "edge"}, "with_tls": False}, "TLSNotEnabled", "[l7_router] tls"),
        ({"to": {"kind": "Job", "name": "x"}}, "ExtendedValidationFailed", "only Services"),
        ({"to": {"kind": "Service", "name": "x", "weight": 257}}, "ExtendedValidationFailed",
         "0 to 256"),
        ({"annotations": {f"{HAPROXY}ip_allowlist": "10.0.0.1"}}, "AnnotationNotSupported",
         "ip_allowlist"),
        ({"annotations": {f"{HAPROXY}ip_whitelist": "10.0.0.1"}}, "AnnotationNotSupported",
         "open to all"),
    ],
)  # fmt: skip
def test_route_that_would_be_served_otherwise_than_it_says_is_refused(spec, reason, told):
    found = claim(**spec)
    assert found.refusal.reason == reason
    assert told in found.refusal.message
    assert not found.routes
    assert not found.backends
    assert not found.secured


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"path": "/x/"}, "without the slash at its end"),
        ({"httpHeaders": {"actions": {"request": [{}]}}}, "spec.httpHeaders"),
        ({"tls": {"termination": "edge", "destinationCACertificate": "x"}}, "no effect"),
        ({"tls": {"termination": "edge", "caCertificate": "x"}}, "no effect without certificate"),
    ],
)
def test_what_is_left_out_of_a_route_is_told(spec, told):
    found = claim(**spec)
    assert found.routes
    assert told in found.problems[0]


@pytest.mark.parametrize(
    ("annotations", "algorithm", "by_cookie"),
    [
        ({f"{HAPROXY}balance": "leastconn"}, "LEAST_CONNECTIONS", True),
        ({f"{HAPROXY}balance": "source"}, "SOURCE_IP", True),
        ({f"{HAPROXY}balance": "roundrobin"}, "ROUND_ROBIN", True),
        ({f"{HAPROXY}disable_cookies": "true"}, "ROUND_ROBIN", False),
        ({f"{HAPROXY}disable_cookies": "false"}, "ROUND_ROBIN", True),
    ],
)
def test_annotations_that_octavia_can_follow_are_honoured(annotations, algorithm, by_cookie):
    found = claim(annotations=annotations)
    [pool] = found.backends
    assert (pool.algorithm, pool.by_cookie) == (algorithm, by_cookie)
    assert not found.problems


@pytest.mark.parametrize("name", [f"{HAPROXY}rewrite-target", f"{HAPROXY}ip_allowlist"])
def test_long_annotation_is_not_kept_as_a_whole_and_refused_as_a_short_one(name):
    route = read(annotations={name: " " * 9000 + "/x" * 9000})
    assert sum(len(text) for _, text in route.annotations) == 100
    found = claim_of(route)
    told = found.refusal.message if found.refusal else found.problems[0]
    assert f"annotation {name}" in told
    assert (found.refusal is not None) == name.endswith("allowlist")


@pytest.mark.parametrize(
    ("annotations", "refused"),
    [
        ({f"{HAPROXY}balance": "random"}, [f"{HAPROXY}balance"]),
        ({f"{HAPROXY}timeout": "5s", f"{HAPROXY}rewrite-target": "/"},
         [f"{HAPROXY}rewrite-target", f"{HAPROXY}timeout"]),
        ({f"{HAPROXY}rate-limit-connections": "true"}, [f"{HAPROXY}rate-limit-connections"]),
        ({f"{HAPROXY}rate-limit-connections": "false"}, []),
        ({"router.openshift.io/cookie_name": "x"}, ["router.openshift.io/cookie_name"]),
        ({"example.com/other": "x", "openshift.io/host.generated": "true"}, []),
    ],
)  # fmt: skip
def test_other_annotations_of_the_router_are_refused_by_name(annotations, refused):
    found = claim(annotations=annotations)
    assert [text.split(":")[0].removeprefix("annotation ") for text in found.problems] == refused
    assert found.routes


def test_several_services_get_turns_whatever_balance_says():
    mark = {f"{HAPROXY}balance": "source"}
    found = claim("one", "two", annotations=mark)
    assert found.backends[0].algorithm == "ROUND_ROBIN"
    assert "several Services" in found.problems[0]
    assert not claim("one", ("two", 0), annotations=mark).problems


def test_pool_has_a_name_that_octavia_takes_and_no_other_route_has():
    names = {str(claim(name="x" * 252 + end).backends[0]) for end in "ab"}
    assert max(map(len, names)) <= 255
    assert all(name.endswith(" u") for name in names)
    tls, _ = reencrypt(CA)
    [longest] = claim(name="x" * 253, tls=tls).backends
    assert len(str(longest)) == 255
    assert str(longest).endswith(" u over TLS")
