"""Ingresses with traffic: the scenarios of Kubernetes' own conformance suite for controllers.

https://github.com/kubernetes-sigs/ingress-controller-conformance (features/*.feature)
"""

import collections
import json
import threading

import pytest

from tests.kit.kube.objects import ingress_backend
from tests.lab.routers import cluster, pools_of

__all__ = ["cluster"]
pytestmark = [pytest.mark.lab_only, pytest.mark.product("router")]
NOBODY = (503, None)
SCALED = (3, 6, 2)


@pytest.mark.complete  # takes minutes
def test_path_rules(cluster):
    """path_rules.feature: Exact and Prefix, with and without a slash at the end, by precedence."""
    cluster.apply(*cluster.backend("exact"), *cluster.backend("prefix"), *cluster.backend("root"))
    cluster.apply(*cluster.backend("deep"))
    a, b = cluster.host("exact-path-rules"), cluster.host("prefix-path-rules")
    mixed, rooted = cluster.host("mixed-path-rules"), cluster.host("trailing-slash")
    cluster.apply(
        cluster.ingress(
            "paths",
            (a, ("Exact", "/foo", "exact")),
            (b, ("Prefix", "/foo", "prefix"), ("Prefix", "/aaa/bbb", "deep")),
            (
                mixed,
                ("Prefix", "/foo", "prefix"),
                ("Exact", "/foo", "exact"),
                ("Prefix", "/foo/bar", "deep"),
                ("ImplementationSpecific", "/", "root"),
            ),
            (rooted, ("Prefix", "/aaa/bbb/", "deep"), ("Exact", "/foo/", "exact")),
        )
    )
    cluster.wait_ready("exact", "prefix", "root", "deep")
    cluster.until_answered(
        {
            (a, "/foo"): "exact",
            (a, "/foo/"): NOBODY,
            (a, "/FOO"): NOBODY,
            (a, "/foo?x=/bar"): "exact",
            (a, "/bar"): NOBODY,
            (b, "/foo"): "prefix",
            (b, "/foo/"): "prefix",
            (b, "/foo/x"): "prefix",
            (b, "/foobar"): NOBODY,
            (b, "/Foo"): NOBODY,
            (b, "/aaa/bbb"): "deep",
            (b, "/aaa/bbb/ccc"): "deep",
            (b, "/aaa/bbbxyz"): NOBODY,
            (b, "/aaa"): NOBODY,
            (mixed, "/foo"): "exact",
            (mixed, "/foo/"): "prefix",
            (mixed, "/foo/bar"): "deep",
            (mixed, "/foo/bar/"): "deep",
            (mixed, "/foo/barx"): "prefix",
            (mixed, "/"): "root",
            (mixed, "/other"): "root",
            (rooted, "/aaa/bbb"): "deep",
            (rooted, "/aaa/bbb/"): "deep",
            (rooted, "/foo/"): "exact",
            (rooted, "/foo"): NOBODY,
        }
    )


@pytest.mark.complete
def test_host_rules_wildcards_and_the_default_backend(cluster):
    """host_rules.feature and default_backend.feature, but for TLS."""
    cluster.apply(*cluster.backend("own"), *cluster.backend("any"), *cluster.backend("rest"))
    own, wild = cluster.host("foo"), f"*.{cluster.namespace}.demo"
    cluster.apply(
        cluster.ingress(
            "hosts",
            (own, ("Prefix", "/", "own")),
            (wild, ("Prefix", "/x", "any")),
            defaultBackend=ingress_backend("rest", "http"),
        )
    )
    cluster.wait_ready("own", "any", "rest")
    cluster.until_answered(
        {
            (own, "/"): "own",
            (own.upper(), "/"): "own",
            (f"{own}:80", "/x"): "own",
            (cluster.host("bar"), "/x"): "any",
            (cluster.host("bar"), "/y"): "rest",
            (f"sub.{cluster.host('bar')}", "/x"): NOBODY,
            (f"{cluster.namespace}.demo", "/x"): NOBODY,
            (f"x{own}", "/z"): "rest",
        }
    )
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert cluster.ask(own, "/", method) != NOBODY


