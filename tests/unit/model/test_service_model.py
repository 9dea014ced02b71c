"""What is read of Services, slices and Endpoints, and what is not there."""

import pytest

from kuryr_k8s.model import annotations
from kuryr_k8s.model.service import (
    Endpoints,
    EndpointSlice,
    Service,
    canonical,
    digest,
)
from kuryr_k8s.model.service_class import Classes, is_exposed, is_handled
from tests.kit.service_objects import UID, endpoint, service, service_item, slice_of

HTTP = ("http", 80)
SLICE = {"namespace": "default", "name": "s", "uid": "u", "resourceVersion": "1"}


def test_service_that_says_nothing_has_the_defaults_of_kubernetes():
    meta = {"namespace": "default", "name": "web", "uid": UID, "resourceVersion": "7"}
    read = Service.read({"metadata": meta, "spec": {"ports": [{"port": 53}]}})
    assert read.type == "ClusterIP"
    assert read.cluster_ips == ()
    assert not read.headless
    assert (read.ports[0].name, read.ports[0].protocol) == ("", "TCP")
    assert read.ports[0].target_port == "53"
    assert read.session_timeout is None


def test_target_port_is_text_whether_number_or_name():
    ports = [{"name": "a", "port": 1, "targetPort": 8080}, {"port": 2, "targetPort": "web"}]
    item = service_item(())
    item["spec"]["ports"] = ports
    assert [port.target_port for port in Service.read(item).ports] == ["8080", "web"]


def test_affinity_has_a_timeout_only_where_it_is_asked_for():
    timeout = {"clientIP": {"timeoutSeconds": 60}}
    asked = service(HTTP, sessionAffinity="ClientIP", sessionAffinityConfig=timeout)
    assert asked.session_timeout == 60
    assert service(HTTP, sessionAffinity="None").session_timeout is None


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("010.000.00.01", "10.0.0.1"),
        ("FD00:0:0:0::1", "fd00::1"),
        ("nonsense", "nonsense"),
    ],
)
def test_addresses_have_one_form(address, expected):
    assert canonical(address) == expected


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, (True, True, False)),
        ({"ready": False}, (False, False, False)),
        ({"ready": False, "serving": True, "terminating": True}, (False, True, True)),
        ({"ready": None, "serving": None}, (True, True, False)),
    ],
)
def test_conditions_left_open_are_as_the_api_defines_them(conditions, expected):
    (read,) = slice_of([endpoint("10.0.0.1", **conditions)], HTTP).endpoints
    assert (read.ready, read.serving, read.terminating) == expected


def test_slice_without_ports_or_endpoints_and_one_of_host_names_are_read():
    empty = {"metadata": SLICE, "addressType": "IPv4", "ports": None, "endpoints": None}
    assert EndpointSlice.read(empty).endpoints == EndpointSlice.read(empty).ports == ()
    named = empty | {"addressType": "FQDN", "endpoints": [{"addresses": ["example.org"]}]}
    assert EndpointSlice.read(named).endpoints == ()
    all_ports = empty | {"ports": [{"name": "any", "port": None}]}
    assert EndpointSlice.read(all_ports).ports == ()


def test_endpoints_are_their_annotations_alone():
    marks = {annotations.LBAAS_SPEC: "spec", annotations.LBAAS_STATE: "state"}
    read = Endpoints.read({"metadata": SLICE | {"annotations": marks}})
    assert (read.lbaas_spec, read.lbaas_spec_version) == ("spec", None)
    assert read.lbaas_state == digest("state", None) != digest("state", "1 of 2")
    assert Endpoints.read({"metadata": SLICE}).lbaas_state is None


@pytest.mark.parametrize(
    "changes",
    [
        {"addresses": ("None",)},
        {"addresses": ()},
        {"type": "ExternalName", "addresses": ()},
        {"labels": {"service.kubernetes.io/service-proxy-name": "other"}},
        {"labels": {"service.kubernetes.io/headless": ""}},
    ],
    ids=["headless", "no address", "ExternalName", "proxy of another", "headless by label"],
)
def test_services_of_others_are_not_handled(changes):
    assert not is_handled(service(HTTP, **changes))


@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort", "LoadBalancer"])
def test_services_with_an_address_are_handled(kind):
    assert is_handled(service(HTTP, type=kind))


@pytest.mark.parametrize(
    ("kind", "class_name", "default", "exposed"),
    [
        ("LoadBalancer", None, True, True),
        ("LoadBalancer", None, False, False),
        ("LoadBalancer", Classes().own, False, True),
        ("LoadBalancer", "example.org/other", True, False),
        ("NodePort", None, True, False),
    ],
)
def test_what_is_outside_is_ours_to_do_by_type_class_and_the_operators_word(
    kind, class_name, default, exposed
):
    of = service(HTTP, type=kind, loadBalancerClass=class_name)
    assert is_handled(of)
    assert is_exposed(of, Classes(default=default)) == exposed


@pytest.mark.parametrize(("serving", "expected"), [(True, None), (False, "u")])
def test_uid_of_a_pod_is_kept_only_while_the_pod_is_not_ready(serving, expected):
    item = endpoint("10.1.0.5", pod="web-0", ready=False, serving=serving)
    item["targetRef"]["uid"] = "u"
    (read,) = slice_of([item], HTTP).endpoints
    assert read.pod_uid == expected
