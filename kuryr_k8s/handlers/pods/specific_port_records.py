"""Ports that users made for Pods, as a KuryrPort records them before they are taken.

``status.specificPorts`` holds what each was like, and the parent port of the trunk that it is to
be attached to. So a port is given back as it was even if nothing else was recorded of it.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.specific_ports import PARENT
from kuryr_k8s.drivers.base import InterfaceRequest
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.resources import KURYRPORTS, Key
from kuryr_k8s.model.kuryrport import OLD_DEFINITION, KuryrPort


class SpecificPortRecords:
    """Records ports before they are taken, and gives them back."""

    def __init__(self, context: HandlerContext) -> None:
        self._kube = context.kube
        self._neutron = context.neutron
        self._kuryrports = context.informers.of(KURYRPORTS)

    async def record(
        self,
        key: Key,
        recorded: KuryrPort,
        requests: Iterable[InterfaceRequest],
        parent_port: Callable[[], Awaitable[str]],
    ) -> KuryrPort:
        """Record the ports that requests name, as they are before they are taken.

        Of one that the Pod has already, what it was like stays as it is recorded.

        :param parent_port: returns the parent port of the node's trunk, or an empty string.
        :returns: the KuryrPort as it is then.
        :raises errors.Refused: the API server does not keep the record.
        """
        known = recorded.specific_ports_json()
        new: dict[str, dict[str, str]] = {}
        for request in requests:
            if request.port_id is None:
                continue
            was = known.get(request.port_id)
            fields = dict(request.as_found or {})
            if request.physnet is None and (parent := await parent_port()):
                fields[PARENT] = parent
            if was is None or not fields.items() <= was.items():
                new[request.port_id] = fields
        if not new:
            return recorded
        status = {"specificPorts": new}
        answer = await self._kube.patch_status_of(KURYRPORTS, key, recorded, status)
        self._kuryrports.learn(answer)
        recorded = KuryrPort.read(answer)
        if not new.keys() <= dict(recorded.specific_ports).keys():
            raise errors.Refused(OLD_DEFINITION)
        return recorded

    async def forget(self, key: Key, recorded: KuryrPort, port_ids: Iterable[str]) -> KuryrPort:
        """Remove the record of ports that have been given back.

        :returns: the KuryrPort as it is then.
        """
        patch = {
            "metadata": {"uid": recorded.uid},
            "status": {"specificPorts": dict.fromkeys(port_ids)},
        }
        answer = await self._kube.merge_patch(KURYRPORTS, key, patch, subresource="status")
        self._kuryrports.learn(answer)
        return KuryrPort.read(answer)

    async def settle(self, recorded: KuryrPort) -> None:
        """Finish what an earlier attempt began: take the ports that it had just attached."""
        for port_id, fields in recorded.specific_ports:
            await self._neutron.specific_ports.settle(port_id, recorded.pod_uid, dict(fields))

    async def give_back(self, recorded: KuryrPort, but: Collection[str] = ()) -> None:
        """Give back all that the Pod has, but these; one that fails holds up no other.

        :raises errors.CloudError: the last failure, after all were tried.
        """
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
