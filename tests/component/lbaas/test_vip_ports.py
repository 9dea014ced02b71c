"""VIPs' ports that refused load balancers leave behind, on the fake Neutron and Octavia."""

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud import connect
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.drivers.base import ServiceSubnetsDriver
from kuryr_k8s.drivers.lbaas.vip_ports import VIPPortSweep
from tests.kit.clock import ManualClock
from tests.kit.contexts import Subnets, driver_context
from tests.kit.fakes.faults import answer

NOBODYS = "0e3b7d10-1111-4222-8333-444455556666"


@pytest.fixture
def octavia(load_conf):
    adapter = connect.ServiceAdapter(connect.connect(load_conf(), connections=4), "load_balancer")
    transport = Transport(adapter, limit=4)
    yield Octavia(transport)
    transport.close()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def sweeper(cloud, neutron, octavia, load_conf, clock):
    """A search every ten minutes."""
    cloud.services = cloud.add_network("services", "10.3.0.0/24")
    drivers = {
        ServiceSubnetsDriver: Subnets(await neutron.get_subnet(cloud.services["subnets"][0]))
    }
    conf = load_conf(neutron_defaults={"sweep_interval": "600"})
    sweep = VIPPortSweep(driver_context(conf, neutron, octavia, drivers, clock=clock))

    async def search(*, passed=0.0):
        """Go on by so many seconds; return the seconds until the next search."""
        clock.advance(passed)
        return await sweep.reconcile(VIPPortSweep.KEY)

    return search


def vip_port(cloud, load_balancer_id, **changes):
    body = {
        "name": f"ovn-lb-vip-{load_balancer_id}",
        "device_id": f"lb-{load_balancer_id}",
        "device_owner": "ovn-lb:vip",
    }
    network = changes.pop("network", cloud.services)
    return cloud.add_port(network["id"], **(body | changes))["id"]


@pytest.mark.parametrize("provider", ["ovn", "amphora"])
async def test_port_of_a_refused_load_balancer_goes_and_its_address_is_free(
    sweeper, cloud, octavia, provider
):
    body = {
        "name": "web",
        "vip_subnet_id": cloud.services["subnets"][0],
        "vip_address": "10.3.0.77",
        "project_id": cloud.project_id,
        "provider": provider,
    }
    twice = [{"name": "a", "protocol": "TCP", "protocol_port": 80}] * 2
    with pytest.raises(errors.KuryrError):
        await octavia.create_load_balancer({**body, "listeners": twice, "pools": []})
    assert [port["device_id"][:3] for port in cloud.ports.values()] == ["lb-"]
    with pytest.raises(errors.Conflict):
        await octavia.create_load_balancer({**body, "listeners": [], "pools": []})
    assert await sweeper() == 60.0
    assert cloud.ports
    assert await sweeper(passed=60.0) == 600.0
    assert not cloud.ports
    made = await octavia.create_load_balancer({**body, "listeners": [], "pools": []})
    assert await sweeper(passed=600.0) == 600.0
    assert list(cloud.ports) == [made.vip_port_id]


async def test_ports_of_additional_vips_go_and_stay_like_the_first_one(sweeper, cloud, octavia):
    """With ovn each has a port of its own."""
    other = cloud.add_subnet(cloud.services["id"], "10.4.0.0/24")["id"]
    more = {"provider": "ovn", "additional_vips": [{"subnet_id": other}]}
    made = await octavia.create_load_balancer(_body(cloud) | more)
    assert len(cloud.ports) == 2
    await sweeper()
    name = f"ovn-lb-vip-additional-1-{NOBODYS}"
    left = vip_port(cloud, NOBODYS, name=name, fixed_ips=[{"subnet_id": other}])
    await sweeper(passed=600.0)
    assert await sweeper(passed=60.0) == 600.0
    assert left not in cloud.ports
    assert {port["device_id"] for port in cloud.ports.values()} == {f"lb-{made.id}"}
    assert len(cloud.ports) == 2


async def test_port_stays_until_it_was_found_for_a_while(sweeper, cloud):
    port = vip_port(cloud, NOBODYS)
    await sweeper()
    await sweeper(passed=40.0)  # and what the search took
    assert port in cloud.ports
    await sweeper(passed=20.0)
    assert port not in cloud.ports


async def test_creation_that_was_under_way_keeps_its_port(sweeper, cloud, octavia):
    """Octavia shows the load balancer only when it has made all of it."""
    made = await octavia.create_load_balancer(_body(cloud))
    balancer = cloud.load_balancers.pop(made.id)
    assert await sweeper() == 60.0
    cloud.load_balancers[made.id] = balancer
    assert await sweeper(passed=60.0) == 600.0
    cloud.load_balancers.pop(made.id)
    assert await sweeper(passed=600.0) == 60.0
    assert made.vip_port_id in cloud.ports


def _body(cloud):
    return {"name": "web", "vip_subnet_id": cloud.services["subnets"][0]}


@pytest.mark.parametrize(
    "changes",
    [
        {"device_id": "lb-another"},
        {"name": "web"},
        {"device_owner": "compute:nova"},
        {"device_id": NOBODYS},
        {"device_owner": "Octavia", "name": f"octavia-lb-vrrp-{NOBODYS}"},
        {"project_id": "another"},
        {"network": "pods"},
    ],
    ids=str,
)
async def test_what_is_not_surely_such_a_port_stays(sweeper, cloud, changes):
    changes = dict(changes)
    if "network" in changes:
        changes["network"] = cloud.pods
    port = vip_port(cloud, NOBODYS, **changes)
    await sweeper()
    await sweeper(passed=600.0)
    assert port in cloud.ports


async def test_port_of_a_load_balancer_of_others_stays(sweeper, cloud):
    """Octavia says 403 of what is another project's."""
    port = vip_port(cloud, NOBODYS)
    cloud.faults.add(method="GET", path="/status$", times=None, action=answer(403))
    await sweeper()
    await sweeper(passed=600.0)
    assert port in cloud.ports


async def test_port_stays_while_octavia_does_not_answer(sweeper, cloud):
    port = vip_port(cloud, NOBODYS)
    await sweeper()
    cloud.faults.add(method="GET", path="/status$", times=None, action=answer(503))
    with pytest.raises(errors.CloudError):
        await sweeper(passed=600.0)
    assert port in cloud.ports


async def test_nothing_but_two_lists_is_asked_where_all_is_well(sweeper, cloud, octavia):
    for _ in range(3):
        await octavia.create_load_balancer(_body(cloud))
    await sweeper()
    cloud.calls.clear()
    await sweeper(passed=600.0)
    asked = [call.path.rpartition("/")[2] for call in cloud.calls if "subnets" not in call.path]
    assert asked == ["ports", "loadbalancers"]
