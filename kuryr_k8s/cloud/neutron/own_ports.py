"""The record of this cluster's ports, as far as this process knows them.

A port comes in when it is made here, or when Neutron shows it with the mark of the cluster. What
is not in the record is asked for before it is changed; so nothing is lost if a port is forgotten.
"""

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

Json = dict[str, Any]
POOL_TAG = "kuryr-pool"  # on ports that were made for no Pod in particular


class _Known(NamedTuple):
    device_id: str
    device_owner: str
    description: str
    tags: tuple[str, ...]
    subnet_ids: tuple[str, ...]  # none where Neutron did not show them


class OwnPorts:
    """Ports that bear the mark, with the fields that name their Pods, and their subnets."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def __contains__(self, port_id: str) -> bool:
        return port_id in self._known

    def ids(self) -> frozenset[str]:
        """Return the ids of all ports that are known."""
        return frozenset(self._known)

    def note(self, port: Json, tags: Iterable[str]) -> None:
        """Note a port of this cluster.

        :param port: As Neutron shows it; ignored if the fields that name a Pod are not shown.
        :param tags: Its tags, which Neutron does not show everybody.
        """
        if not {"device_id", "device_owner", "description"} <= port.keys():
            return
        self._known[port["id"]] = _Known(
            sys.intern(port["device_id"]),
            sys.intern(port["device_owner"]),
            sys.intern(port["description"] or ""),
            tuple(map(sys.intern, tags)),
            tuple(sys.intern(ip["subnet_id"]) for ip in port.get("fixed_ips") or ()),
        )

    def changed(self, port: Json) -> None:
        """Note the fields of a port that was changed."""
        if (known := self._known.get(port["id"])) is not None:
            self.note(port, known.tags)

    def forget(self, port_ids: Iterable[str]) -> None:
        """Forget ports that are gone, or said to be."""
        for port_id in port_ids:
            self._known.pop(port_id, None)

    def get(self, port_id: str) -> Json | None:
        """Return the port's fields, as in Neutron's JSON; None if it is not known."""
        known = self._known.get(port_id)
        if known is None:
            return None
        return {
            "id": port_id,
            "device_id": known.device_id,
            "device_owner": known.device_owner,
            "description": known.description,
            "tags": list(known.tags),
        }

    def subnet_ids_of(self, port_id: str) -> tuple[str, ...]:
        """Return the ids of the subnets that the port has addresses of, as far as is known."""
        known = self._known.get(port_id)
        return () if known is None else known.subnet_ids
