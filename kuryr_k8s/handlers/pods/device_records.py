"""Devices of nodes that Pods ask for, as a KuryrPort records them before interfaces are made.

The controller writes ``status.requestedDevices``: which interface needs a device on which physical
network. The node's daemon answers in ``status.devices``, its own field: which device the kubelet
has given to the Pod, or which one it has chosen itself.
"""

from collections.abc import Mapping
from typing import NoReturn

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import InterfaceRequest
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.resources import KURYRPORTS, Key
from kuryr_k8s.model.device import Device
from kuryr_k8s.model.kuryrport import OLD_DEFINITION, KuryrPort


class DeviceNotNamed(errors.Refused):
    """The node's daemon has not named a device of a Pod for a while."""

    reason = "KuryrDeviceNotNamed"


class DeviceRecords:
    """Asks the nodes' daemons for devices."""

    def __init__(self, context: HandlerContext) -> None:
        self._kube = context.kube
        self._kuryrports = context.informers.of(KURYRPORTS)
        self._clock = context.clock
        self._longest = context.patience.devices
        self._awaited: dict[str, float] = {}  # uids of Pods, and until when nobody is told

    async def ask(
        self, key: Key, recorded: KuryrPort, requests: Mapping[str, InterfaceRequest]
    ) -> KuryrPort:
        """Record which interfaces need a device, unless that is recorded.

        :returns: the KuryrPort as it is then.
        :raises errors.Refused: the API server does not keep the record.
        """
        needed = {
            ifname: request.physnet
            for ifname, request in requests.items()
            if request.physnet is not None
        }
        known = dict(recorded.requested_devices)
        if needed == known:
            return recorded
        changed = {ifname: {"physnet": physnet} for ifname, physnet in needed.items()}
        gone = dict.fromkeys(known.keys() - needed.keys())
        status = {"requestedDevices": changed | gone}
        answer = await self._kube.patch_status_of(KURYRPORTS, key, recorded, status)
        self._kuryrports.learn(answer)
        recorded = KuryrPort.read(answer)
        if dict(recorded.requested_devices) != needed:
            raise errors.Refused(OLD_DEFINITION)
        return recorded

    def of(self, recorded: KuryrPort) -> dict[str, Device]:
        """Return the devices of the interfaces that need one.

        :raises errors.Wait: the daemon has not named all of them yet; when it does, the KuryrPort
            changes.
        :raises DeviceNotNamed: nor has it for a while.
        """
        named = dict(recorded.devices)
        missing = [
            (ifname, physnet)
            for ifname, physnet in recorded.requested_devices
            if ifname not in named or named[ifname].physnet != physnet
        ]
        if missing:
            self._wait(recorded, *missing[0])
        self._awaited.pop(recorded.pod_uid, None)
        return {ifname: named[ifname] for ifname, _ in recorded.requested_devices}

    def _wait(self, recorded: KuryrPort, ifname: str, physnet: str) -> NoReturn:
        now = self._clock.now()
        until = self._awaited.setdefault(recorded.pod_uid, now + self._longest)
        message = (
            f"interface {ifname}: node {recorded.node} has not named a VF of physical network "
            f"{physnet} for it"
        )
        if now >= until:
            raise DeviceNotNamed(
                f"{message}: either the runtime does not set the Pod up yet (see its other "
                "Events), or the node's kuryr.conf lacks [sriov]"
            )
        raise errors.Wait(message, delay=until - now)

    def forget(self, pod_uid: str) -> None:
        """Forget a Pod that is gone."""
        self._awaited.pop(pod_uid, None)
