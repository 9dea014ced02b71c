"""The annotations of Pods that say what their interfaces are.

``network-status`` of the Network Plumbing WG is written for Pods with an interface in a network
that they name, unless Multus does; ours for those that name the network of their default one.
Nothing reads them here but to see whether they have to be written.
"""

from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.informer import LONGEST_KEPT
from kuryr_k8s.k8s.resources import PODS, Key
from kuryr_k8s.model.allocation import ALL as ALLOCATION
from kuryr_k8s.model.allocation import allocation
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME, KuryrPort
from kuryr_k8s.model.network_status import NETWORK_STATUS, network_status
from kuryr_k8s.model.pod import Pod


class NetworkStatus:
    """Keeps the annotations as the KuryrPort says."""

    def __init__(self, context: HandlerContext) -> None:
        self._kube = context.kube
        self._pods = context.informers.of(PODS)
        self._by_multus: bool = context.conf.kubernetes.multus != "none"
        self._pods.keep(*(() if self._by_multus else (NETWORK_STATUS,)), *ALLOCATION)

    async def write(self, key: Key, pod: Pod, recorded: KuryrPort) -> None:
        """Write the annotations that are to be there, and differ."""
        network_names = recorded.network_names()
        if not network_names:
            return
        vifs, wanted = recorded.vifs(), dict[str, str]()
        if not self._by_multus:
            wanted[NETWORK_STATUS] = network_status(vifs, network_names)
        if DEFAULT_IFNAME in network_names:
            wanted |= allocation(vifs[DEFAULT_IFNAME])
        differing = {
            name: text
            for name, text in wanted.items()
            if self._pods.annotation(key, name) != text[: LONGEST_KEPT + 1]
        }
        if differing:
            patch = {"metadata": {"uid": pod.uid, "annotations": differing}}
            self._pods.learn(await self._kube.merge_patch(PODS, key, patch, subresource="status"))
