"""What an Ingress claims of the L7 router."""

import pytest

from kuryr_k8s.model.ingress import Ingress
from kuryr_k8s.model.ingress_routes import claim_of
from kuryr_k8s.model.routes import Backend
from tests.kit.kube.objects import ingress_backend, ingress_rule, make_ingress

ONE, TWO = ingress_backend("one", 80), ingress_backend("two", "web")


def claim(*rules, annotations=None, **spec):
    item = make_ingress("shop", *rules, namespace="ns", annotations=annotations, **spec)
    item["metadata"] |= {"uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01"}
    return claim_of(Ingress.read(item))


def routes(found):
    return {
        (route.host.name, route.path.elements, route.path.is_exact): route.action.pool
        for route in found.routes
    }


def test_each_path_of_each_rule_is_a_route_to_the_port_of_its_service():
    found = claim(
        ingress_rule(
            "A.com", ("Exact", "/x", ONE), ("Prefix", "/y/", ingress_backend("two", "web"))
        ),
        ingress_rule("", ("ImplementationSpecific", "/", ONE)),
    )
    assert routes(found) == {
        ("a.com", ("x",), True): "ns/one:80",
        ("a.com", ("y",), False): "ns/two:web",
        ("", (), False): "ns/one:80",
    }
    assert found.backends == (Backend("ns", "one", "80"), Backend("ns", "two", "web"))
    assert found.problems == ()
    assert len({route.name for route in found.routes}) == 3


def test_default_backend_takes_what_is_left_of_the_hosts_and_of_all_where_there_are_no_rules():
    rest = ingress_backend("rest", 80)
    found = claim(
        ingress_rule("a.com", ("Prefix", "/x", ONE)),
        ingress_rule("b.com", ("Prefix", "/", ONE)),
        ingress_rule("c.com"),
        defaultBackend=rest,
    )
    assert routes(found) == {
        ("a.com", ("x",), False): "ns/one:80",
        ("b.com", (), False): "ns/one:80",
        ("a.com", (), False): "ns/rest:80",
        ("c.com", (), False): "ns/rest:80",
    }
    assert routes(claim(defaultBackend=rest)) == {("", (), False): "ns/rest:80"}


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            {"defaultBackend": {"resource": {"kind": "Bucket", "name": "b"}}},
            "defaultBackend: only Services can be backends",
        ),
    ],
)
def test_what_cannot_be_had_is_told(spec, told):
    assert told in claim(**spec).problems


def test_of_two_alike_the_first_one_counts_and_the_other_is_told():
    two = ingress_backend("two", 80)
    found = claim(ingress_rule("a", ("Prefix", "/x", ONE), ("Prefix", "/x/", two)))
    assert routes(found) == {("a", ("x",), False): "ns/one:80"}
    assert found.problems == ("a Prefix /x/: it is there twice; the first one counts",)


NGINX, OCTAVIA = "nginx.ingress.kubernetes.io/", "octavia.ingress.kubernetes.io/"


@pytest.mark.parametrize(
    ("annotations", "refused"),
    [
        ({f"{NGINX}affinity": "cookie"}, []),
        ({f"{NGINX}ssl-redirect": "false", f"{OCTAVIA}internal": "false"}, []),
        ({f"{NGINX}rewrite-target": "/$1"}, [f"{NGINX}rewrite-target"]),
        ({f"{NGINX}backend-protocol": "HTTPS", f"{NGINX}proxy-ssl-verify": "off"}, []),
        ({f"{NGINX}backend-protocol": "http"}, []),
        ({f"{NGINX}backend-protocol": "GRPCS"}, [f"{NGINX}backend-protocol"]),
        ({f"{NGINX}proxy-ssl-verify": "on", f"{NGINX}proxy-ssl-secret": "ns/ca"},
         [f"{NGINX}proxy-ssl-secret", f"{NGINX}proxy-ssl-verify"]),
        ({f"{NGINX}affinity": "ip", f"{OCTAVIA}internal": "true"},
         [f"{NGINX}affinity", f"{OCTAVIA}internal"]),
        ({"example.com/other": "x"}, []),
    ],
)  # fmt: skip
def test_annotations_of_other_controllers_are_honoured_or_refused_by_name(annotations, refused):
    found = claim(ingress_rule("a", ("Prefix", "/", ONE)), annotations=annotations)
    assert [text.split(":")[0].removeprefix("annotation ") for text in found.problems] == refused


def test_affinity_by_cookie_has_pools_of_its_own():
    mark = {f"{NGINX}affinity": "cookie"}
    plain, sticky = (
        claim(ingress_rule("a", ("Prefix", "/", ONE)), annotations=each) for each in ({}, mark)
    )
    assert plain.backends == (Backend("ns", "one", "80"),)
    assert sticky.backends == (Backend("ns", "one", "80", by_cookie=True),)
    assert str(plain.backends[0]) != str(sticky.backends[0])


@pytest.mark.parametrize("text", ["HTTPS", "https", " Https "])
def test_backend_protocol_https_has_pools_of_its_own_over_tls(text):
    mark = {f"{NGINX}backend-protocol": text}
    found = claim(ingress_rule("a", ("Prefix", "/x", ONE)), defaultBackend=TWO, annotations=mark)
    assert found.backends == (
        Backend("ns", "one", "80", over_tls=True),
        Backend("ns", "two", "web", over_tls=True),
    )
    sticky = claim(
        ingress_rule("a", ("Prefix", "/", ONE)), annotations=mark | {f"{NGINX}affinity": "cookie"}
    )
    plain = claim(ingress_rule("a", ("Prefix", "/", ONE)))
    names = {str(each.backends[0]) for each in (found, sticky, plain)}
    assert names == {"ns/one:80", "ns/one:80 over TLS", "ns/one:80 over TLS by cookie"}
