"""A third party's package: everything that it ships works, without a change in kuryr_k8s."""

import pytest
from stevedore import ExtensionManager

from kuryr_k8s.model.annotations import KURYRPORT_FINALIZER
from tests.kit.confs import NODE, TAG
from tests.kit.kube.objects import path_of
from tests.outside.installed import install

ANNOTATION = "example.org/isolated-interface"
GROUPS = "example.org/isolated-security-groups"
REPORTS = "/apis/example.org/v1/namespaces/{}/networkreports"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The package, installed."""
    directory = tmp_path / "site-packages"
    directory.mkdir()
    install(directory)
    monkeypatch.syspath_prepend(directory)
    # this process may have looked for drivers before: stevedore remembers what it found
    monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})


def vifs_of(recorded):
    return {
        ifname: entry["vif"]["versioned_object.name"]
        for ifname, entry in recorded["status"]["vifs"].items()
    }


MULTI_VIF = {"kubernetes": {"multi_vif_drivers": "example"}}


async def test_pod_has_its_default_interface_by_one_driver_and_a_second_by_another(stage, package):
    annotations = {ANNOTATION: "iso0"}
    async with stage.controller(**MULTI_VIF):
        pod = await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_plugged_in("web")
        recorded = await stage.kuryrport("web")
        assert vifs_of(recorded) == {"eth0": "VIFOpenVSwitch", "iso0": "VIFIsolated"}
        tags = sorted("kuryr-example" in port["tags"] for port in stage.cloud.ports.values())
        assert tags == [False, True]
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
        await stage.let_go("web")
        await stage.until_gone("web")
    assert not stage.cloud.ports


async def test_pod_that_asks_for_nothing_has_one_interface(stage, package):
    async with stage.controller(**MULTI_VIF):
        pod = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        assert vifs_of(await stage.kuryrport("web")) == {"eth0": "VIFOpenVSwitch"}
    assert len(stage.ports_of(pod)) == 1


async def test_what_cannot_be_is_an_event_and_the_pod_gets_no_interface(stage, package):
    async with stage.controller(**MULTI_VIF):
        await stage.cluster.add_pod("web", node=NODE, annotations={ANNOTATION: "eth0"})

        async def told():
            return any("cannot be an interface" in note for _, note in await stage.events())

        await stage.until(told)
        assert "vifs" not in ((await stage.kuryrport("web")).get("status") or {})
    assert not stage.cloud.ports


async def test_second_interface_goes_with_its_pod_though_the_controller_was_another(
    stage, package
):
    """The kind of the recorded VIF tells whose it is."""
    async with stage.controller(**MULTI_VIF):
        pod = await stage.cluster.add_pod("web", node=NODE, annotations={ANNOTATION: "iso0"})
        await stage.until_plugged_in("web")
    await stage.cluster.delete_pod(pod)
    async with stage.controller(**MULTI_VIF):
        await stage.until_deleting("web")
        await stage.let_go("web")
        await stage.until_gone("web")
    assert not stage.cloud.ports


async def test_interface_of_a_driver_that_is_not_in_use_stays_until_it_is(stage, package):
    async with stage.controller(**MULTI_VIF):
        pod = await stage.cluster.add_pod("web", node=NODE, annotations={ANNOTATION: "iso0"})
        await stage.until_plugged_in("web")
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
    await stage.let_go("web")
    async with stage.controller(kubernetes={"multi_vif_drivers": "noop"}):
        await stage.cluster.add_pod("other", node=NODE)
        await stage.until_plugged_in("other")
        finalizers = (await stage.kuryrport("web"))["metadata"]["finalizers"]
        assert finalizers == [KURYRPORT_FINALIZER]
    async with stage.controller(**MULTI_VIF):
        await stage.until_gone("web")


def groups_of_ports(stage):
    """The security groups of the Pod's default interface, and of its second one."""
    ports = stage.cloud.ports.values()
    isolated = {"kuryr-example" in port["tags"]: port for port in ports}
    return isolated[False]["security_groups"], isolated[True]["security_groups"]


def with_groups(group):
    return MULTI_VIF | {"neutron_defaults": {"pod_security_groups": group}}


async def until_followed(stage, group):
    """Wait until the KuryrPort says that its interfaces have the group."""

    async def followed():
        return (await stage.kuryrport("web"))["status"]["securityGroupIds"] == [group]

    await stage.until(followed)


@pytest.mark.parametrize("changed", ["iso0", None, "eth0"])
async def test_groups_of_a_pod_reach_all_its_interfaces_whatever_its_annotation_has_become(
    stage, package, changed
):
    other = stage.cloud.add_security_group("other")["id"]
    async with stage.controller(**MULTI_VIF):
        pod = await stage.cluster.add_pod("web", node=NODE, annotations={ANNOTATION: "iso0"})
        await stage.until_plugged_in("web")
    patch = {"metadata": {"annotations": {ANNOTATION: changed}}}
    await stage.client.patch(path_of(pod), patch)
    async with stage.controller(**with_groups(other)):
        await until_followed(stage, other)
        assert groups_of_ports(stage) == ([other], [other])


