"""NeutronPort (``openstack.org/v1``), a port in Neutron with a life of its own.

spec:   what its user asks for; network, subnets, addresses and MAC never change
status: portId and what else Neutron says of the port, phase, boundTo (the Pod that has it),
        reservedFor (the name of the Pod that it waits for), conditions, observedGeneration
"""

import ipaddress
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from kuryr_k8s.model.annotations import annotation
from kuryr_k8s.model.condition import READY, Condition

Json = dict[str, Any]
FINALIZER = "kuryr.openstack.org/neutronport-finalizer"
FLOATING_IP = "FloatingIPReady"  # the type of a condition, beside READY
PENDING, AVAILABLE, BOUND, FAILED = "Pending", "Available", "Bound", "Failed"
RETAIN = "Retain"
CLAIM = "IPAMClaim"  # the kind of the Network Plumbing Working Group
POOL, API_VERSION = "NeutronPortPool", "openstack.org/v1"
NORMAL = "normal"  # the binding:vnic_type of a port that a virtual switch takes


# Set on a NeutronPort at its creation: the name and the uid of the Pod that it was made for, and
# with which it goes; or the name of the Pod that alone may have it.
MADE_FOR, RESERVED_FOR = "openstack.org/made-for", "openstack.org/reserved-for"
_MADE_FOR = re.compile(r"([a-z0-9][-a-z0-9.]{0,252})/([-0-9a-f]{1,64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTo:
    """The Pod that has a port.

    :param kuryrport_uid: of the Pod's KuryrPort, which records that the Pod has it.
    """

    namespace: str
    name: str
    uid: str
    node: str
    kuryrport_uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} on node {self.node}"

    def to_json(self) -> Json:
        """Return it as ``status.boundTo``."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "node": self.node,
            "kuryrPortUid": self.kuryrport_uid,
        }

    @classmethod
    def read(cls, found: Json | None) -> Self | None:
        """Read ``status.boundTo``; None: no Pod has the port."""
        if found is None:
            return None
        return cls(
            namespace=found["namespace"],
            name=found["name"],
            uid=found["uid"],
            node=found["node"],
            kuryrport_uid=found["kuryrPortUid"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Hold what the user of a NeutronPort asks for; ids may be names.

    :param security_groups: None: those of Pods.
    :param pairs: of address or network, and MAC; an empty MAC is the port's own.
    :param floating_ip: ``true``, or the address or the id of one that exists.
    :param port_id: of a port that exists already.
    :param vnic_type: Neutron's ``binding:vnic_type``.
    :param retains: the port stays in Neutron when the NeutronPort goes.
    """

    network: str | None
    subnets: tuple[str, ...]
    fixed_ips: tuple[str, ...]
    mac: str | None
    security_groups: tuple[str, ...] | None
    port_security: bool | None
    pairs: tuple[tuple[str, str], ...]
    qos_policy: str | None
    floating_ip: str | None
    host_hint: str | None
    port_id: str | None
    vnic_type: str
    retains: bool

    @classmethod
    def read(cls, spec: Json) -> Self:
        """Read the specification from the API's JSON."""
        groups = spec.get("securityGroups")
        return cls(
            network=spec.get("network"),
            subnets=tuple(spec.get("subnets") or ()),
            fixed_ips=tuple(
                str(ipaddress.ip_address(each)) for each in spec.get("fixedIPs") or ()
            ),
            mac=(spec.get("macAddress") or "").lower() or None,
            security_groups=None if groups is None else tuple(groups),
            port_security=spec.get("portSecurity"),
            pairs=tuple(
                (_range(pair["ipAddress"]), (pair.get("macAddress") or "").lower())
                for pair in spec.get("allowedAddressPairs") or ()
            ),
            qos_policy=spec.get("qosPolicy"),
            floating_ip=spec.get("floatingIP"),
            host_hint=spec.get("hostHint"),
            port_id=spec.get("portId"),
            vnic_type=sys.intern(spec.get("vnicType") or NORMAL),
            retains=spec.get("reclaimPolicy") == RETAIN,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NeutronPort:
    """A NeutronPort as the caches keep it.

    :param labels: by which Pods select it.
    :param pod_uid: of the Pod for which it was made, and with which it goes; empty: of none.
    :param pod_name: of that Pod.
    :param claim: name of the IPAMClaim for which it was made, and with which it goes; empty: of
        none.
    :param claim_uid: of that IPAMClaim.
    :param pool: name of the NeutronPortPool that it is one of, and with which it goes; empty: of
        none.
    :param pool_uid: of that NeutronPortPool.
    :param port_id: of the port in Neutron; empty: there is none yet.
    :param addresses: pairs of subnet's id and address.
    :param cidrs: pairs of subnet's id and CIDR.
    :param groups: ids of the port's security groups.
    :param floating_ip: its address, empty until it is known; None: it has none.
    :param reserved_for: the name of the Pod that alone may have it; empty: any may.
    :param observed: the generation of the specification that the port has.
    :param conditions: by their types.
    :param port_security: whether the port has it.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    deleting: bool
    finalizers: tuple[str, ...]
    labels: frozenset[tuple[str, str]]
    pod_uid: str
    pod_name: str
    claim: str
    claim_uid: str
    pool: str
    pool_uid: str
    spec: Spec
    port_id: str
    network_id: str
    addresses: tuple[tuple[str, str], ...]
    cidrs: tuple[tuple[str, str], ...]
    mac: str
    groups: tuple[str, ...]
    qos_policy_id: str
    floating_ip: str | None
    phase: str
    bound_to: BoundTo | None
    reserved_for: str
    observed: int
    conditions: tuple[tuple[str, Condition], ...]
    port_security: bool

    @classmethod
    def read(cls, item: Json) -> Self:
        """Read a NeutronPort from the API's JSON."""
        meta, status = item["metadata"], item.get("status") or {}
        claim, pool = _owner(meta, CLAIM), _owner(meta, POOL, api_version=API_VERSION)
        pod = _MADE_FOR.fullmatch(annotation(item, MADE_FOR) or "")
        return cls(
            namespace=sys.intern(meta["namespace"]),
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            generation=meta["generation"],
            deleting="deletionTimestamp" in meta,
            finalizers=tuple(map(sys.intern, meta.get("finalizers") or ())),
            labels=frozenset((meta.get("labels") or {}).items()),
            pod_uid=pod[2] if pod else "",
            pod_name=pod[1] if pod else "",
            claim=claim["name"],
            claim_uid=claim["uid"],
            pool=sys.intern(pool["name"]),
            pool_uid=sys.intern(pool["uid"]),
            spec=Spec.read(item["spec"]),
            port_id=status.get("portId") or "",
            network_id=sys.intern(status.get("networkId") or ""),
            addresses=tuple(
                (sys.intern(each["subnetId"]), each["ipAddress"])
                for each in status.get("addresses") or ()
            ),
            cidrs=tuple(
                (sys.intern(each["subnetId"]), sys.intern(each["cidr"]))
                for each in status.get("addresses") or ()
                if "cidr" in each
            ),
            mac=status.get("macAddress") or "",
            groups=tuple(map(sys.intern, status.get("securityGroupIds") or ())),
            qos_policy_id=status.get("qosPolicyId") or "",
            floating_ip=status.get("floatingIP"),
            phase=sys.intern(status.get("phase") or PENDING),
            bound_to=BoundTo.read(status.get("boundTo")),
            reserved_for=status.get("reservedFor") or annotation(item, RESERVED_FOR) or "",
            observed=status.get("observedGeneration") or 0,
            conditions=tuple(
                (each["type"], Condition.read(each)) for each in status.get("conditions") or ()
            ),
            port_security=status.get("portSecurityEnabled", True),
        )

    @property
    def ready(self) -> Condition | None:
        """The condition Ready; None: there is none yet."""
        return self.condition(READY)

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of a type; None: there is none yet."""
        return dict(self.conditions).get(kind)

    def conditions_with(self, kind: str, condition: Condition | None) -> list[Json]:
        """Return ``status.conditions`` with this one among them; None: without it."""
        changed = dict(self.conditions)
        changed.pop(kind, None)
        if condition is not None:
            changed[kind] = condition.follows(self.condition(kind))
        return [each.to_json(name) for name, each in sorted(changed.items())]

    @property
    def is_on_device(self) -> bool:
        """True if the port is for a device of a node, such as a VF."""
        return self.spec.vnic_type != NORMAL

    @property
    def subnet_ids(self) -> tuple[str, ...]:
        """The ids of the subnets that the port has addresses of, each once."""
        return tuple(dict.fromkeys(subnet_id for subnet_id, _ in self.addresses))

    @property
    def ips(self) -> frozenset[str]:
        """The port's addresses."""
        return frozenset(address for _, address in self.addresses)

    def is_free_for(self, pod_name: str, pod_uid: str) -> bool:
        """Return whether a Pod could have it, as far as its state goes."""
        return (
            self.phase == AVAILABLE
            and bool(self.port_id)
            and self.bound_to is None
            and not self.deleting
            and self.reserved_for in ("", pod_name)
            and self.pod_uid in ("", pod_uid)
        )


def _range(text: str) -> str:
    """Return an address or a network in Neutron's spelling."""
    if "/" in text:
        return str(ipaddress.ip_network(text, strict=False))
    return str(ipaddress.ip_address(text))


def _owner(meta: Json, kind: str, api_version: str | None = None) -> Mapping[str, str]:
    """Return the name and the uid of the owner of a kind; both empty: there is none.

    :param api_version: of an owner that has to be the controller; None: any owner will do.
    """
    owners = meta.get("ownerReferences") or ()
    found = (
        each
        for each in owners
        if each["kind"] == kind
        and (api_version is None or (each["apiVersion"] == api_version and each.get("controller")))
    )
    return next(found, {"name": "", "uid": ""})
