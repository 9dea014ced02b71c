"""What a controller finds in the cloud that no Service has."""

from kuryr_k8s.drivers.public_ip.marks import FOUND_TAG
from tests.kit.confs import TAG
from tests.kit.service_stage import FINALIZER

HTTP = ("http", 80)
GONE = "0e3b7d10-1111-4222-8333-444455556666"


async def test_floating_ips_and_vip_ports_of_nobody_go_and_those_of_others_stay(services):
    cloud = services.cloud
    public = cloud.add_external_network("public", "172.24.4.0/24")
    service = await services.add_service("web", HTTP)

    def tags(owner):
        return [TAG, "kuryr-namespace:default", f"kuryr-service:{owner}"]

    def floating_ip(description="", tags=()):
        made = cloud.add_floating_ip(public["id"], description=description)
        cloud.store.change("floatingip", made, {"tags": list(tags)})
        return made["id"]

    marked = floating_ip(tags=tags(GONE))
    unmarked_yet = floating_ip(f"kuryr-service:{GONE} {TAG}")
    found = floating_ip("ask Joe", [*tags(GONE), FOUND_TAG, "joes"])
    others = floating_ip(f"kuryr-service:{GONE} other-cluster")
    peoples = floating_ip("ask Joe")
    port = cloud.add_port(
        cloud.services["id"],
        name=f"ovn-lb-vip-{GONE}",
        device_id=f"lb-{GONE}",
        device_owner="ovn-lb:vip",
    )
    options = {"sweep_interval": "1", "external_svc_net": public["id"]}
    async with services.controller(neutron_defaults=options):
        await services.until_published("web")
        await cloud.wait_for(lambda: port["id"] not in cloud.ports)
        await cloud.wait_for(lambda: {marked, unmarked_yet}.isdisjoint(cloud.floating_ips))
        await cloud.wait_for(lambda: cloud.floating_ips[found]["tags"] == ["joes"])
    assert set(cloud.floating_ips) == {found, others, peoples}
    assert [kept["description"] for kept in cloud.floating_ips.values()].count("ask Joe") == 2
    assert len(cloud.load_balancers) == 1
    assert FINALIZER in (await services.service("web"))["metadata"]["finalizers"]
    assert service["metadata"]["uid"] != GONE


async def test_address_that_a_refused_load_balancer_left_taken_is_free_soon(services):
    """And not only at the next search, in ten minutes."""
    patience = {"refused_vip": 0.2, "vip_port_confirmed": 0.5}
    cloud = services.cloud
    async with services.controller(patience=patience):
        await services.add_service("first", HTTP)
        await services.until_published("first")
        cloud.octavia.set_quota(cloud.project_id, listener=1)
        await services.add_service("web", HTTP)
        await cloud.wait_for(lambda: len(vip_ports(cloud)) > 1)
        assert len(cloud.load_balancers) == 1
        cloud.octavia.set_quota(cloud.project_id, listener=-1)
        await services.until_published("web")
    assert len(vip_ports(cloud)) == len(cloud.load_balancers) == 2


def vip_ports(cloud):
    return [port for port in cloud.ports.values() if port["device_id"].startswith("lb-")]
