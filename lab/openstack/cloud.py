"""Objects in OpenStack: accounts, networks, router, security groups, the lab's own ports.

Every function finds what is there before it creates, so that an interrupted or repeated run ends
in the same state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from lab import facts, topology
from lab.openstack.config import (
    ADMIN_PASSWORD,
    BARBICAN_URL,
    KEYSTONE_PORT,
    KEYSTONE_URL,
    NEUTRON_PORT,
    NEUTRON_URL,
    OCTAVIA_URL,
    SERVICE_PASSWORD,
    USER_PASSWORD,
)
from lab.openstack.rest import Api, ApiError, Json, token
from lab.process import wait_until
from lab.topology import Network, Node

_LOCAL_KEYSTONE = f"http://127.0.0.1:{KEYSTONE_PORT}/v3"
# The least that lets the product work: `member` for what the project owns, load balancers and
# secrets included, `service` because Neutron lets only that role (or an admin) write and read
# binding:* of ports.
KURYR_ROLES = ("member", "service")
_MARK = "made by the lab"


def admin_token() -> str:
    """Request a token of the cloud's administrator."""
    return token(_LOCAL_KEYSTONE, "admin", ADMIN_PASSWORD, "admin")


def ensure_accounts() -> dict[str, str]:
    """Ensure projects, users, roles and the catalog.

    :returns: the projects' ids by name.
    """
    keystone = Api(_LOCAL_KEYSTONE, admin_token())
    projects = {
        name: _identity(keystone, "project", name, domain_id="default")
        for name in ("admin", "service", "k8s", "tenant2")
    }
    roles = {
        name: _identity(keystone, "role", name)
        for name in (
            "admin",
            "member",
            "reader",
            "service",
            "load-balancer_admin",
            "load-balancer_member",
        )
    }
    users = {
        name: _identity(keystone, "user", name, domain_id="default", password=password)
        for name, password in (
            ("neutron", SERVICE_PASSWORD),
            ("barbican", SERVICE_PASSWORD),
            ("octavia", SERVICE_PASSWORD),
            ("kuryr", USER_PASSWORD),
            ("tenant2", USER_PASSWORD),
            ("admin", ADMIN_PASSWORD),
        )
    }
    grants = {
        ("neutron", "service"): ("admin", "service"),
        ("barbican", "service"): ("service",),
        ("octavia", "service"): ("admin", "service"),
        # The admin of the lab may also write binding:profile, which `admin` alone may not.
        ("admin", "admin"): ("service", "load-balancer_admin", "load-balancer_member"),
        ("kuryr", "k8s"): KURYR_ROLES,
        ("tenant2", "tenant2"): ("member", "load-balancer_member"),
    }
    for (user, project), names in grants.items():
        for name in names:
            keystone.put(f"/projects/{projects[project]}/users/{users[user]}/roles/{roles[name]}")
    for name, kind, url in (
        ("neutron", "network", NEUTRON_URL),
        ("barbican", "key-manager", BARBICAN_URL),
        ("octavia", "load-balancer", OCTAVIA_URL),
    ):
        _endpoints(keystone, _identity(keystone, "service", name, type=kind), url)
    return projects


def _identity(keystone: Api, kind: str, name: str, **values: str) -> str:
    found = keystone.get(f"/{kind}s", name=name)[f"{kind}s"]
    if not found:
        found = [keystone.post(f"/{kind}s", {kind: {"name": name, **values}})[kind]]
    identifier: str = found[0]["id"]
    return identifier


def _endpoints(keystone: Api, service: str, url: str) -> None:
    present = {
        entry["interface"] for entry in keystone.get("/endpoints", service_id=service)["endpoints"]
    }
    for interface in {"public", "internal", "admin"} - present:
        keystone.post(
            "/endpoints",
            {
                "endpoint": {
                    "service_id": service,
                    "interface": interface,
                    "region_id": "RegionOne",
                    "url": url,
                }
            },
        )


