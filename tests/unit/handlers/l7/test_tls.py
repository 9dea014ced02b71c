"""Hosts are served over TLS with their own certificates, and never in plain HTTP instead."""

from dataclasses import replace

import pytest

from kuryr_k8s.drivers.l7.plan import plan
from kuryr_k8s.handlers.l7.tls import divide, without_tls
from kuryr_k8s.model.certificate import Certificate, UnusableCertificate
from kuryr_k8s.model.routes import (
    Claim,
    Forward,
    Host,
    Path,
    Redirect,
    Reject,
    Route,
    SecretName,
)
from tests.unit.drivers.l7.test_plan import taken as taken_by


def secret(name, namespace="ns"):
    return SecretName(namespace, name)


class Secrets(dict):
    """Names of certificates by their Secrets."""

    def __call__(self, name):
        if name not in self:
            raise UnusableCertificate("there is none")
        names = frozenset(self[name])
        return Certificate(
            source=str(name), digest=str(name), names=names, shown_for=names, bundle=b""
        )


def claim(name, *hosts, namespace="ns", created="2026-01-01", tls=None, plain_too=False, path="/"):
    """Each host has a route; `tls` is {host: Secret}."""
    return Claim(
        kind="Ingress",
        namespace=namespace,
        name=name,
        uid=name,
        created=created,
        routes=tuple(
            Route(
                name=f"{name} {host}",
                host=Host(host),
                path=Path.prefix(path),
                action=Forward("p"),
            )
            for host in hosts
        ),
        secured=tuple((Host(host), named) for host, named in (tls or {}).items()),
        is_plain_too=plain_too,
    )


def actions(routes):
    return {route.name: route.action for route in routes}


def taken(routes, host, path):
    """What Octavia does with a request, by the plan for the routes."""
    return taken_by(plan(routes).policies, host, path)


FORWARD = Forward("p")


def test_host_with_a_certificate_is_served_over_tls_and_plain_requests_are_led_there():
    found = divide(
        [claim("a", "a.com", tls={"a.com": secret("s")})], Secrets({secret("s"): ["a.com"]})
    )
    [secure] = found.secure
    assert (secure.action, secure.certificate) == (FORWARD, "ns/s")
    assert actions(found.plain) == {"a a.com": Redirect("https://a.com", 308)}
    assert [each.source for each in found.certificates] == ["ns/s"]
    assert not found.closed
    assert not found.problems


def test_plain_requests_are_served_as_well_where_that_is_asked_for():
    asked = claim("a", "a.com", tls={"a.com": secret("s")}, plain_too=True)
    found = divide([asked], Secrets({secret("s"): ["a.com"]}))
    assert actions(found.plain) == actions(found.secure) == {"a a.com": FORWARD}


@pytest.mark.parametrize("names", [None, ["b.com"], ["*.a.com"]])
def test_host_without_a_certificate_of_its_own_is_served_neither_way(names):
    secrets = Secrets({} if names is None else {secret("s"): names})
    found = divide([claim("a", "a.com", tls={"a.com": secret("s")})], secrets)
    assert actions(found.plain) == actions(found.secure) == {"a a.com": Reject()}
    assert found.closed == {"a a.com"}
    assert not found.certificates
    [told] = found.problems["a"]
    assert told.startswith("tls: Secret ns/s: ")


@pytest.mark.parametrize("host", ["", "*.a.com"])
def test_plain_requests_to_hosts_that_octavia_cannot_redirect_are_rejected_and_that_is_told(host):
    found = divide(
        [claim("a", host, tls={host: secret("s")})], Secrets({secret("s"): ["*.a.com"]})
    )
    assert actions(found.secure) == {f"a {host}": FORWARD}
    assert actions(found.plain) == {f"a {host}": Reject()}
    assert "redirect to one host only" in found.problems["a"][0]


