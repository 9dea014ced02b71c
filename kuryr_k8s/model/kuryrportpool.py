"""KuryrPortPool (``openstack.org/v1``), the ports that are parked on a Node.

Each Node owns one of its own name. Both maps are written in batches, never for a single Pod, and
each has only one writer:

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
    """A port of a pool.

    :param mtu: in bytes; 0 if the network has none.
    :param keep: False if no Pod has the port, nor will have it: the node unplugs it.
    """

    mac: str
    addresses: tuple[str, ...]
    mtu: int
    bridge: str
    keep: bool

    @classmethod
    def read(cls, entry: Json) -> Self:
        """Read an entry of ``spec.ports``."""
        return cls(
            mac=entry["mac"].lower(),
            addresses=tuple(entry["addresses"]),
            mtu=entry["mtu"],
            bridge=sys.intern(entry["bridge"]),
            keep=entry["state"] == KEEP,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KuryrPortPool:
    """A KuryrPortPool as the caches keep it.

    :param ports: the ports by id.
    :param parked: the ids in ``status.parked``.
    """

    name: str
    uid: str
    resource_version: str
    deleting: bool = False
    ports: Mapping[str, PoolPort] = field(default_factory=dict)
    parked: frozenset[str] = frozenset()

    @classmethod
    def read(cls, item: Json) -> Self:
        """Read a KuryrPortPool from the API's JSON."""
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
    """Return the value in ``spec.ports`` of a port that the node keeps plugged."""
    return {
        "mac": mac,
        "addresses": list(addresses),
        "mtu": mtu or 0,
        "bridge": bridge,
        "state": KEEP,
    }