class NeutronSetup:
    """The networks and ports of the lab, made as an admin in the name of the projects."""

    def __init__(self, projects: dict[str, str]) -> None:
        self._api = Api(f"http://127.0.0.1:{NEUTRON_PORT}/v2.0", admin_token())
        self._projects = projects

    def networks(self) -> facts.Cloud:
        """Ensure everything but ports.

        :returns: what programs have to know of it.
        """
        k8s, tenant = self._projects["k8s"], self._projects["tenant2"]
        public = self._public()
        found = {"public": public}
        found |= {plan.name: self._network(plan, k8s) for plan in topology.NETWORKS}
        for plan in (topology.TENANT_NETWORK, topology.SHARED_NETWORK):
            found[plan.name] = self._network(plan, tenant)
        found["lb-mgmt-net"] = self._network(topology.LB_MANAGEMENT, self._projects["admin"])
        self._share(found["shared-net"].id, tenant, k8s)
        router = self._router(k8s, public)
        for plan in topology.NETWORKS:
            self._attach(router, found[plan.name])
        groups = {
            name: self._group(name, k8s, sources)
            for name, sources in topology.SECURITY_GROUPS.items()
        }
        groups["tenant2"] = self._group("tenant2", tenant, ())
        return facts.Cloud(
            keystone_url=KEYSTONE_URL,
            neutron_url=NEUTRON_URL,
            barbican_url=BARBICAN_URL,
            octavia_url=OCTAVIA_URL,
            clouds_yaml="",
            projects=self._projects,
            networks=found,
            security_groups=groups,
            router_id=router,
        )

    def vm_port(self, cloud: facts.Cloud, node: Node) -> str:
        """Ensure the port of vm1.

        :returns: its id.
        """
        return self._port(
            cloud,
            topology.VM_NAMESPACE,
            "vms",
            topology.VM_MAC,
            (topology.VM_V4, topology.VM_V6),
            node.chassis,
            "vms",
        )

    def _ensure(
        self, kind: str, plural: str, query: dict[str, str], create: Callable[[], Json]
    ) -> Json:
        def found() -> list[Json]:
            there: list[Json] = self._api.get(f"/{plural}", **query)[plural.replace("-", "_")]
            return there

        if there := found():
            return there[0]
        try:
            made: Json = self._create(f"/{plural}", {kind: create()})[kind]
        except ApiError as error:
            # a Neutron that has just started does not show all that is there
            if error.status != 409 or not wait_until(lambda: bool(found()), 10, pause=0.5):
                raise
            return found()[0]
        return made

    def _create(self, path: str, body: Json) -> Json:
        """Create an object, though a Neutron that has just started refuses for a moment."""
        refusals: list[ApiError] = []
        answers: list[Json] = []

        def is_made() -> bool:
            try:
                answers.append(self._api.post(path, body))
            except ApiError as error:
                if error.status != 403:
                    raise
                refusals.append(error)
            return bool(answers)

        if not wait_until(is_made, 10, pause=0.5):
            raise refusals[-1]
        return answers[0]

    def _network(self, plan: Network, project: str) -> facts.Network:
        made = self._ensure(
            "network",
            "networks",
            {"name": plan.name, "project_id": project},
            lambda: {"name": plan.name, "project_id": project},
        )
        v4 = self._subnet(made, plan.name, plan.v4, plan.gateway_v4, plan.pool_v4)
        v6 = None
        if plan.v6 is not None:
            v6 = self._subnet(made, f"{plan.name}-v6", plan.v6, plan.gateway_v6, plan.pool_v6)
        return facts.Network(made["id"], project, v4, v6)

    def _subnet(
        self,
        network: Json,
        name: str,
        cidr: str,
        gateway: str | None,
        pool: tuple[str, str] | None,
    ) -> facts.Subnet:
        body: Json = {
            "name": name,
            "network_id": network["id"],
            "cidr": cidr,
            "project_id": network["project_id"],
            "enable_dhcp": False,
            "ip_version": 6 if ":" in cidr else 4,
        }
        if gateway:
            body["gateway_ip"] = gateway
        if pool:
            body["allocation_pools"] = [{"start": pool[0], "end": pool[1]}]
        made = self._ensure(
            "subnet", "subnets", {"name": name, "network_id": network["id"]}, lambda: body
        )
        return facts.Subnet(made["id"], made["cidr"], made["gateway_ip"])

    def _public(self) -> facts.Network:
        project = self._projects["admin"]
        made = self._ensure(
            "network",
            "networks",
            {"name": "public"},
            lambda: {
                "name": "public",
                "project_id": project,
                "router:external": True,
                "provider:network_type": "flat",
                "provider:physical_network": "physnet1",
            },
        )
        plan = topology.PUBLIC_NETWORK
        v4 = self._subnet(made, plan.name, plan.v4, plan.gateway_v4, plan.pool_v4)
        assert plan.v6 is not None
        v6 = self._subnet(made, f"{plan.name}-v6", plan.v6, plan.gateway_v6, None)
        return facts.Network(made["id"], project, v4, v6)

    def _share(self, network: str, owner: str, target: str) -> None:
        query = {"object_id": network, "target_tenant": target}
        self._ensure(
            "rbac_policy",
            "rbac-policies",
            query,
            lambda: {
                "object_type": "network",
                "object_id": network,
                "target_tenant": target,
                "action": "access_as_shared",
                "project_id": owner,
            },
        )

    def _router(self, project: str, external: facts.Network) -> str:
        assert external.v4 is not None
        assert external.v6 is not None
        gateway = {
            "network_id": external.id,
            # With it OVN loses connections to members of load balancers that are out there, such
            # as the API server.
            "enable_snat": False,
            "external_fixed_ips": [
                {"subnet_id": external.v4.id, "ip_address": topology.CLOUD_ROUTER_V4},
                {"subnet_id": external.v6.id, "ip_address": topology.CLOUD_ROUTER_V6},
            ],
        }
        made = self._ensure(
            "router",
            "routers",
            {"name": "k8s", "project_id": project},
            lambda: {"name": "k8s", "project_id": project, "external_gateway_info": gateway},
        )
        identifier: str = made["id"]
        return identifier

    def _attach(self, router: str, network: facts.Network) -> None:
        ports = self._api.get("/ports", device_id=router, network_id=network.id)["ports"]
        present = {ip["subnet_id"] for port in ports for ip in port["fixed_ips"]}
        for subnet in (network.v4, network.v6):
            if subnet is not None and subnet.id not in present:
                self._api.put(f"/routers/{router}/add_router_interface", {"subnet_id": subnet.id})

    def _group(self, name: str, project: str, sources: tuple[str, ...]) -> str:
        made = self._ensure(
            "security_group",
            "security-groups",
            {"name": name, "project_id": project},
            lambda: {"name": name, "project_id": project, "description": _MARK},
        )
        present = {
            rule["remote_ip_prefix"]
            for rule in made["security_group_rules"]
            if rule["direction"] == "ingress"
        }
        prefixes = [
            prefix
            for source in sources
            for prefix in (topology.network(source).v4, topology.network(source).v6)
        ]
        rules = [
            {
                "security_group_id": made["id"],
                "project_id": project,
                "direction": "ingress",
                "ethertype": "IPv6" if ":" in prefix else "IPv4",
                "remote_ip_prefix": prefix,
            }
            for prefix in prefixes
            if prefix is not None and prefix not in present
        ]
        if rules:
            self._api.post("/security-group-rules", {"security_group_rules": rules})
        identifier: str = made["id"]
        return identifier

    def _port(
        self,
        cloud: facts.Cloud,
        name: str,
        network: str,
        mac: str,
        addresses: tuple[str, str],
        host: str,
        group: str,
    ) -> str:
        target = cloud.networks[network]
        body: dict[str, Any] = {
            "name": name,
            "network_id": target.id,
            "project_id": target.project_id,
            "mac_address": mac,
            "binding:host_id": host,
            "device_owner": "lab:port",
            "device_id": hashlib.sha256(name.encode()).hexdigest()[:32],
            "fixed_ips": [{"ip_address": address} for address in addresses],
            "security_groups": [cloud.security_groups[group]],
        }
        query = {"name": name, "network_id": target.id}
        made = self._ensure("port", "ports", query, lambda: body)
        if made["binding:vif_type"] != "ovs":
            # Bound before the chassis was known: Neutron does not try again by itself.
            self._api.delete(f"/ports/{made['id']}")
            made = self._ensure("port", "ports", query, lambda: body)
        if made["binding:vif_type"] != "ovs":
            raise RuntimeError(
                f"Neutron cannot bind the port {name} to {host}: is its "
                f"ovn-controller registered? ({made['binding:vif_type']})"
            )
        identifier: str = made["id"]
        return identifier
