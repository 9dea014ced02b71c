"""What a thief of one node's credentials could try, and what its daemon has to be able to write.

A table of requests, for the component tests' server and for the lab's: a thief holds the token of
one node's daemon, and knows the names of everything.
"""

import json
from dataclasses import dataclass
from typing import Any

from kuryr_k8s.model.annotations import (
    HOST_ID,
    KURYRPORT_FINALIZER,
    LEADER,
    NODE_FINALIZER,
)

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
AGENT = "a-thief-of-the-tests"  # User-Agent of the attempts: the audit leaves them out
UNBOUND = "name no node"  # in the words of the policy
ACCOUNT = "/api/v1/namespaces/kube-system/serviceaccounts/kuryr-daemon"
VICTIM = "11111111-2222-4333-8444-555555555555"  # somebody's port
PORTS = "/apis/openstack.org/v1/namespaces/{}/kuryrports"
POOLS = "/apis/openstack.org/v1/kuryrportpools"
RBAC = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


VFS = "pod.alpha.kubernetes.io/opaque-int-resource-sriov-vf-physnet2"


@dataclass(frozen=True)
class Request:
    """One request: what it is about, for people, and what is sent."""

    about: str
    method: str
    path: str
    body: Any = None
    content: str = MERGE
    refusal: int = 403  # the code of the answer, if it is refused


@dataclass(frozen=True)
class Place:
    """A node by its name, and a KuryrPort on it, with its interface eth0, that is in use."""

    node: str
    namespace: str
    kuryrport: str

    @property
    def path(self) -> str:
        """The Node."""
        return f"/api/v1/nodes/{self.node}"

    @property
    def port(self) -> str:
        return f"{PORTS.format(self.namespace)}/{self.kuryrport}"

    @property
    def pool(self) -> str:
        return f"{POOLS}/{self.node}"


def vif(**data: Any) -> dict[str, Any]:
    """Return a patch of the data of the interface eth0."""
    return {"status": {"vifs": {"eth0": {"vif": {"versioned_object.data": data}}}}}


def devices(pci_slot: str) -> dict[str, Any]:
    """Return a patch that names the VF of an interface."""
    device = {"physnet": "physnet2", "pciSlot": pci_slot, "pciVendorInfo": "8086:10ed"}
    return {"status": {"devices": {"eth1": device}}}


def capacity(**resources: str | None) -> dict[str, Any]:
    """Return a patch of the capacity of a Node."""
    return {"status": {"capacity": resources}}


def attempts(own: Place, other: Place) -> list[Request]:
    """List what must be refused to whoever holds the credentials of the node ``own``."""
    return [*_of_others(own, other), *_of_its_own(own), *_by_verb(own, other)]


def _of_others(own: Place, other: Place) -> list[Request]:
    """List what the node's daemon may do, but to objects of other nodes."""
    nobody = {"metadata": {"finalizers": None}}
    remove = [{"op": "remove", "path": "/metadata/finalizers/0"}]
    return [
        Request("other Node: its host in Neutron", "PATCH", other.path, annotate(HOST_ID, "x")),
        Request("other Node: the thief's host", "PATCH", other.path, annotate(HOST_ID, own.node)),
        Request("other KuryrPort: finalizers", "PATCH", other.port, nobody),
        Request("other KuryrPort: a finalizer", "PATCH", other.port, remove, JSON_PATCH),
        Request("other KuryrPort: active", "PATCH", f"{other.port}/status", vif(active=False)),
        Request("other KuryrPort: port id", "PATCH", f"{other.port}/status", vif(id=VICTIM)),
        Request("other KuryrPort: VFs", "PATCH", f"{other.port}/status", devices("0000:03:10.1")),
        Request("other Node: VFs", "PATCH", f"{other.path}/status", capacity(**{VFS: "9"})),
        Request("other KuryrPortPool: parked", "PATCH", f"{other.pool}/status", parked(VICTIM)),
    ]


