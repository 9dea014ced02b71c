"""Views of Pods, Nodes and Namespaces, reduced to what we read of them."""

import re
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any, Self

from kuryr_k8s.model import annotations
from kuryr_k8s.model.service import canonical

Json = dict[str, Any]
# The MD5 sum that the kubelet makes of a manifest without a uid. Whoever may create Pods may set
# this annotation; what looks like this is no uid of the API server's.
_HASH = re.compile("[0-9a-f]{32}")
# A resource with a domain that the kubelet does not fill itself: its quantities are whole numbers.
_DEVICE = re.compile(r"(?!requests\.)[^/]+/(?!attachable-volumes-)")
# The name of a StatefulSet's Pod: at most ten digits, as many as a number of replicas has.
_NUMBERED = re.compile(r".+-(0|[1-9][0-9]{0,9})")
# The kubelet's reason for Ready=False while containers are ready, and some readiness gate is not.
_GATES_NOT_READY = "ReadinessGatesNotReady"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessGate:
    """The readiness gate of a Pod that lists ours, and what it is decided by.

    :param passed: the condition is True.
    :param otherwise_ready: the Pod is Ready, or would be but for it: the containers are, and the
        conditions of other gates are True. The Pod of a lost node is not: there only Ready is
        False, of all conditions, and for none of the kubelet's reasons.
    :param labels: the Pod's labels, by which Services select it.
    """

    passed: bool
    otherwise_ready: bool
    labels: frozenset[tuple[str, str]]

    @classmethod
    def read(cls, item: Json) -> Self | None:
        """Read it from a Pod in the API's JSON; None if the Pod does not list our gate."""
        gates = {gate["conditionType"] for gate in item["spec"].get("readinessGates") or ()}
        if annotations.READINESS_GATE not in gates:
            return None
        status = item.get("status") or {}
        conditions = status.get("conditions") or ()
        true = {each["type"] for each in conditions if each["status"] == "True"}
        # It stands until the kubelet has seen the gate, thus it is no matter of ``passed``.
        awaited = "Ready" in true or any(
            each["type"] == "Ready" and each.get("reason") == _GATES_NOT_READY
            for each in conditions
        )
        others = gates - {annotations.READINESS_GATE}
        return cls(
            passed=annotations.READINESS_GATE in true,
            otherwise_ready=awaited and "ContainersReady" in true and others <= true,
            labels=frozenset((item["metadata"].get("labels") or {}).items()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A Pod, reduced to what its interfaces depend on, and its readiness gate.

    ``uid`` identifies the API object, ``identity`` the Pod itself. The mirror of a static Pod
    changes its API uid without a restart, so the hash of its configuration identifies it; the
    kubelet passes that hash to CNI as the Pod's uid. It is the word of whoever created the Pod.

    :param addresses: the Pod's addresses, canonical.
    :param devices: how many devices of the node its containers request, by the names of resources;
        0: some, in a quantity that is no plain number.
    :param claims: the names of the ResourceClaims that its containers use, as far as they exist.
    :param runtime_class: its RuntimeClass; empty: it names none.
    :param ordinal: its number in its StatefulSet; None: it is in none.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str | None
    phase: str
    host_network: bool
    deleting: bool
    config_hash: str | None
    addresses: tuple[str, ...] = ()
    gate: ReadinessGate | None = None
    devices: tuple[tuple[str, int], ...] = ()
    claims: tuple[str, ...] = ()
    runtime_class: str = ""
    ordinal: int | None = None

    @classmethod
    def read(cls, item: Json) -> Self:
        """Read a Pod from the API's JSON."""
        meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
        node = spec.get("nodeName")
        mirror = annotations.annotation(item, annotations.CONFIG_MIRROR)
        config_hash = annotations.annotation(item, annotations.CONFIG_HASH) if mirror else None
        if config_hash is not None and not _HASH.fullmatch(config_hash):
            config_hash = None
        return cls(
            namespace=sys.intern(meta["namespace"]),
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            node=sys.intern(node) if node else None,
            phase=sys.intern(status.get("phase", "Pending")),
            host_network=bool(spec.get("hostNetwork")),
            deleting="deletionTimestamp" in meta,
            config_hash=config_hash,
            addresses=tuple(canonical(each["ip"]) for each in status.get("podIPs") or ()),
            gate=ReadinessGate.read(item),
            devices=_devices(spec),
            claims=_claims(item),
            runtime_class=sys.intern(spec.get("runtimeClassName") or ""),
            ordinal=_ordinal(meta),
        )

    @property
    def static(self) -> bool:
        """Return whether the kubelet runs the Pod from a file of its own."""
        return self.config_hash is not None

    @property
    def identity(self) -> str:
        """Return what identifies the Pod itself, and its interfaces."""
        return self.config_hash or self.uid

    @property
    def is_gated(self) -> bool:
        """Return whether the Pod may be a member before it is Ready: only our gate is missing."""
        if self.gate is None or self.deleting:
            return False
        return self.gate.otherwise_ready and bool(self.addresses)

    @property
    def finished(self) -> bool:
        """Return whether all its containers have ended and will not start again."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A Node.

    :param host_id: the name by which Neutron knows it; its daemon publishes it.
    :param addresses: its InternalIPs.
    :param pod_vif: the pod_vif driver that its label names.
    :param foreign: its Pods get their network from somebody else.
    :param interface: the description of its own interface, as the annotation has it.
    """

    name: str
    uid: str
    resource_version: str
    host_id: str | None
    out_of_service: bool
    addresses: tuple[str, ...] = ()
    pod_vif: str | None = None
    foreign: bool = False
    interface: str | None = None

    @classmethod
    def read(cls, item: Json) -> Self:
        """Read a Node from the API's JSON."""
        labels = item["metadata"].get("labels") or {}
        taints = {taint["key"] for taint in item.get("spec", {}).get("taints") or ()}
        pod_vif = labels.get(annotations.POD_VIF_LABEL)
        return cls(
            name=sys.intern(item["metadata"]["name"]),
            uid=item["metadata"]["uid"],
            resource_version=item["metadata"]["resourceVersion"],
            host_id=annotations.annotation(item, annotations.HOST_ID) or None,
            out_of_service=annotations.OUT_OF_SERVICE_TAINT in taints,
            addresses=tuple(
                address["address"]
                for address in (item.get("status") or {}).get("addresses") or ()
                if address["type"] == "InternalIP"
            ),
            pod_vif=pod_vif,
            foreign=(
                pod_vif == annotations.POD_VIF_NONE
                or annotations.VIRTUAL_KUBELET_LABEL in labels.items()
                or annotations.VIRTUAL_KUBELET_TAINT in taints
            ),
            interface=annotations.annotation(item, annotations.NODE_INTERFACE),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A Namespace, and the project that its annotation names."""

    name: str
    uid: str
    resource_version: str
    project_id: str | None

    @classmethod
    def read(cls, item: Json) -> Self:
        """Read a Namespace from the API's JSON."""
        return cls(
            name=sys.intern(item["metadata"]["name"]),
            uid=item["metadata"]["uid"],
            resource_version=item["metadata"]["resourceVersion"],
            project_id=annotations.annotation(item, annotations.PROJECT),
        )


def _ordinal(meta: Json) -> int | None:
    """Return the number at the end of the name of a StatefulSet's Pod."""
    owners = meta.get("ownerReferences") or ()
    if not any(each["kind"] == "StatefulSet" and each.get("controller") for each in owners):
        return None
    numbered = _NUMBERED.fullmatch(meta["name"])
    return None if numbered is None else int(numbered[1])


def _devices(spec: Json) -> tuple[tuple[str, int], ...]:
    """Return how many devices of each resource a Pod's containers request.

    Init containers count only if they stay (sidecars): of those that end, the kubelet does not
    tell the devices, and no interface could go away with them.

    :returns: pairs of resource and count; a count of 0 is one that is no plain number.
    """
    found: Counter[str] = Counter()
    unreadable = set()
    for container in _staying(spec):
        for name, count in _requested(container).items():
            found[name] += count
            if count == 0:
                unreadable.add(name)
    return tuple(sorted((dict(found) | dict.fromkeys(unreadable, 0)).items()))


def _staying(spec: Json) -> list[Json]:
    """Return the containers of a Pod that run for as long as it does."""
    sidecars = [
        container
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    ]
    return [*sidecars, *(spec.get("containers") or ())]


def _requested(container: Json) -> dict[str, int]:
    resources = container.get("resources") or {}
    asked = (resources.get("limits") or {}) | (resources.get("requests") or {})
    return {
        sys.intern(name): int(count) if count.isdecimal() else 0
        for name, count in asked.items()
        if count != "0" and _DEVICE.match(name)
    }


def _claims(item: Json) -> tuple[str, ...]:
    """Return the ResourceClaims that the Pod's containers use, as far as they exist.

    A Pod names some itself; those of templates were made for it.
    """
    named = item["spec"].get("resourceClaims")
    if not named:
        return ()
    used = {
        claim["name"]
        for container in _staying(item["spec"])
        for claim in (container.get("resources") or {}).get("claims") or ()
    }
    made = (item.get("status") or {}).get("resourceClaimStatuses") or ()
    found = (each.get("resourceClaimName") for each in (*named, *made) if each["name"] in used)
    return tuple(sorted({name for name in found if name}))