def test_ingress_class_decides_and_the_status_names_the_router(cluster):
    """ingress_class.feature: another controller's class is not served."""
    cluster.apply(*cluster.backend("own"))
    served, unserved = cluster.host("served"), cluster.host("unserved")
    cluster.apply(
        cluster.ingress("served", (served, ("Prefix", "/", "own"))),
        cluster.ingress("unserved", (unserved, ("Prefix", "/", "own")), class_name="another"),
    )
    cluster.wait_ready("own")
    cluster.until_answered({(served, "/"): "own", (unserved, "/"): NOBODY})
    cluster.wait_for(
        "its address is told",
        lambda: cluster.status_of_ingress("served") == [cluster.router_address()],
    )
    assert cluster.status_of_ingress("unserved") == []
    for node in cluster.get("nodes"):
        text = node["metadata"]["annotations"]["openstack.org/kuryr-l7-router-state"]
        assert json.loads(text)["versioned_object.data"]["fip"] == cluster.router_address()


@pytest.mark.complete
def test_backends_learn_whose_request_it_was(cluster):
    cluster.apply(*cluster.backend("own"))
    host = cluster.host("headers")
    cluster.apply(cluster.ingress("headers", (host, ("Prefix", "/", "own"))))
    cluster.wait_ready("own")
    cluster.until_answered({(host, "/"): "own"})
    sent = dict(
        line.partition("=")[::2] for line in cluster.ask(host, "/cgi-bin/headers").splitlines()
    )
    assert sent["HTTP_HOST"] == host
    assert sent["HTTP_X_FORWARDED_PORT"] == "80"
    assert sent["HTTP_X_FORWARDED_PROTO"] == "http"
    assert sent["HTTP_X_FORWARDED_FOR"]


@pytest.mark.complete
def test_requests_are_spread_and_none_fails_while_the_pods_become_more_and_fewer(cluster):
    """load_balancing.feature: all endpoints get requests."""
    cluster.apply(*deployment(cluster, SCALED[0]))
    host = cluster.host("spread")
    cluster.apply(cluster.ingress("spread", (host, ("Prefix", "/", "spread"))))
    cluster.kubectl("rollout", "status", "deployment/spread", "--timeout=240s")
    cluster.wait_for("all Pods are members", lambda: members(cluster) == SCALED[0])
    cluster.wait_for("it is served", lambda: isinstance(cluster.ask(host, "/"), str))
    answers = collections.Counter(cluster.ask(host, "/") for _ in range(60))
    assert len(answers) == SCALED[0]
    assert min(answers.values()) >= 15
    over, failed, asked = threading.Event(), [], collections.Counter()

    def ask():
        while not over.is_set():
            answer = cluster.ask(host, "/")
            asked[answer] += 1
            if not str(answer).startswith("spread-"):
                failed.append(answer)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for each in asking:
        each.start()
    try:
        for count in SCALED[1:]:
            cluster.kubectl("scale", "deployment/spread", f"--replicas={count}")
            cluster.kubectl("rollout", "status", "deployment/spread", "--timeout=240s")
            cluster.wait_for(f"{count} are members", lambda n=count: members(cluster) == n)
    finally:
        over.set()
        for each in asking:
            each.join()
    print(f"{sum(asked.values())} requests to {len(asked)} Pods, {len(failed)} failed")
    assert not failed, failed[:5]


def members(cluster):
    """How many Pods get new requests."""
    found = [
        member
        for pool in pools_of(cluster)
        for member in cluster.octavia.get(f"/pools/{pool['id']}/members")["members"]
    ]
    return sum(member["weight"] > 0 for member in found)


def deployment(cluster, replicas):
    """A Service and Pods that serve on for a while when they are told to end."""
    service, made = cluster.backend("spread")
    spec = made["spec"]
    spec.pop("nodeName", None)
    # longer than Octavia needs for the changes under way, even where others have the processors
    spec["terminationGracePeriodSeconds"] = 61
    spec["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": 60}}}
    labels = made["metadata"]["labels"]
    return [
        service,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "spread"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"answers": "spread"}},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
    ]
