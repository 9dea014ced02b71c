"""Two tenants: a Pod has what its own project has, and reaches into no other project by an id."""

import json

import pytest

from lab.paths import REPOSITORY
from tests.kit.confs import NODE
from tests.kit.kube.objects import make_network_attachment

PREFIX = "openstack.org"
NETWORK, SUBNET = f"{PREFIX}/network_id", f"{PREFIX}/subnet_id"
FIXED = "fa:16:3e:00:00:07"
PAIRS = json.dumps([{"ip_address": "10.70.0.100"}])
CRDS = REPOSITORY / "lab" / "kubernetes" / "crds"
DRIVERS = "named_network,additional_subnets,specific_ports,npwg_multiple_interfaces"


class Tenant:
    """A project, with one object of each kind that Pods can name.

    Its second network is shared with the other tenant.
    """

    def __init__(self, cloud, name, number):
        self.project_id = cloud.add_project(name)
        own = {"project_id": self.project_id}
        self.network = cloud.add_network(name, f"10.7{number}.0.0/24", **own)
        self.shared = cloud.add_network(f"{name}-shared", f"10.8{number}.0.0/24", **own)
        self.group = cloud.add_security_group(f"{name}-group", **own)["id"]
        self.policy = cloud.add_qos_policy(f"{name}-policy", **own)["id"]
        self.port = cloud.add_port(self.network["id"], name=f"{name}-port", **own)["id"]
        self.floating_ip = cloud.add_floating_ip(cloud.public["id"], **own)
        cloud.add_router(cloud.public["id"], *self.network["subnets"])


@pytest.fixture
def tenants(stage):
    """The tenant whose Pods ask, and another one. Our account sees everything of both."""
    cloud = stage.cloud
    cloud.promote("admin")
    cloud.public = cloud.add_external_network("public", "172.24.4.0/24")
    ours, theirs = Tenant(cloud, "ours", 0), Tenant(cloud, "theirs", 1)
    cloud.share(theirs.shared["id"], ours.project_id)
    for tenant in (ours, theirs):  # the groups of all Pods
        shared = {"object_type": "security_group", "object_id": cloud.group["id"]}
        target = {"target_tenant": tenant.project_id, "project_id": cloud.project_id}
        cloud.store.add("rbac_policy", shared | target | {"action": "access_as_shared"})
    return ours, theirs


@pytest.fixture
async def options(stage, tenants):
    """The Namespace is the first tenant's, and everything is granted to it by kind."""
    ours, _theirs = tenants
    namespace = stage.cluster.namespace
    path = f"/api/v1/namespaces/{namespace}"
    patch = {"metadata": {"annotations": {f"{PREFIX}/kuryr-project": ours.project_id}}}
    await stage.client.patch(path, patch)
    return {
        "kubernetes": {"pod_project_driver": "annotation", "multi_vif_drivers": DRIVERS},
        "policy": {
            "projects": ",".join(f"*:{tenant.project_id}" for tenant in tenants),
            "port_security": f"{namespace}:*",
        },
        "neutron_defaults": {"external_svc_net": stage.cloud.public["id"]},
    }


# What a Pod writes about objects of a tenant: only its own may lead to a port.
ASKED = {
    "network_id": lambda of: {NETWORK: of.network["id"]},
    "subnet_id": lambda of: {SUBNET: of.network["subnets"][0]},
    "security_group_ids": lambda of: {f"{PREFIX}/security_group_ids": of.group},
    "qos_policy_id": lambda of: {f"{PREFIX}/qos_policy_id": of.policy},
    "ip_address": lambda of: {
        SUBNET: of.shared["subnets"][0],
        f"{PREFIX}/ip_address": of.shared["cidr"].replace(".0/24", ".7"),
    },
    "ip_pool": lambda of: {
        SUBNET: of.shared["subnets"][0],
        f"{PREFIX}/ip_pool": of.shared["cidr"].replace(".0/24", ".7"),
    },
    "mac_address": lambda of: {NETWORK: of.shared["id"], f"{PREFIX}/mac_address": FIXED},
    "port_security": lambda of: {NETWORK: of.shared["id"], f"{PREFIX}/port_security": "false"},
    "allowed_address_pairs": lambda of: {
        NETWORK: of.shared["id"],
        f"{PREFIX}/allowed_address_pairs": PAIRS,
    },
    "spec-default-port": lambda of: {f"{PREFIX}/spec-default-port": of.port},
    "spec-ports": lambda of: {f"{PREFIX}/spec-ports": json.dumps([of.port])},
    "kuryr-additional-subnets": lambda of: {
        f"{PREFIX}/kuryr-additional-subnets": json.dumps(of.network["subnets"])
    },
    "networks": lambda _of: {"k8s.v1.cni.cncf.io/networks": "selected"},
}


async def run_with(stage, tenant, annotation):
    """A Pod in a network of the first tenant's asks for something of a tenant's."""
    for each in (tenant.network, tenant.shared):
        (subnet,) = each["subnets"]
        each["cidr"] = stage.cloud.store.subnets[subnet]["cidr"]
    if annotation == "networks":
        await stage.cluster.install_crds(CRDS)
        config = {"subnetId": tenant.network["subnets"][0]}
        definition = make_network_attachment("selected", stage.cluster.namespace, kuryr=config)
        await stage.client.create(definition)
    await stage.cluster.add_pod("web", node=NODE, annotations=ASKED[annotation](tenant))


@pytest.mark.parametrize("annotation", list(ASKED))
async def test_pod_has_what_its_own_project_has(stage, tenants, options, annotation):
    ours, _theirs = tenants
    stage.cloud.share(stage.cloud.pods["id"], ours.project_id)  # for Pods that name no network
    async with stage.controller(**options):
        await run_with(stage, ours, annotation)
        await stage.until_plugged_in("web")
        ids = await stage.port_ids("web")
        assert {stage.cloud.ports[each]["project_id"] for each in ids.values()} == {
            ours.project_id
        }


@pytest.mark.parametrize("annotation", list(ASKED))
async def test_pod_has_nothing_of_another_project(stage, tenants, options, annotation):
    ours, theirs = tenants
    stage.cloud.share(stage.cloud.pods["id"], ours.project_id)
    before = {name: dict(port) for name, port in stage.cloud.ports.items()}
    async with stage.controller(**options):
        await run_with(stage, theirs, annotation)
        await stage.until_told("")
        told = await stage.events()
        print(f"{annotation}: {', '.join(f'{reason}: {note}' for reason, note in told)}")
        assert stage.cloud.ports == before
        for _reason, note in told:  # words tell nothing of the other tenant
            assert "theirs" not in note
            assert theirs.project_id not in note


@pytest.mark.parametrize("by", ["id", "floating_ip_address"])
@pytest.mark.parametrize("whose", ["ours", "theirs"])
async def test_floating_ips_are_those_of_the_pods_own_project(stage, tenants, options, by, whose):
    ours, theirs = tenants
    asked = {"ours": ours, "theirs": theirs}[whose].floating_ip[by]
    annotations = {NETWORK: ours.network["id"], f"{PREFIX}/floating_ip": asked}
    async with stage.controller(**options):
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        if whose == "theirs":
            await stage.until_told(f"has no floating IP {asked}")
        else:
            await stage.cloud.wait_for(lambda: ours.floating_ip["port_id"])
        assert theirs.floating_ip["port_id"] is None
        assert not theirs.floating_ip["tags"]
