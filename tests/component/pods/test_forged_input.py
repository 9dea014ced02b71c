"""Whatever nodes and users write, nothing that belongs to others is reached.

Each case is a life of a few Pods in a cloud that a tenant and another cluster use too, with writes
of somebody who has a node's credentials in between, and restarts of the controller.
"""

import json
import os

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from kuryr_k8s.model.annotations import HOST_ID, PROJECT
from tests.component.pools.pods import OPTIONS
from tests.kit.confs import HOST, TAG
from tests.kit.kube.client import KubeRefusal
from tests.samples import SEED

CASES = {"quick": 4, "full": 60}[os.environ.get("HYPOTHESIS_PROFILE") or "quick"]
PODS = ("web-0", "web-1", "web-2")
VICTIM = "victim"  # whose KuryrPort nobody forges
JSON_PATCH = "application/json-patch+json"
THEIRS = "kuryr-cluster:0f0e0d0c-0000-4000-8000-00000000000b"
NOWHERE = "1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e"

targets = st.sampled_from(["tenant", "plain", "available", "in use", "victim", "own", "nowhere"])
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
steps = st.one_of(
    st.tuples(st.just("name"), st.sampled_from(PODS), targets),
    st.tuples(st.just("rewrite"), st.sampled_from(PODS), junk),
    st.tuples(st.just("erase"), st.sampled_from(PODS), st.none()),
    st.tuples(st.just("project"), st.sampled_from(PODS), st.sampled_from(["tenant", "junk"])),
    st.tuples(st.just("annotate"), st.sampled_from(PODS), junk),
    st.tuples(st.just("node"), st.none(), st.sampled_from(["chassis2", "", "junk"])),
    st.tuples(st.just("user"), st.sampled_from(PODS), junk),
    st.tuples(st.just("end"), st.sampled_from(PODS), st.none()),
    st.tuples(st.just("restart"), st.none(), st.booleans()),
    st.tuples(st.just("groups"), st.none(), st.none()),
)


class Life:
    """One case: what is done on a stage, and what must not have changed."""

    def __init__(self, stage, groups):
        self.stage, self.cloud, self.groups = stage, stage.cloud, groups
        self.tenant = self.cloud.add_project("tenant")
        self.others = self._furnish()
        self.before = self._others_now()
        self.ports = {}
        self.pods = {}

    def _furnish(self):
        """Ports of a tenant, and of another cluster with our tags in our own network."""
        theirs = self.cloud.add_network("theirs", "10.77.0.0/24", project_id=self.tenant)
        common = {"device_owner": "compute:kuryr", "binding:host_id": HOST}
        pods = self.cloud.pods["id"]
        made = {
            "tenant": self.cloud.add_port(
                theirs["id"], project_id=self.tenant, device_owner="compute:nova"
            ),
            "plain": self.cloud.add_port(pods, **common, device_id="pod", tags=[TAG, THEIRS]),
        }
        for name, device in (("available", "kuryr-pool:b"), ("in use", "another Pod")):
            tags = [TAG, THEIRS, "kuryr-pool"]
            made[name] = self.cloud.add_port(pods, **common, device_id=device, tags=tags)
        return {name: port["id"] for name, port in made.items()}

    def _others_now(self):
        return {
            name: json.dumps(self.cloud.ports.get(port_id))
            for name, port_id in self.others.items()
        }

    async def start_pods(self):
        for name in (*PODS, VICTIM):
            self.pods[name] = await self.stage.cluster.add_pod(name, node=self.stage.node)
            self.ports[name] = (await self.stage.until_plugged_in(name))["id"]
            await self.stage.activate(name)

    async def forge(self, kind, name, value):
        """What the token of a node allows; the API server may refuse it."""
        ids = {**self.others, "victim": self.ports[VICTIM], "nowhere": NOWHERE}
        path = f"{self.stage.path(name)}/status"
        vif = {"versioned_object.data": {"id": ids.get(str(value), self.ports[name])}}
        match kind:
            case "name":
                change = {"status": {"vifs": {"eth0": {"vif": vif}}}}
            case "rewrite":
                change = [{"op": "replace", "path": "/status/vifs", "value": {"eth0": value}}]
            case "erase":
                change = [{"op": "remove", "path": "/status/vifs"}]
            case "project":
                project = self.tenant if value == "tenant" else value
                change = {"status": {"projectId": project, "securityGroupIds": []}}
            case _:
                path = self.stage.path(name)
                names = ("openstack.org/kuryr-creator", "openstack.org/kuryr-leader")
                marks = dict.fromkeys(names, json.dumps(value))
                change = {"metadata": {"annotations": marks}}
        kinds = {"content": JSON_PATCH} if isinstance(change, list) else {}
        try:
            await self.stage.client.patch(path, change, *kinds.values())
        except KubeRefusal:
            return

    async def rename_host(self, host):
        """Its node's name in Neutron, which the daemon publishes."""
        patch = {"metadata": {"annotations": {HOST_ID: host}}}
        await self.stage.client.patch(f"/api/v1/nodes/{self.stage.node}", patch)

    async def annotate_pod(self, name, value):
        """Whoever may write Pods writes what it likes."""
        path = f"/api/v1/namespaces/{self.stage.cluster.namespace}/pods/{name}"
        marks = dict.fromkeys((PROJECT, HOST_ID, "openstack.org/kuryr-vif"), json.dumps(value))
        await self.stage.client.patch(path, {"metadata": {"annotations": marks}})

    async def end(self, name):
        if name in self.pods and name != VICTIM:
            await self.stage.cluster.delete_pod(self.pods.pop(name))

    async def check(self):
        """Nothing of others has changed, and the victim has its port for itself."""
        assert self._others_now() == self.before
        assert self.ports[VICTIM] in self.cloud.ports
        recorded = await self.stage.kuryrport(VICTIM)
        vif = recorded["status"]["vifs"]["eth0"]["vif"]["versioned_object.data"]
        assert vif["id"] == self.ports[VICTIM]


