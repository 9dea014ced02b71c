"""The Multi-VIF driver of Pods that have their default interface alone."""

from kuryr_k8s.drivers.base import InterfaceRequest, MultiVIFDriver
from kuryr_k8s.model.pod import Pod


class NoopMultiVIF(MultiVIFDriver):
    """Requests no additional interface for any Pod."""

    async def request_additional_vifs(
        self, pod: Pod, project_id: str
    ) -> tuple[InterfaceRequest, ...]:
        """Return no request."""
        return ()

    def may_ask(self, pod: Pod) -> bool:
        return False
