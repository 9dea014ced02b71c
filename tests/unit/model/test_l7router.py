"""L7Routers as the caches keep them, and classes that name them."""

import dataclasses

import pytest

from kuryr_k8s.model.ingress import IngressClass
from kuryr_k8s.model.l7router import L7RouterObject, ListenerSettings, RouterSpec
from kuryr_k8s.model.routes import Backend, SecretName

FLAVOR = "11111111-2222-4333-8444-abcdefabcdef"


def test_router_without_anything_has_a_floating_ip_and_octavias_own_settings():
    assert RouterSpec.read({}) == RouterSpec()
    assert RouterSpec.read({"floatingIP": "true"}) == RouterSpec()


def test_every_field_of_the_specification_is_read():
    read = RouterSpec.read(
        {
            "subnet": "s",
            "vipAddress": "10.0.0.5",
            "floatingIP": "172.24.4.9",
            "flavorID": FLAVOR.upper().replace("-", ""),
            "availabilityZone": "z",
            "allowedCIDRs": ["10.0.0.0/8"],
            "connectionLimit": 7,
            "timeoutClientData": 1,
            "timeoutMemberData": 2,
            "timeoutMemberConnect": 3,
            "timeoutTcpInspect": 4,
            "tlsVersions": ["TLSv1.3"],
            "tlsCiphers": "c",
            "defaultBackend": {"namespace": "n", "service": "b", "port": 80},
            "defaultCertificate": {"namespace": "n", "name": "c"},
        }
    )
    assert read == RouterSpec(
        subnet="s",
        vip_address="10.0.0.5",
        floating_ip="172.24.4.9",
        flavor_id=FLAVOR,
        availability_zone="z",
        listeners=ListenerSettings(
            allowed_cidrs=("10.0.0.0/8",),
            connection_limit=7,
            timeout_client_data=1,
            timeout_member_data=2,
            timeout_member_connect=3,
            timeout_tcp_inspect=4,
            tls_versions=("TLSv1.3",),
            tls_ciphers="c",
        ),
        default_backend=Backend("n", "b", "80"),
        default_certificate=SecretName("n", "c"),
    )
    others = [field.name for field in dataclasses.fields(RouterSpec)]
    assert [name for name in others if getattr(read, name) == getattr(RouterSpec(), name)] == [
        "has_floating_ip"
    ]


def test_router_can_do_without_a_floating_ip():
    assert RouterSpec.read({"floatingIP": "false"}) == RouterSpec(has_floating_ip=False)


def test_status_tells_the_address_that_it_has_had():
    meta = {"name": "a", "uid": "u", "resourceVersion": "1", "generation": 1}
    read = L7RouterObject.read({"metadata": meta, "spec": {}})
    assert read.vip_address is None
    status = {"vipAddress": "10.0.0.5", "address": "172.24.4.9"}
    read = L7RouterObject.read({"metadata": meta, "spec": {}, "status": status})
    assert read.vip_address == "10.0.0.5"


@pytest.mark.parametrize(
    ("parameters", "router", "is_understood"),
    [
        (None, "", True),
        ({"apiGroup": "openstack.org", "kind": "L7Router", "name": "a"}, "a", True),
        (
            {"apiGroup": "openstack.org", "kind": "L7Router", "name": "a", "scope": "Cluster"},
            "a",
            True,
        ),
        (
            {"apiGroup": "openstack.org", "kind": "L7Router", "name": "a", "scope": "Namespace"},
            "",
            False,
        ),
        ({"apiGroup": "k8s.example.com", "kind": "L7Router", "name": "a"}, "", False),
        ({"kind": "ConfigMap", "name": "a"}, "", False),
    ],
)
def test_class_names_a_router_of_ours_or_is_not_understood(parameters, router, is_understood):
    meta = {"name": "c", "uid": "u", "resourceVersion": "1"}
    spec = {"controller": "x"} | ({"parameters": parameters} if parameters else {})
    read = IngressClass.read({"metadata": meta, "spec": spec})
    assert (read.router, read.is_understood) == (router, is_understood)
