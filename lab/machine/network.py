"""The virtual machines' network in Neutron, and each one's trunk, plugged on node1."""

from __future__ import annotations

from lab import facts, topology
from lab.openstack.cloud import NeutronSetup
from lab.topology import Node, Worker

GROUP = topology.WORKER_NETWORK.name


class WorkerSetup(NeutronSetup):
    """The objects in Neutron that are there only with virtual machines among the nodes."""

    def network(self, cloud: facts.Cloud) -> facts.Network:
        """Ensure the machines' network on the cluster's router, let in by the security groups."""
        project = self._projects["k8s"]
        made = self._network(topology.WORKER_NETWORK, project)
        self._attach(cloud.router_id, made)
        cloud.networks[topology.WORKER_NETWORK.name] = made
        for name, sources in topology.WORKER_SECURITY_GROUPS.items():
            cloud.security_groups[name] = self._group(name, project, sources)
        return made

    def trunk(self, cloud: facts.Cloud, worker: Worker, host: Node) -> tuple[str, str]:
        """Ensure the machine's trunk with its parent port, bound on the host.

        :returns: the ids of the trunk and of the parent port.
        """
        port = self._port(
            cloud,
            worker.name,
            topology.WORKER_NETWORK.name,
            worker.mac,
            (worker.internal_v4, worker.internal_v6),
            host.chassis,
            GROUP,
        )
        body = {"port_id": port, "name": worker.name, "project_id": self._projects["k8s"]}
        made = self._ensure("trunk", "trunks", {"port_id": port}, lambda: body)
        return str(made["id"]), port
