"""The VIF of an isolated interface."""

from kuryr_k8s.model.codec import model
from kuryr_k8s.model.vif import VIFBase


@model
class VIFIsolated(VIFBase):
    """An interface with a port's MAC and addresses that is connected to nothing.

    :param vif_name: of the node's end.
    """

    NAMESPACE = "kuryr_example"
    vif_name: str
