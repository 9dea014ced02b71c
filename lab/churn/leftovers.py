"""Differences between Pods, KuryrPorts, Neutron's ports, and what is on the nodes.

Nothing is remembered: all that is seen now is compared, and every difference is a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab import facts
from lab.kubernetes.client import Json, Kube
from lab.kuryr.installation import CLUSTER_TAG
from lab.openstack.cloud import admin_token
from lab.openstack.rest import Api
from lab.process import run

OURS, NETNS, PARKED = "kuryr-container-id", "kuryr-netns", "kuryr-parked"
# On ports that the product keeps ready for Pods to come.
POOL_TAG = "kuryr-pool"
_OF_NODE = "compute:kuryr-node"  # the device_owner of a node's own port
# The ports of virtual machines, which are no Pods'.
_OTHERS = "tap-"


@dataclass(frozen=True)
class Row:
    """A Pod's interface in a node's Open vSwitch."""

    name: str
    ids: dict[str, str]


@dataclass(frozen=True)
class OnNode:
    """The product's objects on a node.

    :param rows: of Pods.
    :param parked: rows of parked ports.
    :param ports: of br-int.
    :param veths: ours.
    :param tasks: running containers.
    """

    rows: dict[str, Row]
    parked: dict[str, Row]
    ports: set[str]
    veths: set[str]
    tasks: set[str]


@dataclass(frozen=True)
class Owners:
    """The numbers of the cluster's ports: of Pods, in pools by the pools' word, or nobody's.

    `lost`: more ports are marked as a pool's than the pools know of; negative: fewer.
    """

    pods: int
    pools: int
    nobody: int
    lost: int

    @property
    def found(self) -> int:
        """The number of ports that Neutron has."""
        return self.pods + self.pools + self.nobody + self.lost


class Inspection:
    """Looks at the whole cluster, its cloud and its nodes, as their administrator."""

    def __init__(self, lab: facts.Lab, kube: Kube) -> None:
        self._lab, self._kube = lab, kube

    def _ports(self) -> dict[str, Json]:
        """List the cluster's ports in Neutron by id, without those of the nodes."""
        neutron = Api(f"{self._lab.cloud.neutron_url}/v2.0", admin_token())
        found = neutron.get("/ports", tags=CLUSTER_TAG)["ports"]
        return {port["id"]: port for port in found if port["device_owner"] != _OF_NODE}

    def owners(self) -> Owners:
        """Count the cluster's ports by their present owners."""
        recorded = self._kube.items("/apis/openstack.org/v1/kuryrports")
        named = {vif["id"] for record in recorded if (vif := _vif(record)) is not None}
        ports = self._ports()
        free = [port for id_, port in ports.items() if id_ not in named]
        pooled = sum(1 for port in free if POOL_TAG in port["tags"])
        known = sum(map(_kept, self._kube.items("/apis/openstack.org/v1/kuryrportpools")))
        return Owners(
            pods=len(named & set(ports)),
            pools=known,
            nobody=len(free) - pooled,
            lost=pooled - known,
        )

    def differences(self) -> list[str]:
        """Find everything that is without its counterpart; nothing when all is well."""
        pods = {_key(pod): pod for pod in self._kube.items("/api/v1/pods") if _has_port(pod)}
        recorded = self._kube.items("/apis/openstack.org/v1/kuryrports")
        records = {_key(record): record for record in recorded}
        ports = self._ports()
        nodes = {name: self.on_node(node) for name, node in self._lab.nodes.items()}
        return [
            *(f"KuryrPort {key} is without its Pod" for key in sorted(set(records) - set(pods))),
            *_unnamed(records, ports),
            *(said for key in pods for said in self._pod(key, pods[key], records, ports, nodes)),
            *_strangers(pods, nodes, self._kept_plugged()),
        ]

    def _kept_plugged(self) -> set[str]:
        """List the ports that nodes are told to keep."""
        pools = self._kube.items("/apis/openstack.org/v1/kuryrportpools")
        return {port for pool in pools for port in pool.get("spec", {}).get("ports", {})}

    def _pod(
        self,
        key: str,
        pod: Json,
        records: dict[str, Json],
        ports: dict[str, Json],
        nodes: dict[str, OnNode],
    ) -> Iterator[str]:
        """Yield what a living Pod lacks."""
        node = pod["spec"]["nodeName"]
        record = records.get(key)
        if record is None or record["spec"]["podUid"] != _uid(pod):
            yield f"Pod {key} is without its KuryrPort"
            return
        vif = _vif(record)
        if vif is None or (port := ports.get(vif["id"])) is None:
            yield f"Pod {key} is without its port"
            return
        if not vif["active"]:
            yield f"Pod {key}: its KuryrPort does not say active"
        if port["status"] != "ACTIVE":
            yield f"Pod {key}: its port is {port['status']}"
        if port["binding:host_id"] != self._lab.nodes[node].chassis:
            yield f"Pod {key} on {node}: its port is bound to {port['binding:host_id']}"
        row = nodes[node].rows.get(vif["vif_name"])
        if row is None or row.ids.get("iface-id") != vif["id"]:
            yield f"Pod {key} is without its row in {node}'s Open vSwitch"
        elif row.name not in nodes[node].veths:
            yield f"Pod {key} is without its veth on {node}"

    def on_node(self, node: facts.Node) -> OnNode:
        """Look at the product's objects on a node."""
        vsctl = [f"{self._lab.bin}/ovs-vsctl", f"--db=unix:{node.ovs_socket}", "--timeout=10"]
        columns = ["--columns=name,external_ids", "--format=json", "list", "Interface"]
        rows = [
            Row(name, dict(ids[1])) for name, ids in json.loads(run([*vsctl, *columns]))["data"]
        ]
        ports = set(run([*vsctl, "list-ports", "br-int"]).split())
        links = json.loads(run(["ip", "-j", "link", "show"], netns=node.netns))
        ctr = [f"{self._lab.bin}/ctr", "--address", node.containerd_socket, "-n", "k8s.io"]
        identity = run([*vsctl, "--bare", "--columns=_uuid", "list", "Open_vSwitch"]).strip()
        mine = f"kuryr:{identity}:"
        return OnNode(
            rows={row.name: row for row in rows if OURS in row.ids},
            parked={row.name: row for row in rows if PARKED in row.ids and OURS not in row.ids},
            ports={
                name for name in ports if name.startswith("tap") and not name.startswith(_OTHERS)
            },
            veths={link["ifname"] for link in links if link.get("ifalias", "").startswith(mine)},
            tasks=set(run([*ctr, "tasks", "ls", "-q"]).split()),
        )


