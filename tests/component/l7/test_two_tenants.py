"""Two namespaces ask for one host, one path or one Secret: who gets what, and who is told what.

The older object is the first namespace's, and never told anything. When it goes, the younger one
has what it asked for.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.component.l7.test_ingress import ONE, TWO
from tests.component.l7.test_ocp_route import TLS
from tests.component.l7.test_tls import until_secure
from tests.kit.kube.cluster import Cluster
from tests.kit.l7 import RouterStage

TO_A = (308, "https://a.b")


class Ingress:
    """An Ingress for a host and a path, perhaps over TLS with the certificate of a Secret."""

    def __init__(self, host="a.b", path="/", secret=""):
        self.host, self.path = host, path
        self.tls = [{"hosts": [host], "secretName": secret}] if secret else []

    async def create(self, stage, class_name, to):
        rule = (self.host, ("Prefix", self.path, to))
        await stage.add_ingress("it", rule, class_name=class_name, tls=self.tls)

    async def until_told(self, stage, text):
        assert text in await stage.until_event("KuryrIngressUnserved")

    async def until_served(self, stage):
        await stage.until_address("it")

    async def delete(self, stage):
        await stage.delete_ingress("it")


class Route:
    """A Route for a host and a path."""

    def __init__(self, host="a.b", path="/", **spec):
        self.host, self.path, self.spec = host, path, spec

    async def create(self, stage, class_name, to):
        labels = {"test": class_name}
        await stage.routes.add("it", self.host, to, path=self.path, labels=labels, **self.spec)

    async def until_told(self, stage, text):
        async def told():
            entry = await stage.routes.entry("it")
            message = entry["conditions"][0].get("message", "") if entry else ""
            return text in message

        await stage.until(told)

    async def until_served(self, stage):
        await stage.routes.until_admitted("it")

    async def delete(self, stage):
        await stage.routes.delete("it")


@dataclass
class Case:
    """Two claims, how requests are answered (port: path: answer) and what the younger is told.

    `hosts` are those of the certificates in a Secret «cert» of each namespace.
    """

    older: object
    younger: object
    answers: dict
    told: str = ""
    afterwards: dict = field(default_factory=dict)  # when the older one is gone
    hosts: tuple = ("a.b", "a.b")


OWN_CERTIFICATE = {"termination": "edge", "externalCertificate": {"name": "cert"}}
CASES = {
    "Ingresses with one path": Case(
        Ingress(),
        Ingress(),
        {("a.b", "/", 80): ONE},
        "has the same host and path, and comes first",
        {("a.b", "/", 80): TWO},
    ),
    "Ingresses with one host": Case(
        Ingress(),
        Ingress(path="/x"),
        {("a.b", "/", 80): ONE, ("a.b", "/x", 80): TWO},
        "",
        {("a.b", "/", 80): 503, ("a.b", "/x", 80): TWO},
    ),
    "Ingresses, the older one over TLS": Case(
        Ingress(secret="cert"),
        Ingress(path="/x"),
        {
            ("a.b", "/", 80): TO_A,
            ("a.b", "/", 443): ONE,
            ("a.b", "/x", 80): TWO,
            ("a.b", "/x", 443): TWO,
        },
        "",
        {("a.b", "/", 80): 503, ("a.b", "/x", 80): TWO},
        hosts=("a.b", ""),
    ),
    "Ingresses, the younger one over TLS": Case(
        Ingress(),
        Ingress(path="/x", secret="cert"),
        {("a.b", "/", 80): ONE, ("a.b", "/x", 80): 403},
        "has a.b, and came first",
        {("a.b", "/x", 80): TO_A, ("a.b", "/x", 443): TWO},
        hosts=("", "a.b"),
    ),
    "Ingresses with certificates for one host": Case(
        Ingress(secret="cert"),
        Ingress(path="/x", secret="cert"),
        {("a.b", "/", 443): ONE, ("a.b", "/x", 443): TWO, ("a.b", "/x", 80): TO_A},
        "has a.b, and came first",
        {("a.b", "/", 443): 503, ("a.b", "/x", 443): TWO, ("a.b", "/x", 80): TO_A},
    ),
    "Ingress that names the other one's Secret": Case(
        Ingress(secret="cert"),
        Ingress("c.d", secret="cert"),
        {("a.b", "/", 443): ONE, ("c.d", "/", 443): 403, ("c.d", "/", 80): 403},
        "there is no such Secret",
        {("a.b", "/", 80): 503, ("c.d", "/", 80): 403},
        hosts=("a.b", ""),
    ),
    "Ingress whose certificate has the other one's name": Case(
        Ingress(),
        Ingress("c.d", secret="cert"),
        {("a.b", "/", 80): ONE, ("c.d", "/", 80): 403},
        "has a.b, and came first",
        {("c.d", "/", 80): (308, "https://c.d"), ("c.d", "/", 443): TWO},
        hosts=("", "c.d a.b"),
    ),
    "Ingress, then a Route with its path": Case(
        Ingress(),
        Route(),
        {("a.b", "/", 80): ONE},
        "has the host, and is older",
        {("a.b", "/", 80): TWO},
    ),
    "Ingress, then a Route with its host": Case(
        Ingress(),
        Route(path="/x"),
        {("a.b", "/", 80): ONE, ("a.b", "/x", 80): ONE},
        "has the host, and is older",
        {("a.b", "/", 80): 503, ("a.b", "/x", 80): TWO},
    ),
    "Ingress, then a Route with a certificate for its host": Case(
        Ingress(),
        Route("c.d", tls=OWN_CERTIFICATE),
        {("a.b", "/", 80): ONE, ("c.d", "/", 80): 403},
        "has a.b, and came first",
        {("c.d", "/", 80): 403, ("c.d", "/", 443): TWO},
        hosts=("", "c.d a.b"),
    ),
    "Route, then an Ingress with its path": Case(
        Route(),
        Ingress(),
        {("a.b", "/", 80): ONE},
        "has the same host and path, and comes first",
        {("a.b", "/", 80): TWO},
    ),
    "Route, then an Ingress with its host": Case(
        Route(),
        Ingress(path="/x"),
        {("a.b", "/", 80): ONE, ("a.b", "/x", 80): TWO},
        "",
        {("a.b", "/", 80): 503, ("a.b", "/x", 80): TWO},
    ),
    "Route over TLS, then an Ingress with its host": Case(
        Route(tls=OWN_CERTIFICATE),
        Ingress(path="/x"),
        {
            ("a.b", "/", 80): 403,
            ("a.b", "/", 443): ONE,
            ("a.b", "/x", 80): TWO,
            ("a.b", "/x", 443): TWO,
        },
        "",
        {("a.b", "/", 80): 503, ("a.b", "/x", 80): TWO},
        hosts=("a.b", ""),
    ),
    "Route over TLS, then an Ingress with a certificate": Case(
        Route(tls=OWN_CERTIFICATE),
        Ingress(path="/x", secret="cert"),
        {("a.b", "/", 443): ONE, ("a.b", "/x", 443): TWO, ("a.b", "/x", 80): TO_A},
        "has a.b, and came first",
        {("a.b", "/", 443): 503, ("a.b", "/x", 443): TWO, ("a.b", "/x", 80): TO_A},
    ),
    "Routes with one path": Case(
        Route(),
        Route(),
        {("a.b", "/", 80): ONE},
        "has the host, and is older",
        {("a.b", "/", 80): TWO},
    ),
    "Routes with one host": Case(
        Route(path="/x"),
        Route(path="/y"),
        {("a.b", "/x", 80): ONE, ("a.b", "/y", 80): 503},
        "has the host, and is older",
        {("a.b", "/x", 80): 503, ("a.b", "/y", 80): TWO},
    ),
    "Route for a domain, then one in it": Case(
        Route(wildcardPolicy="Subdomain"),
        Route("c.b"),
        {("a.b", "/", 80): ONE, ("c.b", "/", 80): ONE},
        "has the host, and is older",
        {("a.b", "/", 80): 503, ("c.b", "/", 80): TWO},
    ),
    "Route, then one for its domain": Case(
        Route(),
        Route("c.b", wildcardPolicy="Subdomain"),
        {("a.b", "/", 80): ONE, ("c.b", "/", 80): 503},
        "has the host, and is older",
        {("a.b", "/", 80): TWO, ("c.b", "/", 80): TWO},
    ),
    "Route that names the other one's Secret": Case(
        Route(tls=OWN_CERTIFICATE),
        Route("c.d", tls=OWN_CERTIFICATE),
        {("a.b", "/", 443): ONE, ("c.d", "/", 443): 403, ("c.d", "/", 80): 403},
        "there is no such Secret",
        {("a.b", "/", 80): 503, ("c.d", "/", 80): 403},
        hosts=("a.b", ""),
    ),
}


@pytest.fixture
async def tenants(routers, whole_server):
    """A stage for each of the namespaces; the controller sees both."""
    other = Cluster(routers.cluster.client)
    await other.add_namespace()
    of = partial(
        RouterStage,
        cloud=routers.cloud,
        proxy=whole_server,
        load_conf=routers.load_conf,
        options=routers.options,
    )
    yield of(routers.cluster), of(other)
    await other.clean()


@pytest.mark.parametrize("what", CASES)
def test_each_case_changes_with_the_deletion_of_the_older_object(what):
    case = CASES[what]
    assert any(case.answers.get(request) != found for request, found in case.afterwards.items())


@pytest.mark.parametrize("what", CASES)
async def test_of_two_tenants_the_older_one_has_what_both_ask_for(tenants, what):
    case = CASES[what]
    older, younger = tenants
    await older.add_backend("one", *ONE)
    await younger.add_backend("two", *TWO)
    certificates = [
        await stage.add_secret("cert", *hosts.split()) if hosts else None
        for stage, hosts in zip(tenants, case.hosts, strict=True)
    ]
    # no Routes of other tests
    more = {"route_labels": f"test={older.class_name}", "route_wildcards": "true"}
    options = TLS | {"l7_router": TLS["l7_router"] | more}
    async with older.controller(**options):
        await case.older.create(older, older.class_name, "one")
        await case.older.until_served(older)
        await asyncio.sleep(1.1)  # creations are told to the second
        await case.younger.create(younger, older.class_name, "two")
        if case.told:
            await case.younger.until_told(younger, case.told)
        else:
            await case.younger.until_served(younger)
        await until_secure(older, case.answers)
        assert not await older.events()
        await case.older.delete(older)
        await until_secure(older, case.afterwards)
        if 443 in {port for _, _, port in case.afterwards}:
            await younger.until_shown(certificates[1])
