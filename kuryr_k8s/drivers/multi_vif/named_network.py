"""The Multi-VIF driver ``named_network``: Pods name the network of their default interface.

A Pod's annotations say in which of its users' networks it has its port, with which security
groups, addresses and MAC; those of its Namespace are defaults. :mod:`pod_annotations` reads them.
"""

import ipaddress
import zlib
from collections.abc import Mapping, Sequence

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    DriverContext,
    InterfaceRequest,
    MultiVIFDriver,
    OtherInterface,
    PodNetwork,
    PodSecurityGroupsDriver,
    PodSubnetsDriver,
)
from kuryr_k8s.drivers.multi_vif import pod_annotations as wanted
from kuryr_k8s.drivers.multi_vif.annotations import annotation_of, has_any, kept
from kuryr_k8s.drivers.multi_vif.default_network import ANOTHERS, DEFAULT_NETWORK, DefaultNetwork
from kuryr_k8s.drivers.multi_vif.neutron_port_wish import NEUTRON_PORT, NEUTRON_PORTS
from kuryr_k8s.drivers.multi_vif.neutron_ports import ANY_NETWORK, NeutronPorts
from kuryr_k8s.drivers.multi_vif.specific_ports import DEFAULT as SPECIFIC
from kuryr_k8s.drivers.named.asked import Asked
from kuryr_k8s.drivers.named.objects import NamedObjects
from kuryr_k8s.k8s.resources import NAMESPACES, PODS, Key
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.network_selection import CLAIM
from kuryr_k8s.model.pod import Pod


