"""KuryrPorts whose ports somebody deleted in Neutron, which nobody else would find out.

A Pod whose interface has not come to work gets another port: its KuryrPort is deleted, and the vif
handler creates a new one. A Pod whose interface worked has lost its network for good. Only its
owner knows when it may be restarted, so an Event reports it. The Pod's addresses show that it
worked: the node may say by now that it does not, as OVN takes a deleted port off the node.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.pods.portions import in_portions
from kuryr_k8s.handlers.pods.vif import is_needed, reference
from kuryr_k8s.k8s.resources import KURYRPORTS, PODS, Key
from kuryr_k8s.model.codec import DecodeError
from kuryr_k8s.model.kuryrport import KuryrPort

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
LOST = "KuryrPortLost"
ANOTHER = "port {} was deleted in Neutron before the Pod could use it; the Pod gets another"
DELETE_POD = "port {} was deleted in Neutron: the Pod has no network any more; delete the Pod"


class LostPorts:
    """Finds lost ports and helps their Pods."""

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._neutron = context.neutron

    async def help_pods(self, recorded: Iterable[KuryrPort], ports: Sequence[Json]) -> None:
        """Help the Pods whose ports are gone.

        :param recorded: The KuryrPorts as they were before Neutron listed its ``ports``, so that
            every port that they name existed before the list.
        """
        there = {port["id"] for port in ports}
        missing: dict[str, KuryrPort] = {}
        async for kuryrport in in_portions(recorded):
            if not kuryrport.deleting:
                missing |= dict.fromkeys(_named(kuryrport) - there, kuryrport)
        if not missing:
            return
        found = await self._neutron.list_ports_by_id(missing, ("id",))
        for port in missing.keys() - {port["id"] for port in found}:
            await self._help(missing[port], port)

    async def _help(self, recorded: KuryrPort, port: str) -> None:
        key = Key(recorded.namespace, recorded.name)
        pod = self._context.informers.of(PODS).get(key)
        about = reference(pod)
        if pod is None or about is None or not is_needed(recorded, pod):
            return  # it goes anyway
        events = self._context.events
        if pod.addresses or any(vif.active for vif in recorded.vifs().values()):
            await events.warn(LOST, about, LOST, DELETE_POD.format(port))
            return
        LOG.warning("port %s of Pod %s is not in Neutron any more; it gets another", port, key)
        try:
            answer = await self._context.kube.delete(KURYRPORTS, key, uid=recorded.uid)
        except errors.KubeConflict:
            return  # it is another one by now
        self._context.informers.of(KURYRPORTS).learn(answer)
        await events.warn(LOST, about, LOST, ANOTHER.format(port))


def _named(recorded: KuryrPort) -> set[str]:
    """Return the ids of the KuryrPort's ports, as far as they can be read."""
    try:
        return {vif.id for vif in recorded.vifs().values()}
    except DecodeError:
        return set()
