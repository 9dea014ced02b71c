"""What users do to OpenShift's Routes, and what these tell."""

from kuryr_k8s.model.ocp_route_status import ROUTER_NAME
from tests.kit.kube.objects import path_of
from tests.kit.tls import make_pair


def make_route(name, host="", *to, namespace="default", annotations=None, labels=None, **spec):
    """A Route; `to` are Services, or (Service, weight), the first one's first."""
    targets = [
        {"kind": "Service", "name": each}
        if isinstance(each, str)
        else {"kind": "Service", "name": each[0], "weight": each[1]}
        for each in to or ("one",)
    ]
    body = {"to": targets[0], **spec}
    if host:
        body["host"] = host
    if targets[1:]:
        body["alternateBackends"] = targets[1:]
    metadata = {"name": name, "namespace": namespace}
    metadata |= {"annotations": annotations or {}, "labels": labels or {}}
    return {
        "apiVersion": "route.openshift.io/v1",
        "kind": "Route",
        "metadata": metadata,
        "spec": body,
    }


def edge(*hosts, insecure=None):
    """TLS of a Route, with a certificate for these hosts if there are any; and the certificate."""
    tls = {"termination": "edge"} | (
        {"insecureEdgeTerminationPolicy": insecure} if insecure else {}
    )
    if not hosts:
        return tls, None
    certificate, key = make_pair(*hosts)
    return tls | {"certificate": certificate.decode(), "key": key.decode()}, certificate


def reencrypt(authority, *hosts, insecure=None):
    """As :func:`edge`, with Pods that have certificates by the CA, in PEM."""
    tls, certificate = edge(*hosts, insecure=insecure)
    more = {"termination": "reencrypt", "destinationCACertificate": authority.decode()}
    return tls | more, certificate


class Routes:
    """The Routes of a stage, which must have the handler of Routes."""

    def __init__(self, stage):
        self._stage = stage

    async def add(self, name, host="", *to, namespace="", **spec):
        """A Route, see make_route."""
        namespace = namespace or self._stage.namespace
        return await self._stage.client.create(
            make_route(name, host, *to, namespace=namespace, **spec)
        )

    def path(self, name, namespace=""):
        return path_of(make_route(name, namespace=namespace or self._stage.namespace))

    async def change(self, name, **spec):
        await self._stage.client.patch(self.path(name), {"spec": spec})

    async def delete(self, name):
        await self._stage.client.delete(self.path(name))

    async def find(self, name, namespace=""):
        return await self._stage.client.find(self.path(name, namespace))

    async def entry(self, name, namespace=""):
        """Our entry in the status; None without one."""
        found = await self.find(name, namespace)
        entries = (found.get("status") or {}).get("ingress") or []
        return next((each for each in entries if each.get("routerName") == ROUTER_NAME), None)

    async def until_condition(self, name, status, reason="", namespace=""):
        """Wait until the condition Admitted is so; its message."""
        last = None

        async def so():
            nonlocal last
            last = await self.entry(name, namespace)
            condition = last["conditions"][0] if last else {}
            found = condition.get("status"), condition.get("reason", "")
            return condition if found == (status, reason) else None

        try:
            return (await self._stage.until(so)).get("message", "")
        except TimeoutError:
            raise AssertionError(f"{last}, not {status} {reason}") from None

    async def until_admitted(self, name, **how):
        return await self.until_condition(name, "True", **how)

    async def until_refused(self, name, reason, **how):
        return await self.until_condition(name, "False", reason, **how)
