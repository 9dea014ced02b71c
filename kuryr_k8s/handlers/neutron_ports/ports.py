"""The ports of NeutronPorts in Neutron: made, found again, claimed, changed, and released.

While no Pod has it, a port's ``device_id`` is the uid of its NeutronPort, and its ``device_owner``
names the cluster: so it is found from its creation on, and nobody takes it for a free one. A port
that a user made is claimed by these fields alone. The description of one that was made here names
cluster and NeutronPort as long as it lives: no status is believed without it.
"""

import contextlib
import functools
import logging
from collections.abc import Collection, Iterable
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.specific_ports import PortInUse
from kuryr_k8s.drivers.base import NORMAL, granted
from kuryr_k8s.drivers.base.port_creation import TAKEN, AddressInUse, create_with_room
from kuryr_k8s.drivers.base.port_settings import PortSettings
from kuryr_k8s.drivers.named.ports import named_port
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.neutron_ports import plan
from kuryr_k8s.model.neutronport import NeutronPort

LOG = logging.getLogger(__name__)
Json = dict[str, Any]


class PortsOfNeutronPorts:
    """Calls Neutron for the ports of NeutronPorts.

    It keeps no state, but for ports that the client of Neutron remembers to be free.
    """

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._neutron = context.neutron
        self._resource_tags = tuple(context.conf.neutron_defaults.resource_tags)

    async def find(
        self, port: NeutronPort, project_id: str, network_id: str, *, claimed: bool = False
    ) -> Json | None:
        """Return the port of a NeutronPort that an earlier attempt has made; None: there is none.

        The status alone does not tell whose a port is: what is on the port does. Users of other
        projects can write the same on ports of theirs: so one that no status names counts only
        where it would be made.

        :param network_id: where the port would be made, as ``project_id`` is.
        :param claimed: whether one counts that was claimed.
        """
        found = await self._neutron.list_ports_by_id([port.port_id]) if port.port_id else []
        for live in found:
            is_claimed = claimed and live["id"] == port.spec.port_id
            if is_claimed or self._is_made_for(port, live):
                return live
        where = {"project_id": project_id, "network_id": network_id}
        listed = await self._neutron.list_ports(self._marks(port) | where)
        ours = [live for live in listed if self._is_made_for(port, live)]
        for live in ours:
            await self._adopt(live)
        return min(ours, key=lambda live: (live["created_at"], live["id"]), default=None)

    async def create(
        self, port: NeutronPort, project_id: str, settings: PortSettings, host_id: str | None
    ) -> Json:
        """Make the port of a NeutronPort.

        One that was lost gets the addresses and the MAC that it had.

        :param host_id: of the node that it is bound to; None: to none yet.
        :raises errors.Refused: another port has the addresses or the MAC.
        :raises errors.OverQuota: the project has no port or no address left.
        """
        make = functools.partial(
            plan.body,
            port,
            project_id=project_id,
            marks=self._marks(port),
            description=self._description(port),
            tags=self._tags,
            host_id=host_id,
        )
        settings = plan.as_before(settings, port)
        live = await create_with_room(self._neutron, project_id, settings, make)
        LOG.info("port %s is made for NeutronPort %s/%s", live["id"], port.namespace, port.name)
        return live

    async def update(
        self, port: NeutronPort, live: Json, settings: PortSettings, used: Collection[str]
    ) -> Json:
        """Bring the port of a NeutronPort up to date; return it as it is then.

        :param used: addresses that the Pod has which has the port.
        :raises PortInUse: no Pod is to have it, and somebody has.
        :raises AddressInUse: it has lost an address, which another port has by now.
        :raises errors.Refused: it has lost one, and a Pod runs with another.
        """
        wanted, marks = plan.changes(live, settings), self._marks(port)
        is_free = all(live[name] == value for name, value in marks.items())
        revision: int | None = None
        if port.bound_to is None and not is_free:
            if live["device_id"] or live["device_owner"]:
                raise PortInUse(f"port {live['id']} is in use by {live['device_owner']}")
            wanted |= marks
            revision = live["revision_number"]
        if wanted:
            live = await self._neutron.update_port(live["id"], wanted, revision_number=revision)
        live = await self._restore(live, plan.addresses_to_keep(settings, used))
        plan.check_has_addresses(live, settings.addresses)
        return live

    async def _restore(self, live: Json, addresses: Collection[str]) -> Json:
        """Give the port those of the addresses that it has lost; return it as it is then.

        :raises AddressInUse: another port has one of them.
        """
        fixed_ips = plan.fixed_ips(live, addresses)
        if not fixed_ips:
            return live
        try:
            return await self._neutron.update_port(live["id"], {"fixed_ips": fixed_ips})
        except errors.Conflict as error:
            if error.kind not in TAKEN:
                raise
            raise AddressInUse(f"{', '.join(addresses)}: {error.brief}") from error

    async def claim(self, port: NeutronPort, project_id: str, port_id: str) -> Json:
        """Return a port that a user made, claimed for a NeutronPort.

        :raises errors.Refused: there is none that users of the namespace may name, or somebody
            has it.
        """
        found = await named_port(self._context, port.namespace, project_id, port_id, [NORMAL])
        if port.bound_to is not None:
            return found
        return await self._neutron.specific_ports.claim(port_id, port.uid)

    def remember(self, live: Json) -> None:
        """Remember a port that no Pod has: then a Pod has it with one call."""
        self._neutron.specific_ports.note(live)

    def forget(self, port: NeutronPort) -> None:
        """Forget a port that is gone."""
        self._neutron.specific_ports.forget(port.port_id)

    async def give_back(self, port: NeutronPort, project_id: str, pod_uid: str) -> None:
        """Take the port back from a Pod that is gone.

        :raises errors.Conflict: somebody has changed the port just now.
        """
        for live in await self._neutron.list_ports_by_id([port.port_id]):
            is_claimed = live["id"] == port.spec.port_id and self._may_claim(
                port, live, project_id
            )
            if is_claimed or self._is_made_for(port, live):
                marks = self._marks(port)
                await self._neutron.specific_ports.give_back(live["id"], pod_uid, marks)

    def is_given_back(self, port: NeutronPort) -> bool:
        """Return whether Neutron has shown the port as free, in the answer to the last change."""
        return self._neutron.specific_ports.remembered(port.port_id, port.uid) is not None

    def _may_claim(self, port: NeutronPort, live: Json, project_id: str) -> bool:
        """Return whether users of the namespace may name a port."""
        try:
            by_id = granted.check_named(self._context.conf, "ports", port.namespace, live["id"])
        except granted.NotGranted:
            return False
        return by_id or bool(live["project_id"] == project_id)

    async def release(self, port: NeutronPort) -> None:
        """Delete the port, or leave it to the project's users, as the NeutronPort says.

        :raises PortInUse: somebody has it still.
        :raises errors.CloudError: Neutron refuses.
        """
        if port.spec.port_id is not None:
            await self._neutron.specific_ports.disclaim(port.spec.port_id, port.uid)
            return
        marks = self._marks(port)
        found = await self._neutron.list_ports(marks)
        if port.port_id and port.port_id not in {live["id"] for live in found}:
            found += await self._neutron.list_ports_by_id([port.port_id])
        for live in found:
            if port.spec.retains and self._is_being_left(live):
                await self._neutron.leave_port(live, self._tags, {})
            if not self._is_made_for(port, live):
                continue
            if live["device_owner"] not in ("", marks["device_owner"]):
                raise PortInUse(f"port {live['id']} is in use by {live['device_owner']}")
            if port.spec.retains and live["id"] == port.port_id:
                await self._leave(live)
            else:
                await self.discard(live)

    def _is_being_left(self, live: Json) -> bool:
        """Return whether only tags still show whose a port was."""
        shown = (live["device_id"], live["device_owner"], live["description"])
        return not any(shown) and self._neutron.mark.is_on(live["tags"])

    async def _leave(self, live: Json) -> None:
        """Leave a port to the project's users: nothing shows whose it was."""
        self._neutron.specific_ports.forget(live["id"])
        nothing = {"device_id": "", "device_owner": "", "description": ""}
        await self._adopt(live)
        await self._neutron.leave_port(live, self._tags, nothing)

    async def discard(self, live: Json) -> None:
        """Delete a port of no NeutronPort; leave one that was claimed to its users.

        :raises errors.CloudError: Neutron refuses.
        """
        if not live["description"].startswith(self._neutron.mark.tag):
            await self._neutron.specific_ports.disclaim(live["id"], live["device_id"])
            return
        self._neutron.specific_ports.forget(live["id"])
        with contextlib.suppress(errors.NotFound):
            await self._adopt(live)
            await self._neutron.delete_port(live["id"])

    async def all_free(self) -> list[Json]:
        """List the ports of all NeutronPorts that no Pod has."""
        owner = self._neutron.specific_ports.neutron_port_marks("")["device_owner"]
        return list(await self._neutron.list_ports({"device_owner": owner}))

    async def by_id(self, port_ids: Iterable[str]) -> list[Json]:
        """List those of the ports that exist."""
        return list(await self._neutron.list_ports_by_id(port_ids))

    async def _adopt(self, live: Json) -> None:
        """Give a port its tags if it was made without them."""
        if not self._neutron.mark.is_on(live["tags"]):
            await self._neutron.adopt_port(live, self._tags)

    def _is_made_for(self, port: NeutronPort, live: Json) -> bool:
        """Return whether a port was made for the NeutronPort, whoever has it now."""
        return bool(live["description"] == self._description(port))

    def _description(self, port: NeutronPort) -> str:
        """Return what stays on a port that is made for a NeutronPort."""
        return f"{self._neutron.mark.tag} neutron-port:{port.uid}"

    def _marks(self, port: NeutronPort) -> dict[str, str]:
        return self._neutron.specific_ports.neutron_port_marks(port.uid)

    @property
    def _tags(self) -> tuple[str, ...]:
        return (*self._resource_tags, self._neutron.mark.tag)