def _of_its_own(own: Place) -> list[Request]:
    """List what is not the daemon's in objects of its own node."""
    status, pool = f"{own.port}/status", f"{own.pool}/status"
    groups = {"status": {"securityGroupIds": [VICTIM]}}
    another = {"status": {"vifs": {"eth9": {"vif": {"versioned_object.data": {"id": VICTIM}}}}}}
    entry = {"status": {"vifs": {"eth0": {"ownSecurityGroups": True}}}}
    kind = {"status": {"vifs": {"eth0": {"vif": {"versioned_object.name": "VIFVlanNested"}}}}}
    gone = {"status": {"vifs": {"eth0": None}}}
    text, nested = vif(active=VICTIM), vif(active={"id": VICTIM})
    static = {"spec": {"podStatic": True}}
    without = {"metadata": {"finalizers": [KURYRPORT_FINALIZER]}}
    kept = {"metadata": {"finalizers": [NODE_FINALIZER]}}
    more = {"metadata": {"finalizers": [KURYRPORT_FINALIZER, NODE_FINALIZER, "example.org/x"]}}
    taints = {"spec": {"taints": [{"key": "example.org/x", "effect": "NoExecute"}]}}
    wanted = {"spec": {"ports": {VICTIM: None}}}
    asked = {"status": {"requestedDevices": {"eth1": {"physnet": "physnet2"}}}}
    more_than_vfs = capacity(**{VFS: "4", "memory": "1Gi"})
    address = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.66"}]}}
    label = {"metadata": {"labels": {"pod_vif": "x"}}}
    return [
        Request("own KuryrPort: id of a port", "PATCH", status, vif(id=VICTIM)),
        Request("own KuryrPort: port and active", "PATCH", status, vif(id=VICTIM, active=False)),
        Request("own KuryrPort: MAC address", "PATCH", status, vif(address="fa:16:3e:0:0:1")),
        Request("own KuryrPort: field of a VIF", "PATCH", status, vif(plugin="x")),
        Request("own KuryrPort: kind of a VIF", "PATCH", status, kind),
        # the schema of KuryrPorts is asked before the policy
        Request("own KuryrPort: port id as active", "PATCH", status, text, refusal=422),
        Request("own KuryrPort: object as active", "PATCH", status, nested, refusal=422),
        Request("own KuryrPort: active removed", "PATCH", status, vif(active=None)),
        Request("own KuryrPort: its own groups", "PATCH", status, entry),
        Request("own KuryrPort: interface more", "PATCH", status, another),
        Request("own KuryrPort: interface less", "PATCH", status, gone),
        Request("own KuryrPort: no interfaces", "PATCH", status, {"status": {"vifs": None}}),
        Request("own KuryrPort: no status", "PATCH", status, {"status": None}),
        Request("own KuryrPort: groups of the Pod", "PATCH", status, groups),
        Request("own KuryrPort: project", "PATCH", status, {"status": {"projectId": VICTIM}}),
        Request("own KuryrPort: leader's mark", "PATCH", own.port, annotate(LEADER, "x")),
        Request("own KuryrPort: label", "PATCH", own.port, {"metadata": {"labels": {"x": "x"}}}),
        Request("own KuryrPort: owner", "PATCH", own.port, _owned(own)),
        Request("own KuryrPort: more in its spec", "PATCH", own.port, static),
        Request("own KuryrPort: node's finalizer, in use", "PATCH", own.port, without),
        Request("own KuryrPort: controller's finalizer", "PATCH", own.port, kept),
        Request("own KuryrPort: finalizer more", "PATCH", own.port, more),
        Request("own KuryrPortPool: numbers", "PATCH", pool, {"status": {"available": 99}}),
        Request("own KuryrPortPool: ports", "PATCH", own.pool, wanted),
        Request("own Node: taint", "PATCH", own.path, taints),
        Request("own Node: cordon", "PATCH", own.path, {"spec": {"unschedulable": True}}),
        Request("own Node: label", "PATCH", own.path, {"metadata": {"labels": {"pod_vif": "x"}}}),
        Request("own Node: other annotation", "PATCH", own.path, annotate("example.org/x", "x")),
        Request("own KuryrPort: VFs asked for", "PATCH", status, asked),
        Request("own Node: processors", "PATCH", f"{own.path}/status", capacity(cpu="99")),
        Request("own Node: VFs and more", "PATCH", f"{own.path}/status", more_than_vfs),
        Request("own Node: address", "PATCH", f"{own.path}/status", address),
        Request("own Node: label by its status", "PATCH", f"{own.path}/status", label),
        Request("own Node: finalizer", "PATCH", own.path, {"metadata": {"finalizers": ["a.b/c"]}}),
    ]


