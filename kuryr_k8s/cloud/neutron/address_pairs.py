"""Allowed address pairs of ports that are not ours: those of virtual machines.

Others change such ports, too. So each change needs the revision that was looked at (``If-Match``),
and leaves the pairs of others as they are.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.cloud.paging import BY_ID, in_queries, read_all
from kuryr_k8s.cloud.transport import Transport

Json = dict[str, Any]
PAIRS = "allowed_address_pairs"
OTHER_REVISION = 412
# neutron/extensions/allowedaddresspairs.py, neutron/common/ovn/exceptions.py
EXHAUSTED, NOT_ALLOWED = "AllowedAddressPairExhausted", "InvalidVirtualMACAddress"


class AddressPair(NamedTuple):
    """An address from which, with a MAC, a port may send besides its own."""

    ip_address: str
    mac_address: str


def pairs_shown(port: Json) -> set[AddressPair]:
    """Return the pairs of a port, as Neutron shows them."""
    return {AddressPair(pair["ip_address"], pair["mac_address"]) for pair in port.get(PAIRS) or ()}


def pairs_meant(port: Json, asked: Collection[AddressPair]) -> set[AddressPair]:
    """Return the pairs that are asked for a port, as Neutron would show them.

    :param asked: an empty MAC is the port's own.
    """
    return {AddressPair(ip, mac or port["mac_address"]) for ip, mac in asked}


def pairs_field(pairs: Collection[AddressPair]) -> list[Json]:
    """Return pairs as the body of a request has them; without a MAC, it is the port's own."""
    return [{name: value for name, value in pair._asdict().items() if value} for pair in pairs]


def is_about_pairs(error: errors.CloudError) -> bool:
    """Return whether Neutron refused the pairs themselves: their number, or one of them.

    It checks all pairs that a port would have, those that it has among them.
    """
    return error.kind in (EXHAUSTED, NOT_ALLOWED)


class AddressPairs:
    """Changes of allowed address pairs."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list_of(self, subnet_ids: Collection[str]) -> list[Json]:
        """List the ports with an address in one of these subnets, with their pairs.

        :returns: ``id``, ``network_id``, ``mac_address``, ``fixed_ips`` and
            ``allowed_address_pairs`` of each.
        """
        subnets = [f"subnet_id={subnet_id}" for subnet_id in subnet_ids]
        fields = ("id", "network_id", "mac_address", "fixed_ips", PAIRS)
        query = {"fixed_ips": subnets, "fields": fields, **BY_ID}
        return await read_all(self._transport, "/ports", query)

    async def macs_in_use(self, network_id: str, macs: Collection[str]) -> set[str]:
        """Return those of the MACs that ports of the network have."""
        query = {"network_id": network_id, "fields": ("id", "mac_address"), **BY_ID}
        found: list[Json] = []
        for some in in_queries(macs):
            found += await read_all(self._transport, "/ports", query | {"mac_address": some})
        return {port["mac_address"] for port in found}

    async def change(
        self,
        port_id: str,
        *,
        add: Collection[AddressPair],
        remove: Collection[str],
        attempts: int,
    ) -> None:
        """Add pairs to a port, and remove all others with these MACs from it.

        A port without port security may send from any address; it has no pairs.

        :param attempts: how often the port is read, as others may change it at the same time.
        :raises errors.NotFound: there is no such port that we may see.
        :raises errors.OverQuota: the port would have more pairs than Neutron allows.
        :raises errors.BadRequest: Neutron allows no such pair, or us no such change.
        :raises errors.Conflict: each time, somebody else had changed the port.
        """
        conflict: errors.Conflict | None = None
        for _ in range(attempts):
            port = (await self._transport.call("GET", f"/ports/{port_id}"))["port"]
            if port.get("port_security_enabled") is False:
                return
            pairs: list[Json] = port[PAIRS]
            kept = [pair for pair in pairs if pair["mac_address"] not in remove]
            present = {AddressPair(pair["ip_address"], pair["mac_address"]) for pair in kept}
            new = [pair._asdict() for pair in sorted(set(add) - present)]
            if not new and len(kept) == len(pairs):
                return
            try:
                await self._write(port, [*kept, *new])
            except errors.Conflict as error:
                if error.status != OTHER_REVISION:
                    raise
                conflict = error
            else:
                return
        assert conflict is not None
        raise conflict

    async def _write(self, port: Json, pairs: list[Json]) -> None:
        body = {"port": {PAIRS: pairs}}
        headers = {"If-Match": f"revision_number={port['revision_number']}"}
        try:
            await self._transport.call("PUT", f"/ports/{port['id']}", body=body, headers=headers)
        except errors.BadRequest as error:
            if error.kind != EXHAUSTED:
                raise
            raise errors.OverQuota(
                f"port {port['id']}: {error.brief}",
                status=error.status,
                request_id=error.request_id,
                kind=error.kind,
            ) from error