async def test_interface_with_security_groups_of_its_own_keeps_them(stage, package):
    own, other = (stage.cloud.add_security_group(name)["id"] for name in ("own", "other"))
    annotations = {ANNOTATION: "iso0", GROUPS: own}
    async with stage.controller(**MULTI_VIF):
        pod = await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_plugged_in("web")
        assert groups_of_ports(stage) == ([stage.cloud.group["id"]], [own])
    await stage.client.patch(path_of(pod), {"metadata": {"annotations": {GROUPS: None}}})
    async with stage.controller(**with_groups(other)):
        await until_followed(stage, other)
        assert groups_of_ports(stage) == ([other], [own])


async def test_default_interface_has_its_new_groups_though_another_cannot_get_them(stage, package):
    before, other = stage.cloud.group["id"], stage.cloud.add_security_group("other")["id"]
    async with stage.controller(**MULTI_VIF):
        await stage.cluster.add_pod("web", node=NODE, annotations={ANNOTATION: "a0"})
        await stage.until_plugged_in("web")
    settings = with_groups(other) | {"kubernetes": {"multi_vif_drivers": "noop"}}
    async with stage.controller(**settings):
        await stage.until_event("KuryrRefused")
        assert groups_of_ports(stage) == ([other], [before])
        assert (await stage.kuryrport("web"))["status"]["securityGroupIds"] == [before]
    async with stage.controller(**with_groups(other)):
        await until_followed(stage, other)
        assert groups_of_ports(stage) == ([other], [other])


@pytest.mark.parametrize("handlers", ["vif,kuryrport", "kuryrportpool,vif,kuryrport"])
async def test_port_is_its_drivers_whichever_driver_was_asked_for_first(
    stage, package, neutron, handlers
):
    """The handler of pools asks for neutron-vif, that of KuryrPorts for the package's first."""
    kubernetes = MULTI_VIF["kubernetes"] | {"enabled_handlers": handlers}
    body = {
        "network_id": stage.cloud.pods["id"],
        "device_owner": "compute:kuryr",
        "device_id": "kuryr-example",
        "tags": [TAG, "kuryr-example", "kuryr-example-pod:gone"],
    }
    settings = {"kubernetes": kubernetes, "neutron_defaults": {"sweep_interval": "1"}}
    async with stage.controller(**settings):
        await stage.cluster.add_pod("web", node=NODE, annotations={ANNOTATION: "iso0"})
        await stage.until_plugged_in("web")
        ports = set(stage.cloud.ports)
        assert len(ports) == 2
        for _ in range(2):  # after the second, the sweep has been through with the Pod's, too
            leaked = await neutron.create_port(body)
            await stage.cloud.wait_for(lambda port=leaked["id"]: port not in stage.cloud.ports)
        assert set(stage.cloud.ports) == ports


async def test_handler_with_a_kind_of_its_own_has_its_cache_queue_and_metrics(
    stage, package, network_reports
):
    handlers = {"enabled_handlers": "vif,kuryrport,networkreport"}
    path = REPORTS.format(stage.cluster.namespace)
    async with stage.controller(kubernetes=handlers) as app:
        for name in ("web-0", "web-1"):
            await stage.cluster.add_pod(name, node=NODE)
            await stage.until_plugged_in(name)
        await stage.client.create(network_reports("ports"))

        async def counted():
            found = await stage.client.find(f"{path}/ports")
            return (found.get("status") or {}).get("ports") == 2

        await stage.until(counted)

        async def is_shown_idle():
            labels = {"handler": "networkreport"}
            return app.registry.get_sample_value("kuryr_queue_keys", labels) == 0

        await stage.until(is_shown_idle)  # our own write was a change, too


async def test_pool_driver_has_workers_parked_ports_and_metrics(stage, package):
    options = {
        "vif_pool_driver": "example-asked",
        "enabled_handlers": "vif,kuryrport,kuryrportpool",
    }
    pool = {"ports_pool_min": "2", "ports_pool_batch": "2"}
    async with stage.controller(kubernetes=options, vif_pool=pool) as app:
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")

        async def parked():
            found = await stage.client.find(f"/apis/openstack.org/v1/kuryrportpools/{NODE}")
            return found is not None and len(found["spec"].get("ports", {})) >= 2

        await stage.until(parked)
        assert app.registry.get_sample_value("example_asked_total") >= 1
        labels = {"driver": "neutron", "outcome": "miss"}
        assert app.registry.get_sample_value("kuryr_pool_requests_total", labels) == 1


async def test_driver_of_load_balancers_has_its_pending_objects_watched(services, package):
    services.cloud.octavia_pending = 0.2
    async with services.controller(kubernetes={"endpoints_lbaas_driver": "example"}):
        await services.add_service("web", ("http", 80))
        await services.until_published("web")
        assert len(services.cloud.load_balancers) == 1
        await services.delete_service("web")
        await services.cloud.wait_for(lambda: not services.cloud.load_balancers)


async def test_controller_starts_without_the_handler_of_kuryrports(stage):
    """Whose drivers the operator's requests need all the same."""
    async with stage.controller(kubernetes={"enabled_handlers": "vif"}):
        await stage.cluster.add_pod("web", node=NODE)

        async def recorded():
            return await stage.kuryrport("web")

        await stage.until(recorded)
