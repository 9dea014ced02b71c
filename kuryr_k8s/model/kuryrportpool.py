"""KuryrPortPool (``openstack.org/v1``): the ports that a Node keeps for Pods to come.

One for each Node, of its name and owned by it. Both maps are written in batches, never because
of one Pod, and each by one writer alone:

spec:   ports: {<port id>: {mac, addresses, mtu, bridge, state}}   (the controller)
status: parked: {<port id>: {}}                                     (the Node's daemon)
        available, parkedCount, inUse, creating, returning, target  (the controller)

A port stays in ``spec.ports`` and in ``status.parked`` while a Pod has it.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

Json = dict[str, Any]
KEEP = "keep"
REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPort:
    """A port that is to be plugged. ``mtu`` is in bytes, 0 where the network says nothing.

    ``keep`` is False for one that no Pod has nor will have: the node is to unplug it.
    """

    mac: str
    addresses: tuple[str, ...]
    mtu: int
    bridge: str
    keep: bool

    @classmethod
    def read(cls, entry: Json) -> Self:
        return cls(
            mac=entry["mac"].lower(),
            addresses=tuple(entry["addresses"]),
            mtu=entry["mtu"],
            bridge=sys.intern(entry["bridge"]),
            keep=entry["state"] == KEEP,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KuryrPortPool:
    """A KuryrPortPool as the caches keep it; ``parked`` are the ids of ``status.parked``."""

    name: str
    uid: str
    resource_version: str
    deleting: bool = False
    ports: Mapping[str, PoolPort] = field(default_factory=dict)
    parked: frozenset[str] = frozenset()

    @classmethod
    def read(cls, item: Json) -> Self:
        meta = item["metadata"]
        ports = (item.get("spec") or {}).get("ports") or {}
        return cls(
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            deleting="deletionTimestamp" in meta,
            ports={port_id: PoolPort.read(entry) for port_id, entry in ports.items()},
            parked=frozenset((item.get("status") or {}).get("parked") or ()),
        )


def park_entry(mac: str, addresses: Iterable[str], mtu: int | None, bridge: str) -> Json:
    """The value of a port in ``spec.ports`` that the node is to keep."""
    return {
        "mac": mac,
        "addresses": list(addresses),
        "mtu": mtu or 0,
        "bridge": bridge,
        "state": KEEP,
    }
