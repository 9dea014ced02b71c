"""A controller's work on load balancers, without Kubernetes: what each owner is to have."""

import asyncio
import contextlib
import dataclasses

from kuryr_k8s.cloud import connect
from kuryr_k8s.cloud.octavia.api import LOAD_BALANCERS, Octavia
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.drivers.base import ServiceSubnetsDriver
from kuryr_k8s.drivers.lbaas.lbaasv2 import LBaaSv2
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.model.load_balancer import Listener, LoadBalancer, Member, Pool
from tests.kit.contexts import Subnets, driver_context
from tests.kit.stage import UNHURRIED

PORTS = {"http": ("TCP", 80), "dns": ("UDP", 53), "dns-tcp": ("TCP", 53), "sip": ("SCTP", 5060)}


def furnish(cloud):
    """Give the cloud a network for the addresses of Services."""
    cloud.services = cloud.add_network("services", "10.3.0.0/24", "fd03::/64")


def wanted(cloud, owner, *, pods=2, ports=("http", "dns"), address=None, **changes):
    """A Service's load balancer; Pods are 10.62.1.1 and so on."""
    pools, listeners = [], []
    for port in ports:
        protocol, number = PORTS[port]
        addresses = [f"10.62.1.{pod + 1}" for pod in range(pods)]
        members = tuple(
            Member(address=pod_address, port=8080, name=f"default/{pod_address}:8080")
            for pod_address in addresses
        )
        pools.append(
            Pool(name=port, protocol=protocol, lb_algorithm="ROUND_ROBIN", members=members)
        )
        name = f"default/{owner.uid}:{protocol}:{number}"
        listeners.append(Listener(name=name, protocol=protocol, port=number, pool=port))
    values = {
        "name": f"default/{owner.uid}",
        "project_id": cloud.project_id,
        "vip_subnet_id": cloud.services["subnets"][0],
        "vip_address": address,
        "provider": None,
        "namespace": "default",
        "listeners": tuple(listeners),
        "pools": tuple(pools),
    }
    return LoadBalancer(**(values | changes))


class Worker:
    """One life of a controller: the driver, and what runs it.

    :param options: arguments of the driver, besides its context.
    :param deadline: seconds that a reconcile may take.
    """

    def __init__(self, conf, neutron, *, options=None, deadline=120.0, **patience):
        adapter = connect.ServiceAdapter(connect.connect(conf, connections=16), "load_balancer")
        self.transport = Transport(adapter, limit=16, deadline=lambda: 60.0)
        short = {
            "first_refused": 0.03,
            "refused": 0.06,
            "sweep_retry": 0.2,
            "first_pending_look": 0.02,
            "first_repair": 0.02,
        }
        patience = dataclasses.replace(UNHURRIED, **(short | patience))
        drivers = {ServiceSubnetsDriver: Subnets()}
        context = driver_context(conf, neutron, Octavia(self.transport), drivers, patience)
        self.driver = LBaaSv2(context, **(options or {}))
        self.wanted, self.places, self.found, self.problems = {}, {}, {}, {}
        self._changed = asyncio.Condition()
        self._queue = WorkQueue(base=0.02, cap=0.2)
        self._services = Controller(
            "services",
            self._reconcile,
            queue=self._queue,
            deadline=deadline,
            report=self._report,
            patience=patience,
        )
        self.driver.subscribe(self._queue.add)

    @contextlib.asynccontextmanager
    async def running(self):
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(loop.run())
                    for loop in (self._services, *self.driver.loops())
                ]
                yield self
                for task in tasks:
                    task.cancel()
        finally:
            self.transport.close()

    def want(self, owner, load_balancer):
        """None: it is to be gone."""
        self.wanted[owner] = load_balancer
        self.places.pop(owner, None)
        self._ask(owner)

    def want_in(self, owner, load_balancer_id, load_balancer):
        """Have what is in it, attached to that one."""
        self.wanted[owner] = load_balancer
        self.places[owner] = load_balancer_id
        self._ask(owner)

    def _ask(self, owner):
        self.found.pop(owner, None)
        self.problems.pop(owner, None)
        self._queue.add(owner)

    async def have(self, owner, load_balancer):
        """Want it, and wait until it is so; as it is found then."""
        self.want(owner, load_balancer)
        return await self.done(owner)

    async def have_in(self, owner, load_balancer_id, load_balancer):
        self.want_in(owner, load_balancer_id, load_balancer)
        return await self.done(owner)

    async def done(self, owner):
        await self.until(lambda: owner in self.found)
        return self.found[owner]

    async def rename(self, load_balancer_id):
        """As people do by hand."""
        path = f"{LOAD_BALANCERS}/{load_balancer_id}"
        body = {"loadbalancer": {"name": "renamed"}}
        await self.transport.call("PUT", path, body=body)

    async def trouble(self, owner):
        """What went wrong last, as soon as something has."""
        await self.until(lambda: owner in self.problems)
        return self.problems.pop(owner)

    async def until(self, predicate):
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(predicate)

    async def _reconcile(self, owner):
        load_balancer = self.wanted[owner]
        if load_balancer is None:
            await self.driver.release(owner)
            result = None
        elif owner in self.places:
            result = await self.driver.attach(owner, self.places[owner], load_balancer)
        else:
            result = await self.driver.ensure(owner, load_balancer)
        if self.wanted[owner] is load_balancer:
            self.found[owner] = result

    async def _report(self, owner, problem, _failures):
        async with self._changed:
            if problem is not None:
                self.problems[owner] = problem
            self._changed.notify_all()
