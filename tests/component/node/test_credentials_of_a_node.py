"""What the credentials of one node's daemon allow, by the roles and the policy of etc/rbac.

The tokens are real: the API server made them for the ServiceAccount, and checks them.
"""

import asyncio
import contextlib

import pytest

from kuryr_k8s.model.annotations import KURYRPORT_FINALIZER, NODE_FINALIZER
from kuryr_k8s.model.kuryrport import write_vifs
from kuryr_k8s.model.kuryrportpool import park_entry
from tests.kit import node_credentials as credentials
from tests.kit.kube.client import KubeClient, KubeRefusal
from tests.kit.kube.objects import make_node, make_pod, path_of
from tests.kit.node.fakes import ovs_vif
from tests.kit.node_credentials import ACCOUNT, RBAC, UNBOUND, Place

NODES = ("node1", "node2")
LARGE = 2000  # ports in a pool
ACCOUNT_NAME = ACCOUNT.rpartition("/")[2]


@pytest.fixture
async def places(shipped_permissions):
    """Two nodes, each with a Pod's KuryrPort that is in use, and a pool."""
    cluster = shipped_permissions
    places = [Place(node, cluster.namespace, f"on-{node}") for node in NODES]
    for number, place in enumerate(places, 1):
        made = await cluster.add_node(place.node)
        found = {"cpu": "2", "memory": "4Gi"}  # by the kubelet
        status = {"capacity": found, "allocatable": found}
        await cluster.client.patch(f"{path_of(made)}/status", {"status": status})
        await _add_kuryrport(cluster, place, ovs_vif(number, active=True))
        await _add_pool(cluster, place.node)
    return places


async def _add_kuryrport(cluster, place, vif):
    made = await cluster.client.create(
        {
            "apiVersion": "openstack.org/v1",
            "kind": "KuryrPort",
            "metadata": {
                "name": place.kuryrport,
                "namespace": place.namespace,
                "finalizers": [KURYRPORT_FINALIZER, NODE_FINALIZER],
            },
            "spec": {"podUid": f"uid-of-{place.kuryrport}", "podNodeName": place.node},
        }
    )
    status = {"projectId": "p", "securityGroupIds": ["g"], "vifs": write_vifs({"eth0": vif})}
    await cluster.client.patch(f"{path_of(made)}/status", {"status": status})


async def _add_pool(cluster, node):
    entry = park_entry("fa:16:3e:00:00:09", ["10.77.0.9"], 1442, "br-int") | {"state": "keep"}
    made = await cluster.client.create(
        {
            "apiVersion": "openstack.org/v1",
            "kind": "KuryrPortPool",
            "metadata": {"name": node},
            "spec": {"ports": {credentials.VICTIM: entry}},
        }
    )
    status = {"parked": {}, "available": 1, "inUse": 0}
    await cluster.client.patch(f"{path_of(made)}/status", {"status": status})


class Accounts:
    """Clients with the credentials of the first node's daemon, of each kind."""

    def __init__(self, kube, server, stack, place):
        self._kube, self._server, self._stack, self._place = kube, server, stack, place

    async def token(self, body):
        """A token of the daemon's account, by the body of a TokenRequest."""
        answer = await self._kube.request("POST", f"{ACCOUNT}/token", body)
        return await self._client(answer["status"]["token"])

    async def unbound(self):
        return await self.token(credentials.token_request(""))

    async def bound_to_its_node(self):
        node = await self._kube.get(self._place.path)
        return await self.token(
            credentials.token_request(self._place.node, node["metadata"]["uid"])
        )

    async def bound_to_its_pod(self):
        """As the kubelet projects it into a DaemonSet's Pod."""
        pod = make_pod(
            "daemon", "kube-system", node=self._place.node, serviceAccountName=ACCOUNT_NAME
        )
        made = await self._create(pod)
        body = credentials.token_request("daemon", made["metadata"]["uid"])
        body["spec"]["boundObjectRef"]["kind"] = "Pod"
        return await self.token(body)

    async def kubelets_certificate(self):
        """The user of such a certificate, where the nodes' group has the daemon's role."""
        group, api = "system:nodes", RBAC.split("/")[2]
        await self._create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "kuryr-daemon-kubelets"},
                "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": ACCOUNT_NAME},
                "subjects": [{"apiGroup": api, "kind": "Group", "name": group}],
            }
        )
        user = {
            "Impersonate-User": f"system:node:{self._place.node}",
            "Impersonate-Group": group,
        }
        client = await self._client(self._server.admin_token, user)
        async with asyncio.timeout(60):  # until the role is known
            while True:
                with contextlib.suppress(KubeRefusal):
                    await client.list(credentials.POOLS, limit=1)
                    return client
                await asyncio.sleep(0.05)

    async def _create(self, body):
        made = await self._kube.create(body)
        self._stack.push_async_callback(self._kube.delete, path_of(made), gracePeriodSeconds=0)
        return made

    async def _client(self, token, headers=None):
        server = self._server
        client = KubeClient(server.base_url, token, server.ca_file, headers)
        return await self._stack.enter_async_context(client)


@pytest.fixture
async def accounts(places, kube, kube_server):
    async with contextlib.AsyncExitStack() as stack:
        yield Accounts(kube, kube_server, stack, places[0])


