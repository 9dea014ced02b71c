"""A cluster and a cloud with the controller on it, in the test's own loop."""

import asyncio
import contextlib
import dataclasses
from contextlib import asynccontextmanager
from pathlib import Path

from kuryr_k8s.app import ControllerApp
from kuryr_k8s.engine.clock import CLOCK
from kuryr_k8s.model.annotations import KURYRPORT_FINALIZER, NODE_FINALIZER
from kuryr_k8s.patience import Patience
from tests.kit.fakes.observing import PATIENCE
from tests.kit.kube.client import KubeRefusal

# What asks again for safety does so too late to hide that a wake-up was lost.
UNHURRIED = Patience(
    pool_request=600.0,
    service_spec=600.0,
    first_survey=600.0,
    pending_load_balancer=600.0,
    unneeded=0.2,
)
KURYRPORTS = "/apis/openstack.org/v1/namespaces/{}/kuryrports"
NEUTRONPORTS = "/apis/openstack.org/v1/namespaces/{}/neutronports"
NEUTRONPORTPOOLS = "/apis/openstack.org/v1/namespaces/{}/neutronportpools"


class Stage:
    """What tests act on and look at."""

    def __init__(self, cluster, cloud, proxy, load_conf, node="node1"):
        self.cluster, self.cloud, self.proxy = cluster, cloud, proxy
        self.node = node
        self.client = cluster.client
        self._load_conf = load_conf

    @asynccontextmanager
    async def controller(self, *, leading=True, patience=None, clock=CLOCK, **groups):
        """Run a controller (until it leads, or merely started) behind the proxy.

        :param patience: durations that differ from those of UNHURRIED, by their names.
        """
        kubeconfig = {"kubeconfig": str(self.proxy.kubeconfig_for("controller"))}
        groups["kubernetes"] = kubeconfig | groups.get("kubernetes", {})
        durations = dataclasses.replace(UNHURRIED, **(patience or {}))
        app = ControllerApp(self._load_conf(**groups), durations, clock)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(app.run())
            if leading:
                waiting = group.create_task(app.leading.wait())
                await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            try:
                yield app
            finally:
                task.cancel()

    def conf_file(self, name, **groups):
        """The options in a file of that name, for a process; its path."""
        groups.setdefault("kubernetes", {})
        path = Path(self._load_conf(**groups).config_file[0])
        return path.rename(path.with_name(f"{name}.conf"))

    # The node's daemon, as far as the controller sees it.

    async def let_go(self, name):
        """The daemon says that nothing of the Pod is plugged any more, if anybody still asks."""
        recorded = await self.kuryrport(name)
        if recorded is None:
            return
        finalizers = [f for f in recorded["metadata"]["finalizers"] if f != NODE_FINALIZER]
        patch = {"metadata": {"finalizers": finalizers, "uid": recorded["metadata"]["uid"]}}
        try:
            await self.client.patch(self.path(name), patch)
        except KubeRefusal as refusal:
            if refusal.status not in (404, 409):  # gone meanwhile, or another of its name
                raise

    async def activate(self, name):
        """The daemon says that the interface works; and so does the cloud's data plane."""
        recorded = await self.kuryrport(name)
        vif = {"vif": {"versioned_object.data": {"active": True}}}
        patch = {
            "metadata": {"uid": recorded["metadata"]["uid"]},
            "status": {"vifs": {"eth0": vif}},
        }
        await self.client.patch(f"{self.path(name)}/status", patch)
        port = recorded["status"]["vifs"]["eth0"]["vif"]["versioned_object.data"]["id"]
        self.cloud.set_status(port, "ACTIVE")

    # Looking.

    def path(self, name):
        return f"{KURYRPORTS.format(self.cluster.namespace)}/{name}"

    async def kuryrport(self, name):
        """The KuryrPort, or None."""
        return await self.client.find(self.path(name))

    async def kuryrports(self):
        return await self.client.list(KURYRPORTS.format(self.cluster.namespace))

    async def events(self):
        """(reason, note) of all Events of the namespace."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.cluster.namespace}/events"
        return [(event["reason"], event["note"]) for event in await self.client.list(path)]

    async def cluster_events(self):
        """Reasons of the Events on the namespace kube-system, which stands for the cluster."""
        found = await self.client.list("/apis/events.k8s.io/v1/namespaces/default/events")
        return {
            event["reason"] for event in found if event["regarding"].get("name") == "kube-system"
        }

    async def node_events(self, name=""):
        """(reason, note) of all Events of the node, or of another one."""
        node = await self.client.find(f"/api/v1/nodes/{name or self.node}")
        if node is None:
            return []
        selector = f"involvedObject.uid={node['metadata']['uid']}"
        found = await self.client.list("/api/v1/namespaces/default/events", fieldSelector=selector)
        return [(event["reason"], event["message"]) for event in found]

    async def more_state(self):
        """What else is to be compared between two lives."""
        found = await self.client.list(NEUTRONPORTS.format(self.cluster.namespace))
        pools = await self.client.list(NEUTRONPORTPOOLS.format(self.cluster.namespace))
        return {
            "floating IPs": list(self.cloud.floating_ips.values()),
            "NeutronPorts": sorted(found, key=_phase),
            "NeutronPortPools": pools,
        }

    def ports_of(self, pod):
        """The ports made for a Pod, in Neutron."""
        uid = pod["metadata"]["uid"]
        return [port for port in self.cloud.ports.values() if port["device_id"] == uid]

    # Waiting, for conditions: asked again and again, until they hold.

    async def until(self, condition, *, within=PATIENCE):
        """Ask an asynchronous condition until it holds; its value.

        It is asked after the controller's writes, and now and then: it may be about other things.
        """
        async with asyncio.timeout(within):
            while True:
                seen = self.proxy.answered
                if value := await condition():
                    return value
                with contextlib.suppress(TimeoutError):
                    await self.proxy.wait_for(
                        lambda seen=seen: self.proxy.answered != seen, within=0.25
                    )

    async def until_plugged_in(self, name, *, within=PATIENCE):
        """Wait until the KuryrPort names its interfaces; the data of the default one, if any."""

        async def vif():
            recorded = await self.kuryrport(name)
            vifs = ((recorded or {}).get("status") or {}).get("vifs")
            first = vifs and (vifs.get("eth0") or next(iter(vifs.values())))
            return first and first["vif"]["versioned_object.data"]

        return await self.until(vif, within=within)

    async def until_deleting(self, name, *, within=PATIENCE):
        """Wait until the KuryrPort is being deleted."""

        async def deleting():
            recorded = await self.kuryrport(name)
            return recorded is not None and "deletionTimestamp" in recorded["metadata"]

        await self.until(deleting, within=within)

    async def until_gone(self, name, *, within=PATIENCE):
        async def gone():
            return await self.kuryrport(name) is None

        await self.until(gone, within=within)

    async def until_replaced(self, recorded):
        """Wait until another KuryrPort has the name of this one."""

        async def replaced():
            found = await self.kuryrport(recorded["metadata"]["name"])
            return found is not None and found["metadata"]["uid"] != recorded["metadata"]["uid"]

        await self.until(replaced)

    async def until_event(self, reason):
        """Wait for an Event with this reason; its note."""

        async def note():
            return next((note for found, note in await self.events() if found == reason), None)

        return await self.until(note)

    async def until_told(self, *words):
        """Wait for an Event whose note has all these words; its reason."""

        async def reason():
            told = await self.events()
            return next((each for each, note in told if all(word in note for word in words)), None)

        return await self.until(reason)

    async def port_ids(self, name):
        """Ids of the ports of a Pod by its interfaces, as its KuryrPort has them."""
        vifs = (await self.kuryrport(name))["status"]["vifs"]
        return {
            ifname: entry["vif"]["versioned_object.data"]["id"] for ifname, entry in vifs.items()
        }

    @staticmethod
    def both_finalizers():
        return [KURYRPORT_FINALIZER, NODE_FINALIZER]


def _phase(neutron_port):
    """The phase of a NeutronPort; empty if it has none yet."""
    return (neutron_port.get("status") or {}).get("phase", "")
