"""A stage with Services: what users and Kubernetes' own controllers do to them."""

import json

from kuryr_k8s.engine.clock import CLOCK
from kuryr_k8s.model.annotations import LBAAS_SPEC, LBAAS_SPEC_VERSION
from tests.kit.kube.client import KubeRefusal
from tests.kit.kube.objects import make_endpoints, make_endpointslice, make_service, path_of
from tests.kit.stage import Stage

HANDLERS = "vif,kuryrport,lbaas_spec,loadbalancer"
WRITES = frozenset({"create", "update", "patch", "delete"})
OCTAVIA_WRITES = frozenset({"POST", "PUT", "DELETE"})
SPEC, VERSION = "openstack.org/kuryr-lbaas-spec", "openstack.org/kuryr-lbaas-spec-version"
STATE, CUT = "openstack.org/kuryr-lbaas-state", "openstack.org/kuryr-lbaas-state-members"
FINALIZER = "kuryr.openstack.org/service-finalizer"


def furnish(cloud):
    """Subnets of Services as the operator makes them: what Neutron places by itself is outside of
    the range of ClusterIPs. Groups of options that go with them."""
    network = cloud.add_network("services")
    subnets = [
        cloud.add_subnet(
            network["id"],
            "10.96.0.0/15",
            gateway_ip="10.97.0.1",
            allocation_pools=[{"start": "10.97.0.2", "end": "10.97.255.254"}],
        ),
        cloud.add_subnet(
            network["id"],
            "fd96::/64",
            gateway_ip="fd96::1:1",
            allocation_pools=[{"start": "fd96::1:2", "end": "fd96::1:ffff"}],
        ),
    ]
    cloud.services = network
    return {
        "kubernetes": {
            "enabled_handlers": HANDLERS,
            "endpoints_driver_octavia_provider": "ovn",
        },
        "octavia_defaults": {
            "member_mode": "L2",
            "lb_algorithm": "SOURCE_IP_PORT",
        },
        "neutron_defaults": {"service_subnet": ",".join(subnet["id"] for subnet in subnets)},
    }


