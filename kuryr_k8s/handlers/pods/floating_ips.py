"""The floating IPs of Pods.

A Pod that asks for one has it as long as it asks. That it may have one is noted in its KuryrPort
before one is made or taken: so it is released with the Pod, whoever leads by then. The driver of
public addresses finds floating IPs by their marks, whatever answers were lost.
"""

import ipaddress
import logging
from collections.abc import Callable, Iterable, Sequence

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    Owned,
    PublicIPInUse,
    PublicIPRequest,
    ServicePublicIPDriver,
    granted,
)
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.floating_ip_sweep import FloatingIPSweep
from kuryr_k8s.handlers.pods.selection import PodSelection
from kuryr_k8s.k8s.resources import KURYRPORTS, PODS, Key
from kuryr_k8s.model.allocation import PORT_FLOATING_IP
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME, OLD_DEFINITION, KuryrPort
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.pod import Pod

LOG = logging.getLogger(__name__)
WOKEN = 2  # Pods that try again when a floating IP was released


class PodFloatingIPs:
    """Gives Pods the floating IPs that they ask for, and releases them.

    :param wake: called with the key of a Pod that may get by now what it was refused.
    """

    def __init__(
        self, context: HandlerContext, selection: PodSelection, wake: Callable[[Key], None]
    ) -> None:
        self._conf = context.conf
        self._kube = context.kube
        self._pods = context.informers.of(PODS)
        self._pods.keep(PORT_FLOATING_IP)
        self._kuryrports = context.informers.of(KURYRPORTS)
        self._driver = context.drivers[ServicePublicIPDriver]
        self._selection = selection
        self._wake = wake
        self._refused: dict[Key, str] = {}  # what Pods name that others have

    async def ensure(self, key: Key, pod: Pod, recorded: KuryrPort, project_id: str) -> None:
        """Let the Pod have the floating IP that it asks for by now; none if it asks for none.

        :param recorded: the KuryrPort, with interfaces.
        :raises errors.Refused: it cannot have one, or others have it.
        """
        asked = self._selection.floating_ip(pod)
        self._refused.pop(key, None)
        if asked is None:
            if recorded.floating_ip is not None:
                await self.release(recorded)
                await self._tell(key, pod, None)
                await self._record(key, recorded, None)  # last: until then this is repeated
            return
        if pod.deleting:
            return
        request = _request(key, recorded, project_id, asked)
        if not asked:
            granted.check_named(self._conf, "floating_ips", key.namespace, "*")
        if recorded.floating_ip is None:
            recorded = await self._record(key, recorded, "")
        try:
            address = await self._driver.ensure(request)
        except PublicIPInUse:
            self._refused[key] = asked
            raise
        if recorded.floating_ip != address:
            recorded = await self._record(key, recorded, address or "")
        await self._tell(key, pod, address)
        if address is None:
            raise errors.Refused(
                "there is no external network for floating IPs ([neutron_defaults] "
                "external_svc_net in kuryr.conf)"
            )

    async def release(self, recorded: KuryrPort) -> None:
        """Release what the Pod may have: what was made for it goes, what was there before stays.

        :raises errors.KuryrError: it cannot be done now.
        """
        self._refused.pop(Key(recorded.namespace, recorded.name), None)
        owner = Owner(recorded.pod_uid, Role.POD)
        if recorded.floating_ip is None or not await self._driver.has(owner):
            return
        await self._driver.release(owner, keep=None)
        waiting = [
            key
            for key, named in self._refused.items()
            if named == recorded.floating_ip or not is_address(named)
        ]
        for key in waiting[:WOKEN]:
            self._wake(key)

    async def release_or_detach(self, recorded: KuryrPort) -> None:
        """Take what the Pod may have off its port, which may become another Pod's then.

        Another Pod may wait for the name of this one: so if it cannot be released, it is enough
        that it leads nowhere, and the sweep releases it.

        :raises errors.KuryrError: it may still lead to the port.
        """
        try:
            await self.release(recorded)
        except errors.Refused as error:
            await self._driver.detach(Owner(recorded.pod_uid, Role.POD))
            name = f"{recorded.namespace}/{recorded.name}"
            LOG.warning("Pod %s: its floating IP is left to the sweep: %s", name, error)

    async def _record(self, key: Key, recorded: KuryrPort, address: str | None) -> KuryrPort:
        patch = {"metadata": {"uid": recorded.uid}, "status": {"floatingIP": address}}
        answer = await self._kube.merge_patch(KURYRPORTS, key, patch, subresource="status")
        self._kuryrports.learn(answer)
        written = KuryrPort.read(answer)
        if written.floating_ip != address:
            raise errors.Refused(OLD_DEFINITION)
        return written

    async def _tell(self, key: Key, pod: Pod, address: str | None) -> None:
        """Write the address on the Pod, for its users and for other tools."""
        if self._pods.annotation(key, PORT_FLOATING_IP) == address:
            return
        patch = {"metadata": {"uid": pod.uid, "annotations": {PORT_FLOATING_IP: address}}}
        self._pods.learn(await self._kube.merge_patch(PODS, key, patch, subresource="status"))


