"""The floating IPs of Pods.

A Pod that asks for one has it as long as it asks. That it may have one is noted in its KuryrPort
before one is made or taken: so it is released with the Pod, whoever leads by then. The driver of
public addresses finds floating IPs by their marks, whatever answers were lost.
"""

import ipaddress
from collections.abc import Callable, Sequence

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import Owned, PublicIPRequest, ServicePublicIPDriver
from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.pods.selection import PodSelection
from kuryr_k8s.k8s.resources import KURYRPORTS, PODS, Key
from kuryr_k8s.model.allocation import PORT_FLOATING_IP
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME, OLD_DEFINITION, KuryrPort
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.pod import Pod


class PodFloatingIPs:
    """Gives Pods the floating IPs that they ask for, and releases them.

    :param wake: called with the key of a Pod that may get by now what it was refused.
    """

    def __init__(
        self, context: HandlerContext, selection: PodSelection, wake: Callable[[Key], None]
    ) -> None:
        self._kube = context.kube
        self._pods = context.informers.of(PODS)
        self._pods.keep(PORT_FLOATING_IP)
        self._kuryrports = context.informers.of(KURYRPORTS)
        self._driver = context.drivers[ServicePublicIPDriver]
        self._selection = selection
        self._wake = wake
        self._refused: set[Key] = set()

    async def ensure(self, key: Key, pod: Pod, recorded: KuryrPort) -> None:
        """Let the Pod have the floating IP that it asks for by now; none if it asks for none.

        :param recorded: the KuryrPort, with interfaces.
        :raises errors.Refused: it cannot have one, or others have it.
        """
        asked = self._selection.floating_ip(pod)
        self._refused.discard(key)
        if asked is None:
            if recorded.floating_ip is not None:
                await self.release(recorded)
                await self._record(key, recorded, None)
                await self._tell(key, pod, None)
            return
        request = _request(key, recorded, asked)
        if recorded.floating_ip is None:
            recorded = await self._record(key, recorded, "")
        try:
            address = await self._driver.ensure(request)
        except errors.Refused:
            self._refused.add(key)
            raise
        if address is None:
            raise errors.Refused(
                "there is no external network for floating IPs ([neutron_defaults] "
                "external_svc_net in kuryr.conf)"
            )
        if recorded.floating_ip != address:
            await self._record(key, recorded, address)
        await self._tell(key, pod, address)

    async def release(self, recorded: KuryrPort) -> None:
        """Release what the Pod may have: what was made for it goes, what was there before stays.

        :raises errors.KuryrError: it cannot be done now.
        """
        self._refused.discard(Key(recorded.namespace, recorded.name))
        if recorded.floating_ip is None:
            return
        await self._driver.release(Owner(recorded.pod_uid, Role.POD), keep=None)
        waiting, self._refused = self._refused, set()
        for key in waiting:
            self._wake(key)

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


class PodFloatingIPSweep(Sweep[Owned]):
    """The sweep of floating IPs of Pods that are gone, or that do not ask for one any more.

    :param look_again: called for each Pod with a floating IP after a search: others may have
        changed it.
    """

    def __init__(self, context: HandlerContext, look_again: Callable[[Key], None]) -> None:
        super().__init__(
            "pod-floating-ip-sweeper",
            interval=context.conf.neutron_defaults.sweep_interval,
            confirm_after=context.patience.unneeded,
            patience=context.patience,
            clock=context.clock,
            observe=context.observe,
        )
        self._kube = context.kube
        self._mark = context.neutron.mark
        self._strangers = context.strangers
        self._kuryrports = context.informers.of(KURYRPORTS)
        self._driver = context.drivers[ServicePublicIPDriver]
        self._look_again = look_again

    async def search(self) -> list[Owned]:
        listed = await self._driver.list_owned()
        ours = [
            each
            for each in listed
            if each.owner.role is Role.POD
            and not each.elsewhere
            and each.clusters == {self._mark.uid}
        ]
        for recorded in self._kuryrports.values():
            if recorded.floating_ip is not None:
                self._look_again(Key(recorded.namespace, recorded.name))
        return [] if self._strangers.overlap else list(self.still_unwanted(ours))

    def identity(self, item: Owned) -> Owner:
        return item.owner

    async def confirm(self, items: Sequence[Owned]) -> list[Owned]:
        if self._strangers.overlap:
            return []
        pages = self._kube.list_pages(KURYRPORTS, {})
        live = [KuryrPort.read(item) async for page, _version in pages for item in page]
        return _unwanted(items, live)

    def still_unwanted(self, items: Sequence[Owned]) -> list[Owned]:
        return _unwanted(items, list(self._kuryrports.values()))

    async def remove(self, item: Owned) -> None:
        await self._driver.release(item.owner, keep=None)


def _unwanted(items: Sequence[Owned], kuryrports: Sequence[KuryrPort]) -> list[Owned]:
    having = {each.pod_uid for each in kuryrports if each.floating_ip is not None}
    return [item for item in items if item.owner.uid not in having]


def _request(key: Key, recorded: KuryrPort, asked: str) -> PublicIPRequest:
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
        project_id=recorded.project_id or "",
        port_id=vif.id,
        vip_address=addresses[0],
        existing=asked,
    )
