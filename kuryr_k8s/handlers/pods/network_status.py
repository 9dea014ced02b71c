"""The annotation of Pods that says what their interfaces are (Network Plumbing WG).

It is written for Pods with an interface in a network that they select, unless Multus does. Nothing
reads it here but to see whether it has to be written.
"""

from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.informer import LONGEST_KEPT
from kuryr_k8s.k8s.resources import PODS, Key
from kuryr_k8s.model.kuryrport import KuryrPort
from kuryr_k8s.model.network_status import NETWORK_STATUS, network_status
from kuryr_k8s.model.pod import Pod

DRIVER = "npwg_multiple_interfaces"


class NetworkStatus:
    """Keeps the annotation as the KuryrPort says, if the driver for such networks is in use."""

    def __init__(self, context: HandlerContext) -> None:
        self._kube = context.kube
        self._pods = context.informers.of(PODS)
        options = context.conf.kubernetes
        self._in_use = DRIVER in options.multi_vif_drivers and options.multus == "none"
        if self._in_use:
            self._pods.keep(NETWORK_STATUS)

    async def write(self, key: Key, pod: Pod, recorded: KuryrPort) -> None:
        """Write the annotation if it is to be there, and differs."""
        network_names = recorded.network_names() if self._in_use else {}
        if not network_names:
            return
        text = network_status(recorded.vifs(), network_names)
        if self._pods.annotation(key, NETWORK_STATUS) == text[: LONGEST_KEPT + 1]:
            return
        patch = {"metadata": {"uid": pod.uid, "annotations": {NETWORK_STATUS: text}}}
        self._pods.learn(await self._kube.merge_patch(PODS, key, patch, subresource="status"))
