"""Pools for the Services' ports to which routes lead, with the Pods behind them as members."""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet

from kuryr_k8s.handlers.base import HandlerContext, Watch
from kuryr_k8s.handlers.service_slices import ServiceSlices
from kuryr_k8s.k8s.resources import ENDPOINTSLICES, SERVICES, Key
from kuryr_k8s.model.lbaas import LBaaSPortSpec
from kuryr_k8s.model.load_balancer import Member, Pool
from kuryr_k8s.model.member_weights import weighted
from kuryr_k8s.model.members import members_of
from kuryr_k8s.model.routes import Backend, Split
from kuryr_k8s.model.service import EXTERNAL_NAME, EndpointSlice, Service, ServicePort

FAMILY = "IPv4"  # of the router's VIP, and so of what it reaches
ALGORITHM = "ROUND_ROBIN"


class ServicesOfRoutes:
    """Services and their EndpointSlices, for the backends of all routers.

    :param concerned: returns the keys of the routers that lead to any of these Services.
    """

    def __init__(
        self,
        context: HandlerContext,
        concerned: Callable[[AbstractSet[Key]], Iterable[Key]],
    ) -> None:
        self._services = context.informers.of(SERVICES)
        self._cache = context.informers.of(ENDPOINTSLICES)
        self._slices = ServiceSlices(self._cache)
        self._concerned = concerned

    def watches(self) -> tuple[Watch[Service], Watch[EndpointSlice]]:
        """Return the kinds to follow."""
        return Watch(self._services, self._changed), Watch(self._cache, self._slice_changed)

    def _changed(self, key: Key, old: Service | None, new: Service | None) -> Iterable[Key]:
        return self._concerned({key}) if _essence(old) != _essence(new) else ()

    def _slice_changed(
        self, key: Key, old: EndpointSlice | None, new: EndpointSlice | None
    ) -> Iterable[Key]:
        return self._concerned(set(self._slices.changed(key, old, new)))

    def get(self, key: Key) -> Service | None:
        """Return a Service."""
        return self._services.get(key)

    def slices(self, key: Key) -> list[EndpointSlice]:
        """Return all of a Service's slices."""
        return self._slices.every(key)

    def slice_keys(self, key: Key) -> Iterable[Key]:
        """Return the keys of all of a Service's slices."""
        return self._slices.keys_of(key)

    def has_slice(self, key: Key) -> bool:
        """Return whether the cache has a slice."""
        return self._cache.get(key) is not None