def test_route_that_asks_for_no_tls_is_served_both_ways_on_a_host_that_has_it():
    """As a challenge of ACME is, which asks for nothing."""
    asking = claim("a", "a.com", tls={"a.com": secret("s")})
    other = claim("b", "a.com", created="2026-01-02")
    found = divide([asking, other], Secrets({secret("s"): ["a.com"]}))
    assert actions(found.plain)["b a.com"] == actions(found.secure)["b a.com"] == FORWARD
    missing = divide([asking, other], Secrets())
    assert actions(missing.plain)["b a.com"] == FORWARD
    assert taken(missing.secure, "a.com", "/") == Reject()
    assert missing.closed == {"a a.com"}


def test_host_without_tls_is_not_served_over_that_of_a_wildcard():
    wild = claim("a", "*.a.com", tls={"*.a.com": secret("s")})
    plain, other = claim("b", "x.a.com"), claim("c", "c.com")
    found = divide([wild, plain, other], Secrets({secret("s"): ["*.a.com"]}))
    assert actions(found.secure) == {"a *.a.com": FORWARD, "b x.a.com": Reject()}


@pytest.mark.parametrize(("wide", "name"), [("", "*.c.com"), ("*.a.com", "*.a.com")])
def test_hosts_without_tls_are_kept_from_that_of_a_wildcard_by_one_policy_each(wide, name):
    wild = claim("wild", wide, namespace="other", tls={wide: secret("s", "other")})
    hosts = [f"{number}.a.com" for number in range(3)]
    plain = [claim(f"p{number}", *hosts, path=f"/{number}") for number in range(5)]
    found = divide([wild, *plain], Secrets({secret("s", "other"): [name]}))
    assert taken(found.secure, "x.a.com", "/") == FORWARD
    for host in hosts:
        assert [taken(found.secure, host, path) for path in ("/0", "/4", "/x")] == [Reject()] * 3
    assert len(plan(found.secure).policies) == len(hosts) + 1
    assert len(found.plain) == len(hosts) * len(plain) + 1


def test_host_that_is_closed_for_a_path_is_closed_for_all_by_one_policy():
    asked = claim("a", "a.com", tls={"a.com": secret("s")}, path="/x")
    others = [claim(f"p{number}", "a.com", path=f"/{number}") for number in range(5)]
    found = divide([asked, *others], Secrets())
    assert [taken(found.secure, "a.com", path) for path in ("/x", "/0", "/y")] == [Reject()] * 3
    assert len(plan(found.secure).policies) == 1


def test_rules_without_a_host_that_are_closed_leave_other_paths_to_the_default_backend():
    asked = claim("a", "", tls={"": secret("s")}, path="/x")
    [rejecting] = divide([asked], Secrets()).secure
    assert (rejecting.path, rejecting.action) == (Path.prefix("/x"), Reject())


def test_name_belongs_to_the_namespace_of_the_oldest_that_has_it():
    mine = claim("a", "a.com", tls={"a.com": secret("s")})
    late = claim("z", "a.com", "z.com", namespace="other", created="2026-02-02",
                 tls={"a.com": secret("o", "other"), "z.com": secret("o", "other")})  # fmt: skip
    secrets = Secrets({secret("s"): ["a.com"], secret("o", "other"): ["a.com", "z.com"]})
    for claims in ([mine, late], [late, mine]):
        found = divide(claims, secrets)
        assert [each.source for each in found.certificates] == ["ns/s"]
        assert "namespace ns has a.com, and came first" in found.problems["z"][0]
        assert found.closed == {"z z.com"}
        assert actions(found.secure)["z a.com"] == FORWARD  # the owner's certificate is shown


def test_certificate_for_the_plain_host_of_an_older_object_is_not_used():
    mine = claim("a", "a.com")
    late = claim("z", "z.com", namespace="other", created="2026-02-02",
                 tls={"z.com": secret("o", "other")})  # fmt: skip
    found = divide([late, mine], Secrets({secret("o", "other"): ["a.com", "z.com"]}))
    assert not found.certificates
    assert actions(found.plain)["a a.com"] == FORWARD