def _unnamed(records: dict[str, Json], ports: dict[str, Json]) -> Iterator[str]:
    named = {vif["id"] for record in records.values() if (vif := _vif(record)) is not None}
    for id_ in set(ports) - named:
        if POOL_TAG not in ports[id_]["tags"]:
            yield f"port {id_} ({ports[id_]['name']}) is named by no KuryrPort"


def _strangers(pods: dict[str, Json], nodes: dict[str, OnNode], kept: set[str]) -> Iterator[str]:
    """Yield what is on a node and neither a living Pod's nor a pool's."""
    uids = {_uid(pod) for pod in pods.values()}
    for name, seen in nodes.items():
        for row in seen.rows.values():
            if row.ids.get("kuryr-pod-uid") not in uids:
                yield f"{name}: row {row.name} is of no Pod"
            if row.ids[OURS] not in seen.tasks or not Path(row.ids[NETNS]).exists():
                yield f"{name}: row {row.name} is without its sandbox"
        for row in seen.parked.values():
            if row.ids.get("iface-id") not in kept:
                yield f"{name}: row {row.name} is parked and of no pool"
        for what, found in (("port", seen.ports), ("veth", seen.veths)):
            for each in sorted(found - set(seen.rows) - set(seen.parked)):
                yield f"{name}: {what} {each} is in no row of ours"


def _key(item: Json) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _uid(pod: Json) -> str:
    """Return the uid in the Pod's KuryrPort: a static Pod's is the hash of its configuration."""
    annotations = pod["metadata"].get("annotations", {})
    return str(annotations.get("kubernetes.io/config.hash", pod["metadata"]["uid"]))


def _has_port(pod: Json) -> bool:
    finished = pod["status"].get("phase") in ("Succeeded", "Failed")
    return (
        bool(pod["spec"].get("nodeName")) and not pod["spec"].get("hostNetwork") and not finished
    )


def _kept(pool: Json) -> int:
    """Count the ports that a node's pools have beside those of Pods."""
    status = pool.get("status", {})
    return int(status.get("available", 0)) + int(status.get("returning", 0))


def _vif(record: Json) -> Json | None:
    entry = (record.get("status", {}).get("vifs") or {}).get("eth0")
    found: Json | None = entry["vif"]["versioned_object.data"] if entry else None
    return found
