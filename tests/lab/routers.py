"""Ingresses of a namespace, and the L7 router that serves them, as tests see them."""

import http.client
import json
import socket
import ssl
from pathlib import Path

import pytest

from lab.kubernetes.client import kubectl
from lab.kuryr.router import CLASS, NAME
from lab.openstack.rest import Api, token
from tests.kit import tls
from tests.kit.kube.objects import ingress_rules, make_ingress
from tests.lab.cluster import fresh_cluster, pod
from tests.lab.services import ServiceCluster

# Whatever is asked for, the answer names the Pod; /cgi-bin/headers shows what it was sent.
ANSWER_EVERYTHING = (
    "trap 'exit 0' TERM; mkdir -p /www/cgi-bin && hostname > /www/index.html && "
    "echo E404:/www/index.html > /tmp/httpd.conf && "
    r"printf '#!/bin/sh\necho Content-Type: text/plain; echo; env\n' > /www/cgi-bin/headers && "
    "chmod +x /www/cgi-bin/headers && httpd -f -p 8080 -h /www -c /tmp/httpd.conf & wait"
)

# The same over TLS, with the certificate of a Secret; by the Python of the machine.
ANSWER_OVER_TLS = """
import http.server, os, ssl

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.uname().nodename.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain("/certificate/tls.crt", "/certificate/tls.key")
server = http.server.ThreadingHTTPServer(("", 8443), Handler)
server.socket = context.wrap_socket(
    server.socket, server_side=True, do_handshake_on_connect=False
)
server.serve_forever()
"""
OF_PYTHON = ("/usr", "/lib", "/lib64")

# Seconds for some hundred changes of one load balancer, one after another: beside tests that keep
# Octavia's only worker busy, each takes six to nine, and those of other tests come in between.
PATIENCE = 900


class RouterCluster(ServiceCluster):
    """One namespace with its Ingresses."""

    def wait_for(self, what, condition, seconds=PATIENCE):
        """Ask until the condition holds; return its value."""
        return super().wait_for(what, condition, seconds)

    address = ""  # of the router that is asked; empty for the cluster's own

    def router_address(self):
        if self.address:
            return self.address
        shown = ("-n", "kube-system", "get", "configmap", NAME, "-o", "json")
        return json.loads(kubectl(self.lab, *shown))["data"]["floating-ip"]

    @property
    def barbican(self):
        """Barbican, as the project of the cluster sees it."""
        clouds = json.loads(Path(self.lab.cloud.clouds_yaml).read_text())["clouds"]
        names = ("auth_url", "username", "password", "project_name")
        secret = token(*(clouds["kuryr"]["auth"][name] for name in names))
        return Api(f"{self.lab.cloud.barbican_url}/v1", secret)

    def host(self, name):
        """A host of this namespace's own: the router serves those of others as well."""
        return f"{name}.{self.namespace}.demo"

    def backend(self, name, node="node1"):
        """A Service and the only Pod behind it, of the same name."""
        made = pod(name, node=node)
        made["metadata"]["labels"]["answers"] = name
        made["spec"]["containers"][0]["command"] = ["sh", "-c", ANSWER_EVERYTHING]
        spec = {"selector": {"answers": name}, "clusterIP": "None"}
        spec["ports"] = [{"name": "http", "port": 80, "targetPort": 8080}]
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}
        return [service | {"spec": spec}, made]

    def backend_over_tls(self, name, authority, *hosts):
        """As :meth:`backend`, with a certificate by the authority for these hosts."""
        service, made = self.backend(name)
        service["spec"]["ports"][0]["targetPort"] = 8443
        secret, _ = authority.secret(self.namespace, f"{name}-pod", *hosts)
        [container] = made["spec"]["containers"]
        container["command"] = ["/usr/bin/python3", "-ISE", "-c", ANSWER_OVER_TLS]
        container["volumeMounts"] = [{"name": "certificate", "mountPath": "/certificate"}]
        container["volumeMounts"] += [
            {"name": path.strip("/"), "mountPath": path, "readOnly": True} for path in OF_PYTHON
        ]
        of_secret = {"name": "certificate", "secret": {"secretName": f"{name}-pod"}}
        made["spec"]["volumes"] = [of_secret] + [
            {"name": path.strip("/"), "hostPath": {"path": path}} for path in OF_PYTHON
        ]
        return [secret, service, made]

    def ingress(self, name, *rules, **spec):
        """Rules are (host, (type, path, service)…)."""
        spec.setdefault("class_name", CLASS)
        return make_ingress(name, *ingress_rules(rules), namespace=self.namespace, **spec)

    def ask(self, host, path, method="GET"):
        """What the router answers: the name of a Pod, or the status and where it leads."""
        connection = http.client.HTTPConnection(self.router_address(), timeout=10)
        try:
            return answer_of(connection, host, path, method)
        except OSError as error:
            return str(error)
        finally:
            connection.close()

    def ask_over_tls(self, host, path="/", authority=None):
        """What the router answers to a client that asks for the host by SNI, and the serial number
        of the certificate that it shows; without an authority any certificate will do."""
        context = authority.context() if authority else ssl._create_unverified_context()
        try:
            with (
                socket.create_connection((self.router_address(), 443), 10) as plain,
                context.wrap_socket(plain, server_hostname=host) as secure,
            ):
                shown = ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True))
                connection = http.client.HTTPConnection(host)
                connection.sock = secure
                answer = answer_of(connection, host, path)
        except OSError as error:
            return str(error), None
        return answer, tls.serial_of(shown.encode())

    def until_answered(self, expected):
        """Wait until all requests are answered so: {(host, path): answer}."""
        found = {}

        def answered():
            for request in expected:
                found[request] = self.ask(*request)
            return found == expected

        try:
            self.wait_for("all requests are answered as is expected", answered)
        except AssertionError:
            differing = {each: found[each] for each in expected if found[each] != expected[each]}
            raise AssertionError(f"{differing} differ") from None

    def until_answered_over_tls(self, expected, authority=None):
        """Wait until requests for / are answered so: {host: answer}."""
        found = {}

        def answered():
            for host in expected:
                found[host] = self.ask_over_tls(host, authority=authority)[0]
            return found == expected

        try:
            self.wait_for("all requests over TLS are answered as is expected", answered)
        except AssertionError:
            raise AssertionError(f"{found}, not {expected}") from None

    def stored(self, secret):
        """The names of what is in Barbican of a Secret's certificates."""
        found = self.kubectl("get", "secret", secret, "-o", "jsonpath={.metadata.uid}")
        listed = self.barbican.get("/secrets", limit="100")["secrets"]
        return [each["name"] for each in listed if found in each["name"]]

    def status_of_ingress(self, name):
        found = json.loads(self.kubectl("get", "ingress", name, "-o", "json"))["status"]
        return [each["ip"] for each in found["loadBalancer"].get("ingress", ())]


