"""What a handler is: it makes the world match one object, named by its key."""

import abc
import dataclasses
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.drivers import registry
from kuryr_k8s.drivers.base import (
    Driver,
    DriverContext,
    LBaaSDriver,
    MultiVIFDriver,
    PodProjectDriver,
    PodSecurityGroupsDriver,
    PodSubnetsDriver,
    PodVIFDriver,
    ServiceProjectDriver,
    ServicePublicIPDriver,
    ServiceSecurityGroupsDriver,
    ServiceSubnetsDriver,
    VIFPoolDriver,
)
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.events import EventRecorder, Reference
from kuryr_k8s.k8s.informer import Informer, Versioned
from kuryr_k8s.k8s.resources import (
    ENDPOINTS,
    ENDPOINTSLICES,
    KURYRPORTPOOLS,
    KURYRPORTS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    Key,
)
from kuryr_k8s.model.kuryrport import KuryrPort
from kuryr_k8s.model.kuryrportpool import KuryrPortPool
from kuryr_k8s.model.pod import Namespace, Node, Pod
from kuryr_k8s.model.service import Endpoints, EndpointSlice, Service

T = TypeVar("T", bound=Versioned)
# What a user, or the operator, can mend.
TOLD_AT_ONCE = (errors.Refused, errors.OverQuota, errors.NotFound)
TELL_AFTER = 3  # failures in a row before a user is told of something that may pass by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Informers:
    """The caches, one for each kind, shared by all handlers. Those of Services are filled only
    where a handler watches them."""

    pods: Informer[Pod]
    nodes: Informer[Node]
    namespaces: Informer[Namespace]
    kuryrports: Informer[KuryrPort]
    kuryrportpools: Informer[KuryrPortPool]
    services: Informer[Service]
    endpointslices: Informer[EndpointSlice]
    endpoints: Informer[Endpoints]

    @classmethod
    def of(cls, kube: KubeApi) -> Self:
        """Empty ones, of everything in the cluster."""
        return cls(
            pods=Informer(kube, PODS, Pod.read),
            nodes=Informer(kube, NODES, Node.read),
            namespaces=Informer(kube, NAMESPACES, Namespace.read),
            kuryrports=Informer(kube, KURYRPORTS, KuryrPort.read),
            kuryrportpools=Informer(kube, KURYRPORTPOOLS, KuryrPortPool.read),
            services=Informer(kube, SERVICES, Service.read),
            endpointslices=Informer(kube, ENDPOINTSLICES, EndpointSlice.read),
            endpoints=Informer(kube, ENDPOINTS, Endpoints.read),
        )

    def of_pods(self) -> tuple[Informer[Any], ...]:
        return (self.pods, self.nodes, self.namespaces, self.kuryrports, self.kuryrportpools)

    def of_services(self) -> tuple[Informer[Any], ...]:
        return (self.services, self.endpointslices, self.endpoints)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drivers:
    """The drivers that the options name, one for each slot."""

    pod_vif: PodVIFDriver
    pod_project: PodProjectDriver
    pod_subnets: PodSubnetsDriver
    pod_security_groups: PodSecurityGroupsDriver
    vif_pool: VIFPoolDriver
    multi_vif: tuple[MultiVIFDriver, ...]
    service_project: ServiceProjectDriver
    service_subnets: ServiceSubnetsDriver
    service_security_groups: ServiceSecurityGroupsDriver
    endpoints_lbaas: LBaaSDriver
    service_public_ip: ServicePublicIPDriver

    @classmethod
    def load(cls, context: DriverContext) -> Self:
        """Those that the options name.

        :raises errors.ConfigError: there is none of that name.
        """
        options = context.conf.kubernetes
        pod_vif = registry.load(PodVIFDriver, options.pod_vif_driver, context)
        over = dataclasses.replace(context, pod_vif=pod_vif)
        return cls(
            pod_vif=pod_vif,
            pod_project=registry.load(PodProjectDriver, options.pod_project_driver, context),
            pod_subnets=registry.load(PodSubnetsDriver, options.pod_subnets_driver, context),
            pod_security_groups=registry.load(
                PodSecurityGroupsDriver, options.pod_security_groups_driver, context
            ),
            vif_pool=registry.load(VIFPoolDriver, options.vif_pool_driver, over),
            multi_vif=tuple(
                registry.load(MultiVIFDriver, name, context, "[kubernetes] multi_vif_drivers")
                for name in options.multi_vif_drivers
            ),
            service_project=registry.load(
                ServiceProjectDriver, options.service_project_driver, context
            ),
            service_subnets=registry.load(
                ServiceSubnetsDriver, options.service_subnets_driver, context
            ),
            service_security_groups=registry.load(
                ServiceSecurityGroupsDriver, options.service_security_groups_driver, context
            ),
            endpoints_lbaas=registry.load(LBaaSDriver, options.endpoints_lbaas_driver, context),
            service_public_ip=registry.load(
                ServicePublicIPDriver, options.service_public_ip_driver, context
            ),
        )

    def of_pods(self) -> tuple[Driver, ...]:
        """In the order in which they start."""
        decide = (self.pod_project, self.pod_subnets, self.pod_security_groups)
        return (*decide, *self.multi_vif, self.pod_vif, self.vif_pool)

    def of_services(self) -> tuple[Driver, ...]:
        """Likewise; those of Pods are started before."""
        decide = (self.service_project, self.service_subnets, self.service_security_groups)
        return (*decide, self.endpoints_lbaas, self.service_public_ip)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerContext:
    """What every handler is handed at its making.

    ``incarnation`` names this life of the process: what it created itself, nobody else can have
    worked on.
    """

    conf: cfg.ConfigOpts
    kube: KubeApi
    neutron: Neutron
    events: EventRecorder
    informers: Informers
    drivers: Drivers
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class Watch(Generic[T]):
    """A kind to follow, and whom a change of an object concerns.

    ``to_keys(key, old, new)`` gives the keys to reconcile; ``old`` or ``new`` may be None.
    """

    informer: Informer[T]
    to_keys: Callable[[Key, T | None, T | None], Iterable[Key]]


