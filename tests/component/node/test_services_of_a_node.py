"""What a node's daemon hears of Services, with its own permissions."""

import asyncio
import contextlib

import pytest

from kuryr_k8s.cni.services.ready_endpoints import ReadyEndpoints
from kuryr_k8s.k8s.connect import connect
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import SERVICES, Key
from kuryr_k8s.model.node_port import WITH_NODE_PORTS, ServiceAtNodes
from tests.kit.kube.objects import make_endpointslice, make_service, path_of

LOCAL = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
PORT = ("http", 80)


@pytest.fixture
async def api(shipped_permissions, kube_server, load_conf, tmp_path):
    """The API server, as the daemon may use it."""
    token = tmp_path / "daemon"
    token.write_text(kube_server.token_for("daemon"))
    options = {"api_root": kube_server.base_url, "ssl_ca_crt_file": str(kube_server.ca_file)}
    api = await connect(load_conf(kubernetes=options | {"token_file": str(token)}))
    yield api
    await api.close()


@pytest.fixture
async def services(api):
    """The cache of Services at a node, and what it was told: keys."""
    informer = Informer(api, SERVICES, ServiceAtNodes.read, selectors=WITH_NODE_PORTS)
    informer.told = asyncio.Queue()
    informer.subscribe(lambda key, old, new: informer.told.put_nowait((key, new)))
    async with asyncio.TaskGroup() as group:
        following = group.create_task(informer.run())
        await informer.synced.wait()
        yield informer
        following.cancel()


async def test_node_hears_of_services_with_node_ports_alone(services, cluster):
    client, namespace = cluster.client, cluster.namespace

    async def told(name):
        async with asyncio.timeout(60):
            while True:
                key, service = await services.told.get()
                if key == Key(namespace, name):
                    return service

    plain = make_service("plain", PORT, namespace=namespace)
    await client.create(plain)
    balanced = make_service("balanced", PORT, namespace=namespace, **LOCAL)
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


@contextlib.asynccontextmanager
async def following_endpoints(services, api):
    """What a node hears of endpoints: whether any of a Service is ready."""
    endpoints = ReadyEndpoints(services, api)
    async with asyncio.TaskGroup() as group:
        [job] = endpoints.loops()
        following = group.create_task(job.run())
        yield endpoints
        following.cancel()


async def until_ready(endpoints, service, wanted):
    async with asyncio.timeout(60):
        while True:
            if endpoints.any_of(service) is wanted:
                return
            await asyncio.sleep(0.05)


async def test_node_hears_of_services_without_an_endpoint_that_is_ready(services, api, cluster):
    client, namespace = cluster.client, cluster.namespace

    def slice_of(name, **conditions):
        ends = (("10.0.0.9", conditions),)
        return make_endpointslice(f"{name}-1", name, ends, [PORT], namespace=namespace)

    async with following_endpoints(services, api) as endpoints:
        one, other = (Key(namespace, name) for name in ("one", "other"))
        assert endpoints.any_of(one), "unknown is not unready"
        await client.create(slice_of("one", ready=True))
        await client.create(make_service("one", PORT, namespace=namespace, **LOCAL))
        await client.create(make_service("other", PORT, namespace=namespace, **LOCAL))
        await until_ready(endpoints, other, False)  # it has no slice
        assert endpoints.any_of(one)
        ending = slice_of("one", ready=False, serving=True, terminating=True)
        await client.patch(path_of(ending), {"endpoints": ending["endpoints"]})
        await until_ready(endpoints, one, False)
        await client.create(slice_of("other", ready=True))
        await until_ready(endpoints, other, True)
        assert not endpoints.any_of(one)