class Authority:
    """A CA of a test's own."""

    def __init__(self):
        self._key = tls.ec_key()
        self._certificate = tls.make_certificate(key=self._key, is_ca=True)

    @property
    def pem(self):
        """Its certificate, as text."""
        return tls.pem_of(self._certificate).decode()

    def context(self):
        """What verifies servers by this CA, and by no other."""
        return ssl.create_default_context(cadata=self.pem)

    def secret(self, namespace, name, *hosts):
        """A Secret with a new certificate for the hosts, and that one's serial number."""
        certificate, key = self.pair(*hosts)
        secret = tls.make_secret(name, namespace, certificate, key)
        return secret, tls.serial_of(certificate)

    def pair(self, *hosts):
        """A new certificate for the hosts and its key, in PEM."""
        key = tls.ec_key()
        made = tls.make_certificate(*hosts, key=key, issuer=(self._certificate, self._key))
        return tls.pem_of(made), tls.pem_of_key(key)


def answer_of(connection, host, path, method="GET"):
    """The name of a Pod, or the status and where it leads."""
    connection.request(method, path, headers={"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode().strip()
    if answer.status in (200, 404):
        return text
    return answer.status, answer.headers.get("Location")


@pytest.fixture
def cluster(configured):
    """A namespace of one's own; no route of it is left."""
    with fresh_cluster() as found:
        cluster = RouterCluster(found.namespace)
        yield cluster
        cluster.delete("ingresses", "--all")
        cluster.wait_for("its routes go", lambda: not pools_of(cluster))
    cluster.assert_nothing_leaks()


def pools_of(cluster):
    """The router's pools for Services of the namespace."""
    [router] = cluster.octavia.get("/loadbalancers", name=NAME)["loadbalancers"]
    pools = cluster.octavia.get("/pools", loadbalancer_id=router["id"])["pools"]
    return [pool for pool in pools if pool["name"].startswith(f"{cluster.namespace}/")]
