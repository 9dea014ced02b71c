"""Remains in Neutron and Octavia: of interrupted contract tests, and of machines that are gone.

What these tests make bears the run's name, or is in a network whose name does. A virtual machine
that was a node leaves its trunk, for the next one of its name, and the product is told to run
without such nodes right after that: its pools may not have deleted all of their subports by then.
"""

from __future__ import annotations

import re
import sys
import time
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lab import facts, topology
from lab.openstack import cloud
from lab.openstack.rest import Api, ApiError, Json
from lab.paths import Paths
from lab.suite.interrupted import is_over, this_run

_MARK = re.compile(r"contract-(\d+-\d+)-[0-9a-f]{12}")
_LONGEST = 240.0  # seconds that Octavia may be at work on what is to go
_PAUSE = 1.0
_NAMED = ("networks", "routers", "security-groups")
_ROUTER_PORT = "network:router_interface"
# Quotas of no other project are changed, except of projects that do not exist.
_PROJECT = "tenant2"
_MACHINES = {worker.name for worker in topology.workers(topology.MOST_NODES)}


def mark() -> str:
    """Return a name for what one case of this run makes."""
    return f"contract-{this_run()}-{uuid.uuid4().hex[:12]}"


def is_remains(name: str) -> bool:
    """Return whether a run that is over gave an object this name, or one that begins with it."""
    found = _MARK.match(name)
    return found is not None and is_over(found[1])


def clear(lab: facts.Lab) -> list[str]:
    """Remove what interrupted runs and former machines have left in the lab's cloud.

    :returns: what could not be removed.
    """
    token = cloud.admin_token()
    neutron = Api(f"{lab.cloud.neutron_url}/v2.0", token)
    octavia = Api(f"{lab.cloud.octavia_url}/v2", token)
    clear_trunks(neutron, _MACHINES - lab.workers.keys())
    return Remains(neutron, octavia, lab.cloud.projects[_PROJECT]).clear()


def clear_trunks(neutron: Api, names: Collection[str]) -> None:
    """Delete all subports of the trunks with these names."""
    for trunk in neutron.get("trunks")["trunks"]:
        if trunk["name"] not in names:
            continue
        for subport in trunk["sub_ports"]:
            detached = {"sub_ports": [{"port_id": subport["port_id"]}]}
            _try(neutron, "PUT", f"trunks/{trunk['id']}/remove_subports", detached)
            _delete(neutron, f"ports/{subport['port_id']}")


@dataclass(frozen=True)
class Remains:
    """Removes the remains from one cloud.

    :param project: the project whose quotas tests change.
    """

    neutron: Api
    octavia: Api
    project: str

    def clear(self, longest: float = _LONGEST) -> list[str]:
        """Remove everything, in the order in which Neutron and Octavia allow it.

        :param longest: seconds for which what is in use is tried again.
        :returns: what could not be removed.
        """
        found = {kind: list(self._named(kind)) for kind in _NAMED}
        if not any(found.values()):
            return []
        networks = [network["id"] for network in found["networks"]]
        if any(network["project_id"] == self.project for network in found["networks"]):
            _delete(self.octavia, f"lbaas/quotas/{self.project}")
        deadline = time.monotonic() + longest
        while True:
            left = list(self._remove_balancers(networks))
            if not left:
                self._remove_uses(networks)
                left = [
                    f"{kind}/{item['id']}"
                    for kind in ("routers", "networks", "security-groups")
                    for item in found[kind]
                    if not _delete(self.neutron, f"{kind}/{item['id']}")
                ]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(_PAUSE)

    def _named(self, kind: str) -> Iterator[Json]:
        """Generate the objects of a kind whose names say that they are remains."""
        for item in self.neutron.get(kind)[kind.replace("-", "_")]:
            if is_remains(item["name"]):
                yield item

    def _remove_balancers(self, networks: list[str]) -> Iterator[str]:
        """Delete load balancers with addresses in the networks.

        :returns: paths of those that are still there.
        """
        path = "lbaas/loadbalancers"
        for network in networks:
            for item in self.octavia.get(path, vip_network_id=network)["loadbalancers"]:
                _delete(self.octavia, f"{path}/{item['id']}?cascade=true")
                yield f"{path}/{item['id']}"

    def _remove_uses(self, networks: list[str]) -> None:
        """Remove floating IPs, trunks, interfaces of routers and ports of the networks."""
        for network in networks:
            found = self.neutron.get("floatingips", floating_network_id=network)
            for item in found["floatingips"]:
                _delete(self.neutron, f"floatingips/{item['id']}")
        ports = [
            port
            for network in networks
            for port in self.neutron.get("ports", network_id=network)["ports"]
        ]
        ids = {port["id"] for port in ports}
        for trunk in self.neutron.get("trunks")["trunks"]:
            if trunk["port_id"] in ids:
                _delete(self.neutron, f"trunks/{trunk['id']}")
        for port in ports:
            if port["device_owner"] == _ROUTER_PORT:
                path = f"routers/{port['device_id']}/remove_router_interface"
                _try(self.neutron, "PUT", path, {"subnet_id": port["fixed_ips"][0]["subnet_id"]})
            else:
                _delete(self.neutron, f"ports/{port['id']}")


def _delete(api: Api, path: str) -> bool:
    """Delete an object.

    :returns: whether it is gone; not if it is in use.
    """
    return _try(api, "DELETE", path)


def _try(api: Api, method: str, path: str, body: Json | None = None) -> bool:
    """Make a call that may be too early, or too late."""
    try:
        api.call(method, path, body)
    except ApiError as error:
        if error.status not in (404, 409):
            raise
        return error.status == 404
    return True


def main() -> int:
    """Clear the cloud of the lab that is up.

    :returns: the exit code: 1 if something could not be removed.
    """
    left = clear(facts.load(Paths.from_environment().facts))
    for path in left:
        print(f"{path} is of an interrupted run, and cannot be removed")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
