"""Several subnets of a family for Pods: the next one is used when one has no address left."""

import asyncio

import pytest

from kuryr_k8s import errors
from kuryr_k8s.drivers.policy.subnets import DefaultServiceSubnets, DefaultSubnets
from tests.component.pools.pods import OPTIONS, end
from tests.kit import confs
from tests.kit.confs import NODE
from tests.kit.contexts import driver_context
from tests.kit.ledger import named, pod_ports, settle

FIRST, SECOND = "10.64.0.0/29", "10.64.1.0/29"  # five addresses each
ROOM = 5
POOL = OPTIONS | {"ports_pool_min": "0", "ports_pool_batch": "1"}


class Site:
    """A network with these subnets, and a node whose Pods are in it."""

    def __init__(self, stage, node, options, network):
        self.stage, self.node, self.options = stage, node, options
        self.network = network
        self.pods = {}

    def controller(self, **more):
        groups = {
            name: self.options.get(name, {}) | more.get(name, {})
            for name in self.options.keys() | more.keys()
        }
        return self.stage.controller(**groups)

    @property
    def keeps_ports(self):
        return "vif_pool" in self.options

    async def run(self, *names):
        """Have Pods run at the same time."""
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._run(name))

    async def _run(self, name):
        self.pods[name] = await self.stage.cluster.add_pod(name, node=self.node)
        await self.stage.until_plugged_in(name)
        await self.stage.activate(name)

    async def end(self, *names):
        for name in names:
            await end(self.stage, name, self.pods.pop(name))

    async def subnets(self):
        """The ranges of the interfaces of each Pod, by its name."""
        found = {}
        for recorded in await self.stage.kuryrports():
            vifs = (recorded.get("status") or {}).get("vifs")
            if not vifs:
                continue
            vif = vifs["eth0"]["vif"]["versioned_object.data"]
            subnets = vif["network"]["versioned_object.data"]["subnets"]
            objects = subnets["versioned_object.data"]["objects"]
            found[recorded["metadata"]["name"]] = [
                subnet["versioned_object.data"]["cidr"] for subnet in objects
            ]
        return found

    def full(self, app):
        """The ranges of the subnets that the controller's metrics call full."""
        cloud, gauge = self.stage.cloud, "kuryr_pod_subnet_full"
        return [
            cloud.subnets[subnet_id]["cidr"]
            for subnet_id in self.network["subnets"]
            if app.registry.get_sample_value(gauge, {"subnet": subnet_id})
        ]

    async def count(self, cidr):
        """How many Pods are in a subnet."""
        return sum(cidr in cidrs for cidrs in (await self.subnets()).values())

    def ports(self):
        """The ids of all ports of Pods and pools."""
        network = self.network["id"]
        cloud = self.stage.cloud
        return {port for port in pod_ports(self.stage) if _is_in(cloud, port, network)}


def _is_in(cloud, port_id, network_id):
    return cloud.ports[port_id]["network_id"] == network_id


@pytest.fixture(params=["noop", "noop-nested", "pool", "pool-nested"])
async def make_site(request, stage):
    async def make(*cidrs, first=None):
        network = stage.cloud.add_network("small", *cidrs, mtu=1442)
        options, node = {}, NODE
        if "nested" in request.param:
            options, node = confs.add_vm(stage.cloud), "vm"
            await stage.cluster.add_node("vm", addresses=(confs.VM,))
        kubernetes = dict(options.get("kubernetes", {}))
        if request.param.startswith("pool"):
            kubernetes["vif_pool_driver"] = "nested" if node == "vm" else "neutron"
            options = options | {"vif_pool": POOL}
        options = options | {
            "kubernetes": kubernetes,
            "neutron_defaults": {
                "pod_subnet": ",".join(network["subnets"]),
                "sweep_interval": "600",
            },
        }
        return Site(stage, node, options, network)

    return make


def names_of(*numbers):
    return [f"pod-{number}" for number in range(*numbers)]


