"""The Multi-VIF driver ``sriov``: an interface for each virtual function (VF) that a Pod requests.

A Pod requests VFs as it requests any device: by a resource of a device plugin, or by a
ResourceClaim. ``[sriov] resource_physnets`` tells which physical network is behind each resource
and each DeviceClass. The name ``pod.alpha.kubernetes.io/opaque-int-resource-sriov-vf-<physnet>``
tells it by itself. ``openstack.org/kuryr-sriov-subnets: '{"<physnet>": ["<subnet>", …]}'`` has an
entry for each VF of a physical network.
"""

from collections import Counter

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    DeviceRequest,
    DriverContext,
    MultiVIFDriver,
    PodNetwork,
    PodVIFDriver,
)
from kuryr_k8s.drivers.multi_vif.annotations import (
    annotation_of,
    read_pairs_by_name,
    refusal,
    shown,
)
from kuryr_k8s.drivers.named.networks import NamedNetworks
from kuryr_k8s.k8s.resources import PODS, RESOURCECLAIMS, Key
from kuryr_k8s.model import resource_claim
from kuryr_k8s.model.annotations import OPAQUE_VFS
from kuryr_k8s.model.network_selection import MOST_INTERFACES
from kuryr_k8s.model.pod import Pod

ANNOTATION = "openstack.org/kuryr-sriov-subnets"
DRIVER = "sriov"


class SRIOVInterfaces(MultiVIFDriver):
    """Requests an interface for each VF that the Pod gets."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._pods = context.informers.of(PODS)
        self._pods.keep(ANNOTATION)
        self._networks = NamedNetworks(context)
        options = context.conf.sriov
        self._physnets: dict[str, str] = options.resource_physnets
        self._subnets = {
            physnet: tuple(subnets.split("+"))
            for physnet, subnets in options.physnet_subnet_mappings.items()
        }
        context.drivers.named(PodVIFDriver, DRIVER)

    async def start(self) -> None:
        for physnet, subnets in self._subnets.items():
            try:
                await self._networks.read(subnets)
            except errors.Refused as error:
                raise errors.ConfigError(
                    f"[sriov] physnet_subnet_mappings: {physnet}: {error}"
                ) from error

    async def request_additional_vifs(
        self, pod: Pod, project_id: str
    ) -> tuple[DeviceRequest, ...]:
        requested = self._requested(pod)
        for name in pod.claims:
            requested += await self._claimed(Key(pod.namespace, name))
        if requested.total() > MOST_INTERFACES:
            raise errors.Refused(
                f"the Pod requests {requested.total()} VFs, and may have {MOST_INTERFACES} "
                "interfaces"
            )
        named = self._named(pod, requested)
        return tuple(
            [
                DeviceRequest(
                    physnet=physnet,
                    vif_driver=DRIVER,
                    pod_network=await self._network(pod, project_id, physnet, subnets),
                )
                for physnet, count in sorted(requested.items())
                for subnets in named.get(physnet, [None] * count)
            ]
        )

    def may_ask(self, pod: Pod) -> bool:
        return bool(pod.devices or pod.claims)

    def _requested(self, pod: Pod) -> Counter[str]:
        """Return how many VFs of each physical network the Pod's containers request.

        :raises errors.Refused: a quantity is no number.
        """
        found: Counter[str] = Counter()
        for resource, count in pod.devices:
            physnet = self._physnets.get(resource)
            if physnet is None and resource.startswith(OPAQUE_VFS):
                physnet = resource.removeprefix(OPAQUE_VFS)
            if physnet is None:
                continue
            if count == 0:
                raise errors.Refused(f"resource {resource}: its quantity is no plain number")
            found[physnet] += count
        return found

    async def _claimed(self, key: Key) -> Counter[str]:
        """Return how many VFs of each physical network a ResourceClaim has got."""
        claim = await self._context.kube.find(RESOURCECLAIMS, key)
        if claim is None:
            raise errors.Refused(f"there is no ResourceClaim {key}")
        classes = (device.device_class for device in resource_claim.allocated(claim))
        return Counter(self._physnets[each] for each in classes if each in self._physnets)

    def _named(self, pod: Pod, requested: Counter[str]) -> dict[str, list[tuple[str, ...] | None]]:
        """Return the subnets that the Pod's annotation names for each physical network.

        :raises errors.Refused: it cannot be read, or does not fit what the Pod requests.
        """
        text = annotation_of(self._pods, pod, ANNOTATION)
        if text is None:
            return {}
        try:
            found = read_pairs_by_name(text)
        except ValueError as error:
            raise errors.Refused(f"annotation {ANNOTATION} {error}: {shown(text)}") from error
        for physnet, entries in found.items():
            if len(entries) != requested[physnet]:
                raise errors.Refused(
                    f"annotation {ANNOTATION} has {len(entries)} entries for {shown(physnet)}, "
                    f"and the Pod requests {requested[physnet]} VFs of it"
                )
        return {physnet: list(entries) for physnet, entries in found.items()}

    async def _network(
        self, pod: Pod, project_id: str, physnet: str, subnets: tuple[str, ...] | None
    ) -> PodNetwork | errors.Refused:
        """Return the network of a VF; unless its user names one, what is refused without.

        :raises errors.Refused: the Pod's annotation names one that it may not have.
        """
        if subnets is not None:
            try:
                return await self._networks.granted(pod.namespace, project_id, subnets)
            except errors.Refused as error:
                raise refusal(f"{ANNOTATION}: {','.join(subnets)}", error) from error
        if physnet not in self._subnets:
            return errors.Refused(
                f"no subnet is known for physical network {physnet}: neither annotation "
                f"{ANNOTATION} nor [sriov] physnet_subnet_mappings names one"
            )
        try:
            return await self._networks.usable(project_id, self._subnets[physnet])
        except errors.Refused as error:
            return error