class ServiceStage(Stage):
    """``options`` are groups that every controller gets."""

    def __init__(self, cluster, cloud, proxy, load_conf, *node, options=None):
        super().__init__(cluster, cloud, proxy, load_conf, *node)
        self.load_conf = load_conf
        self.options = options or {}

    def controller(self, *, leading=True, patience=None, clock=CLOCK, **groups):
        merged = {
            name: self.options.get(name, {}) | groups.get(name, {})
            for name in self.options.keys() | groups.keys()
        }
        return super().controller(leading=leading, patience=patience, clock=clock, **merged)

    # Users, and kube-controller-manager.

    async def add_service(self, name, *ports, endpoints=True, **spec):
        """A Service with Endpoints, as their controller makes them. Ports as of make_service."""
        wanted = make_service(name, *ports, namespace=self.cluster.namespace, **spec)

        async def created():
            try:
                return await self.client.create(wanted)
            except KubeRefusal as refusal:  # the last one's address is free a moment after it
                if "already allocated" not in str(refusal):
                    raise

        service = await self.until(created)
        if endpoints:
            await self.add_endpoints(name)
        return service

    async def add_endpoints(self, name):
        await self.client.create(make_endpoints(name, self.cluster.namespace))

    async def set_slice(self, name, *endpoints, ports, service="web", family="IPv4"):
        """Make the slice, or change it. Endpoints as of make_endpointslice."""
        wanted = make_endpointslice(
            name, service, endpoints, ports, namespace=self.cluster.namespace, family=family
        )
        if await self.client.find(path_of(wanted)) is None:
            await self.client.create(wanted)
        else:
            body = {"endpoints": wanted["endpoints"], "ports": wanted["ports"]}
            await self.client.patch(path_of(wanted), body)

    async def patch_service(self, name="web", **changes):
        return await self.client.patch(self.service_path(name), changes)

    async def delete_service(self, name="web"):
        """The server deletes its Endpoints when it is gone."""
        await self.client.delete(self.service_path(name))

    # Looking.

    def service_path(self, name="web"):
        return f"/api/v1/namespaces/{self.cluster.namespace}/services/{name}"

    def endpoints_path(self, name="web"):
        return f"/api/v1/namespaces/{self.cluster.namespace}/endpoints/{name}"

    async def service(self, name="web"):
        return await self.client.find(self.service_path(name))

    async def endpoints(self, name="web"):
        return await self.client.find(self.endpoints_path(name))

    async def events(self):
        """(reason, note) of the controller's Events; the server has some of its own."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.cluster.namespace}/events"
        return [
            (event["reason"], event["note"])
            for event in await self.client.list(path)
            if event.get("reportingController") == "kuryr-k8s-controller"
        ]

    def trees(self):
        """What all load balancers are and have."""
        return [self.cloud.octavia.tree(balancer_id) for balancer_id in self.cloud.load_balancers]

    def members(self):
        """{(protocol, port): {(address, port): weight}} of all listeners of all load balancers."""
        return {
            (listener["protocol"], listener["protocol_port"]): {
                (member["address"], member["protocol_port"]): member["weight"]
                for member in listener["pool"]["members"]
            }
            for tree in self.trees()
            for listener in tree["listeners"]
            if listener["pool"] is not None
        }

    def kube_writes(self):
        """(verb, resource) of every write to Services and Endpoints so far."""
        kinds = ("services", "endpoints")
        return [
            (call.method, call.what)
            for call in self.proxy.calls
            if call.method in WRITES and call.what in kinds
        ]

    def octavia_calls(self, methods=OCTAVIA_WRITES):
        """(method, kind of path) of Octavia's calls so far, in their order."""
        return [
            (call.method, call.what.partition("/lbaas")[2])
            for call in self.cloud.calls
            if "/lbaas/" in call.what and call.method in methods
        ]

    async def more_state(self):
        """Services and Endpoints with their marks, statuses, and what is in the clouds."""
        prefix = f"/api/v1/namespaces/{self.cluster.namespace}"
        found = {}
        for plural in ("services", "endpoints"):
            objects = await self.client.list(f"{prefix}/{plural}")
            for item in objects:
                marks = item["metadata"].get("annotations") or {}
                item["metadata"]["marked"] = bool(marks.pop(VERSION, None))
            found[plural] = [item["metadata"] for item in objects]
            found[f"status of {plural}"] = [item.get("status") for item in objects]
        floating = list(self.cloud.floating_ips.values())
        return found | {"trees": self.trees(), "floating IPs": floating}

    # Waiting.

    async def until_members(self, expected, **how):
        """Wait until listeners and members are these, exactly."""

        async def equal():
            return self.members() == expected

        try:
            await self.until(equal, **how)
        except TimeoutError:
            raise AssertionError(f"{self.members()}, not {expected}") from None

    async def until_settled(self, listeners=1):
        """Wait until each load balancer has so many listeners with a pool, and nothing else."""

        async def settled():
            return all(
                len(tree["listeners"]) == listeners and not tree["loose_pools"]
                for tree in self.trees()
            )

        await self.until(settled)

    async def until_published(self, name="web", of=None):
        """Wait until there are a state and a spec on the object; its annotations."""

        async def annotations():
            found = await (of or self.endpoints)(name)
            marks = (found or {}).get("metadata", {}).get("annotations") or {}
            told = STATE in marks and _shows_spec(await self.service(name), marks)
            return marks if told else None

        return await self.until(annotations)

    async def until_no_balancers(self, **how):
        async def none():
            return not self.cloud.load_balancers

        await self.until(none, **how)

    async def until_no_parts(self, load_balancer_id):
        """Wait until nothing of ours is in it."""

        async def none():
            tree = self.cloud.octavia.tree(load_balancer_id)
            ours = [listener for listener in tree["listeners"] if listener["tags"]]
            return not ours and not tree["loose_pools"]

        await self.until(none)

    async def until_shown(self, expected, name="web"):
        """Wait until the published state has these (address, port), and no others.

        The spec is published too then: it comes by a write of its own.
        """

        async def shown():
            service = await self.service(name)
            marks = ((await self.endpoints(name)) or {})["metadata"].get("annotations") or {}
            if not _shows_spec(service, marks):
                return False
            state = json.loads(marks.get(STATE, '{"versioned_object.data": {"members": []}}'))
            members = [
                member["versioned_object.data"]
                for member in state["versioned_object.data"]["members"]
            ]
            return {(member["ip"], member["port"]) for member in members} == set(expected)

        await self.until(shown)

    async def until_service_gone(self, name="web"):
        """And its Endpoints, which the server deletes a moment after it."""

        async def gone():
            return await self.service(name) is None and await self.endpoints(name) is None

        await self.until(gone)


def _shows_spec(service, marks):
    """Do the Endpoints show the spec that the Service has, with the Service's ports?"""
    own = service["metadata"].get("annotations") or {}
    if any(marks.get(name) != own.get(name) for name in (LBAAS_SPEC, LBAAS_SPEC_VERSION)):
        return False
    spec = json.loads(marks.get(LBAAS_SPEC, '{"versioned_object.data": {"ports": []}}'))
    ports = [port["versioned_object.data"] for port in spec["versioned_object.data"]["ports"]]
    return [port["port"] for port in ports] == [port["port"] for port in service["spec"]["ports"]]
