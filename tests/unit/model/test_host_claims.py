"""A host belongs to the namespace of the oldest Route that has it."""

import pytest

from kuryr_k8s.model.host_claims import settled
from kuryr_k8s.model.routes import Claim, Forward, Host, Path, Route


def claim(name, host, path="/", *, namespace="ns", created=1, kind="Route"):
    route = Route(
        name=f"{name} {host}{path}", host=Host(host), path=Path.prefix(path), action=Forward("p")
    )
    return Claim(
        kind=kind,
        namespace=namespace,
        name=name,
        uid=name,
        created=f"2026-01-0{created}",
        routes=(route,),
        is_of_namespace=kind == "Route",
    )


class Counting(Claim):
    """A claim that counts the reads of its namespace."""

    reads = 0

    def __getattribute__(self, name):
        Counting.reads += name == "namespace"
        return super().__getattribute__(name)


def refused(*claims):
    """The names of those that are refused, in any order of the claims."""
    found = {
        frozenset(each.name for each in settled(order) if each.refusal is not None)
        for order in (claims, claims[::-1])
    }
    [names] = found
    return names


def test_route_of_another_namespace_with_the_host_is_refused_whatever_its_path():
    older, other = claim("a", "a.com", "/x"), claim("b", "a.com", "/y", namespace="o", created=2)
    assert refused(older, other) == {"b"}
    [_, late] = settled([older, other])
    assert late.refusal.reason == "HostAlreadyClaimed"
    assert "Route ns/a has the host" in late.refusal.message
    assert not late.routes


def test_routes_of_one_namespace_share_a_host_and_the_oldest_has_a_path():
    claims = [claim("a", "a.com"), claim("b", "a.com", "/x", created=2)]
    assert refused(*claims) == set()
    assert refused(*claims, claim("c", "a.com", "/x/", created=3)) == {"c"}


def test_host_of_a_route_that_is_refused_itself_is_free():
    domain = claim("b", "*.a.com", namespace="o", created=2)
    claims = [claim("a", "x.a.com"), domain, claim("c", "y.a.com", namespace="p", created=3)]
    assert refused(*claims) == {"b"}


@pytest.mark.parametrize(("first", "second"), [("*.a.com", "x.a.com"), ("x.a.com", "*.a.com")])
def test_domain_and_a_host_in_it_are_not_had_by_two_namespaces(first, second):
    older, other = claim("a", first), claim("b", second, namespace="o", created=2)
    assert refused(older, other) == {"b"}
    assert refused(older, claim("b", second, created=2)) == set()
    assert refused(older, claim("b", "x.y.a.com", namespace="o", created=2)) == set()


def test_owner_of_a_domain_has_all_its_hosts_though_an_older_ingress_of_its_own_has_it_too():
    ingress = claim("i", "*.a.com", kind="Ingress")
    owner = claim("r", "*.a.com", "/x", created=2)
    assert refused(ingress, owner, claim("o", "x.a.com", namespace="o", created=3)) == {"o"}


@pytest.mark.parametrize("hosts", [1, 5000])
def test_claims_of_one_namespace_are_settled_in_time_that_grows_with_their_number(hosts):
    """Comparisons of claims are counted, by the reads of their namespaces."""

    def reads(number):
        counted = [
            Counting(
                kind="Route",
                namespace="ns",
                name=str(each),
                uid=str(each),
                created="2026",
                routes=claim("a", f"x{each % hosts}.a.com", f"/{each}").routes,
                is_of_namespace=True,
            )
            for each in range(number)
        ]
        Counting.reads = 0
        settled(counted)
        return Counting.reads

    assert reads(400) < 3 * reads(200)


def test_older_ingress_keeps_its_host_and_a_younger_one_is_as_before():
    ingress = claim("i", "a.com", "/x", namespace="o", kind="Ingress")
    route = claim("r", "a.com", created=2)
    assert refused(ingress, route) == {"r"}
    younger = claim("i", "a.com", "/x", namespace="o", kind="Ingress", created=3)
    assert refused(route, younger) == set()
    everywhere = claim("i", "", namespace="o", kind="Ingress")
    assert refused(everywhere, route) == set()
