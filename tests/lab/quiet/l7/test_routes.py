"""OpenShift's Routes with traffic, on the real Octavia."""

import collections
import json

import pytest

from tests.kit.routes import make_route
from tests.lab.routers import Authority, cluster

__all__ = ["cluster"]
pytestmark = [pytest.mark.lab_only, pytest.mark.product("router")]
CLOSED, UNREACHED = (403, None), (503, None)
REQUESTS = 40


def edge(authority, *hosts, insecure=None):
    """TLS of a Route, with a certificate by the authority."""
    certificate, key = authority.pair(*hosts)
    tls = {"termination": "edge", "certificate": certificate.decode(), "key": key.decode()}
    return tls | ({"insecureEdgeTerminationPolicy": insecure} if insecure else {})


def reencrypt(authority, of_pods, *hosts, insecure=None):
    """TLS of a Route whose Pods have certificates by another authority."""
    more = {"termination": "reencrypt", "destinationCACertificate": of_pods.pem}
    return edge(authority, *hosts, insecure=insecure) | more


def route(cluster, name, host, *to, **spec):
    return make_route(name, host, *to, namespace=cluster.namespace, **spec)


def admitted(cluster, name):
    """The condition Admitted of a Route: its status and its reason."""
    found = json.loads(cluster.kubectl("get", "route.route.openshift.io", name, "-o", "json"))
    for entry in (found.get("status") or {}).get("ingress") or ():
        for condition in entry["conditions"]:
            return condition["status"], condition.get("reason", "")
    return None


def wait_admitted(cluster, name, *expected):
    cluster.wait_for(f"{name} is {expected}", lambda: admitted(cluster, name) == expected)


def test_routes_are_served_with_their_shares_and_certificates_and_say_so(cluster):
    authority = Authority()
    plain, shop = cluster.host("plain"), cluster.host("shop")
    cluster.apply(*cluster.backend("one"), *cluster.backend("two"))
    cluster.apply(
        route(cluster, "plain", plain, ("one", 75), ("two", 25), path="/app",
              annotations={"haproxy.router.openshift.io/disable_cookies": "true"}),
        route(cluster, "shop", shop, "two", tls=edge(authority, shop, insecure="Redirect")),
        route(cluster, "through", cluster.host("x"), "one", tls={"termination": "passthrough"}),
    )  # fmt: skip
    cluster.wait_ready("one", "two")
    wait_admitted(cluster, "plain", "True", "")
    wait_admitted(cluster, "shop", "True", "")
    assert admitted(cluster, "through")[0] == "False"
    cluster.until_answered(
        {(plain, "/"): (503, None), (shop, "/a?b=c"): (302, f"https://{shop}/a?b=c")}
    )
    cluster.until_answered_over_tls({shop: "two"}, authority)
    cluster.wait_for(
        "both Services answer",
        lambda: {cluster.ask(plain, "/app/x") for _ in range(8)} == {"one", "two"},
    )
    answers = collections.Counter(cluster.ask(plain, "/app/x") for _ in range(REQUESTS))
    assert sum(answers.values()) == answers["one"] + answers["two"]
    # haproxy begins its turns anew when it is reloaded, for whatever change of the router
    assert abs(answers["one"] - 0.75 * REQUESTS) <= 0.1 * REQUESTS


@pytest.mark.complete
def test_host_of_another_route_is_refused_and_follows_when_that_one_goes(cluster):
    host = cluster.host("shop")
    cluster.apply(*cluster.backend("one"), *cluster.backend("two"))
    cluster.apply(route(cluster, "first", host, "one"))
    cluster.wait_ready("one", "two")
    wait_admitted(cluster, "first", "True", "")
    cluster.apply(route(cluster, "second", host, "two"))
    cluster.wait_for("it is refused", lambda: (admitted(cluster, "second") or [""])[0] == "False")
    cluster.until_answered({(host, "/"): "one"})
    cluster.delete("route.route.openshift.io", "first")
    wait_admitted(cluster, "second", "True", "")
    cluster.until_answered({(host, "/"): "two"})


@pytest.mark.complete
def test_pods_get_requests_over_tls_if_their_certificates_are_by_the_ca_and_for_the_host(cluster):
    authority, of_pods, another = Authority(), Authority(), Authority()
    good, bad, alias = (cluster.host(name) for name in ("good", "bad", "alias"))
    secure = cluster.host("unverified")
    cluster.apply(*cluster.backend_over_tls("one", of_pods, good, bad))
    cluster.apply(
        route(cluster, "good", good, "one", tls=reencrypt(authority, of_pods, good)),
        route(cluster, "bad", bad, "one", tls=reencrypt(authority, another, bad)),
        route(
            cluster,
            "alias",
            alias,
            "one",
            tls=reencrypt(authority, of_pods, alias, insecure="Allow"),
        ),
        cluster.ingress(
            "unverified",
            (secure, ("Prefix", "/", "one")),
            annotations={"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"},
        ),
    )
    cluster.wait_ready("one")
    for name in ("good", "bad", "alias"):
        wait_admitted(cluster, name, "True", "")
    answers = {good: "one", bad: UNREACHED, alias: UNREACHED}
    cluster.until_answered_over_tls(answers, authority)
    # in plain HTTP no client names a host by SNI, by which the Pods' names would be verified
    cluster.until_answered({(good, "/"): CLOSED, (alias, "/"): "one", (secure, "/"): "one"})
    cas = of_pods.pem + another.pem
    both = reencrypt(authority, of_pods, bad) | {"destinationCACertificate": cas}
    cluster.apply(route(cluster, "bad", bad, "one", tls=both))
    cluster.until_answered_over_tls(answers | {bad: "one"}, authority)
