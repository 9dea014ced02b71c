"""Who may see and do what: Neutron's default policy, as far as ports of clusters need it.

`admin` and `service` see the resources of all projects, whatever RBAC says; `service` alone may
write binding:profile. A member sees its own and what is shared with its project.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import errors
from .store import Store

Json = dict[str, Any]

_BINDING_SEEN_BY_PRIVILEGED = (
    "binding:host_id",
    "binding:profile",
    "binding:vif_type",
    "binding:vif_details",
)
_OF_PROJECTS = (  # `service` is not enough to see another project's
    "security_group",
    "security_group_rule",
    "rbac_policy",
    "policy",
    "trunk",
    "router",
    "floatingip",
)
_PROVIDER = ("provider:network_type", "provider:physical_network", "provider:segmentation_id")


@dataclass(frozen=True)
class Context:
    """Who asks."""

    project_id: str
    roles: frozenset[str]

    @property
    def is_admin(self) -> bool:
        return "admin" in self.roles

    @property
    def is_service(self) -> bool:
        return "service" in self.roles

    @property
    def privileged(self) -> bool:
        """Sees everything."""
        return self.is_admin or self.is_service

    def owns(self, resource: Json, role: str) -> bool:
        """Whether it is the project's own, and the role is there."""
        return role in self.roles and resource["project_id"] == self.project_id


@dataclass(frozen=True)
class Policy:
    """Answers about one state of the cloud."""

    store: Store

    def sees(self, context: Context, kind: str, resource: Json) -> bool:
        """Whether a GET shows the resource."""
        if kind in _OF_PROJECTS:
            shared = kind == "policy" and self._shared(context, resource)
            return shared or context.is_admin or context.owns(resource, "reader")
        if context.privileged or context.owns(resource, "reader"):
            return True
        if kind == "network":
            return resource["router:external"] or self._shared(context, resource)
        network = self.store.networks[resource["network_id"]]
        if kind == "subnet" and (network["router:external"] or self._shared(context, network)):
            return True
        return context.owns(network, "reader")

    def check_create(self, context: Context, kind: str, body: Json) -> None:
        """403 where the context may not create this."""
        self._check_project(context, body)
        if kind == "port":
            self._check_port(context, body)
        elif kind == "floatingip":
            self._check_floating_ip(context, body)
        elif not (context.is_admin or "member" in context.roles):
            raise errors.disallowed(f"create_{kind}")

    def check_change(self, context: Context, kind: str, resource: Json, verb: str) -> None:
        """404 for what the context does not see, 403 for what it may not change."""
        allowed = context.is_admin or context.owns(resource, "member")
        if kind == "port":
            allowed = allowed or context.is_service
            network = self.store.networks[resource["network_id"]]
            allowed = allowed or (verb == "delete" and context.owns(network, "member"))
        if allowed:
            return
        seen = self.sees(context, kind, resource)
        raise errors.disallowed(f"{verb}_{kind}") if seen else errors.hidden()

    def check_binding(self, context: Context, body: Json, verb: str) -> None:
        """403 for writing what belongs to admins and services."""
        if body.get("binding:profile") and not context.is_service:
            raise errors.disallowed(f"{verb}_port", f"{verb}_port:binding:profile")
        if body.get("binding:host_id") and not context.privileged:
            raise errors.disallowed(f"{verb}_port", f"{verb}_port:binding:host_id")

    def check_tags(self, context: Context, kind: str, resource: Json) -> None:
        """403 for tags on what is not the project's own: `service` is not enough for them."""
        if not (context.is_admin or context.owns(resource, "member")):
            raise errors.disallowed(f"update_{kind}:tags")

    def view(self, context: Context, kind: str, resource: Json, first: Json | None = None) -> Json:
        """What the context gets to see of a resource that it sees.

        In a list the `first` one decides for all which attributes are shown, as in Neutron.
        """
        shown = self._complete(context, kind, resource)
        unseen = self._unseen(context, kind, first or resource)
        return {name: value for name, value in shown.items() if name not in unseen}

    def _complete(self, context: Context, kind: str, resource: Json) -> Json:
        """The resource with what depends on others, or on who looks."""
        if kind == "network":
            return resource | {"shared": self._shared(context, resource)}
        if kind == "subnet":
            network = self.store.networks[resource["network_id"]]
            return resource | {"shared": self._shared(context, network)}
        if kind == "port" and (trunk := self.store.trunk_on(resource["id"])):
            subports = [
                subport | {"mac_address": self.store.ports[subport["port_id"]]["mac_address"]}
                for subport in trunk["sub_ports"]
            ]
            return resource | {"trunk_details": {"trunk_id": trunk["id"], "sub_ports": subports}}
        if kind == "security_group":
            rules = [
                rule
                for rule in self.store.security_group_rules.values()
                if rule["security_group_id"] == resource["id"]
            ]
            return resource | {"security_group_rules": rules}
        return resource

    def _unseen(self, context: Context, kind: str, resource: Json) -> tuple[str, ...]:
        if context.is_admin:
            return ()
        unseen: tuple[str, ...] = ()
        if kind == "port" and not context.is_service:
            unseen = _BINDING_SEEN_BY_PRIVILEGED
        elif kind == "network":
            unseen = _PROVIDER
        return unseen if self._sees_tags(context, kind, resource) else (*unseen, "tags")

    def _sees_tags(self, context: Context, kind: str, resource: Json) -> bool:
        """`service` is not enough for tags."""
        if context.owns(resource, "reader") or kind not in ("network", "subnet", "port"):
            return True
        network = resource
        if kind != "network":
            network = self.store.networks[resource["network_id"]]
        granted = network["router:external"] or self._shared(context, network)
        return context.owns(network, "reader") or (granted and kind != "port")

    def _shared(self, context: Context, network: Json) -> bool:
        return self.store.is_shared(network, context.project_id)

    def _check_project(self, context: Context, body: Json) -> None:
        if body["project_id"] != context.project_id and not context.privileged:
            raise errors.malformed(
                "Specifying 'project_id' other than the authenticated project in request is not"
                " allowed for the current user."
            )

    def _check_floating_ip(self, context: Context, body: Json) -> None:
        rules = []
        if not (context.is_admin or context.owns(body, "member")):
            rules.append("create_floatingip")
        chosen = body["floating_ip_address"] is not None
        if chosen and not (context.is_admin or context.owns(body, "manager")):
            rules = ["create_floatingip", "create_floatingip:floating_ip_address"]
        if rules:
            raise errors.disallowed(*rules)

    def _check_port(self, context: Context, body: Json) -> None:
        network = self.store.get("network", body["network_id"])
        owner = context.owns(network, "member")
        if not (context.privileged or owner or self._shared(context, network)):
            if not self.sees(context, "network", network):
                raise errors.missing("network", network["id"])
            raise errors.disallowed("create_port")
        if not (context.privileged or owner) and body.get("mac_address"):
            raise errors.disallowed("create_port", "create_port:mac_address")
        self.check_binding(context, body, "create")