class Handler(abc.ABC):
    """One for each kind of work; level-triggered, idempotent, never told what changed."""

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self.wake: Callable[[Key], None] = lambda _key: None  # set by whoever runs the handler

    @abc.abstractmethod
    def watches(self) -> Sequence[Watch[Any]]:
        """What to follow."""

    @abc.abstractmethod
    async def reconcile(self, key: Key) -> float | None:
        """Bring the world in line with the object ``key``.

        :return: seconds after which to look again, or None for "when it changes".
        :raises errors.Wait: nothing is wrong, look again later.
        :raises errors.Refused: useless until something is mended.
        """

    @abc.abstractmethod
    def about(self, key: Key) -> Reference | None:
        """The object on which a user looks for what is wrong with ``key``, if there is one."""

    async def report(self, key: Key, error: Exception | None, failures: int) -> None:
        """Tell users by an Event: at once what they can mend, later what may pass by itself."""
        about = self.about(key)
        source = type(self).__name__
        if about is None:
            return
        if error is None:
            self._context.events.well(source, about)
        elif words := words_for_users(error, failures):
            await self._context.events.warn(source, about, *words)


def words_for_users(error: Exception, failures: int) -> tuple[str, str] | None:
    """An Event's reason and note; None for what may still pass by itself.

    :param failures: so many attempts in a row have failed.
    """
    if not isinstance(error, TOLD_AT_ONCE) and failures < TELL_AFTER:
        return None
    reason = getattr(error, "reason", errors.KuryrError.reason)
    return reason, getattr(error, "brief", str(error)) or type(error).__name__


def node_reference(node: Node | None) -> Reference | None:
    """What an Event about the Node points at."""
    if node is None:
        return None
    return Reference(resource=NODES, namespace="", name=node.name, uid=node.uid)