class PodFloatingIPSweep(FloatingIPSweep):
    """The sweep of floating IPs of Pods that are gone, or that do not ask for one any more."""

    def __init__(
        self,
        context: HandlerContext,
        selection: PodSelection,
        look_again: Callable[[Key], None],
    ) -> None:
        super().__init__(context, Role.POD, look_again)
        self._kuryrports = context.informers.of(KURYRPORTS)
        self._pods = context.informers.of(PODS)
        self._selection = selection

    def holders(self) -> Iterable[Key]:
        return [
            Key(recorded.namespace, recorded.name)
            for recorded in self._kuryrports.values()
            if recorded.floating_ip is not None
        ]

    async def live_unwanted(self, items: Sequence[Owned]) -> list[Owned]:
        return self._unwanted(items, await self._kube.list_views(KURYRPORTS))

    def still_unwanted(self, items: Sequence[Owned]) -> list[Owned]:
        return self._unwanted(items, self._kuryrports.values())

    def _unwanted(self, items: Sequence[Owned], kuryrports: Iterable[KuryrPort]) -> list[Owned]:
        """Return those whose Pods neither have them by their KuryrPorts, nor ask for them."""
        wanted = {each.pod_uid for each in kuryrports if each.floating_ip is not None}
        uids = {item.owner.uid for item in items} - wanted
        wanted |= {
            pod.identity
            for pod in self._pods.values()
            if pod.identity in uids and not pod.finished and self._asks(pod)
        }
        return [item for item in items if item.owner.uid not in wanted]

    def _asks(self, pod: Pod) -> bool:
        try:
            return self._selection.floating_ip(pod) is not None
        except errors.Refused:
            return True  # nobody knows what it means


def _request(key: Key, recorded: KuryrPort, project_id: str, asked: str) -> PublicIPRequest:
    """Return the request for a floating IP.

    :param asked: the address or the id of one that exists; empty: any.
    :raises errors.Refused: no floating IP can lead to the Pod.
    """
    vif = recorded.vifs().get(DEFAULT_IFNAME)
    if vif is None:
        raise errors.Refused("a floating IP leads to a default interface, which is not ours")
    addresses = [each for each in vif.ips if ipaddress.ip_address(each).version == 4]
    if not addresses:
        raise errors.Refused("floating IPs are of IPv4, and the Pod has no address of it")
    return PublicIPRequest(
        owner=Owner(recorded.pod_uid, Role.POD),
        namespace=key.namespace,
        name=key.name,
        project_id=project_id,
        port_id=vif.id,
        vip_address=addresses[0],
        existing=asked,
    )


def is_address(text: str) -> bool:
    """Return whether a name of a floating IP is its address, and not its id."""
    return "." in text
