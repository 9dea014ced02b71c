"""Networks that users name, without the subnets from which all Pods let everything in."""

import pytest

from kuryr_k8s.drivers.base import granted
from kuryr_k8s.drivers.named.networks import NamedNetworks
from tests.kit.contexts import driver_context

CIDRS = {"node_subnet": "10.71.0.0/24", "service_subnet": "10.72.0.0/24", "open": "10.73.0.0/24"}
REFUSED = "granted to namespace shop by its id"


@pytest.fixture
def network(cloud):
    """A network of all kinds of subnets."""
    return cloud.add_network("all", *CIDRS.values())


@pytest.fixture
def subnets(network):
    """The ids of its subnets, by what they are for."""
    return dict(zip(CIDRS, network["subnets"], strict=True))


@pytest.fixture
def networks(load_conf, neutron, subnets):
    """Return the networks that users can name under a policy."""
    defaults = {name: subnets[name] for name in ("node_subnet", "service_subnet")}

    def under(policy):
        conf = load_conf(neutron_defaults=defaults, policy={"networks": policy})
        return NamedNetworks(driver_context(conf, neutron))

    return under


@pytest.mark.parametrize("option", ["node_subnet", "service_subnet"])
@pytest.mark.parametrize("policy", ["*:*", "shop:*", "shop:*,elsewhere:{network}"])
async def test_subnet_of_nodes_or_services_cannot_be_named(
    cloud, networks, network, subnets, option, policy
):
    found = networks(policy.format(network=network["id"]))
    with pytest.raises(granted.NotGranted, match=REFUSED):
        await found.granted("shop", cloud.project_id, [subnets[option]])


async def test_network_is_that_of_its_other_subnets(cloud, networks, network, subnets):
    found = await networks("*:*").granted("shop", cloud.project_id, network["id"])
    assert [each.id for each in found.all_subnets] == [subnets["open"]]
    found = await networks("*:*").granted("shop", cloud.project_id, [subnets["open"]])
    assert [each.id for each in found.all_subnets] == [subnets["open"]]


async def test_network_without_other_subnets_cannot_be_named(cloud, networks, network, subnets):
    cloud.subnets.pop(subnets["open"])
    with pytest.raises(granted.NotGranted, match=REFUSED):
        await networks("*:*").granted("shop", cloud.project_id, network["id"])


@pytest.mark.parametrize("policy", ["shop:{network}", "*:*,*:{network}"])
async def test_all_of_a_network_that_is_granted_by_its_id_can_be_named(
    cloud, networks, network, subnets, policy
):
    by_id = networks(policy.format(network=network["id"]))
    for named, count in [(network["id"], 3), ([subnets["node_subnet"]], 1)]:
        found = await by_id.granted("shop", cloud.project_id, named)
        assert len(found.all_subnets) == count
