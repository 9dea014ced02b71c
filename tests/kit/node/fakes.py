"""Stand-ins of what the node side is handed: a cache, the API, a binding."""

import asyncio
import dataclasses
import json

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings.base import Binding, BindingError, Stray
from kuryr_k8s.cni.result import Interface, Result
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model import vif as model
from kuryr_k8s.model.annotations import KURYRPORT_FINALIZER, NODE_FINALIZER
from kuryr_k8s.model.kuryrport import KuryrPort, write_vifs
from kuryr_k8s.model.kuryrportpool import KuryrPortPool, park_entry


def ovs_vif(number=1, *, bridge="br-int", ipv6=True, active=False):
    port_id = f"{number:08x}-0000-4000-8000-{number:012x}"
    subnets = [
        model.Subnet(
            cidr="10.77.0.0/16",
            gateway="10.77.0.1",
            dns=("10.77.0.2",),
            ips=(model.FixedIP(address=f"10.77.{number // 200}.{number % 200 + 10}"),),
            routes=(model.Route(cidr="10.99.0.0/16", gateway="10.77.0.254"),),
        )
    ]
    if ipv6:
        subnets.append(
            model.Subnet(
                cidr="fd77::/64",
                gateway="fd77::1",
                ips=(model.FixedIP(address=f"fd77::{number:x}0"),),
            )
        )
    return model.VIFOpenVSwitch(
        id=port_id,
        address=f"fa:16:3e:00:{number // 256:02x}:{number % 256:02x}",
        network=model.Network(
            id="22222222-2222-2222-2222-222222222222",
            bridge=bridge,
            mtu=1442,
            subnets=tuple(subnets),
        ),
        plugin="ovs",
        active=active,
        vif_name=f"tap{number:08x}-00",
        bridge_name=bridge,
        port_profile=model.VIFPortProfileOpenVSwitch(interface_id=port_id),
    )


def vlan_vif(number=1):
    """The same, as a subport of a VM's trunk; the VLAN id is the number."""
    return like_ovs(model.VIFVlanNested, number, vlan_id=number)


def macvlan_vif(number=1):
    """The same, as a macvlan of a VM's interface."""
    return like_ovs(model.VIFMacvlanNested, number)


def sriov_vif(number=1, *, pci_slot, vlan=0):
    """The same, as a VF of a card."""
    network = dataclasses.replace(ovs_vif(number).network, bridge=None, vlan=vlan, mtu=1500)
    fields = {"plugin": "sriov", "dev_address": pci_slot, "physnet": "physnet1"}
    return like_ovs(model.VIFSriov, number, network=network, **fields)


def like_ovs(kind, number, **fields):
    """A VIF of another kind, with the port, the addresses and the name of the first one."""
    like = ovs_vif(number)
    common = {name: getattr(like, name) for name in ("id", "address", "network", "vif_name")}
    return kind(**common | {"plugin": "noop"} | fields)


def kuryrport(
    name,
    uid,
    vifs=None,
    *,
    namespace="default",
    deleting=False,
    finalizers=None,
    delegated=None,
):
    """:param delegated: the networks of interfaces for which Multus calls, by their names."""
    held = [KURYRPORT_FINALIZER, NODE_FINALIZER] if finalizers is None else list(finalizers)
    meta = {"namespace": namespace, "name": name, "uid": f"kp-{uid}", "resourceVersion": "1"}
    meta |= {"finalizers": held}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    networks = delegated or {}
    written = write_vifs(vifs or {}, network_names=networks, delegated=networks)
    return KuryrPort.read(
        {
            "metadata": meta,
            "spec": {"podUid": uid, "podNodeName": "node1"},
            "status": {"vifs": written} if vifs else {},
        }
    )


class Cache:
    """An informer's cache without an informer."""

    def __init__(self):
        self.objects = {}
        self.subscribers = []
        self.synced = asyncio.Event()
        self.synced.set()

    def get(self, key):
        return self.objects.get(key)

    def values(self):
        return iter(list(self.objects.values()))

    def subscribe(self, subscriber):
        self.subscribers.append(subscriber)

    def put(self, port):
        key = Key(port.namespace, port.name)
        self._set(key, port)
        return key

    def remove(self, key):
        self._set(key, None)

    def change(self, key, **fields):
        self._set(key, dataclasses.replace(self.objects[key], **fields))

    def _set(self, key, new):
        old = self.objects.pop(key, None)
        if new is not None:
            self.objects[key] = new
        for subscriber in self.subscribers:
            subscriber(key, old, new)


