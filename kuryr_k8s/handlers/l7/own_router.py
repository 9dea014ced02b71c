"""The cluster's own L7 router: what its options say, and what is published of it.

Its state stands in an annotation of every Node, for programs, and in a ConfigMap, for people.
"""

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import FoundL7Router
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.l7.desired import Router
from kuryr_k8s.handlers.lag import LAG
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import CONFIGMAPS, NODES, Key
from kuryr_k8s.model.annotations import L7_ROUTER_STATE
from kuryr_k8s.model.l7_router_state import L7RouterState, vip_address_in
from kuryr_k8s.model.l7router import RouterSpec
from kuryr_k8s.model.lbaas import LBaaSLoadBalancer
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.routes import OWN_ROUTER, Backend, SecretName

NAME = "kuryr-l7-router"  # of the load balancer and the ConfigMap
FIELD_MANAGER = "kuryr-k8s-controller"  # of the ConfigMap's fields


class OwnRouter:
    """The router that ``[l7_router]`` describes. People alone delete it, by a command."""

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._spec = _spec_of(context.conf)
        self.nodes = context.informers.of(NODES)
        self.nodes.keep(L7_ROUTER_STATE)
        self._published = ""  # what every Node says
        self._mapped = ""  # what the ConfigMap says
        self._is_retracted = False

    def router(self) -> Router:
        """Return what is asked for."""
        return Router(
            name=OWN_ROUTER,
            owner=Owner(self._context.neutron.mark.uid, Role.L7_ROUTER),
            load_balancer=NAME,
            spec=self._spec,
            former_vip_address=self._former_vip_address(),
            is_leaving=self._context.routing.is_released,
        )

    def has_lost(self, node: Node | None) -> bool:
        """Return whether a Node lacks the annotation."""
        if node is None:
            return False
        shown = self.nodes.annotation(Key("", node.name), L7_ROUTER_STATE)
        return bool(self._published) and shown != self._published

    def doubt(self) -> None:
        """Read the ConfigMap at the next publication: somebody may have changed it."""
        self._mapped = ""

    def about(self) -> Reference:
        """Return the object on which people look for problems."""
        return Reference.of_cluster(self._context.neutron.mark.uid)

    async def publish(self, state: FoundL7Router) -> None:
        """Write where the router is.

        :raises errors.Wait: a Node is another one than the cache shows.
        """
        text = _text_of(state)
        await self._annotate_nodes(text)
        self._published = text
        if text != self._mapped:
            await self._write_config_map(state)
            self._mapped = text

    async def retract(self) -> None:
        """Remove what was published.

        :raises errors.Wait: a Node is another one than the cache shows.
        """
        await self._annotate_nodes(None)
        if not self._is_retracted:
            await self._write_config_map(None)
        self._published, self._is_retracted = "", True

    def _former_vip_address(self) -> str | None:
        """Return the address of the VIP that Nodes tell."""
        for node in self.nodes.values():
            text = self.nodes.annotation(Key("", node.name), L7_ROUTER_STATE)
            if address := vip_address_in(text or ""):
                return address
        return None

    async def _annotate_nodes(self, text: str | None) -> None:
        """Write the annotation of all Nodes, or remove it.

        :raises errors.Wait: a Node is another one than the cache shows.
        """
        lagging = False
        for node in list(self.nodes.values()):
            key = Key("", node.name)
            if self.nodes.annotation(key, L7_ROUTER_STATE) != text:
                patch = {"metadata": {"uid": node.uid, "annotations": {L7_ROUTER_STATE: text}}}
                try:
                    self.nodes.learn(await self._context.kube.merge_patch(NODES, key, patch))
                except errors.KubeNotFound:
                    continue
                except errors.KubeConflict:
                    lagging = True
        if lagging:
            raise errors.Wait("the cache lags behind Nodes", delay=LAG)

    async def _write_config_map(self, state: FoundL7Router | None) -> None:
        """Write where the router is, for people; or that there is none."""
        key = Key(self._context.conf.kubernetes.lease_namespace, NAME)
        data = _data_of(state) if state is not None else {}
        shown = await self._context.kube.find(CONFIGMAPS, key)
        if (shown or {}).get("data", {}) != data:
            await self._context.kube.apply(CONFIGMAPS, key, {"data": data}, FIELD_MANAGER)


def _spec_of(conf: cfg.ConfigOpts) -> RouterSpec:
    options = conf.l7_router
    if options.default_certificate and not options.tls:
        raise errors.ConfigError("[l7_router] default_certificate: it needs tls = true")
    return RouterSpec(
        vip_address=options.vip_address or None,
        floating_ip=options.floating_ip or None,
        default_backend=_default_backend(options.default_backend),
        default_certificate=_default_secret(options.default_certificate),
    )


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
