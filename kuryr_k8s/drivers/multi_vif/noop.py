"""No interface besides the default one."""

from kuryr_k8s.drivers.base import AdditionalInterface, MultiVIFDriver
from kuryr_k8s.model.pod import Pod


class NoopMultiVIF(MultiVIFDriver):
    """A Pod has ``eth0`` and nothing else."""

    async def interfaces(self, pod: Pod, project_id: str) -> tuple[AdditionalInterface, ...]:
        return ()
