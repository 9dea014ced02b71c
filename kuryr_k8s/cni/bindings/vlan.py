"""The binding VIFVlanNested: a VLAN of the trunk port of a node that is a VM.

Tagging and forwarding happen outside of the VM.
"""

from pathlib import Path

from kuryr_k8s.cni import netlink
from kuryr_k8s.cni.bindings.base import BindingContext, BindingError
from kuryr_k8s.cni.bindings.nested import NestedBinding
from kuryr_k8s.model.vif import COVERED, VIFBase, VIFVlanNested


class VlanBinding(NestedBinding):
    """Plugs VLANs."""

    def __init__(self, context: BindingContext) -> None:
        super().__init__(context, Path(context.conf.binding.state_dir))

    def _nested_of(self, vif: VIFBase, link: str) -> netlink.Nested:
        if not isinstance(vif, VIFVlanNested):
            raise BindingError(f"{type(vif).__name__} is not a VIFVlanNested")
        return netlink.Vlan(link=link, vlan_id=vif.vlan_id, covered=vif.plugin == COVERED)