TOKENS = (Accounts.bound_to_its_node, Accounts.bound_to_its_pod)
KINDS = (*TOKENS, Accounts.kubelets_certificate)


def name_of(kind):
    return kind.__name__


def not_refused(rows):
    """Return the requests that were not refused."""
    return [request.about for request, code, _ in rows if code != request.refusal]


async def answers(client, requests):
    """Send the requests; each with the code and the words of its answer."""
    rows = []
    for request in requests:
        code, said = 200, ""
        try:
            await client.request(request.method, request.path, request.body, request.content)
        except KubeRefusal as refusal:
            code, said = refusal.status, refusal.body.get("message", "")
        rows.append((request, code, said))
    return rows


async def state(kube, places):
    """Return all objects as they are, but for what any write changes."""
    found = [
        await kube.get(path) for place in places for path in (place.path, place.port, place.pool)
    ]
    for item in found:
        item["metadata"].pop("managedFields", None)
    return found


@pytest.mark.parametrize("kind", TOKENS, ids=name_of)
async def test_stolen_token_changes_nothing_but_what_is_its_nodes(accounts, kube, places, kind):
    thief = await kind(accounts)
    before = await state(kube, places)
    rows = await answers(thief, credentials.attempts(*places))
    print(credentials.table(rows))
    assert not_refused(rows) == []
    assert await state(kube, places) == before


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
async def test_daemon_writes_what_it_has_to(accounts, kube, places, kind):
    daemon = await kind(accounts)
    own = places[0]
    needs = credentials.needs(own, "chassis1")
    rows = await answers(daemon, needs)
    assert [(need.about, said) for need, code, said in rows if code != 200] == []
    vif = (await kube.get(own.port))["status"]["vifs"]["eth0"]["vif"]
    assert vif["versioned_object.data"]["active"] is False
    await kube.delete(own.port)
    ((_, code, said),) = await answers(daemon, [credentials.leave(own)])
    assert (code, said) == (200, "")
    left = await kube.get(own.port)
    assert left["metadata"]["finalizers"] == [KURYRPORT_FINALIZER]


async def test_large_pool_is_within_what_the_api_server_spends_on_a_policy(accounts, kube, places):
    daemon, own = await accounts.bound_to_its_node(), places[0]
    ports = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(LARGE)]
    entry = (await kube.get(own.pool))["spec"]["ports"][credentials.VICTIM]
    await kube.patch(own.pool, {"spec": {"ports": dict.fromkeys(ports, entry)}})
    await daemon.patch(f"{own.pool}/status", {"status": {"parked": {port: {} for port in ports}}})
    assert (await kube.get(own.pool))["status"]["parked"].keys() == set(ports)


async def test_controllers_finalizer_stays_on_a_kuryrport_that_is_deleted(accounts, kube, places):
    daemon = await accounts.bound_to_its_node()
    await kube.delete(places[0].port)
    body = {"metadata": {"finalizers": None}}
    with pytest.raises(KubeRefusal) as refusal:
        await daemon.patch(places[0].port, body)
    assert refusal.value.status == 403
    assert len((await kube.get(places[0].port))["metadata"]["finalizers"]) == 2


async def test_kubelets_certificate_reaches_nothing_of_other_nodes(accounts, places):
    of_kuryr = [
        attempt
        for attempt in credentials.attempts(*places)
        if attempt.method == "PATCH" and attempt.path.startswith("/apis/openstack.org/")
    ]
    rows = await answers(await accounts.kubelets_certificate(), of_kuryr)
    assert len(rows) > 20
    assert not_refused(rows) == []


async def test_token_that_names_no_node_writes_nothing_and_is_told_why(accounts, kube, places):
    daemon = await accounts.unbound()
    before = await state(kube, places)
    rows = await answers(daemon, credentials.needs(places[0], "chassis1"))
    assert {code for _, code, _ in rows} == {403}
    assert all(UNBOUND in said for _, _, said in rows)
    assert await state(kube, places) == before


async def test_token_ends_with_its_node_though_another_one_has_the_name(accounts, kube, places):
    """The API server remembers for some seconds that the token was good."""
    daemon, path = await accounts.bound_to_its_node(), places[0].path
    await daemon.get(path)
    await kube.delete(path)
    await kube.create(make_node(NODES[0]))

    async def until_refused():
        while True:
            await daemon.get(path)
            await asyncio.sleep(0.2)

    async with asyncio.timeout(60):
        with pytest.raises(KubeRefusal) as refusal:
            await until_refused()
    assert refusal.value.status == 401


async def test_refusals_say_whose_an_object_is_and_what_is_the_daemons(accounts, places):
    own, other = places
    rows = await answers(await accounts.bound_to_its_node(), credentials.attempts(own, other))
    said = {request.about: words for request, _, words in rows}
    assert (
        "the daemon of node node1 may not change what belongs to node node2"
        in said["other KuryrPort: active"]
    )
    assert (
        "but its own finalizer, status.devices, and «active»"
        in said["own KuryrPort: id of a port"]
    )
    assert "annotation openstack.org/kuryr-host-id" in said["own Node: taint"]
    assert "may remove no finalizer" in said["own KuryrPort: node's finalizer, in use"]
