"""Claims of one second are told apart in the same way wherever it matters who came first."""

import itertools

from kuryr_k8s.model.ingress import Ingress
from kuryr_k8s.model.ingress_routes import claim_of

SECOND = "2026-01-01T00:00:00Z"


def claims(names):
    """Claims of the same host and path by Ingresses with these namespaces and names."""
    path = {"path": "/", "pathType": "Prefix"}
    path |= {"backend": {"service": {"name": "s", "port": {"number": 80}}}}
    for namespace, name in names:
        meta = {"namespace": namespace, "name": name, "uid": f"{namespace}/{name}"}
        meta |= {"resourceVersion": "1", "creationTimestamp": SECOND}
        spec = {"rules": [{"host": "a.com", "http": {"paths": [path]}}]}
        yield claim_of(Ingress.read({"metadata": meta, "spec": spec}))


def test_claims_are_in_the_order_of_their_routes():
    names = itertools.product(("a", "a-b", "a.b", "a0"), ("x", "x-y", "x.y", "x0"))
    made = list(claims(names))
    by_age = sorted(made, key=lambda each: each.age)
    assert by_age == sorted(made, key=lambda each: each.routes[0].precedence)
