"""An L7Router with traffic: a load balancer with an address and settings of its own."""

import json
import socket
import ssl
import time

import pytest

from tests.kit.kube.objects import make_ingress_class, make_l7_router
from tests.kit.l7 import CONTROLLER, parameters_of
from tests.lab.routers import Authority, cluster

__all__ = ["cluster"]
pytestmark = [pytest.mark.lab_only, pytest.mark.product("router")]
NOBODY = (503, None)
SILENCE = 3000  # milliseconds


@pytest.fixture
def router(cluster):
    """An L7Router and its class, both of the namespace's name."""
    name = cluster.namespace
    made = make_l7_router(name, tlsVersions=["TLSv1.3"], timeoutClientData=SILENCE)
    cluster.apply(made, make_ingress_class(name, CONTROLLER, parameters=parameters_of(name)))
    try:
        yield name
    finally:
        cluster.address = ""
        cluster.delete("ingresses", "--all")
        cluster.delete("l7router", name, "--ignore-not-found")
        cluster.delete("ingressclass", name)


def address_of(cluster, router):
    """The address of an L7Router that is Ready; empty before."""
    status = json.loads(cluster.kubectl("get", "l7router", router, "-o", "json")).get("status", {})
    ready = [each["status"] for each in status.get("conditions", ()) if each["type"] == "Ready"]
    return status.get("address", "") if ready == ["True"] else ""


@pytest.mark.complete
def test_second_router_serves_its_class_alone_with_settings_of_its_own(cluster, router):
    authority, host = Authority(), cluster.host("shop")
    secret, serial = authority.secret(cluster.namespace, "cert", host)
    cluster.apply(*cluster.backend("own"), secret)
    tls = [{"hosts": [host], "secretName": "cert"}]
    rule = (host, ("Prefix", "/", "own"))
    cluster.apply(cluster.ingress("shop", rule, tls=tls, class_name=router))
    cluster.wait_ready("own")
    assert cluster.ask(host, "/") == NOBODY
    address = cluster.wait_for("it has an address", lambda: address_of(cluster, router))
    cluster.address = address
    cluster.until_answered_over_tls({host: "own"}, authority)
    assert cluster.ask_over_tls(host, authority=authority) == ("own", serial)
    cluster.wait_for("it is told", lambda: cluster.status_of_ingress("shop") == [address])
    assert not is_taken(address, host, ssl.TLSVersion.TLSv1_2)
    assert is_taken(address, host, ssl.TLSVersion.TLSv1_3)
    assert 0.5 * SILENCE < silence(address) < 4 * SILENCE
    cluster.delete("l7router", router)
    cluster.wait_for("its address goes", lambda: not cluster.status_of_ingress("shop"))
    listed = cluster.octavia.get("/loadbalancers", name=f"kuryr-l7-router-{router}")
    assert not listed["loadbalancers"]
    assert not cluster.stored("cert")
    cluster.address = ""
    assert cluster.ask(host, "/") == NOBODY


def is_taken(address, host, version):
    """Does the router accept a client that knows this version of TLS alone?"""
    context = ssl._create_unverified_context()
    context.minimum_version = context.maximum_version = version
    try:
        with (
            socket.create_connection((address, 443), 10) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return True
    except ssl.SSLError:
        return False


def silence(address):
    """For how many milliseconds the router waits for a client that sends half a request."""
    with socket.create_connection((address, 80), 10) as connection:
        connection.settimeout(60)
        connection.sendall(b"GET / HTTP/1.1\r\n")
        begun = time.monotonic()
        connection.recv(1000)
        return 1000 * (time.monotonic() - begun)
