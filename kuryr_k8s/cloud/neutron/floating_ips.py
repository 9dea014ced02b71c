"""Floating IPs of the Neutron API v2.0, and their external networks.

https://docs.openstack.org/api-ref/network/v2/#floating-ips-floatingips

Neutron does not accept tags in the body of a creation. What must stand on a floating IP from its
first moment is in its ``description``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.paging import BY_ID, Reading, read_all
from kuryr_k8s.cloud.transport import Query, Transport

Json = dict[str, Any]
FIELDS = (
    "id",
    "floating_ip_address",
    "floating_network_id",
    "project_id",
    "port_id",
    "fixed_ip_address",
    "port_forwardings",
    "description",
    "tags",
    "created_at",
)

# Kinds of errors (errors.CloudError.kind).
GONE = "FloatingIPNotFound"
PORT_HAS_ONE = "FloatingIPPortAlreadyAssociated"  # of this network, on this fixed address
ADDRESS_TAKEN = "IpAddressAlreadyAllocated"
NO_ROUTER = "ExternalGatewayForFloatingIPNotFound"
NO_NETWORK = "NetworkNotFound"
QUOTA = "OverQuota"
EXHAUSTED = "ExternalIpAddressExhausted"


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIP:
    """A floating IP, associated with the address ``fixed_ip_address`` of the port ``port_id``.

    ``forwards``: it has port forwardings, and therefore no such port.
    """

    id: str
    address: str
    network_id: str
    project_id: str
    port_id: str | None
    fixed_ip_address: str | None
    forwards: bool
    description: str
    tags: tuple[str, ...]
    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalSubnet:
    """A subnet from which floating IPs are taken; always IPv4."""

    id: str
    network_id: str
    name: str
    cidr: str
    tags: tuple[str, ...]


class FloatingIPs:
    """Typed calls; every error is a :class:`kuryr_k8s.errors.CloudError`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list_all(self, query: Query, reading: Reading | None = None) -> list[FloatingIP]:
        """List all floating IPs that match and that we may see.

        Without administrator's rights we see those of our own project. If Neutron has no routers
        (404), there are none.

        :param reading: where the list stays as far as it was read, for the next attempt.
        """
        shown = {**query, "fields": FIELDS, **BY_ID}
        try:
            found = await read_all(self._transport, "/floatingips", shown, reading=reading)
        except errors.NotFound:
            return []
        return [_floating_ip(row) for row in found]

    async def create(self, body: Json) -> FloatingIP:
        """Create a floating IP.

        :raises errors.OverQuota: The quota is used up (kind ``QUOTA``), or the network or the
            requested subnet has no free address.
        :raises errors.Conflict: Of the kinds ``PORT_HAS_ONE`` and ``ADDRESS_TAKEN``.
        :raises errors.NotFound: Of the kind ``NO_ROUTER``: no router leads from the port to the
            network.
        """
        try:
            answer = await self._transport.call("POST", "/floatingips", body={"floatingip": body})
        except errors.BadRequest as error:
            if error.kind == EXHAUSTED:
                raise errors.OverQuota(
                    error.brief, status=error.status, request_id=error.request_id, kind=error.kind
                ) from error
            raise
        return _floating_ip(answer["floatingip"])

    async def update(self, floating_ip_id: str, fields: Json) -> FloatingIP:
        """Change fields; those of an association (``port_id``, ``fixed_ip_address``) go together.

        :raises errors.NotFound: Of the kinds ``GONE`` and ``NO_ROUTER``; or the port does not
            exist.
        :raises errors.Conflict: Of the kind ``PORT_HAS_ONE``.
        """
        path, body = f"/floatingips/{floating_ip_id}", {"floatingip": fields}
        answer = await self._transport.call("PUT", path, body=body)
        return _floating_ip(answer["floatingip"])

    async def set_tags(self, floating_ip_id: str, tags: Sequence[str]) -> None:
        """Give the floating IP these tags, and no others.

        :raises errors.CloudError: With status 500, if the floating IP is gone.
        """
        path = f"/floatingips/{floating_ip_id}/tags"
        await self._transport.call("PUT", path, body={"tags": list(tags)})

    async def delete(self, floating_ip_id: str) -> None:
        """Delete a floating IP; one that is gone counts as deleted."""
        try:
            await self._transport.call("DELETE", f"/floatingips/{floating_ip_id}")
        except errors.NotFound:
            return

    async def is_external(self, network_id: str) -> bool:
        """Return whether floating IPs can be taken from this network.

        :raises errors.NotFound: There is no such network that we may see.
        """
        answer = await self._transport.call("GET", f"/networks/{network_id}")
        return bool(answer["network"]["router:external"])

    async def subnets_of(self, network_id: str) -> list[ExternalSubnet]:
        """List the IPv4 subnets of the network by name."""
        query = {"network_id": network_id, "ip_version": "4", **BY_ID}
        found = await read_all(self._transport, "/subnets", query)
        return sorted(map(_subnet, found), key=lambda subnet: (subnet.name, subnet.id))

    async def get_subnet(self, subnet_id: str) -> ExternalSubnet:
        """Get a subnet of an external network.

        :raises errors.NotFound: There is no such subnet that we may see.
        """
        answer = await self._transport.call("GET", f"/subnets/{subnet_id}")
        return _subnet(answer["subnet"])


def _floating_ip(found: Json) -> FloatingIP:
    return FloatingIP(
        id=found["id"],
        address=found["floating_ip_address"],
        network_id=found["floating_network_id"],
        project_id=found["project_id"],
        port_id=found["port_id"],
        fixed_ip_address=found["fixed_ip_address"],
        forwards=bool(found.get("port_forwardings")),
        description=found.get("description") or "",
        tags=tuple(sorted(found.get("tags") or ())),
        created_at=found.get("created_at") or "",
    )


def _subnet(found: Json) -> ExternalSubnet:
    return ExternalSubnet(
        id=found["id"],
        network_id=found["network_id"],
        name=found["name"],
        cidr=found["cidr"],
        tags=tuple(sorted(found.get("tags") or ())),
    )
