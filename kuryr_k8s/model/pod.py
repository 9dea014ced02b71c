"""What we read of Pods, Nodes and Namespaces: small typed views for the caches."""

import sys
from dataclasses import dataclass
from typing import Any, Self

from kuryr_k8s.model import annotations

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A Pod, cut down to what decides about its interfaces.

    ``uid`` is the API object's, ``identity`` the Pod's own: the mirror of a static Pod changes
    its API uid without being restarted, so it is known by the hash of its configuration,
    which is also the uid that the kubelet gives to CNI.
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

    @classmethod
    def read(cls, item: Json) -> Self:
        meta, spec = item["metadata"], item["spec"]
        node = spec.get("nodeName")
        mirror = annotations.annotation(item, annotations.CONFIG_MIRROR)
        config_hash = annotations.annotation(item, annotations.CONFIG_HASH) if mirror else None
        return cls(
            namespace=sys.intern(meta["namespace"]),
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            node=sys.intern(node) if node else None,
            phase=sys.intern((item.get("status") or {}).get("phase", "Pending")),
            host_network=bool(spec.get("hostNetwork")),
            deleting="deletionTimestamp" in meta,
            config_hash=config_hash,
        )

    @property
    def static(self) -> bool:
        return self.config_hash is not None

    @property
    def identity(self) -> str:
        return self.config_hash or self.uid

    @property
    def finished(self) -> bool:
        """All its containers have ended and will not start again."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A Node: ``host_id`` is the name by which Neutron knows it, published by its daemon.

    ``addresses`` are its InternalIPs, ``pod_vif`` the pod_vif driver that its label asks for.
    """

    name: str
    uid: str
    resource_version: str
    host_id: str | None
    out_of_service: bool
    addresses: tuple[str, ...] = ()
    pod_vif: str | None = None

    @classmethod
    def read(cls, item: Json) -> Self:
        taints = item.get("spec", {}).get("taints") or ()
        return cls(
            name=sys.intern(item["metadata"]["name"]),
            uid=item["metadata"]["uid"],
            resource_version=item["metadata"]["resourceVersion"],
            host_id=annotations.annotation(item, annotations.HOST_ID),
            out_of_service=any(
                taint["key"] == annotations.OUT_OF_SERVICE_TAINT for taint in taints
            ),
            addresses=tuple(
                address["address"]
                for address in (item.get("status") or {}).get("addresses") or ()
                if address["type"] == "InternalIP"
            ),
            pod_vif=(item["metadata"].get("labels") or {}).get(annotations.POD_VIF_LABEL),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A Namespace and the project that its annotation asks for."""

    name: str
    uid: str
    resource_version: str
    project_id: str | None

    @classmethod
    def read(cls, item: Json) -> Self:
        return cls(
            name=sys.intern(item["metadata"]["name"]),
            uid=item["metadata"]["uid"],
            resource_version=item["metadata"]["resourceVersion"],
            project_id=annotations.annotation(item, annotations.PROJECT),
        )
