"""A pool driver on an imaginary Neutron: a quota, hosts with dead agents, lost answers."""

import dataclasses
import itertools
from collections import Counter
from types import MappingProxyType

from kuryr_k8s import errors
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.neutron.api import Network, Subnet
from kuryr_k8s.cloud.neutron.full_subnets import FullSubnets
from kuryr_k8s.config import read
from kuryr_k8s.drivers.base import (
    AVAILABLE,
    PodNetwork,
    PooledPort,
    PooledVIFDriver,
    PortRequest,
    Records,
)
from kuryr_k8s.drivers.pools.port_pool import NeutronPool
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.vif import VIFOpenVSwitch
from kuryr_k8s.patience import PATIENCE
from tests.kit.clock import ManualClock
from tests.kit.contexts import driver_context
from tests.kit.vif_drivers import AsksNothingOfNeutron

NETWORK = Network(id="network", name="network", mtu=1500, project_id="project", shared=False)


def network_of(*subnet_ids, further=()):
    first, others = ((_subnet(name) for name in names) for names in (subnet_ids, further))
    return PodNetwork(network=NETWORK, subnets=tuple(first), further=tuple(others))


def _subnet(subnet_id):
    return Subnet(
        id=subnet_id,
        network_id=NETWORK.id,
        cidr="10.0.0.0/8",
        ip_version=4,
        gateway_ip=None,
        dns_nameservers=(),
        host_routes=(),
    )


def node_of(name):
    return Node(name=name, uid=name, resource_version="1", host_id=name, out_of_service=False)


class Cloud:
    """Stands for Neutron; its ports are those of the driver below.

    :ivar dead: hosts without an agent.
    :ivar gone: security groups that do not exist.
    :ivar full: subnets without a free address.
    :ivar loses: it makes ports, and the answers get lost.
    :ivar posts: the place of each port that was asked for.
    :ivar tried: how many ports were asked for in each subnet.
    """

    keeps_tags = True

    mark = ClusterMark("cluster")

    def __init__(self, quota, now):
        self.quota = quota
        self.full_subnets = FullSubnets(now)
        self._now = now
        self.ports = {}
        self.dead, self.gone, self.full = set(), set(), set()
        self.loses = False
        self.posts = []
        self.tried = Counter()
        self._ids = (f"port{number}" for number in itertools.count())

    def make(self, key):
        self.posts.append(key.place)
        self.tried.update(key.subnet_ids)
        if self.gone.intersection(key.security_groups):
            raise errors.NotFound("security group", status=404)
        if self.full.intersection(key.subnet_ids):
            self.full_subnets.refused(key.subnet_ids, "no address")
            raise errors.NoAddress("no address", status=409)
        if len(self.ports) >= self.quota:
            raise errors.OverQuota("quota", status=409)
        port = PooledPort(
            id=next(self._ids),
            key=key,
            mac="fa:16:3e:00:00:01",
            fixed_ips=(),
            name=AVAILABLE,
            device_id="",
            fit=key.place not in self.dead,
        )
        self.ports[port.id] = port
        self.full_subnets.made(key.subnet_ids, self._now())
        return port

    def subnets(self):
        """Count its ports by their subnets."""
        return Counter(name for port in self.ports.values() for name in port.key.subnet_ids)

    def places(self):
        """List where its ports are."""
        return sorted(port.key.place for port in self.ports.values())

    def shown(self, ports):
        return [{"id": port.id, "device_id": port.device_id, "port": port} for port in ports]

    async def list_ports(self, _query):
        return self.shown(self.ports.values())

    async def list_ports_by_id(self, ids, _fields=()):
        return self.shown(self.ports[id_] for id_ in ids if id_ in self.ports)

    async def update_port(self, port_id, _fields):
        if port_id not in self.ports:
            raise errors.NotFound("port", status=404)

    async def get_network(self, _network_id):
        return NETWORK

    async def get_subnet(self, subnet_id):
        return subnet_id


class Driver(AsksNothingOfNeutron, PooledVIFDriver):
    """Makes such ports."""

    kind = VIFOpenVSwitch
    pooled_marks = MappingProxyType({"device_id": ""})

    def __init__(self, cloud):
        self._cloud = cloud

    async def place(self, node):
        return node.name

    async def create_pooled(self, key, count):
        made = []
        for _ in range(count):
            try:
                made.append(self._cloud.make(key))
            except errors.CloudError as error:
                return made, error
        if self._cloud.loses:
            return [], errors.CloudError("no answer")
        return made, None

    async def find_pooled(self, ports):
        return [port["port"] for port in ports]

    async def delete_pooled(self, port):
        self._cloud.ports.pop(port.id, None)
        self._cloud.full_subnets.freed(port.key.subnet_ids)

    def vif_of_pooled(self, port, pod_network):
        return VIFOpenVSwitch(id=port.id, vif_name="eth0", bridge_name="br-int")

    async def release_unrecorded(self, pod_uid):
        return 0


class NoEvents:
    """Stands for the recorder of Events."""

    def well(self, source, about):
        pass

    async def warn(self, source, about, reason, text):
        pass


class Caches:
    """Stands for the caches of Kubernetes objects; of these, only Nodes matter."""

    def __init__(self):
        self.nodes = {}

    def of(self, _resource):
        return self.nodes


class Site:
    """Such a cloud, and a pool driver that has recovered no ports from it."""

    def __init__(self, tmp_path, *, quota=100, patience=PATIENCE, **options):
        file = tmp_path / "kuryr.conf"
        values = {"ports_pool_min": 0, "ports_pool_batch": 1, "ports_quota_reserve": 0} | options
        lines = [f"{name} = {value}" for name, value in values.items()]
        file.write_text("\n".join(["[vif_pool]", *lines]) + "\n")
        conf = read(["--config-file", str(file)], "test")
        self.clock = ManualClock(1000.0)
        self.cloud = Cloud(quota, self.clock.now)
        context = driver_context(conf, self.cloud, patience=patience, clock=self.clock)
        self._caches = Caches()
        context = dataclasses.replace(context, informers=self._caches, events=NoEvents())
        self.pool = NeutronPool(context, Driver(self.cloud))
        (self.loop,) = self.pool.loops()

    def add_node(self, name):
        self._caches.nodes[Key("", name)] = node_of(name)

    async def recover(self):
        await self.survey(self.pool.known(), [])

    async def survey(self, known, listed, **records):
        """Compare the pools with a list of ports that began when these were known."""
        await self.pool.survey(known, listed, Records(**({"claims": {}, "pods": {}} | records)))

    async def request(self, pod, node, *, subnets=("subnet",), further=(), groups=("group",)):
        """Ask for a Pod's port, and return its id; None: not yet."""
        asked = PortRequest(
            pod_uid=pod,
            pod_name=f"default/{pod}",
            node=node_of(node),
            ifname="eth0",
            project_id="project",
            pod_network=network_of(*subnets, further=further),
            security_groups=groups,
            may_exist=False,
        )
        try:
            return (await self.pool.request(asked)).id
        except errors.Wait:
            return None

    def phases(self, key):
        """List the ids of a pool's ports with their phases."""
        return [(port.id, phase) for port, phase in self.pool.ports(key)]

    async def work(self, tasks=50):
        """Do what is due, and fail if that has no end."""
        queue = self.loop.queue
        while queue:
            assert tasks, "the work of the pools has no end"
            tasks -= 1
            task = queue.take()
            await self.loop.step(task)
            queue.done(task)

    async def pass_time(self, seconds):
        """Let so many seconds pass, and do what becomes due."""
        for _ in range(round(seconds * 2)):
            self.clock.advance(0.5)
            await self.work()
