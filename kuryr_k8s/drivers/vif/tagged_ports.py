"""Neutron ports with tags that name their Pods: what the pod_vif drivers of this package share."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kuryr_k8s.drivers.base import (
    DriverContext,
    PodVIFDriver,
    PortRequest,
    is_unmarked,
)
from kuryr_k8s.drivers.base.port_creation import AddressInUse, create_with_room
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan
from kuryr_k8s.model.vif import VIFBase

LOG = logging.getLogger(__name__)
Json = dict[str, Any]


class TaggedPorts(PodVIFDriver):
    """Creates ports, and finds those of earlier tries by their tags.

    A Neutron that does not keep the tags of a new port may not have given them to it yet. Such a
    port is found by other fields that it has from its creation.
    """

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        defaults = context.conf.neutron_defaults
        self._neutron = context.neutron
        self._resource_tags = tuple(defaults.resource_tags)
        self._mtu = defaults.network_device_mtu

    @property
    def _tags(self) -> tuple[str, ...]:
        """The tags of every port that is made here."""
        return (*self._resource_tags, self._neutron.mark.tag)

    @property
    def _pool_device(self) -> str:
        """The field by which available ports are found before they have tags."""
        return vif_plan.pool_device(self._neutron.mark.uid)

    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        await self._neutron.update_port(vif.id, {"security_groups": list(groups)})

    async def _create_for(
        self, request: PortRequest, body_of: Callable[[PortRequest], Json]
    ) -> Json:
        """Create a port with the first addresses that no other port has.

        :param body_of: makes the body for a request, in its subnets of each family.
        :raises AddressInUse: other ports have all that the request asks for.
        """
        in_use: AddressInUse | None = None
        for addresses in request.choices_of_addresses:
            try:
                return await create_with_room(
                    self._neutron,
                    request.project_id,
                    replace(request, addresses=addresses),
                    body_of,
                )
            except AddressInUse as error:
                in_use = error
        assert in_use is not None
        if number := len(request.further_addresses):
            raise AddressInUse(f"none of {number + 1} addresses is free: {in_use}") from in_use
        raise in_use

    async def _find_on_device(self, request: PortRequest, device_owner: str) -> Json | None:
        """Find the port that an earlier attempt made, with the Pod's uid as its ``device_id``.

        The query names all marks: a port that merely has the Pod's uid belongs to somebody else.
        """
        query = {
            "device_id": request.pod_uid,
            "device_owner": device_owner,
            "project_id": request.project_id,
            "network_id": request.pod_network.network.id,
        }
        tags = (vif_plan.interface_tag(request.ifname),)
        return await self._find_tagged(query, tags, untagged=query)

    async def _list_on_device(self, pod_uid: str, device_owner: str) -> list[Json]:
        """List the ports with a Pod's uid as their ``device_id``."""
        query = {"device_id": pod_uid, "device_owner": device_owner}
        return [*await self._list_tagged(query), *await self._list_untagged(query, self._tags)]

    async def _discard_unrecorded(self, pod_uid: str, ports: Sequence[Json]) -> int:
        """Remove ports of a Pod that no KuryrPort names; return how many there were."""
        for port in ports:
            LOG.info("port %s of Pod %s is in no KuryrPort; it is deleted", port["id"], pod_uid)
            await self.discard(port)
        return len(ports)

    async def _bring_up_to_date(self, port: Json, wanted: Json) -> Json:
        """Give a port these fields, the groups among them, unless it has them."""
        present = {name: port.get(name) for name in wanted}
        if wanted == present | {"security_groups": sorted(port["security_groups"])}:
            return port
        return await self._neutron.update_port(port["id"], wanted)

    async def _find_tagged(self, query: Json, tags: Sequence[str], untagged: Json) -> Json | None:
        """Find the oldest port with these tags, and give it its tags if they are missing.

        :param tags: besides those of every port.
        :param untagged: the query for a port whose tags are missing.
        """
        found = await self._list_tagged(query, tags)
        if not found:
            every = (*self._tags, *tags)
            found = await self._list_untagged(untagged, every)
            if found:
                await self._neutron.adopt_port(_oldest(found), every)
        oldest = _oldest(found) if found else None
        if oldest is not None and is_unmarked(oldest, self._resource_tags):
            await self._neutron.mark_port(oldest)
        return oldest

    async def _list_tagged(self, query: Json, tags: Sequence[str] = ()) -> list[Json]:
        """List the ports of one Pod, with or without the mark of the cluster.

        Ports of a version that had no marks are adopted: the Pod's uid tells whose they are.

        :param query: names the Pod by its uid, unless a tag does.
        :param tags: besides the resource_tags.
        """
        every = ",".join((*self._resource_tags, *tags))
        found = await self._neutron.list_ports(query | {"tags": every})
        for port in found:
            if is_unmarked(port, self._resource_tags):
                self._neutron.own_ports.note(port, (*port["tags"], self._neutron.mark.tag))
        return [port for port in found if port["id"] in self._neutron.own_ports]

    async def _list_untagged(self, query: Json, tags: Sequence[str]) -> list[Json]:
        """List the ports without these tags, unless new ports have theirs at once."""
        if self._neutron.keeps_tags:
            return []
        return await self._neutron.list_ports(query | {"not-tags-any": ",".join(tags)})


def _oldest(ports: Sequence[Json]) -> Json:
    return min(ports, key=lambda port: (port["created_at"], port["id"]))