async def let_go_if_it_has_a_port(stage, name):
    """Unplug it as its node does; one whose interfaces were erased goes by itself."""

    async def goes():
        recorded = await stage.kuryrport(name)
        return recorded is None or "deletionTimestamp" in recorded["metadata"]

    await stage.until(goes)
    await stage.let_go(name)


async def live(stage, groups, script):
    life = Life(stage, groups)
    left = list(script)
    begun = False
    while left or not begun:
        async with stage.controller(**groups):
            if not begun:
                await life.start_pods()
                begun = True
            while left:
                kind, name, value = left.pop(0)
                if kind == "restart":
                    break
                if kind == "groups":
                    other = stage.cloud.add_security_group("other")["id"]
                    groups = groups | {"neutron_defaults": {"pod_security_groups": other}}
                elif kind == "node":
                    await life.rename_host(value)
                elif kind == "end":
                    await life.end(name)
                elif kind == "user" and name in life.pods:
                    await life.annotate_pod(name, value)
                elif name in life.pods:
                    await life.forge(kind, name, value)
                await life.check()
    for name in list(life.pods):
        await life.end(name)
    await life.rename_host(HOST)
    async with stage.controller(**groups, patience={"sweep_retry": 1.0}):
        for name in PODS:
            await let_go_if_it_has_a_port(stage, name)
        # whoever comes next gets none of their ports
        new = await stage.cluster.add_pod("new", node=stage.node)
        port = (await stage.until_plugged_in("new"))["id"]
        assert port not in {*life.others.values(), life.ports[VICTIM]}
        assert new is not None
        await life.check()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("pool", ["noop", "neutron"])
async def test_forged_input_reaches_nothing_of_others(lanes, pool, pytestconfig):
    groups = {"kubernetes": {"vif_pool_driver": pool}}
    if pool == "neutron":
        groups["vif_pool"] = OPTIONS
    scripts = []

    @seed(pytestconfig.stash[SEED])
    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(steps, min_size=2, max_size=8))
    def collect(script):
        scripts.append(script)

    collect()
    for script in scripts:
        async with lanes.open() as stage:
            try:
                await live(stage, groups, script)
            except (AssertionError, TimeoutError, BaseExceptionGroup) as error:
                raise AssertionError(f"{error!r}, after {script}") from error
