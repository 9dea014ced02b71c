"""The handler of the L7 router: what all Ingresses claim becomes one router, and is published.

Nobody deletes the router but people: it is not gone because no Ingress needs it, nor because the
controller stops. Its state stands in an annotation of every Node, and in a ConfigMap.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import FoundL7Router, L7Router, L7RouterDriver
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.l7.backends import Backends
from kuryr_k8s.handlers.l7.tls import Division, divide, without_tls
from kuryr_k8s.handlers.l7.tls_secrets import TLSSecrets, secrets_of
from kuryr_k8s.handlers.routing import Verdict
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import CONFIGMAPS, NODES, SERVICES, TLSSECRETS, Key
from kuryr_k8s.model.annotations import L7_ROUTER_STATE
from kuryr_k8s.model.l7_router import L7RouterState, vip_address_in
from kuryr_k8s.model.lbaas import LBaaSLoadBalancer
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.routes import Backend, Claim, Forward, Host, Path, Route, SecretName, Split
from kuryr_k8s.model.tls_secret import TLS_TYPE

NAME = "kuryr-l7-router"
ROUTER = Key("", NAME)
DEFAULT_ROUTE = "[l7_router] default_backend"
FIELD_MANAGER = "kuryr-k8s-controller"  # of the ConfigMap's fields
LAG = 1.0  # seconds until a cache that lags is looked at again
ANYTIME = "9"  # later than every time of a creation: others come first


class L7RouterHandler(Handler):
    """Keeps the L7 router, and publishes its state."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._driver = context.drivers[L7RouterDriver]
        self._routing = context.routing
        self._backends = Backends(context)
        options = context.conf.l7_router
        self._default = _default_backend(options.default_backend)
        self._default_secret = _default_secret(options.default_certificate)
        if self._default_secret is not None and not options.tls:
            raise errors.ConfigError("[l7_router] default_certificate: it needs tls = true")
        self._secrets = TLSSecrets(context) if options.tls else None
        self._nodes = context.informers.of(NODES)
        self._nodes.keep(L7_ROUTER_STATE)
        self._published = ""  # what every Node says
        self._mapped = ""  # what the ConfigMap says
        self._counts: Counter[str] = Counter()  # of routes, by their states
        self._is_released = False
        self._claimants: set[str] | None = None  # the uids of those that had routes last
        self._driver.subscribe(lambda _owner: self.queue.wake(ROUTER))
        self._routing.subscribe(lambda: self.queue.add(ROUTER))
        self._reviews: WorkQueue[str] = WorkQueue(context.clock, cap=context.patience.sweep_retry)
        self._reviews.add_after(NAME, context.conf.neutron_defaults.sweep_interval)

    def watches(self) -> Sequence[Watch[Any]]:
        of_secrets = () if self._secrets is None else (self._secrets.watch(ROUTER),)
        return (Watch(self._nodes, self._of_node), *self._backends.watches(ROUTER), *of_secrets)

    def _of_node(self, _key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
        """Return the router's key where a Node is new, or has lost its annotation."""
        is_other = new is not None and (old is None or old.uid != new.uid)
        return (ROUTER,) if is_other or self._has_lost(new) else ()

    def _has_lost(self, node: Node | None) -> bool:
        if node is None:
            return False
        shown = self._nodes.annotation(Key("", node.name), L7_ROUTER_STATE)
        return bool(self._published) and shown != self._published

    def collectors(self) -> Sequence[Collector]:
        return (_Routes(self._counts),)

    def loops(self) -> Sequence[Controller[Any]]:
        """Return the loop that now and then looks at what others have changed."""
        return (
            Controller(
                "l7-router-review",
                self._review,
                queue=self._reviews,
                workers=1,
                observe=self._context.observe,
                patience=self._context.patience,
            ),
        )

    async def _review(self, _name: str) -> float:
        """Have the router compared with what the cloud has.

        :returns: seconds until the next time.
        """
        await self._driver.review()
        self._mapped = ""  # somebody may have deleted it
        self.queue.revisit(ROUTER)
        return float(self._context.conf.neutron_defaults.sweep_interval)

    async def reconcile(self, key: Key) -> float | None:  # noqa: ARG002 - there is one router
        claims = self._routing.claims()
        if self._routing.is_released:
            await self._release(claims)
            return None
        await self._check_lost(claims)
        division = self._divided(claims)
        router = self._wanted(claims, division)
        try:
            state = await self._driver.ensure(router)
        except errors.KuryrError:
            with contextlib.suppress(errors.KuryrError):
                before = await self._driver.state(router)
                if before is not None:
                    await self._publish(claims, division, before)
            raise
        await self._publish(claims, division, state)
        if self._default is not None and (problem := self._backends.problem(self._default)):
            raise errors.Refused(f"{DEFAULT_ROUTE}: {problem}")
        if division.default_problem:
            raise errors.Refused(f"[l7_router] default_certificate: {division.default_problem}")
        return self._backends.until_reported()

    async def _release(self, claims: Sequence[Claim]) -> None:
        """Remove the router, and what was published of it."""
        await self._driver.release(self._owner)
        self._routing.publish(claims, {}, "")
        await self._annotate_nodes(None)
        if not self._is_released:
            await self._write_config_map(None)
        self._published, self._is_released = "", True

    async def _check_lost(self, claims: Sequence[Claim]) -> None:
        """Make sure that nothing loses its routes because a cache lacks it.

        :raises errors.Wait: an object exists that the caches do not show.
        """
        for key in self._backends.lost(claims):
            if await self._context.kube.find(SERVICES, key) is not None:
                raise errors.Wait(f"the cache lags behind Service {key}", delay=LAG)
        secrets = self._secrets
        for key in secrets.lost(self._secrets_of(claims)) if secrets is not None else ():
            found = await self._context.kube.find(TLSSECRETS, key)
            if found is not None and found.get("type") == TLS_TYPE:
                raise errors.Wait(f"the cache lags behind Secret {key}", delay=LAG)
        uids = {claim.uid for claim in claims}
        if self._claimants is None or self._claimants - uids:
            live = await self._routing.claimants()
            # who is new did not have routes; at the first time, nor who came while we asked
            before = live if self._claimants is None else live & self._claimants
            lost = before - uids - {claim.uid for claim in self._routing.claims()}
            if lost:
                raise errors.Wait(
                    f"the caches lag behind {len(lost)} objects that claim routes", delay=LAG
                )
        self._claimants = uids

    @property
    def _owner(self) -> Owner:
        return Owner(self._context.neutron.mark.uid, Role.L7_ROUTER)

    def _divided(self, claims: Sequence[Claim]) -> Division:
        """Return what is served in plain HTTP and what over TLS."""
        if self._secrets is None:
            return without_tls(claims)
        self._secrets.name(self._secrets_of(claims))
        return divide(claims, self._secrets.certificate, self._default_secret)

    def _secrets_of(self, claims: Sequence[Claim]) -> set[SecretName]:
        """Return the Secrets with certificates that are named."""
        default = {self._default_secret} if self._default_secret is not None else set()
        return secrets_of(claims) | default

    def _wanted(self, claims: Sequence[Claim], division: Division) -> L7Router:
        conf = self._context.conf
        routes, secure_routes = list(division.plain), list(division.secure)
        backends: list[Backend | Split] = [
            backend for claim in claims for backend in claim.backends
        ]
        if self._default is not None:
            backends.append(self._default)
            rest = Route(
                name=DEFAULT_ROUTE,
                host=Host(""),
                path=Path.prefix("/"),
                action=Forward(str(self._default)),
                created=ANYTIME,
            )
            routes.append(rest)
            secure_routes.append(rest)
        return L7Router(
            owner=self._owner,
            name=NAME,
            project_id=conf.neutron_defaults.project,
            routes=tuple(routes),
            secure_routes=tuple(secure_routes),
            certificates=division.certificates,
            pools=self._backends.pools(backends),
            vip_address=conf.l7_router.vip_address or None,
            former_vip_address=self._former_vip_address(),
            floating_ip=conf.l7_router.floating_ip or None,
        )

    def _former_vip_address(self) -> str | None:
        """Return the address of the VIP that Nodes tell."""
        for node in self._nodes.values():
            text = self._nodes.annotation(Key("", node.name), L7_ROUTER_STATE)
            if address := vip_address_in(text or ""):
                return address
        return None

    async def _publish(
        self, claims: Sequence[Claim], division: Division, state: FoundL7Router
    ) -> None:
        verdicts = {claim.uid: self._verdict(claim, division, state) for claim in claims}
        self._routing.publish(claims, verdicts, state.address)
        names = {route.name for claim in claims for route in claim.routes}
        refused, closed = names & state.refused.keys(), names & division.closed
        served = (names & state.served) - closed
        self._counts["served"], self._counts["refused"] = len(served), len(refused)
        self._counts["closed"] = len(closed - refused)
        self._counts["pending"] = len(names - refused - served - closed)
        text = _text_of(state)
        await self._annotate_nodes(text)
        self._published = text
        if text != self._mapped:
            await self._write_config_map(state)
            self._mapped = text

    async def _annotate_nodes(self, text: str | None) -> None:
        """Write the annotation of all Nodes, or remove it.

        :raises errors.Wait: a Node is another one than the cache shows.
        """
        lagging = False
        for node in list(self._nodes.values()):
            key = Key("", node.name)
            if self._nodes.annotation(key, L7_ROUTER_STATE) != text:
                patch = {"metadata": {"uid": node.uid, "annotations": {L7_ROUTER_STATE: text}}}
                try:
                    self._nodes.learn(await self._context.kube.merge_patch(NODES, key, patch))
                except errors.KubeNotFound:
                    continue
                except errors.KubeConflict:
                    lagging = True
        if lagging:
            raise errors.Wait("the cache lags behind Nodes", delay=LAG)

    def _verdict(self, claim: Claim, division: Division, state: FoundL7Router) -> Verdict:
        told = state.limited | state.refused
        refused = tuple(
            f"{route.name}: {told[route.name]}" for route in claim.routes if route.name in told
        )
        missing = [each for backend in claim.backends for each in self._backends.problems(backend)]
        wanted = {route.name for route in claim.routes} - state.refused.keys()
        return Verdict(
            address=state.address,
            is_refused=not wanted,
            is_served=bool(wanted) and wanted <= state.served - division.closed,
            refused=(
                *refused,
                *dict.fromkeys(missing),
                *division.problems.get(claim.uid, ()),
            ),
            is_closed=any(route.name in division.closed for route in claim.routes),
            version=claim.version,
            refusal=claim.refusal,
        )

    async def _write_config_map(self, state: FoundL7Router | None) -> None:
        """Write where the router is, for people; or that there is none."""
        key = Key(self._context.conf.kubernetes.lease_namespace, NAME)
        data = _data_of(state) if state is not None else {}
        shown = await self._context.kube.find(CONFIGMAPS, key)
        if (shown or {}).get("data", {}) != data:
            await self._context.kube.apply(CONFIGMAPS, key, {"data": data}, FIELD_MANAGER)

    def about(self, key: Key) -> Reference | None:  # noqa: ARG002 - there is one router
        return Reference.of_cluster(self._context.neutron.mark.uid)


class _Routes(Collector):
    """The metric of routes.

    :param counts: by their states.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    def collect(self) -> Iterable[GaugeMetricFamily]:
        metric = GaugeMetricFamily(
            "kuryr_l7_routes",
            "Routes of the L7 router, by what has become of them",
            labels=["state"],
        )
        for state in ("served", "pending", "closed", "refused"):
            metric.add_metric([state], self._counts[state])
        yield metric


def _default_backend(text: str | None) -> Backend | None:
    if not text:
        return None
    service, _, port = text.partition(":")
    namespace, _, name = service.partition("/")
    return Backend(namespace, name, port)


def _default_secret(text: str | None) -> SecretName | None:
    if not text:
        return None
    namespace, _, name = text.partition("/")
    return SecretName(namespace, name)


def _text_of(state: FoundL7Router) -> str:
    found = state.found
    load_balancer = LBaaSLoadBalancer(
        id=found.id,
        project_id=found.project_id,
        name=NAME,
        ip=found.vip_address,
        subnet_id=found.vip_subnet_id,
        port_id=found.vip_port_id,
    )
    return L7RouterState(fip=state.floating_ip, router_lb=load_balancer).to_text()


def _data_of(state: FoundL7Router) -> dict[str, str]:
    """Return what the ConfigMap tells."""
    return {
        "address": state.address,
        "floating-ip": state.floating_ip or "",
        "vip-address": state.found.vip_address,
        "load-balancer-id": state.found.id,
        "provider": state.found.provider,
    }
