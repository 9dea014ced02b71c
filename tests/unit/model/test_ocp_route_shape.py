"""A Route whose fields have other types costs only itself."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s.model.ocp_route import OCPRoute
from kuryr_k8s.model.ocp_route_claims import claim_of
from kuryr_k8s.model.ocp_route_status import Admission, entries
from tests.kit.routes import edge, make_route

GOOD = make_route(
    "shop",
    "a.com",
    ("one", 1),
    ("two", 2),
    path="/x",
    port={"targetPort": 80},
    tls=edge("a.com")[0] | {"caCertificate": "x", "externalCertificate": {"name": "x"}},
    wildcardPolicy="None",
    httpHeaders={"actions": {}},
)
GOOD["metadata"] |= {"uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01"}
GOOD["status"] = {"ingress": [{"routerName": "kuryr", "conditions": [{"type": "Admitted"}]}]}
ADMISSION = Admission(host="a.com", wildcard_policy="None", is_admitted=True)


def places(found, path=()):
    """The paths of all fields below one."""
    yield path
    if isinstance(found, dict | list):
        for name, each in found.items() if isinstance(found, dict) else enumerate(found):
            yield from places(each, (*path, name))


def with_content(path, content):
    item = copy.deepcopy(GOOD)
    *way, last = path
    found = item
    for name in way:
        found = found[name]
    found[last] = content
    return item


PLACES = [
    (part, *path) for part in ("spec", "status") for path in places(GOOD[part])
]  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)


@given(st.sampled_from(PLACES), ANYTHING)
def test_route_with_any_content_anywhere_is_read_and_claims_or_is_refused(path, content):
    route = OCPRoute.read(with_content(path, content))
    assert claim_of(route).routes or claim_of(route).refusal
    assert entries(route.ingress, ADMISSION, "now")[-1]["host"] == "a.com"


@pytest.mark.parametrize(
    ("path", "content", "told"),
    [
        (("spec",), "x", "spec: it is no object"),
        (("spec", "host"), 5, "spec.host: it has another type"),
        (("spec", "host"), "x" * 5000, "spec.host: it has more than 4096 characters"),
        (("spec", "to"), "x", "spec.to: it is no object"),
        (("spec", "to", "weight"), "x", "spec.to.weight: it has another type"),
        (("spec", "to", "weight"), True, "spec.to.weight: it has another type"),
        (("spec", "tls"), [], "spec.tls: it is no object"),
        (("spec", "alternateBackends"), {}, "spec.alternateBackends: it is no list"),
        (("spec", "alternateBackends", 0), None, "spec.alternateBackends[0]: it is null"),
        (("spec", "port", "targetPort"), 1.5, "spec.port.targetPort: it has another type"),
    ],
)
def test_what_is_wrong_is_told(path, content, told):
    refusal = claim_of(OCPRoute.read(with_content(path, content)), domain="apps").refusal
    assert refusal.reason == "ExtendedValidationFailed"
    assert refusal.message.startswith(told)


def test_nothing_is_wrong_with_what_openshift_lets_pass():
    assert OCPRoute.read(GOOD).flaw == ""