@pytest.mark.parametrize("v6", [(), ("fd64::/64",), ("fd64::/120",)], ids=["v4", "vast", "small"])
async def test_pods_beyond_the_first_subnet_are_in_the_second(make_site, v6):
    site = await make_site(FIRST, SECOND, *v6)
    async with site.controller() as app:
        await site.run(*names_of(3))
        assert await site.count(FIRST) == 3
        assert site.full(app) == []
        await site.run(*names_of(3, ROOM + 3))
        assert site.full(app) == [FIRST]
        assert (await site.count(FIRST), await site.count(SECOND)) == (ROOM, 3)
        for cidrs in (await site.subnets()).values():
            assert len(cidrs) == 1 + len(v6)
        assert not await site.stage.events()
        assert not await site.stage.node_events(site.node)


async def test_pods_are_in_the_first_subnet_again_when_it_has_addresses(make_site):
    site = await make_site(FIRST, SECOND, "fd64::/64")
    async with site.controller():
        await site.run(*names_of(ROOM + 2))
        in_first = [name for name, cidrs in (await site.subnets()).items() if FIRST in cidrs]
        await site.end(*in_first[:2])
        await site.run("again-0", "again-1")
        found = await site.subnets()
        assert FIRST in found["again-0"]
        assert FIRST in found["again-1"]


async def test_pods_that_find_all_subnets_full_wait_and_are_told(make_site):
    site = await make_site(FIRST, SECOND)
    stage = site.stage
    async with site.controller():
        await site.run(*names_of(2 * ROOM))
        await stage.cluster.add_pod("late", node=site.node)
        if site.keeps_ports:
            events = await stage.until(lambda: stage.node_events(site.node))
            assert "No more IP addresses" in events[0][1]
        else:
            note = await stage.until_event("OpenStackQuotaExceeded")
            assert FIRST in note
            assert SECOND in note
        in_second = next(name for name, cidrs in (await site.subnets()).items() if SECOND in cidrs)
        await site.end(in_second)
        await stage.until_plugged_in("late")
        assert SECOND in (await site.subnets())["late"]


async def test_restart_finds_the_ports_of_both_subnets(make_site):
    site = await make_site(FIRST, SECOND, "fd64::/64")
    async with site.controller() as app:
        await site.run(*names_of(ROOM + 2))
        if site.keeps_ports:
            await settle(site.stage, lambda: app)
    before = site.ports(), set(await named(site.stage))
    async with site.controller() as app:
        await site.run("new")
        if site.keeps_ports:
            await settle(site.stage, lambda: app)
        assert before[1] < set(await named(site.stage))
        assert await site.count(SECOND) == 3
        assert len(site.ports()) == len(before[0]) + 1


async def test_automatic_subnet_must_be_the_only_one_of_its_family(load_conf, neutron, cloud):
    network = cloud.add_network("automatic", FIRST, "fd64::/64")
    modes = {"ipv6_address_mode": "slaac", "ipv6_ra_mode": "slaac"}
    automatic = cloud.add_subnet(network["id"], "fd65::/64", **modes)["id"]
    listed = ",".join({*network["subnets"], automatic})
    conf = load_conf(neutron_defaults={"pod_subnet": listed})
    with pytest.raises(errors.Refused, match=automatic):
        await DefaultSubnets(driver_context(conf, neutron)).start()


async def test_services_take_one_subnet_of_each_family(load_conf, neutron, cloud):
    network = cloud.add_network("services", FIRST, SECOND)
    conf = load_conf(neutron_defaults={"service_subnet": ",".join(network["subnets"])})
    with pytest.raises(errors.Refused, match="one subnet of each address family"):
        await DefaultServiceSubnets(driver_context(conf, neutron)).start()


async def test_load_balancers_reach_pods_in_all_subnets(load_conf, neutron, cloud):
    network = cloud.add_network("small", FIRST, SECOND, "fd64::/64")
    conf = load_conf(neutron_defaults={"pod_subnet": ",".join(network["subnets"])})
    found = await DefaultSubnets(driver_context(conf, neutron)).subnets_of("default")
    assert {subnet.id for subnet in found} == set(network["subnets"])
