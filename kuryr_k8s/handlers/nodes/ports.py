"""The Neutron ports of Nodes: made, found again, kept up to date, and released.

A port is a Node's by its ``device_id``, the uid of the Node, and is found by its description, the
mark of the cluster: it has both from its creation, its tags perhaps later.
"""

import contextlib
import ipaddress
import logging
from collections.abc import Sequence
from typing import Any

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import BOUND_TO, Neutron
from kuryr_k8s.cloud.neutron.automatic_addresses import asked_subnet_ids_of
from kuryr_k8s.drivers.base import NAME_LIMIT, BindingFailed
from kuryr_k8s.handlers.nodes.network import NodeNetwork
from kuryr_k8s.model.node_interface import NodeInterface, Route
from kuryr_k8s.model.pod import Node

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
NODE_DEVICE_OWNER = "compute:kuryr-node"
UNUSABLE = ("binding_failed", "unbound")  # vif_type of a port that is bound to no host


class PortsOfNodes:
    """Calls Neutron for the ports of Nodes; keeps no state."""

    def __init__(self, conf: cfg.ConfigOpts, neutron: Neutron) -> None:
        defaults = conf.neutron_defaults
        self._neutron = neutron
        self._project: str = defaults.project
        self._groups = sorted(defaults.node_security_groups)
        self._resource_tags = tuple(defaults.resource_tags)
        self._mtu: int = defaults.network_device_mtu

    async def all(self) -> list[Json]:
        """List the ports of all Nodes.

        :raises errors.CloudError: Neutron did not list them.
        """
        return await self._list({})

    async def ensure(
        self, node: Node, network: NodeNetwork, preferred: str | None
    ) -> tuple[Json, list[str]]:
        """Return the port of a Node, and those that it replaces; make it, or bring it up to date.

        :param node: Its daemon has published its host.
        :param preferred: The id of the port that the node knows, in case there are several.
        :returns: The port, and the ids of others, of an earlier network or of a creation that came
            late: the node may use one of them until it knows this port.
        :raises BindingFailed: Neutron cannot bind a port on the node's host.
        :raises errors.CloudError: Neutron refuses.
        """
        found = await self._list({"device_id": node.uid})
        for port in found:
            await self._adopt(port)  # a failure must not lead to a second port
        usable = [port for port in found if port["network_id"] == network.network.id]
        usable.sort(key=lambda port: (port["id"] != preferred, port["created_at"], port["id"]))
        replaced = [port["id"] for port in found if port not in usable[:1]]
        if usable:
            port = await self._update(usable[0], node, network)
        else:
            port = await self._neutron.create_port(self._body(node, network))
            LOG.info("port %s is made for Node %s", port["id"], node.name)
        kind = port.get("binding:vif_type")
        if kind in UNUSABLE:
            await self._neutron.delete_port(port["id"])
            raise BindingFailed(
                f"Neutron could not bind a port on host {node.host_id!r} (vif_type {kind}): is an "
                "agent of that host name alive (openstack network agent list)?"
            )
        return port, replaced

    def is_right(self, ports: Sequence[Json], node: Node, network: NodeNetwork) -> bool:
        """Return whether these ports of a Node are what :meth:`ensure` would leave as they are."""
        if len(ports) != 1:
            return False
        port = ports[0]
        return (
            port["network_id"] == network.network.id
            and self._neutron.mark.is_on(port["tags"])
            and port.get("binding:vif_type") not in UNUSABLE
            and not self._changes(port, node, network)
        )

    async def release(self, port: Json) -> None:
        """Delete a port; one that is gone already is as good.

        :raises errors.CloudError: Neutron refuses, or does not give the port its tags, without
            which nothing is deleted.
        """
        with contextlib.suppress(errors.NotFound):
            await self._adopt(port)
        await self._neutron.delete_port(port["id"])

    def describe(
        self, port: Json, network: NodeNetwork, routes: tuple[Route, ...]
    ) -> NodeInterface:
        """Describe to the node's daemon the interface of a port."""
        lengths = {
            subnet.id: ipaddress.ip_network(subnet.cidr).prefixlen for subnet in network.subnets
        }
        mtu = network.network.mtu
        return NodeInterface(
            port_id=port["id"],
            mac_address=port["mac_address"],
            mtu=min(mtu, self._mtu) if self._mtu else mtu,
            addresses=tuple(
                ipaddress.ip_interface(f"{fixed['ip_address']}/{lengths[fixed['subnet_id']]}")
                for fixed in sorted(port["fixed_ips"], key=lambda fixed: str(fixed["ip_address"]))
                if fixed["subnet_id"] in lengths
            ),
            routes=routes,
        )

    @property
    def _tags(self) -> tuple[str, ...]:
        return (*self._resource_tags, self._neutron.mark.tag)

    async def _list(self, query: Json) -> list[Json]:
        """List ports of this cluster, with or without their tags."""
        mark = self._neutron.mark
        found = await self._neutron.list_ports(
            {
                **query,
                "device_owner": NODE_DEVICE_OWNER,
                "project_id": self._project,
                "description": mark.tag,
            }
        )
        return [port for port in found if not mark.others_on(port["tags"])]

    async def _adopt(self, port: Json) -> None:
        """Give a port its tags if it was made without them."""
        if not self._neutron.mark.is_on(port["tags"]):
            await self._neutron.adopt_port(port, self._tags)

    def _body(self, node: Node, network: NodeNetwork) -> Json:
        groups = {"security_groups": self._groups} if self._groups else {}
        return {
            "network_id": network.network.id,
            "project_id": self._project,
            "fixed_ips": [{"subnet_id": subnet.id} for subnet in network.subnets],
            "device_id": node.uid,
            "device_owner": NODE_DEVICE_OWNER,
            BOUND_TO: node.host_id,
            "name": f"kuryr-node {node.name}"[:NAME_LIMIT],
            "description": self._neutron.mark.tag,
            "admin_state_up": True,
            "tags": list(self._tags),
            **groups,
        }

    async def _update(self, port: Json, node: Node, network: NodeNetwork) -> Json:
        """Change what differs from what the port should be."""
        changes = self._changes(port, node, network)
        return await self._neutron.update_port(port["id"], changes) if changes else port

    def _changes(self, port: Json, node: Node, network: NodeNetwork) -> Json:
        """Return the fields that differ from what the port should be, as they should be."""
        changes: Json = {}
        if port.get(BOUND_TO) != node.host_id:
            changes[BOUND_TO] = node.host_id
        if self._groups and sorted(port["security_groups"]) != self._groups:
            changes["security_groups"] = self._groups
        wanted = [subnet.id for subnet in network.subnets]
        if not _has_addresses_of(port, wanted):
            kept = [fixed for fixed in port["fixed_ips"] if fixed["subnet_id"] in wanted]
            present = {fixed["subnet_id"] for fixed in kept}
            changes["fixed_ips"] = kept + [
                {"subnet_id": subnet_id} for subnet_id in wanted if subnet_id not in present
            ]
        return changes


def _has_addresses_of(port: Json, wanted: Sequence[str]) -> bool:
    """Return whether the port has addresses of these subnets, and asked for no others."""
    present = {fixed["subnet_id"] for fixed in port["fixed_ips"]}
    return set(wanted) <= present and set(asked_subnet_ids_of(port)) <= set(wanted)
