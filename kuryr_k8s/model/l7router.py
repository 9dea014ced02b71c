"""L7Router (``openstack.org/v1``, cluster-scoped), an L7 router that IngressClasses name.

spec:   where it is, which subnet, address and flavor never change; what its listeners are like
status: address, vipAddress, floatingIP, loadBalancerID, conditions, observedGeneration
"""

import uuid
from dataclasses import dataclass, field
from typing import Any, Self

from kuryr_k8s.model.condition import READY, Condition
from kuryr_k8s.model.load_balancer import TIMEOUTS
from kuryr_k8s.model.routes import Backend, SecretName

Json = dict[str, Any]
FINALIZER = "kuryr.openstack.org/l7router-finalizer"
ANY, NONE = "true", "false"  # for floatingIP
NO_LIMIT = -1  # of connections, as by Octavia's default


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """The settings of all listeners of a router, by Octavia's names; see ``Listener``."""

    allowed_cidrs: tuple[str, ...] = ()
    connection_limit: int = NO_LIMIT
    timeout_client_data: int | None = None
    timeout_member_data: int | None = None
    timeout_member_connect: int | None = None
    timeout_tcp_inspect: int | None = None
    tls_versions: tuple[str, ...] = ()
    tls_ciphers: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSpec:
    """Hold what an operator asks for of a router.

    :param subnet: the name or the id of the VIP's subnet; None: that of Services.
    :param vip_address: None for any.
    :param floating_ip: the address; None for any.
    :param has_floating_ip: False: clients reach it by its VIP alone.
    :param flavor_id: Octavia's.
    :param default_backend: takes the requests that no object asks for.
    :param default_certificate: the Secret for those who ask for TLS and name none.
    """

    subnet: str | None = None
    vip_address: str | None = None
    floating_ip: str | None = None
    has_floating_ip: bool = True
    flavor_id: str | None = None
    availability_zone: str | None = None
    listeners: ListenerSettings = field(default_factory=ListenerSettings)
    default_backend: Backend | None = None
    default_certificate: SecretName | None = None

    @classmethod
    def read(cls, spec: Json) -> Self:
        """Read the specification from the API's JSON."""
        floating_ip = spec.get("floatingIP", ANY)
        backend, secret = spec.get("defaultBackend"), spec.get("defaultCertificate")
        return cls(
            subnet=spec.get("subnet"),
            vip_address=spec.get("vipAddress"),
            floating_ip=None if floating_ip in (ANY, NONE) else floating_ip,
            has_floating_ip=floating_ip != NONE,
            # as Octavia shows it
            flavor_id=str(uuid.UUID(spec["flavorID"])) if "flavorID" in spec else None,
            availability_zone=spec.get("availabilityZone"),
            listeners=ListenerSettings(
                allowed_cidrs=tuple(spec.get("allowedCIDRs") or ()),
                connection_limit=spec.get("connectionLimit", NO_LIMIT),
                tls_versions=tuple(spec.get("tlsVersions") or ()),
                tls_ciphers=spec.get("tlsCiphers"),
                **{name: spec.get(_camel(name)) for name in TIMEOUTS},
            ),
            default_backend=backend
            and Backend(backend["namespace"], backend["service"], str(backend["port"])),
            default_certificate=secret and SecretName(secret["namespace"], secret["name"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class L7RouterObject:
    """An L7Router as the caches keep it.

    :param namespace: always empty.
    :param shown: its status but for the conditions, as last written.
    """

    namespace: str = ""
    name: str
    uid: str
    resource_version: str
    generation: int
    deleting: bool
    finalizers: tuple[str, ...]
    spec: RouterSpec
    shown: tuple[tuple[str, object], ...]
    ready: Condition | None

    @classmethod
    def read(cls, item: Json) -> Self:
        """Read an L7Router from the API's JSON."""
        meta, status = item["metadata"], item.get("status") or {}
        conditions = {each["type"]: each for each in status.get("conditions") or ()}
        return cls(
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            generation=meta["generation"],
            deleting="deletionTimestamp" in meta,
            finalizers=tuple(meta.get("finalizers") or ()),
            spec=RouterSpec.read(item["spec"]),
            shown=tuple(sorted((name, status[name]) for name in status if name != "conditions")),
            ready=Condition.read(conditions[READY]) if READY in conditions else None,
        )

    @property
    def vip_address(self) -> str | None:
        """The address of the VIP, as the status says."""
        address = dict(self.shown).get("vipAddress")
        return address if isinstance(address, str) else None


def _camel(name: str) -> str:
    """Return the name of a field in Kubernetes' spelling."""
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)
