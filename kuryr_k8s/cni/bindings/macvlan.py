"""The binding VIFMacvlanNested: a macvlan of the interface of a node that is a VM.

The port of the VM lets the addresses of its Pods through.
"""

from kuryr_k8s.cni import netlink
from kuryr_k8s.cni.bindings.base import BindingContext, BindingError
from kuryr_k8s.cni.bindings.nested import NestedBinding
from kuryr_k8s.model.vif import VIFBase, VIFMacvlanNested


class MacvlanBinding(NestedBinding):
    """Plugs macvlans."""

    def __init__(self, context: BindingContext) -> None:
        super().__init__(context, context.record_directory("macvlan"))

    def _nested_of(self, vif: VIFBase, link: str) -> netlink.Nested:
        if not isinstance(vif, VIFMacvlanNested):
            raise BindingError(f"{type(vif).__name__} is not a VIFMacvlanNested")
        return netlink.Macvlan(link=link, mac=(vif.address or "").lower(), alias=f"kuryr:{vif.id}")
