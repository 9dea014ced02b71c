"""Drivers for the security groups of a Pod's ports and of a Service's ClusterIPs."""

import contextlib

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    DriverContext,
    PodSecurityGroupsDriver,
    ServiceSecurityGroupsDriver,
    granted,
)
from kuryr_k8s.drivers.policy.member_group import MemberGroup
from kuryr_k8s.k8s.resources import KURYRPORTS
from kuryr_k8s.model.pod import Pod
from kuryr_k8s.model.service import Service


class DefaultSecurityGroups(PodSecurityGroupsDriver, ServiceSecurityGroupsDriver):
    """``[neutron_defaults] pod_security_groups`` for every Pod and Service.

    If Services are served or nodes have ports, Pods have one more group, by which load balancers
    and nodes reach them. Pods of a
    project that may not use one of the groups are refused, rather than left with fewer rules than
    the operator intended.
    """

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._groups = tuple(sorted(set(context.conf.neutron_defaults.pod_security_groups)))
        self._grants = granted.Grants(self._check)
        conf = context.conf
        served = "loadbalancer" in conf.kubernetes.enabled_handlers
        reached = bool(conf.neutron_defaults.node_subnet)
        if reached and "node" not in conf.kubernetes.enabled_handlers:
            raise errors.ConfigError(
                "[neutron_defaults] node_subnet: add node to [kubernetes] enabled_handlers, which "
                "makes the nodes' ports"
            )
        wanted = (served or reached) and conf.octavia_defaults.member_security_group
        self._members = self._member_group(context) if wanted else None

    @staticmethod
    def _member_group(context: DriverContext) -> MemberGroup:
        kuryrports = context.informers.of(KURYRPORTS)

        def in_use(group_id: str) -> bool:
            return any(group_id in each.security_groups for each in kuryrports.values())

        return MemberGroup(context.neutron, context.conf, in_use)

    async def start(self) -> None:
        if not self._groups:
            raise errors.ConfigError("[neutron_defaults] pod_security_groups is not set")
        for group in self._groups:
            try:
                await self._context.neutron.get_shared("security_group", group)
            except errors.NotFound as error:
                option = "[neutron_defaults] pod_security_groups"
                raise errors.Refused(f"{option}: there is no security group {group}") from error
        with contextlib.suppress(errors.Refused):  # perhaps only other projects may use them
            await self._grants.require(self._context.conf.neutron_defaults.project)

    async def security_groups(self, owner: Pod | Service, project_id: str) -> tuple[str, ...]:
        if isinstance(owner, Service):
            await self._grants.require(project_id)
            return self._groups
        return await self.default_groups(project_id)

    async def default_groups(self, project_id: str) -> tuple[str, ...]:
        await self._grants.require(project_id)
        return tuple(sorted({*self._groups, *await self.member_groups(project_id)}))

    async def member_groups(self, project_id: str) -> tuple[str, ...]:
        return () if self._members is None else (await self._members.id_for(project_id),)

    async def _check(self, project_id: str) -> None:
        for group in self._groups:
            await granted.check_security_group(self._context.neutron, group, project_id)