class Api:
    """The API server: what is true, which a cache may not know yet."""

    def __init__(self, cache):
        self.cache = cache
        self.live = {}  # overrides the cache
        self.patches = []
        self.released = []
        self.nodes = {}
        self.events = []

    async def find(self, resource, key):
        if key in self.live:
            return self.live[key]
        port = self.cache.get(key)
        return None if port is None else {"spec": {"podUid": port.pod_uid}}

    async def create(self, resource, body):
        self.events.append(body)
        return body

    async def get(self, resource, key):
        if key not in self.nodes:
            raise errors.KubeNotFound("no such node", status=404)
        return self.nodes[key]

    async def merge_patch(self, resource, key, patch, *, subresource=""):
        self.patches.append((resource.plural, key, patch, subresource))
        return {}

    async def remove_finalizers(self, resource, key, finalizer, *, uid, known):
        self.released.append((key, uid))


class PoolCache(Cache):
    """That of the Node's KuryrPortPool, as an object; `parked` is what was learned of it."""

    def name(self, ports, *, parked=()):
        """The KuryrPortPool comes, or changes: `ports` are the entries by VIF."""
        entries = {vif.id: pool_entry(vif, state) for vif, state in ports.items()}
        status = {"parked": {port_id: {} for port_id in parked}}
        self.put(pool_item(entries, status))

    def put(self, item):
        pool = KuryrPortPool.read(item)
        self.item = item
        self._set(Key("", pool.name), pool)

    def learn(self, item):
        self.put(item)


class PoolApi:
    """The server's KuryrPortPool: the cache's, or `live` where that is set."""

    def __init__(self, cache):
        self.cache = cache
        self.live = None
        self.patches = []

    async def find(self, resource, key):
        return self.live or (self.cache.item if self.cache.get(key) else None)

    async def merge_patch(self, resource, key, patch, *, subresource=""):
        assert subresource == "status"
        self.patches.append(patch["status"]["parked"])
        parked = {**self.cache.item["status"]["parked"], **patch["status"]["parked"]}
        status = {"parked": {name: {} for name, value in parked.items() if value is not None}}
        return self.cache.item | {"status": status}


def pool_entry(vif, state="keep"):
    return park_entry(vif.address, [], vif.network.mtu, vif.bridge_name) | {"state": state}


def pool_item(entries, status=None):
    meta = {"name": "node1", "uid": "pool-1", "resourceVersion": "1"}
    return {"metadata": meta, "spec": {"ports": entries}, "status": status or {"parked": {}}}


class FakeBinding(Binding):
    """A node in memory. ``gates`` hold calls up until they are opened."""

    def __init__(self, context=None):
        self.reached = asyncio.Event()
        self.reached.set()
        self.parked_ports = set()
        self.attached = {}  # attachment -> vif
        self.gone = set()
        self.leftovers = []
        self.announced = []
        self.log = []
        self.connect_gate = asyncio.Event()
        self.ready_gate = asyncio.Event()
        self.connect_gate.set()
        self.disconnect_gate = asyncio.Event()
        self.disconnect_gate.set()
        self.ready_gate.set()
        self.failure = None

    async def connect(self, attachment, vif):
        self.log.append(("connect", attachment.container_id))
        await self.connect_gate.wait()
        if self.failure:
            raise self.failure
        self.attached[attachment] = vif
        interface = Interface(name=attachment.ifname, mac=vif.address, sandbox=attachment.netns)
        return Result(
            interfaces=(Interface(name=vif.vif_name, mac="02:00:00:00:00:01"), interface)
        )

    async def ready(self, attachment, vif):
        await self.ready_gate.wait()
        self.announced.append(attachment)

    def progress(self, vif):
        return f"port {vif.id} is not ready"

    async def disconnect(self, attachment):
        self.log.append(("disconnect", attachment.container_id))
        await asyncio.sleep(0)
        await self.disconnect_gate.wait()
        self.attached.pop(attachment, None)

    async def check(self, attachment, vif):
        if attachment not in self.attached:
            raise BindingError(f"{attachment} is missing")

    def attachments(self):
        return list(self.attached)

    def working(self, attachment):
        return attachment in self.announced

    def vanished(self, attachment):
        return attachment in self.gone

    def parked(self, vif):
        return vif.id in self.parked_ports

    def trouble(self):
        return "" if self.reached.is_set() else "the binding cannot be reached"

    async def reachable(self):
        await self.reached.wait()

    async def strays(self):
        return list(self.leftovers)

    async def discard(self, stray: Stray):
        self.leftovers.remove(stray)


def request_bytes(
    command="ADD",
    container="c1",
    *,
    pod="web",
    uid="u1",
    ifname="eth0",
    netns="/run/netns/x",
    version="1.0.0",
    config=None,
    **environ,
):
    """A request as kuryr-cni sends it; ``environ`` overrides, None leaves out."""
    variables = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": container,
        "CNI_NETNS": netns,
        "CNI_IFNAME": ifname,
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod};"
        f"K8S_POD_INFRA_CONTAINER_ID={container};K8S_POD_UID={uid}",
    } | environ
    head = b"".join(
        f"{name}={value}\0".encode() for name, value in variables.items() if value is not None
    )
    body = {"cniVersion": version, "name": "kuryr", "type": "kuryr-cni"} | (config or {})
    return head + b"\0" + json.dumps(body).encode()