def _by_verb(own: Place, other: Place) -> list[Request]:
    """List what the daemon has no verb for, and ways to more power."""
    ports, plain = PORTS.format(own.namespace), "application/json"
    made = {
        "apiVersion": "openstack.org/v1",
        "kind": "KuryrPort",
        "metadata": {"name": "forged", "namespace": own.namespace},
        "spec": {"podUid": "forged", "podNodeName": own.node},
    }
    pool = {"apiVersion": "openstack.org/v1", "kind": "KuryrPortPool"}
    pool |= {"metadata": {"name": "forged"}, "spec": {"ports": {}}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "forged"}}
    applied = f"{ports}/forged?fieldManager=thief"
    role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": RBAC.split("/")[2]}
    tokens = [
        Request(f"TokenRequest: {about}", "POST", f"{account}/token", token_request(name), plain)
        for about, account, name in (
            ("own node", ACCOUNT, own.node),
            ("other node", ACCOUNT, other.node),
            ("no node", ACCOUNT, ""),
            ("of the controller", ACCOUNT.replace("daemon", "controller"), ""),
        )
    ]
    return [
        Request("create a KuryrPort", "POST", ports, made, plain),
        Request("create a KuryrPort by applying it", "PATCH", applied, made, APPLY),
        Request("replace the own KuryrPort", "PUT", own.port, made, plain),
        Request("delete the own KuryrPort", "DELETE", own.port),
        Request("delete another KuryrPort", "DELETE", other.port),
        Request("delete all KuryrPorts", "DELETE", ports),
        Request("create a KuryrPortPool", "POST", POOLS, pool, plain),
        Request("delete another KuryrPortPool", "DELETE", other.pool),
        Request("create a Node", "POST", "/api/v1/nodes", node, plain),
        Request("delete the own Node", "DELETE", own.path),
        Request("own Node: status", "PATCH", f"{own.path}/status", {"status": {"phase": "x"}}),
        *tokens,
        Request("read Secrets", "GET", "/api/v1/secrets"),
        Request("read Pods", "GET", "/api/v1/pods"),
        Request("list Nodes", "GET", "/api/v1/nodes"),
        Request("bind another role", "POST", RBAC, {"roleRef": role}, plain),
        Request(
            "delete the policy's binding",
            "DELETE",
            f"{ADMISSION}/validatingadmissionpolicybindings/kuryr-daemon",
        ),
        Request("delete a Lease", "DELETE", _lease()),
    ]


def needs(own: Place, host: str) -> list[Request]:
    """List what the daemon writes about a node whose KuryrPort is in use.

    :param host: the node's name in Neutron.
    """
    pool = f"{own.pool}/status"
    return [
        Request("its Node: host in Neutron", "PATCH", own.path, annotate(HOST_ID, host)),
        Request("its KuryrPort: active", "PATCH", f"{own.port}/status", vif(active=True)),
        Request("its KuryrPort: not active", "PATCH", f"{own.port}/status", vif(active=False)),
        Request("its KuryrPort: VFs", "PATCH", f"{own.port}/status", devices("0000:03:10.1")),
        Request("its Node: VFs", "PATCH", f"{own.path}/status", capacity(**{VFS: "4"})),
        Request("its Node: no VFs", "PATCH", f"{own.path}/status", capacity(**{VFS: None})),
        Request("its KuryrPortPool: parked", "PATCH", pool, parked(VICTIM)),
        Request(
            "its KuryrPortPool: not parked",
            "PATCH",
            f"{own.pool}/status",
            parked(VICTIM, there=False),
        ),
    ]


def leave(own: Place) -> Request:
    """Return what the daemon writes once nothing of a deleted KuryrPort is on its node."""
    body = [
        {"op": "test", "path": "/metadata/finalizers/1", "value": NODE_FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]
    return Request("its KuryrPort: the node's finalizer", "PATCH", own.port, body, JSON_PATCH)


def token_request(node: str, uid: str = "") -> dict[str, Any]:
    """Return the body that asks for a token bound to a Node, or to nothing."""
    spec: dict[str, Any] = {"expirationSeconds": 3600}
    if node:
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def table(rows: list[tuple[Request, int, str]]) -> str:
    """Return the requests, with the code and the words of their answers, as lines for people."""
    width = max(len(request.about) for request, _, _ in rows)
    return "\n".join(
        f"{request.about:<{width}}  {request.method:<6}  {code}  {' '.join(said.split())}"
        for request, code, said in rows
    )


def sent(body: Any) -> str | None:
    """Return a body as it is sent; JSON is YAML, too."""
    return None if body is None else json.dumps(body)


def annotate(name: str, value: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {name: value}}}


def parked(port: str, *, there: bool = True) -> dict[str, Any]:
    return {"status": {"parked": {port: {} if there else None}}}


def _owned(own: Place) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": own.node, "uid": VICTIM}
    return {"metadata": {"ownerReferences": [owner]}}


def _lease() -> str:
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    return f"{leases}/kuryr-k8s-controller"
