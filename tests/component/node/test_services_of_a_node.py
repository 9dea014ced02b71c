"""What a node's daemon hears of Services, with its own permissions."""

import asyncio

import pytest

from kuryr_k8s.k8s.connect import connect
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import SERVICES, Key
from kuryr_k8s.model.node_port import WITH_NODE_PORTS, ServiceAtNodes
from tests.kit.kube.objects import make_service, path_of


@pytest.fixture
async def services(shipped_permissions, kube_server, load_conf, tmp_path):
    """The cache of Services at a node, and what it was told: keys."""
    token = tmp_path / "daemon"
    token.write_text(kube_server.token_for("daemon"))
    options = {"api_root": kube_server.base_url, "ssl_ca_crt_file": str(kube_server.ca_file)}
    api = await connect(load_conf(kubernetes=options | {"token_file": str(token)}))
    informer = Informer(api, SERVICES, ServiceAtNodes.read, selectors=WITH_NODE_PORTS)
    informer.told = asyncio.Queue()
    informer.subscribe(lambda key, old, new: informer.told.put_nowait((key, new)))
    async with asyncio.TaskGroup() as group:
        following = group.create_task(informer.run())
        await informer.synced.wait()
        yield informer
        following.cancel()
    await api.close()


async def test_node_hears_of_services_with_node_ports_alone(services, cluster):
    client, namespace = cluster.client, cluster.namespace

    async def told(name):
        async with asyncio.timeout(60):
            while True:
                key, service = await services.told.get()
                if key == Key(namespace, name):
                    return service

    plain = make_service("plain", ("http", 80), namespace=namespace)
    await client.create(plain)
    local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    balanced = make_service("balanced", ("http", 80), namespace=namespace, **local)
    made = await client.create(balanced)
    first = await told("balanced")
    [port] = made["spec"]["ports"]
    assert {(node_port.port, node_port.target) for node_port in first.node_ports} == {
        (port["nodePort"], 80)
    }
    assert first.health_check_port == made["spec"]["healthCheckNodePort"]
    assert services.get(Key(namespace, "plain")) is None

    await client.patch(path_of(plain), {"spec": {"type": "NodePort"}})
    assert {node_port.target for node_port in (await told("plain")).node_ports} == {80}
    await client.patch(path_of(plain), {"spec": {"type": "ClusterIP"}})
    assert await told("plain") is None
    await client.delete(path_of(balanced))
    assert await told("balanced") is None