class Backends:
    """The backends of the routes of a router."""

    def __init__(self, context: HandlerContext, services: ServicesOfRoutes) -> None:
        self._services = services
        self.named: frozenset[Key] = frozenset()  # Services to which routes lead
        # those of them that there are; None before the first look
        self._used: frozenset[Key] | None = None
        self._made_of: dict[Key, Key] = {}  # Services by the slices that pools are made of
        self._missing: dict[Backend, float] = {}  # since when
        self._clock = context.clock
        self._patience = context.patience.missing_backend

    def pools(self, backends: Iterable[Backend | Split]) -> tuple[Pool, ...]:
        """Return the pools of these backends, and follow these from now on.

        What has no endpoints has no members: Octavia answers 503.
        """
        wanted = sorted(set(backends), key=str)
        parts = [part for each in wanted for part in each.parts]
        self.named = _services_of(wanted)
        self._used = frozenset(key for key in self.named if self._services.get(key) is not None)
        self._made_of = {
            slice_key: key for key in self._used for slice_key in self._services.slice_keys(key)
        }
        now = self._clock.now()
        self._missing = {
            each: self._missing.get(each, now)
            for each in parts
            if self._why_missing(each) is not None
        }
        return tuple(self._pool(backend) for backend in wanted)

    def _pool(self, backend: Backend | Split) -> Pool:
        if isinstance(backend, Backend):
            members, algorithm = self._members(backend), ALGORITHM
            over_tls = backend.over_tls
        else:
            shares = [(self._members(part), weight) for part, weight in backend.shares]
            members, algorithm = weighted(shares), backend.algorithm
            over_tls = backend.authority is not None
        return Pool(
            name=str(backend),
            protocol="HTTP",
            lb_algorithm=algorithm,
            persistence="HTTP_COOKIE" if backend.by_cookie else None,
            members=members,
            tls_enabled=over_tls,
        )

    def problems(self, backend: Backend | Split) -> Iterator[str]:
        """Yield why requests to a backend cannot be answered, in words for users.

        What may still pass is left out.
        """
        for part in backend.parts:
            if (problem := self.problem(part) or self._why_partial(part)) is not None:
                yield problem

    def problem(self, backend: Backend) -> str | None:
        """Return why requests to a backend cannot be answered, in words for users.

        :returns: None also where that may still pass.
        """
        since = self._missing.get(backend)
        if since is None or self._clock.now() - since < self._patience:
            return None
        return self._why_missing(backend)

    def lost(self, backends: Iterable[Backend | Split]) -> list[Key]:
        """List the Services of these backends that may have pools, and that the cache lacks."""
        services = _services_of(backends)
        known = services if self._used is None else services & self._used
        return [key for key in known if self._services.get(key) is None]

    def lost_slices(self, backends: Iterable[Backend | Split]) -> list[Key]:
        """List the slices of these backends' pools that the cache lacks."""
        services = _services_of(backends)
        return [
            key
            for key, service in self._made_of.items()
            if service in services and not self._services.has_slice(key)
        ]

    def until_reported(self) -> float | None:
        """Return the seconds until there is a problem to report; None if there will be none."""
        now = self._clock.now()
        left = [since + self._patience - now for since in self._missing.values()]
        return min((each for each in left if each > 0), default=None)

    def _why_missing(self, backend: Backend) -> str | None:
        service = self._services.get(Key(backend.namespace, backend.service))
        if service is None:
            return f"there is no Service {backend.namespace}/{backend.service}"
        if service.type == EXTERNAL_NAME:
            return f"Service {backend.namespace}/{backend.service} is of type ExternalName"
        if self._port(service, backend) is None:
            return (
                f"Service {backend.namespace}/{backend.service} has no TCP port {backend.port}"
            ).rstrip()
        return None

    def _why_partial(self, backend: Backend) -> str | None:
        """Return which endpoints of a backend get no requests, though nobody says so."""
        service = self._services.get(Key(backend.namespace, backend.service))
        if service is None or not backend.is_of_pods or backend.port:
            return None
        ports = _of_tcp(service)
        if len(ports) < 2:
            return None
        return (
            f"Service {backend.namespace}/{backend.service} has several TCP ports, and none is "
            f"named: {ports[0].name or ports[0].port} is used"
        )

    def _port(self, service: Service, backend: Backend) -> ServicePort | None:
        ports = _of_tcp(service)
        if not backend.is_of_pods:
            named = (port for port in ports if backend.port in (port.name, str(port.port)))
            return next(named, None)
        if not backend.port:
            return next(iter(ports), None)
        found = (port for port in ports if backend.port in (port.name, port.target_port))
        numbered = {
            port.name
            for each in self._services.slices(Key(backend.namespace, backend.service))
            for port in each.ports
            if str(port.port) == backend.port
        }
        others = (port for port in ports if port.name in numbered)
        return next(found, None) or next(others, None)

    def _members(self, backend: Backend) -> tuple[Member, ...]:
        key = Key(backend.namespace, backend.service)
        service = self._services.get(key)
        port = None if service is None else self._port(service, backend)
        if service is None or port is None:
            return ()
        spec = LBaaSPortSpec(
            name=port.name or None,
            protocol=port.protocol,
            port=port.port,
            targetPort=port.target_port,
        )
        slices = [each for each in self._services.slices(key) if each.family == FAMILY]
        members = members_of(spec, service, slices, _through_the_router)
        if backend.is_of_pods and backend.port.isdecimal() and port.name != backend.port:
            return tuple(member for member in members if str(member.port) == backend.port)
        return members


def _through_the_router(_address: str) -> None:
    """Return the subnet in which a member is reached: none of its own."""


def _services_of(backends: Iterable[Backend | Split]) -> frozenset[Key]:
    return frozenset(
        Key(part.namespace, part.service) for backend in backends for part in backend.parts
    )


def _of_tcp(service: Service) -> list[ServicePort]:
    return [port for port in service.ports if port.protocol == "TCP"]


def _essence(service: Service | None) -> object:
    """Return what decides about a Service's pools."""
    return service and (
        service.uid,
        service.type,
        service.ports,
        service.publish_not_ready_addresses,
    )