def test_who_names_no_secret_gets_the_certificate_of_the_router_if_it_fits():
    asked = claim("a", "x.corp", "a.com", tls={"x.corp": None, "a.com": None})
    secrets = Secrets({secret("default", "kube-system"): ["*.corp"]})
    found = divide([asked], secrets, secret("default", "kube-system"))
    assert {each.name for each in found.secure if each.action == FORWARD} == {"a x.corp"}
    assert found.closed == {"a a.com"}
    assert "is not for a.com" in found.problems["a"][0]
    told = divide([asked], secrets).problems["a"]
    assert "no default certificate" in told[0]


def test_certificate_of_the_router_is_the_first_and_its_names_are_nobody_elses():
    default = secret("default", "kube-system")
    wanted = {"x.corp": secret("s")}
    secrets = Secrets({secret("s"): ["*.corp"], default: ["*.corp"]})
    found = divide([claim("a", "x.corp", tls=wanted)], secrets, default)
    assert [each.source for each in found.certificates] == [str(default)]
    assert "default certificate is for *.corp" in found.problems["a"][0]
    secrets[secret("s")] = ["x.corp"]
    found = divide([claim("a", "x.corp", tls=wanted)], secrets, default)
    assert [each.source for each in found.certificates] == [str(default), "ns/s"]


def test_host_is_closed_where_another_namespace_has_a_certificate_for_just_it():
    """haproxy would show that one, and not the wildcard's."""
    older = claim("a", "z.com", namespace="other", tls={"z.com": secret("o", "other")})
    mine = claim("m", "x.w.com", created="2026-02-02", tls={"x.w.com": secret("s")})
    secrets = Secrets({secret("o", "other"): ["z.com", "x.w.com"], secret("s"): ["*.w.com"]})
    found = divide([older, mine], secrets)
    assert found.closed == {"m x.w.com"}
    assert "namespace other has a certificate for it" in found.problems["m"][0]


def test_default_certificate_that_cannot_be_used_is_told():
    assert "there is none" in divide([], Secrets(), secret("default")).default_problem


def two_of_one_namespace(host, older, younger, *, other=()):
    """The oldest has `older`, a list of names; one with the host has `younger`."""
    mine = {host: secret("t"), **dict.fromkeys(other, secret("t"))}
    claims = [
        claim("a", older[0], tls={older[0]: secret("s")}),
        claim("b", host, *other, created="2026-01-02", tls=mine),
    ]
    return divide(claims, Secrets({secret("s"): older, secret("t"): younger}))


@pytest.mark.parametrize(
    ("host", "older", "younger"),
    [
        ("a.com", ["a.com"], ["a.com"]),
        ("b.com", ["a.com", "b.com"], ["b.com"]),
        ("x.a.com", ["x.a.com"], ["*.a.com"]),  # haproxy prefers the exact name
        ("y.a.com", ["x.a.com", "*.a.com"], ["*.a.com"]),
        ("*.a.com", ["*.a.com"], ["*.a.com"]),
    ],
)
def test_of_two_certificates_of_a_namespace_for_a_host_the_older_ones_is_shown_and_that_is_told(
    host, older, younger
):
    found = two_of_one_namespace(host, older, younger)
    assert [each.source for each in found.certificates] == ["ns/s"]
    assert actions(found.secure)[f"b {host}"] == FORWARD
    assert {route.certificate for route in found.secure} == {"ns/s"}
    told = "the certificate of Ingress ns/a, which came first, is shown instead"
    assert f"tls: {host}: {told}" in found.problems["b"]
    assert not found.closed


