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
    granted,
)
from kuryr_k8s.drivers.multi_vif import pod_annotations as wanted
from kuryr_k8s.drivers.multi_vif.annotations import annotation_of, has_any, kept, refusal
from kuryr_k8s.drivers.multi_vif.default_network import ANOTHERS, DEFAULT_NETWORK, DefaultNetwork
from kuryr_k8s.drivers.multi_vif.names import Names
from kuryr_k8s.drivers.multi_vif.networks import NamedNetworks
from kuryr_k8s.drivers.multi_vif.ownership import check_owner
from kuryr_k8s.drivers.multi_vif.shared_objects import SharedObjects
from kuryr_k8s.drivers.multi_vif.specific_ports import DEFAULT as SPECIFIC
from kuryr_k8s.k8s.resources import NAMESPACES, PODS, Key
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.pod import Pod

# of [policy], by the kinds of objects that users name
OPTIONS = {"security_group": "security_groups", "qos_policy": "qos_policies"}


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
        self._networks = NamedNetworks(context)
        self._groups = context.drivers[PodSecurityGroupsDriver]
        self._names = Names(context)
        self._default_network = DefaultNetwork(context)
        self._selects_pods: bool = context.conf.kubernetes.pod_selection == "annotated"
        self._shared_objects = SharedObjects(context)

    async def request_additional_vifs(
        self, pod: Pod, project_id: str
    ) -> tuple[InterfaceRequest | OtherInterface, ...]:
        if self._default_network.is_others(pod):
            self._refuse_own(pod)
            return ()
        selected = self._default_network.is_selected(pod)
        stated: Mapping[str, str] = {}
        if selected:
            found = await self._default_network.of(pod)
            if found is None:
                self._refuse_own(pod)
                return (OtherInterface(ifname=DEFAULT_IFNAME),)
            stated = found
        asked = wanted.read(
            lambda name: self._of_pod(pod, name),
            lambda name: self._of_namespace(pod, name),
            stated,
        )
        if asked is None:
            if not (selected and self._default_network.is_delegate) or self._has_port_of_its_own(
                pod
            ):
                return ()
            asked = wanted.Asked()  # kuryr-cni is called for it, in no network in particular
        first, *others = _choices(pod, asked)
        every = [address for choice in (asked.addresses, *asked.pool) for address in choice]
        network = (await self._network(pod, project_id, asked, stated)).holding(every)
        if self._is_from_elsewhere(pod, network):
            return (OtherInterface(ifname=DEFAULT_IFNAME),)
        check_owner(
            self._context.conf,
            pod.namespace,
            project_id,
            network,
            unfiltered=_unfiltered(asked),
            chosen=_chosen(asked),
            addresses=every,
        )
        return (
            InterfaceRequest(
                ifname=DEFAULT_IFNAME,
                pod_network=network,
                security_groups=await self._groups_of(pod.namespace, project_id, asked.groups),
                addresses=first,
                further_addresses=tuple(others),
                mac=asked.mac,
                port_security=asked.port_security,
                address_pairs=asked.pairs,
                qos_policy_id=await self._qos_policy_of(pod.namespace, project_id, asked.qos),
                network_name=network.network.name or network.network.id,
            ),
        )

    def may_ask(self, pod: Pod) -> bool:
        return self._default_network.is_selected(pod) or has_any(self._pods, pod, wanted.OURS)

    def names_network(self, pod: Pod) -> bool:
        namespace = Key("", pod.namespace)
        return has_any(self._pods, pod, wanted.NETWORKS) or any(
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
        for name in (*wanted.OURS, SPECIFIC):
            if annotation_of(self._pods, pod, name) is not None:
                raise errors.Refused(f"annotation {name}: {ANOTHERS}")

    def _is_from_elsewhere(self, pod: Pod, network: PodNetwork) -> bool:
        """Return whether the Pod has its addresses from another plugin.

        So it is where a Pod has come to name a network while it runs.
        """
        if not pod.addresses or not (self._selects_pods or self._default_network.is_delegate):
            return False
        cidrs = [ipaddress.ip_network(subnet.cidr) for subnet in network.all_subnets]
        found = [ipaddress.ip_address(address) for address in pod.addresses]
        return not any(address in cidr for address in found for cidr in cidrs)

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
        self, pod: Pod, project_id: str, asked: wanted.Asked, stated: Mapping[str, str]
    ) -> PodNetwork:
        if asked.network is None and not asked.subnets:
            return await self._subnets.pod_network(pod, project_id)
        said = wanted.SUBNET if asked.subnets else wanted.NETWORK
        if stated.get(wanted.SUBNET) == ",".join(asked.subnets):
            said = DEFAULT_NETWORK
        try:
            named = [await self._names.id_of("subnet", project_id, each) for each in asked.subnets]
            network_id = (
                None
                if asked.network is None
                else await self._names.id_of("network", project_id, asked.network)
            )
            found = await self._networks.granted(
                pod.namespace, project_id, named or network_id or ""
            )
        except errors.Refused as error:
            raise refusal(said, error) from error
        if network_id not in (None, found.network.id):
            raise errors.Refused(
                f"annotation {wanted.SUBNET}: the subnet is not one of network {asked.network}"
            )
        return found

    async def _groups_of(
        self, namespace: str, project_id: str, named: tuple[str, ...] | None
    ) -> tuple[str, ...] | None:
        if named is None:
            return None
        found = set(await self._groups.member_groups(project_id))
        for each in named:
            try:
                found.add(await self._shared("security_group", namespace, project_id, each))
            except errors.Refused as error:
                raise refusal(wanted.GROUPS, error) from error
        return tuple(sorted(found))

    async def _qos_policy_of(
        self, namespace: str, project_id: str, named: str | None
    ) -> str | None:
        if named is None:
            return None
        try:
            return await self._shared("qos_policy", namespace, project_id, named)
        except errors.Refused as error:
            raise refusal(wanted.QOS, error) from error

    async def _shared(self, kind: str, namespace: str, project_id: str, named: str) -> str:
        """Return the id of an object that the Pod names, if it may.

        :raises errors.Refused: it may not.
        """
        object_id = await self._names.id_of(kind, project_id, named)
        granted.check_named(self._context.conf, OPTIONS[kind], namespace, object_id)
        await self._shared_objects.require(kind, object_id, project_id)
        return object_id


def _unfiltered(asked: wanted.Asked) -> str:
    """Return what asks for a port that may send from addresses of others; empty: nothing does."""
    if asked.pairs:
        return wanted.PAIRS
    return f"{wanted.PORT_SECURITY}=false" if asked.port_security is False else ""


def _chosen(asked: wanted.Asked) -> str:
    """Return the annotation that asks for an address or a MAC; empty: none does."""
    said = {
        wanted.ADDRESS: asked.addresses,
        wanted.POOL: asked.pool,
        wanted.MAC: asked.mac,
    }
    return next((annotation for annotation, value in said.items() if value), "")


def _choices(pod: Pod, asked: wanted.Asked) -> Sequence[tuple[str, ...]]:
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
