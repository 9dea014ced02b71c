"""The security groups of a Pod's ports."""

from kuryr_k8s import errors
from kuryr_k8s.drivers import granted
from kuryr_k8s.drivers.base import DriverContext, PodSecurityGroupsDriver
from kuryr_k8s.model.pod import Pod


class DefaultSecurityGroups(PodSecurityGroupsDriver):
    """``[neutron_defaults] pod_security_groups`` for every Pod.

    The Pods of a project that may not use one of them are refused, rather than left with fewer
    rules than the operator meant.
    """

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._groups = tuple(sorted(context.conf.neutron_defaults.pod_security_groups))
        self._granted: set[str] = set()

    async def start(self) -> None:
        if not self._groups:
            raise errors.ConfigError("[neutron_defaults] pod_security_groups is not set")
        for group in self._groups:
            try:
                await self._context.neutron.get_security_group(group)
            except errors.NotFound as error:
                option = "[neutron_defaults] pod_security_groups"
                raise errors.ConfigError(f"{option}: there is no group {group}") from error

    async def security_groups(self, pod: Pod, project_id: str) -> tuple[str, ...]:
        if project_id not in self._granted:
            for group in self._groups:
                await granted.check_security_group(self._context.neutron, group, project_id)
            self._granted.add(project_id)
        return self._groups