@pytest.mark.parametrize(
    ("host", "older", "younger"),
    [
        ("b.com", ["a.com"], ["b.com"]),
        ("x.a.com", ["*.a.com"], ["x.a.com"]),
        ("*.a.com", ["x.a.com"], ["*.a.com"]),
    ],
)
def test_certificates_of_a_namespace_with_other_names_are_shown_each_for_its_own(
    host, older, younger
):
    found = two_of_one_namespace(host, older, younger)
    assert [each.source for each in found.certificates] == ["ns/s", "ns/t"]
    assert [each.certificate for each in found.secure] == ["ns/s", "ns/t"]
    assert "which came first" not in str(found.problems)


def test_certificate_that_another_host_needs_is_used_and_that_either_may_be_shown_is_told():
    found = two_of_one_namespace("a.com", ["a.com"], ["a.com", "b.com"], other=["b.com"])
    assert [each.source for each in found.certificates] == ["ns/s", "ns/t"]
    [told] = found.problems["b"]
    assert told.startswith("tls: a.com: Ingress ns/a, which came first, has another certificate")
    assert not found.closed


def test_same_secret_and_same_certificate_in_two_objects_are_no_second_one():
    claims = [
        claim("a", "a.com", tls={"a.com": inline("a.com")}),
        claim("b", "a.com", created="2026-01-02", tls={"a.com": inline("a.com", source="v")}),
        claim("c", "c.com", created="2026-01-03", tls={"c.com": secret("s")}),
        claim("d", "c.com", created="2026-01-04", tls={"c.com": secret("s")}),
    ]
    found = divide(claims, Secrets({secret("s"): ["c.com"]}))
    assert [each.source for each in found.certificates] == ["u", "ns/s"]
    assert not found.problems


def test_where_tls_is_not_enabled_hosts_are_served_in_plain_http_and_that_is_told():
    asked, other = claim("a", "a.com", tls={"a.com": None}), claim("b", "b.com")
    found = without_tls([asked, other])
    assert actions(found.plain) == {"a a.com": FORWARD, "b b.com": FORWARD}
    assert list(found.problems) == ["a"]
    assert not found.secure
    assert not found.closed


def inline(*names, source="u"):
    return Certificate(
        source=source,
        digest="d",
        names=frozenset(names),
        shown_for=frozenset(names),
        bundle=b"",
    )


@pytest.mark.parametrize(
    ("redirect", "expected"), [(302, Redirect("https://a.com", 302)), (None, Reject())]
)
def test_certificate_in_the_object_itself_is_shown_and_plain_requests_become_what_it_says(
    redirect, expected
):
    asked = replace(claim("a", "a.com", tls={"a.com": inline("a.com")}), redirect=redirect)
    found = divide([asked], Secrets())
    assert [each.source for each in found.certificates] == ["u"]
    assert actions(found.secure) == {"a a.com": FORWARD}
    assert actions(found.plain) == {"a a.com": expected}
    assert not found.problems


def test_host_of_an_object_whose_own_certificate_cannot_be_used_is_closed():
    asked = claim("a", "a.com", tls={"a.com": UnusableCertificate("key has no private key")})
    found = divide([asked], Secrets())
    assert actions(found.plain) == actions(found.secure) == {"a a.com": Reject()}
    assert found.closed == {"a a.com"}
    assert found.problems["a"] == ("tls: inline certificate: key has no private key",)


def test_certificate_in_the_object_itself_has_no_name_of_another_namespace():
    older = claim("a", "a.com", namespace="other", created="2025-01-01")
    asked = claim("b", "b.com", tls={"b.com": inline("a.com", "b.com")})
    found = divide([older, asked], Secrets())
    assert not found.certificates
    assert found.problems["b"] == (
        "tls: inline certificate: namespace other has a.com, and came first",
    )


def test_host_of_a_domain_whose_plain_requests_are_rejected_as_asked_for_has_no_problem():
    asked = replace(claim("a", "*.a.com", tls={"*.a.com": inline("*.a.com")}), redirect=None)
    found = divide([asked], Secrets())
    assert actions(found.plain) == {"a *.a.com": Reject()}
    assert not found.problems
