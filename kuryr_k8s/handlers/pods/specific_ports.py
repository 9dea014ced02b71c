"""Ports that users made for Pods, as a KuryrPort records them before they are taken.

``status.specificPorts`` holds what each was like. So the port is given back as it was, also if
nothing else came to be recorded of it.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import InterfaceRequest
from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.resources import KURYRPORTS, Key
from kuryr_k8s.model.kuryrport import KuryrPort

LOG = logging.getLogger(__name__)
Json = dict[str, Any]


class SpecificPorts:
    """Records ports before they are taken, and gives them back."""

    def __init__(self, context: HandlerContext) -> None:
        self._kube = context.kube
        self._neutron = context.neutron
        self._kuryrports = context.informers.of(KURYRPORTS)

    async def record(
        self, key: Key, recorded: KuryrPort, requests: Iterable[InterfaceRequest]
    ) -> KuryrPort:
        """Record the ports that requests name, as they are before they are taken.

        Of one that the Pod has already, the record stays.

        :returns: the KuryrPort as it is then.
        :raises errors.Refused: the API server does not keep the record.
        """
        known = recorded.specific_ports_json()
        new: dict[str, dict[str, str]] = {}
        for request in requests:
            port_id, as_found = request.port_id, request.as_found
            if port_id is None or (as_found is None and port_id in known):
                continue
            if port_id not in known or known[port_id] != as_found:
                new[port_id] = dict(as_found or {})
        if not new:
            return recorded
        patch = {
            "metadata": {"uid": recorded.uid, "resourceVersion": recorded.resource_version},
            "status": {"specificPorts": new},
        }
        answer = await self._kube.merge_patch(KURYRPORTS, key, patch, subresource="status")
        self._kuryrports.learn(answer)
        recorded = KuryrPort.read(answer)
        if not new.keys() <= dict(recorded.specific_ports).keys():
            raise errors.Refused(
                "the definition of KuryrPorts is of an earlier version: apply etc/crds again"
            )
        return recorded

    async def give_back(self, recorded: KuryrPort, but: Collection[str] = ()) -> None:
        """Give back all that the Pod has, but these; one that fails holds up no other."""
        problem: errors.CloudError | None = None
        for port_id, fields in recorded.specific_ports:
            if port_id in but:
                continue
            try:
                await self._neutron.specific_ports.give_back(
                    port_id, recorded.pod_uid, dict(fields)
                )
            except errors.CloudError as error:
                problem = error
        if problem is not None:
            raise problem


class SpecificPortSweep(Sweep[Json]):
    """Sweep of ports that users made and that Pods have which are gone.

    They are left where a late call of an earlier leader has taken a port, or where somebody has
    removed our finalizer. What such a port was bound to before is not known any more.
    """

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(
            "specific-port-sweeper",
            interval=context.conf.neutron_defaults.sweep_interval,
            confirm_after=context.patience.unneeded,
            patience=context.patience,
            clock=context.clock,
            observe=context.observe,
        )
        self._neutron = context.neutron
        self._kube = context.kube
        self._kuryrports = context.informers.of(KURYRPORTS)

    async def search(self) -> list[Json]:
        return self.still_unwanted(await self._neutron.specific_ports.list_taken())

    def identity(self, item: Json) -> tuple[str, str]:
        """Return the ids of the port and of its Pod."""
        return item["id"], item["device_id"]

    def still_unwanted(self, items: Sequence[Json]) -> list[Json]:
        return _of_nobody(items, self._kuryrports.values())

    async def confirm(self, items: Sequence[Json]) -> list[Json]:
        pages = self._kube.list_pages(KURYRPORTS, {})
        live = [KuryrPort.read(item) async for items, _version in pages for item in items]
        return _of_nobody(items, live)

    async def remove(self, item: Json) -> None:
        """Give the port back, bound to no host."""
        LOG.warning("port %s is given back: Pod %s is gone", item["id"], item["device_id"])
        await self._neutron.specific_ports.give_back(item["id"], item["device_id"], {})


def _of_nobody(ports: Sequence[Json], kuryrports: Iterable[KuryrPort]) -> list[Json]:
    pods = {recorded.pod_uid for recorded in kuryrports}
    return [port for port in ports if port["device_id"] not in pods]
