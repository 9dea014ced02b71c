"""Routers, as far as floating IPs need them: which subnets reach which external network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.kit.fakes.faults import Answer

from . import errors
from .ipam import INTERFACE
from .kinds import ROUTER, Kind
from .policy import Context, Policy
from .ports import Ports
from .store import Store

Json = dict[str, Any]
Find = Callable[[web.Request, Kind], tuple[Context, Json]]

NETWORK = Context("", frozenset({"admin"}))  # who makes the ports of routers
GATEWAY = "network:router_gateway"


class Routers:
    """A router has a port on its external network, and one in each subnet."""

    def __init__(self, store: Store, policy: Policy, ports: Ports) -> None:
        self._store = store
        self._policy = policy
        self._ports = ports

    def create(self, context: Context, body: Json) -> Json:
        """A router; where it has a gateway, its address is taken."""
        body = ROUTER.check_create(body)
        self._policy.check_create(context, "router", body)
        router = self._store.add("router", body)
        gateway = body["external_gateway_info"]
        if gateway:
            network = self._store.get("network", gateway["network_id"])
            self._add_port(router, network, GATEWAY, None)
        return router

    def delete(self, router: Json) -> None:
        """Remove it with its gateway, unless it has interfaces."""
        ports = self._ports_of(router)
        if any(port["device_owner"] == INTERFACE for port in ports):
            message = f"Router {router['id']} still has ports"
            raise Answer(409, "RouterInUse", message)
        for port in ports:
            self._ports.delete(port)
        self._store.remove("router", router)

    def add_interface(self, router: Json, subnet_id: str, *, as_gateway: bool = True) -> Json:
        """Attach a subnet, by its gateway's address; another router is attached by any."""
        subnet = self._store.get("subnet", subnet_id)
        network = self._store.networks[subnet["network_id"]]
        addresses = [{"subnet_id": subnet_id}]
        if as_gateway:
            addresses[0]["ip_address"] = subnet["gateway_ip"]
        port = self._add_port(router, network, INTERFACE, addresses)
        return self._info(router, port, subnet_id)

    def remove_interface(self, router: Json, subnet_id: str) -> Json:
        """Detach a subnet, unless a floating IP needs it."""
        for port in self._ports_of(router):
            if port["device_owner"] == INTERFACE and _in(port, subnet_id):
                if self._needed(router, subnet_id):
                    message = (
                        f"Router interface for subnet {subnet_id} on router {router['id']} cannot"
                        " be deleted, as it is required by one or more floating IPs."
                    )
                    raise Answer(409, "RouterInterfaceInUseByFloatingIP", message)
                self._ports.delete(port)
                return self._info(router, port, subnet_id)
        raise Answer(404, "RouterInterfaceNotFoundForSubnet", f"Router {router['id']} has none")

    def leading(self, subnet_id: str, network_id: str) -> Json | None:
        """The router from the subnet to the external network."""
        for router in self._store.routers.values():
            ports = self._ports_of(router)
            inside = any(
                port["device_owner"] == INTERFACE and _in(port, subnet_id) for port in ports
            )
            outside = (router["external_gateway_info"] or {}).get("network_id")
            if inside and outside == network_id:
                return router
        return None

    def _needed(self, router: Json, subnet_id: str) -> bool:
        ports = self._store.ports
        return any(
            floating_ip["router_id"] == router["id"]
            and _in(ports[floating_ip["port_id"]], subnet_id)
            for floating_ip in self._store.floatingips.values()
            if floating_ip["port_id"]
        )

    def _add_port(
        self, router: Json, network: Json, owner: str, addresses: list[Json] | None
    ) -> Json:
        body = {"network_id": network["id"], "device_owner": owner, "device_id": router["id"]}
        project = "" if owner == GATEWAY else router["project_id"]
        body |= {"project_id": project, "tenant_id": project}
        if addresses is not None:
            body["fixed_ips"] = addresses
        return self._ports.create(NETWORK, body)

    def _ports_of(self, router: Json) -> list[Json]:
        ids = self._store.ports_by_device.get(router["id"], ())
        return [self._store.ports[port_id] for port_id in tuple(ids)]

    @staticmethod
    def _info(router: Json, port: Json, subnet_id: str) -> Json:
        return {
            "id": router["id"],
            "tenant_id": port["project_id"],
            "port_id": port["id"],
            "network_id": port["network_id"],
            "subnet_id": subnet_id,
            "subnet_ids": [subnet_id],
        }


class Interfaces:
    """/v2.0/routers/<id>/add_router_interface and remove_router_interface."""

    def __init__(self, routers: Routers, policy: Policy, find: Find) -> None:
        self._routers = routers
        self._policy = policy
        self._find = find

    def routes(self) -> list[web.RouteDef]:
        """Both take the id of a subnet; Neutron would take a port's as well."""
        path = ROUTER.path + "/{id}"
        return [
            web.put(f"{path}/add_router_interface", self._add),
            web.put(f"{path}/remove_router_interface", self._remove),
        ]

    async def _add(self, request: web.Request) -> web.Response:
        router, subnet_id = await self._read(request)
        return web.json_response(self._routers.add_interface(router, subnet_id))

    async def _remove(self, request: web.Request) -> web.Response:
        router, subnet_id = await self._read(request)
        return web.json_response(self._routers.remove_interface(router, subnet_id))

    async def _read(self, request: web.Request) -> tuple[Json, str]:
        body = await request.json()
        context, router = self._find(request, ROUTER)
        self._policy.check_change(context, "router", router, "update")
        if "subnet_id" not in body:
            raise errors.malformed("Either subnet_id or port_id must be specified")
        return router, body["subnet_id"]


def _in(port: Json, subnet_id: str) -> bool:
    return any(fixed_ip["subnet_id"] == subnet_id for fixed_ip in port["fixed_ips"])
