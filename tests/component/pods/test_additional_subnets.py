"""Pods that ask for interfaces in further subnets by an annotation."""

import json

import pytest

from tests.component.pools.pods import OPTIONS, end
from tests.kit.confs import NODE
from tests.kit.fakes.faults import answer

ANNOTATION = "openstack.org/kuryr-additional-subnets"
SUBNETS = {"kubernetes": {"multi_vif_drivers": "additional_subnets"}}


def asking(*entries):
    return {ANNOTATION: json.dumps(entries)}


async def interfaces(stage, name):
    """The network, and the addresses, of each interface of a Pod by its name."""
    ids = await stage.port_ids(name)
    ports = {ifname: stage.cloud.ports[port_id] for ifname, port_id in ids.items()}
    return {
        ifname: (port["network_id"], [ip["subnet_id"] for ip in port["fixed_ips"]])
        for ifname, port in ports.items()
    }


@pytest.fixture
def storage(stage):
    """A second network of the project."""
    return stage.cloud.add_network("storage", "10.70.0.0/24", "fd70::/64")


async def test_each_entry_is_an_interface_in_its_subnets(stage, storage):
    v4, v6 = storage["subnets"]
    async with stage.controller(**SUBNETS):
        annotations = asking(v4, f"{v4},{v6}", v6)
        pod = await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_plugged_in("web")
        found = await interfaces(stage, "web")
        assert list(found) == ["eth0", "eth1", "eth2", "eth3"]
        assert found["eth0"] == (stage.cloud.pods["id"], stage.cloud.pods["subnets"])
        assert found["eth1"] == (storage["id"], [v4])
        assert found["eth2"] == (storage["id"], [v4, v6])
        assert found["eth3"] == (storage["id"], [v6])
        assert len(stage.ports_of(pod)) == 4
        await end(stage, "web", pod)
        assert not stage.cloud.ports


async def test_names_begin_as_the_operator_says(stage, storage):
    options = {"multi_vif_drivers": "additional_subnets", "additional_ifname_prefix": "net"}
    async with stage.controller(kubernetes=options):
        annotations = asking(*storage["subnets"])
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_plugged_in("web")
        assert list(await interfaces(stage, "web")) == ["eth0", "net1", "net2"]


async def test_pods_that_ask_for_nothing_have_one_interface(stage, storage):
    async with stage.controller(**SUBNETS):
        for name, annotations in (("plain", {}), ("empty", asking())):
            await stage.cluster.add_pod(name, node=NODE, annotations=annotations)
            await stage.until_plugged_in(name)
            assert list(await interfaces(stage, name)) == ["eth0"]


@pytest.fixture
def services(stage):
    """The subnet of Services."""
    return stage.cloud.add_network("services", "10.78.0.0/24")["subnets"][0]


CASES = ["no JSON", "two networks", "one family", "missing", "tenant", "policy", "services"]


@pytest.fixture(params=CASES)
def refused(request, stage, storage, services):
    """What is asked for, the words of its Event, and the policy."""
    cloud = stage.cloud
    other = cloud.add_network("other", "10.71.0.0/24", "10.72.0.0/24")
    theirs = cloud.add_network("theirs", "10.77.0.0/24", project_id=cloud.add_project("tenant"))
    v4 = storage["subnets"][0]
    elsewhere = {"networks": "elsewhere:*"}
    return {
        "no JSON": ({ANNOTATION: v4}, "is no JSON", {}),
        "two networks": (asking(f"{v4},{other['subnets'][0]}"), "one network", {}),
        "one family": (asking(",".join(other["subnets"])), "one subnet of each", {}),
        "missing": (asking(other["id"]), "does not exist, or neither belongs", {}),
        "tenant": (asking(theirs["subnets"][0]), "neither belongs to project", {}),
        "policy": (asking(v4), "is not granted to namespace", elsewhere),
        "services": (asking(services), "is for nodes or Services", {}),
    }[request.param]


async def test_what_cannot_be_is_an_event_and_the_pod_gets_no_interface(stage, services, refused):
    annotations, words, policy = refused
    defaults = {"service_subnet": services}
    async with stage.controller(**SUBNETS, neutron_defaults=defaults, policy=policy):
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_told(ANNOTATION, words)
        assert "vifs" not in ((await stage.kuryrport("web")).get("status") or {})
        assert not stage.cloud.ports


@pytest.mark.parametrize("granted", ["shared", "by its id"])
async def test_networks_of_others_can_be_granted(stage, granted):
    tenant = stage.cloud.add_project("tenant")
    theirs = stage.cloud.add_network("theirs", "10.77.0.0/24", project_id=tenant)
    policy = {}
    if granted == "shared":
        stage.cloud.share(theirs["id"], stage.cloud.project_id)
    else:
        policy = {"networks": f"{stage.cluster.namespace}:{theirs['id']}"}
    async with stage.controller(**SUBNETS, policy=policy):
        annotations = asking(*theirs["subnets"])
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_plugged_in("web")
        assert (await interfaces(stage, "web"))["eth1"] == (theirs["id"], theirs["subnets"])


async def test_pod_gets_all_of_its_interfaces_or_none(stage, storage):
    """One that cannot be made holds nothing that others may need."""
    small = stage.cloud.add_network("small", "10.9.0.0/30")
    patience = {"first_refused": 0.2, "first_retry": 0.1}
    async with stage.controller(**SUBNETS, patience=patience):
        first = await stage.cluster.add_pod(
            "first", node=NODE, annotations=asking(*small["subnets"])
        )
        await stage.until_plugged_in("first")
        annotations = asking(storage["subnets"][0], *small["subnets"], storage["subnets"][1])
        second = await stage.cluster.add_pod("second", node=NODE, annotations=annotations)
        assert "10.9.0.0/30" in await stage.until_event("OpenStackQuotaExceeded")
        await stage.cloud.wait_for(lambda: not stage.ports_of(second))
        await end(stage, "first", first)
        await stage.until_plugged_in("second")
        assert list(await interfaces(stage, "second")) == ["eth0", "eth1", "eth2", "eth3"]
        assert len(stage.cloud.ports) == 4


async def test_interfaces_come_from_pools_of_their_networks(stage, storage):
    groups = {
        "kubernetes": SUBNETS["kubernetes"] | {"vif_pool_driver": "neutron"},
        "vif_pool": OPTIONS | {"ports_pool_min": "0", "ports_pool_batch": "1"},
    }
    async with stage.controller(**groups):
        annotations = asking(storage["subnets"][0])
        pod = await stage.cluster.add_pod("first", node=NODE, annotations=annotations)
        await stage.until_plugged_in("first")
        before = set(stage.cloud.ports)
        assert len(before) == 2
        await end(stage, "first", pod)
        await stage.cluster.add_pod("second", node=NODE, annotations=annotations)
        await stage.until_plugged_in("second")
        assert set(stage.cloud.ports) == before
        assert list(await interfaces(stage, "second")) == ["eth0", "eth1"]


async def test_what_an_earlier_controller_made_goes_if_the_pod_is_refused_now(stage, storage):
    refused = stage.proxy.faults.add(
        method="PATCH", path="/kuryrports/web/status", times=None, action=answer(500)
    )
    async with stage.controller(**SUBNETS):
        annotations = asking(*storage["subnets"])
        pod = await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.cloud.wait_for(lambda: len(stage.ports_of(pod)) == 3)
    refused.remove()
    async with stage.controller(**SUBNETS, policy={"networks": "elsewhere:*"}):
        await stage.cloud.wait_for(lambda: not stage.cloud.ports)