class NamedNetwork(MultiVIFDriver):
    """Requests the default interface as the Pod, or its Namespace, says."""

    asks_for_floating_ips = True

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._pods = context.informers.of(PODS)
        self._pods.keep(*wanted.OF_PODS, wanted.FLOATING_IP)
        self._namespaces = context.informers.of(NAMESPACES)
        self._namespaces.keep(*wanted.OF_NAMESPACES)
        self._subnets = context.drivers[PodSubnetsDriver]
        groups = context.drivers[PodSecurityGroupsDriver]
        self._objects = NamedObjects(context, groups, wanted.WORDS)
        self._default_network = DefaultNetwork(context)
        self._neutron_ports = NeutronPorts(context)
        self._selects_pods: bool = context.conf.kubernetes.pod_selection == "annotated"

    async def request_additional_vifs(
        self, pod: Pod, project_id: str
    ) -> tuple[InterfaceRequest | OtherInterface, ...]:
        default = await self._default_interface(pod, project_id)
        if any(isinstance(each, OtherInterface) for each in default):
            return default
        return (*default, *await self._neutron_ports.further(pod))

    async def _default_interface(
        self, pod: Pod, project_id: str
    ) -> tuple[InterfaceRequest | OtherInterface, ...]:
        """Return the request for the Pod's default interface, if it asks for one here."""
        if self._default_network.is_others(pod):
            self._refuse_own(pod)
            return ()
        selected = self._default_network.is_selected(pod)
        stated: dict[str, str] = {}
        if selected:
            found = await self._default_network.of(pod)
            if found is None:
                self._refuse_own(pod)
                return (OtherInterface(ifname=DEFAULT_IFNAME),)
            stated = found
        claim = stated.pop(CLAIM, "")
        asked = wanted.read(
            lambda name: self._of_pod(pod, name),
            lambda name: self._of_namespace(pod, name),
            stated,
        )
        is_named = self._neutron_ports.is_named(pod)
        if asked is None:
            is_called = selected and self._default_network.is_delegate
            if claim and self._has_port_of_its_own(pod):
                raise errors.Refused(f"annotation {SPECIFIC}: {CLAIM} is there, too")
            if self._has_port_of_its_own(pod) or not (is_called or is_named or claim):
                return ()
            asked = Asked()  # kuryr-cni is called for it, in no network in particular
        if is_named and not claim and not asked.names_network:
            network = ANY_NETWORK  # that of the NeutronPort
            is_elsewhere = bool(pod.addresses) and self._has_others
        else:
            network = await self._network(pod, project_id, asked, stated)
            is_elsewhere = self._is_from_elsewhere(pod, network)
            network = self._objects.check(pod.namespace, project_id, network, asked)
        if is_elsewhere:
            return (OtherInterface(ifname=DEFAULT_IFNAME),)
        request = await self._request(pod, project_id, asked, network)
        if claim:
            request = await self._neutron_ports.of_claim(request, pod, asked, claim)
        elif is_named or asked.names_network:
            request = await self._neutron_ports.instead_of(request, pod, asked)
        return (request,)

    async def _request(
        self, pod: Pod, project_id: str, asked: Asked, network: PodNetwork
    ) -> InterfaceRequest:
        """Return the request for a port of the Pod's own."""
        first, *others = _choices(pod, asked)
        return InterfaceRequest(
            ifname=DEFAULT_IFNAME,
            pod_network=network,
            security_groups=await self._objects.groups(pod.namespace, project_id, asked.groups),
            addresses=first,
            further_addresses=tuple(others),
            mac=asked.mac,
            port_security=asked.port_security,
            address_pairs=asked.pairs,
            qos_policy_id=await self._objects.qos_policy(pod.namespace, project_id, asked.qos),
            network_name=network.network.name or network.network.id,
        )

    def may_ask(self, pod: Pod) -> bool:
        return (
            self._default_network.is_selected(pod)
            or self._neutron_ports.may_ask(pod)
            or has_any(self._pods, pod, wanted.OURS)
        )

    def names_network(self, pod: Pod) -> bool:
        namespace = Key("", pod.namespace)
        return has_any(self._pods, pod, (*wanted.NETWORKS, NEUTRON_PORT)) or any(
            self._namespaces.annotation(namespace, name) is not None for name in wanted.NETWORKS
        )

    def floating_ip(self, pod: Pod) -> str | None:
        text = self._of_pod(pod, wanted.FLOATING_IP)
        return None if text is None else wanted.read_floating_ip(text)

    def _refuse_own(self, pod: Pod) -> None:
        """Check that a Pod asks for nothing whose default interface is another plugin's.

        That plugin may write aliases of ours by itself: they do not count.

        :raises errors.Refused: it does.
        """
        for name in (*wanted.OURS, SPECIFIC, NEUTRON_PORT, NEUTRON_PORTS):
            if annotation_of(self._pods, pod, name) is not None:
                raise errors.Refused(f"annotation {name}: {ANOTHERS}")

    def _is_from_elsewhere(self, pod: Pod, network: PodNetwork) -> bool:
        """Return whether the Pod has its addresses from another plugin.

        So it is where a Pod has come to name a network while it runs.
        """
        if not pod.addresses or not self._has_others:
            return False
        cidrs = [ipaddress.ip_network(subnet.cidr) for subnet in network.all_subnets]
        found = [ipaddress.ip_address(address) for address in pod.addresses]
        return not any(address in cidr for address in found for cidr in cidrs)

    @property
    def _has_others(self) -> bool:
        """True if other plugins give Pods their default interfaces."""
        return self._selects_pods or self._default_network.is_delegate

    def _has_port_of_its_own(self, pod: Pod) -> bool:
        return has_any(self._pods, pod, (SPECIFIC,))

    def _of_pod(self, pod: Pod, annotation: str) -> str | None:
        return annotation_of(self._pods, pod, annotation)

    def _of_namespace(self, pod: Pod, annotation: str) -> str | None:
        """Return what the Namespace says, unless the Pod's default interface is settled."""
        namespace = Key("", pod.namespace)
        if self._has_port_of_its_own(pod):
            return None
        if self._namespaces.get(namespace) is None:
            raise errors.Wait(f"namespace {pod.namespace} is not in the cache yet", delay=1.0)
        return kept(self._namespaces, namespace, annotation)

    async def _network(
        self, pod: Pod, project_id: str, asked: Asked, stated: Mapping[str, str]
    ) -> PodNetwork:
        if asked.network is None and not asked.subnets:
            return await self._subnets.pod_network(pod, project_id)
        is_selected = stated.get(wanted.SUBNET) == ",".join(asked.subnets)
        words = f"annotation {DEFAULT_NETWORK}" if is_selected else ""
        return await self._objects.network(pod.namespace, project_id, asked, words)


def _choices(pod: Pod, asked: Asked) -> Sequence[tuple[str, ...]]:
    """Return the addresses that a Pod may have, in the order of preference.

    Those of a StatefulSet have one each, by their numbers. Others begin at different places: they
    would all ask for the same one first.

    :raises errors.Refused: the StatefulSet has more Pods than addresses.
    """
    if not asked.pool:
        return [asked.addresses]
    if pod.ordinal is None:
        start = zlib.crc32(pod.identity.encode()) % len(asked.pool)
        return [*asked.pool[start:], *asked.pool[:start]]
    if pod.ordinal >= len(asked.pool):
        raise errors.Refused(
            f"annotation {wanted.POOL}: it has {len(asked.pool)} entries, and Pod number "
            f"{pod.ordinal} of the StatefulSet (the first one is 0) has none"
        )
    return [asked.pool[pod.ordinal]]
