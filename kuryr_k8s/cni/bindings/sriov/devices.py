"""Which VFs Pods have: named in their KuryrPorts (``status.devices``) when the controller asks.

The kubelet gives them, by device plugins or drivers of dynamic resource allocation; or the daemon
chooses among those that it offers itself (``[sriov] advertise``).
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings.base import BindingContext
from kuryr_k8s.cni.bindings.sriov import claims
from kuryr_k8s.cni.bindings.sriov.capacity import Capacity
from kuryr_k8s.cni.bindings.sriov.cards import Cards
from kuryr_k8s.cni.bindings.sriov.offers import Offers
from kuryr_k8s.cni.parts import Loop
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.k8s.resources import KURYRPORTS, Key
from kuryr_k8s.model.device import Device
from kuryr_k8s.model.kuryrport import KuryrPort

LOG = logging.getLogger(__name__)
SOON = 0.5  # seconds until the daemon looks again whether the runtime sets the Pod up


class NoDevice(errors.KuryrError):
    """A VF that a Pod asks for cannot be named."""


class Devices:
    """Names the VFs of this node's Pods.

    :param in_use: returns the PCI addresses of VFs that Pods have, or have not given back.
    """

    def __init__(
        self, context: BindingContext, cards: Cards, in_use: Callable[[], Collection[str]]
    ) -> None:
        options = context.conf.sriov
        self._api = context.api
        self._node = context.node
        self._adds = context.adds
        self._cards = cards
        self._physnets: Mapping[str, str] = options.resource_physnets
        # here, as gRPC takes 20 MiB, which nodes without VFs need not have
        from kuryr_k8s.cni.bindings.sriov.pod_resources import PodResources

        self._kubelet = PodResources(Path(options.pod_resources_socket))
        self._capacity = Capacity(context.api, context.node, cards, options.advertise)
        selectors = {"fieldSelector": f"spec.podNodeName={context.node}"}
        self._kuryrports = context.caches.follow(KURYRPORTS, selectors)
        self._offers = Offers(options.advertise, cards, self._kuryrports, in_use)
        # one worker: no two Pods are offered the same VF
        self._controller = Controller("sriov-device", self.reconcile, workers=1)
        self._kuryrports.subscribe(lambda key, _old, _new: self._controller.queue.add(key))

    def loops(self) -> Sequence[Loop]:
        """Return what names VFs, and offers them."""
        return [self._controller, *self._capacity.loops()]

    async def reconcile(self, key: Key) -> float | None:
        """Name the VFs that a KuryrPort asks for and does not have yet.

        :raises NoDevice: one cannot be named; it is tried again.
        """
        port = self._kuryrports.get(key)
        if port is None or port.deleting or port.has_vifs:
            return None
        named = dict(port.devices)
        asked = dict(port.requested_devices)
        known = {
            ifname: device
            for ifname, device in named.items()
            if ifname in asked and device.physnet == asked[ifname]
        }
        if known.keys() == asked.keys() == named.keys():
            return None
        if asked and not self._adds.under_way(port.pod_uid):
            return SOON  # see the kubelet's API: before that, its answer may be of another Pod
        await self._name(key, port, await self._choose(key, port, asked, known))
        return None

    async def _choose(
        self, key: Key, port: KuryrPort, asked: Mapping[str, str], known: Mapping[str, Device]
    ) -> dict[str, Device]:
        """Choose a VF for each interface.

        :param asked: the physical network of each.
        :param known: VFs that are named already.
        """
        given = (
            await self._given(key) if set(asked.values()) & set(self._physnets.values()) else {}
        )
        chosen: dict[str, Device] = {}
        for ifname, physnet in sorted(asked.items()):
            taken = {device.pci_slot for device in {**known, **chosen}.values()}
            slots = given.get(physnet, [])
            if ifname in known and (known[ifname].pci_slot in slots or not slots):
                chosen[ifname] = known[ifname]
                continue
            free = next((slot for slot in slots if slot not in taken), None)
            free = free or self._offers.choose(port, physnet, taken)
            if free is None:
                raise NoDevice(
                    f"Pod {key}, interface {ifname}: the kubelet has given it no VF of physical "
                    f"network {physnet} ([sriov] resource_physnets), and none is free that the "
                    "daemon offers itself ([sriov] advertise)"
                )
            chosen[ifname] = self._describe(key, free, physnet)
        return chosen

    def _describe(self, key: Key, pci_slot: str, physnet: str) -> Device:
        function = self._cards.find(pci_slot)
        if function is None:
            raise NoDevice(f"Pod {key}: device {pci_slot} is no VF of this node")
        return Device(physnet=physnet, pci_slot=pci_slot, pci_vendor_info=function.vendor_info)

    async def _given(self, key: Key) -> dict[str, list[str]]:
        """Return the PCI addresses that the kubelet has given to a Pod, by physical networks."""
        pods = await self._kubelet.of(key)
        if len(pods) != 1:
            raise NoDevice(f"Pod {key}: the kubelet knows {len(pods)} Pods of this name")
        (pod,) = pods
        found: dict[str, list[str]] = {}
        for resource, device_id in pod.of_plugins:
            if (physnet := self._physnets.get(resource)) is not None:
                found.setdefault(physnet, []).append(device_id)
        if pod.claims:
            devices = await claims.devices_of(self._api, pod.claims)
            ours = [each for each in devices if each.device_class in self._physnets]
            slots = await claims.pci_slots(self._api, self._node, ours) if ours else {}
            for device in ours:
                if (slot := slots.get(device)) is None:
                    raise NoDevice(
                        f"Pod {key}: no ResourceSlice tells the PCI address of device "
                        f"{device.name} of driver {device.driver}"
                    )
                found.setdefault(self._physnets[device.device_class], []).append(slot)
        return found

    async def _name(self, key: Key, port: KuryrPort, devices: Mapping[str, Device]) -> None:
        LOG.info(
            "Pod %s: VFs %s",
            key,
            ", ".join(f"{ifname} {device.pci_slot}" for ifname, device in devices.items()),
        )
        gone = dict.fromkeys(dict(port.devices).keys() - devices.keys())
        changed = {ifname: device.write() for ifname, device in devices.items()}
        status = {"devices": changed | gone}
        answer = await self._api.patch_status_of(KURYRPORTS, key, port, status)
        self._kuryrports.learn(answer)
