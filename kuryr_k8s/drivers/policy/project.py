"""Drivers for the project of a Pod's ports and of a Service's load balancer."""

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import DriverContext, PodProjectDriver, ServiceProjectDriver
from kuryr_k8s.k8s.resources import NAMESPACES, Key
from kuryr_k8s.model.annotations import PROJECT
from kuryr_k8s.model.pod import Pod
from kuryr_k8s.model.service import Service


class DefaultProject(PodProjectDriver, ServiceProjectDriver):
    """``[neutron_defaults] project`` for every Pod and Service."""

    async def start(self) -> None:
        if not self._context.conf.neutron_defaults.project:
            raise errors.ConfigError("[neutron_defaults] project is not set")

    async def project(self, owner: Pod | Service) -> str:
        return await self.project_of_namespace(owner.namespace)

    async def project_of_namespace(self, namespace: str) -> str:
        return str(self._context.conf.neutron_defaults.project)


class AnnotationProject(DefaultProject):
    """The project in the Namespace's annotation ``openstack.org/kuryr-project``, or the default.

    Everyone who may write a Namespace could name any project. Therefore only what the operator
    grants to the namespace in ``[policy] projects`` is accepted.
    """

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._namespaces = context.informers.of(NAMESPACES)

    async def project_of_namespace(self, namespace: str) -> str:
        found = self._namespaces.get(Key("", namespace))
        if found is None:
            raise errors.Wait(f"namespace {namespace} is not in the cache yet", delay=1.0)
        default = await super().project_of_namespace(namespace)
        wanted = found.project_id or default
        granted = {f"{namespace}:{wanted}", f"*:{wanted}"}
        if wanted != default and granted.isdisjoint(self._context.conf.policy.projects):
            raise errors.Refused(
                f"namespace {namespace} asks by its annotation {PROJECT} for project "
                f"{wanted}, which [policy] projects does not grant to it"
            )
        return wanted
