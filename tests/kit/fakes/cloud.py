"""FakeCloud: Keystone, Neutron, Octavia and Barbican on one port, with faults and a look inside.

    async with FakeCloud(hosts=["node-1"]) as cloud:
        network = cloud.add_network("pods", "10.1.0.0/16", "fd00:1::/64")
        connection = openstack.connect(**cloud.connect_options())
        ...
        assert cloud.ports[port_id]["device_id"] == pod_uid

It runs on the loop of the test. openstacksdk blocks, so call it from a thread.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from . import serving
from .answering import middleware
from .barbican import BarbicanAPI
from .faults import Faults
from .keystone import Keystone, User
from .neutron.api import NeutronAPI
from .neutron.ipam import default_gateway, default_pools
from .neutron.kinds import NETWORK, QOS_POLICY, SECURITY_GROUP, SUBNET
from .neutron.marks import Quotas, Tags
from .neutron.policy import Context
from .neutron.store import Store
from .observing import PATIENCE, Calls, Changes
from .octavia.api import ROOT as OCTAVIA
from .octavia.api import OctaviaAPI
from .octavia.kinds import LOAD_BALANCER

Json = dict[str, Any]


class FakeCloud:
    """The servers and everything that tests do to them."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self.keystone = Keystone()
        self.store = Store()
        self.store.hosts.update(hosts)
        self.faults = Faults(counts=lambda request: not request.path.startswith("/v3"))
        self.calls = Calls()
        self.changes = Changes()
        self.latency: dict[str, float] = {}
        self.latency_per_port = 0.0
        self.url = ""
        self._neutron = NeutronAPI(self.store, self._context_of)
        self.octavia = OctaviaAPI(self._neutron, self._context_of, self.changes.notify)
        self.barbican = BarbicanAPI(self._context_of)
        self.octavia.store.of_barbican = self.barbican.refs
        self.octavia.store.payload_of = self.barbican.payload
        self.octavia.progress.is_lost = self.barbican.is_lost
        self._runner: web.AppRunner | None = None
        self.admin = self.add_user("admin", self.add_project("admin"), ("admin", "service"))
        self.project_id = self.add_project("k8s")
        self.kuryr = self.add_user("kuryr", self.project_id, ("member", "service"))

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[middleware(self)], client_max_size=2**26)
        app.add_routes(self.keystone.routes())
        app.add_routes(self._neutron.routes())
        app.add_routes(Tags(self._neutron).routes())
        app.add_routes(Quotas(self._neutron, self._context_of).routes())
        app.add_routes(self.octavia.routes())
        app.add_routes(self.barbican.routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        self.keystone.url = self.barbican.url = self.url
        self.keystone.endpoints |= {
            "identity": f"{self.url}/v3",
            "network": self.url,
            "load-balancer": f"{self.url}{OCTAVIA}",
            "key-manager": f"{self.url}/key-manager",
        }
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await serving.close(self._runner)

    # What is there.

    @property
    def ports(self) -> dict[str, Json]:
        """All ports by id; to be read, not changed."""
        return self.store.ports

    @property
    def networks(self) -> dict[str, Json]:
        """All networks by id."""
        return self.store.networks

    @property
    def subnets(self) -> dict[str, Json]:
        """All subnets by id."""
        return self.store.subnets

    @property
    def trunks(self) -> dict[str, Json]:
        """All trunks by id."""
        return self.store.trunks

    @property
    def floating_ips(self) -> dict[str, Json]:
        """All floating IPs by id."""
        return self.store.floatingips

    @property
    def security_groups(self) -> dict[str, Json]:
        """All security groups by id."""
        return self.store.security_groups

    @property
    def load_balancers(self) -> dict[str, Json]:
        """All load balancers by id; what is in one: `octavia.tree(load_balancer_id)`."""
        return self.octavia.store.of(LOAD_BALANCER)

    @property
    def octavia_pending(self) -> float:
        """Seconds that a change of a load balancer takes; infinite: see `octavia.progress`."""
        return self.octavia.progress.pending

    @octavia_pending.setter
    def octavia_pending(self, seconds: float) -> None:
        self.octavia.progress.pending = seconds

    def ports_tagged(self, tag: str) -> list[Json]:
        """All ports that carry the tag."""
        return [self.ports[port_id] for port_id in self.store.ports_by_tag[tag]]

    # Setting the scene.

    def add_project(self, name: str) -> str:
        """A new project; its id."""
        project_id = uuid.uuid4().hex
        self.keystone.projects[project_id] = name
        return project_id

    def add_user(
        self, name: str, project_id: str, roles: Iterable[str] = ("member",), password: str = "pw"
    ) -> User:
        """A new user with roles in a project."""
        user = User(name, project_id, tuple(roles), password)
        self.keystone.users[user.id] = user
        return user

    def add_application_credential(self, user: User) -> Json:
        """What the user may log in with instead: the id and the secret."""
        credential_id, secret = uuid.uuid4().hex, uuid.uuid4().hex
        self.keystone.application_credentials[credential_id] = (secret, user)
        return {
            "application_credential_id": credential_id,
            "application_credential_secret": secret,
        }

    def add_network(self, name: str, *cidrs: str, project_id: str = "", **attributes: Any) -> Json:
        """A network of the project (the cluster's, if not said), with a subnet for each CIDR."""
        body = {"name": name, "project_id": project_id or self.project_id, **attributes}
        shared = body.pop("shared", False)
        network = self.store.add("network", NETWORK.check_create(body))
        for cidr in cidrs:
            self.add_subnet(network["id"], cidr)
        if shared:
            self.share(network["id"], "*")
        return network

    def add_subnet(self, network_id: str, cidr: str, **attributes: Any) -> Json:
        """A subnet; its gateway and pools are Neutron's defaults if not said."""
        network = self.networks[network_id]
        gateway = attributes.get("gateway_ip", default_gateway(cidr))
        body = {
            "network_id": network_id,
            "cidr": cidr,
            "ip_version": 6 if ":" in cidr else 4,
            "gateway_ip": gateway,
            "allocation_pools": default_pools(cidr, gateway),
            "project_id": network["project_id"],
            **attributes,
        }
        subnet = self.store.add("subnet", SUBNET.check_create(body) | {"router:external": False})
        self.store.attach_subnet(network, subnet)
        return subnet

    def share(self, network_id: str, project_id: str) -> Json:
        """Let another project use the network; "*" is everybody."""
        body = {"object_type": "network", "object_id": network_id, "action": "access_as_shared"}
        owner = self.networks[network_id]["project_id"]
        return self.store.add(
            "rbac_policy", body | {"target_tenant": project_id, "project_id": owner}
        )

    def add_security_group(self, name: str, project_id: str = "") -> Json:
        """A security group that lets everything out."""
        body = {"name": name, "project_id": project_id or self.project_id}
        return self.store.add_group(SECURITY_GROUP.check_create(body))

    def add_qos_policy(self, name: str, project_id: str = "") -> Json:
        """A QoS policy, without rules."""
        body = {"name": name, "project_id": project_id or self.project_id, "shared": False}
        return self.store.add("policy", QOS_POLICY.check_create(body))

    def add_host(self, name: str) -> None:
        """A chassis comes up: ports can be bound to it."""
        self.store.hosts.add(name)

    def add_trunk(self, network_id: str, **port: Any) -> Json:
        """A trunk on a port of a VM, with these attributes, in the cluster's project."""
        context = Context(self.project_id, frozenset({"admin", "member"}))
        body = {"network_id": network_id, "device_owner": "compute:nova", "device_id": "vm"}
        return self._neutron.add_trunk(context, body | port)

    def add_external_network(self, name: str, *cidrs: str) -> Json:
        """A network that floating IPs are of, with a subnet for each CIDR."""
        project_id = self.admin.project_id
        return self.add_network(name, *cidrs, project_id=project_id, **{"router:external": True})

    def add_router(self, external_id: str, *subnet_ids: str) -> Json:
        """A router of the cluster's project, from subnets to an external network."""
        context = Context(self.project_id, frozenset({"admin", "member"}))
        return self._neutron.add_router(context, external_id, subnet_ids)

    def join(self, router: Json, *subnet_ids: str) -> None:
        """The router leads into these subnets, too."""
        self._neutron.join(router, subnet_ids)

    def add_floating_ip(self, network_id: str, **attributes: Any) -> Json:
        """One that people make, in the cluster's project if not said."""
        context = Context(self.project_id, frozenset({"admin", "member"}))
        return self._neutron.add_floating_ip(
            context, {"floating_network_id": network_id, **attributes}
        )

    def remove_floating_ip(self, floating_ip_id: str) -> None:
        """Somebody deletes it."""
        self._neutron.remove_floating_ip(floating_ip_id)

    def add_port(self, network_id: str, **attributes: Any) -> Json:
        """A port of the cluster's project that another service makes."""
        context = Context(self.project_id, frozenset({"admin", "member"}))
        return self._neutron.add_port(context, {"network_id": network_id, **attributes})

    def remove_port(self, port_id: str) -> None:
        """Its maker deletes it."""
        self._neutron.remove_port(port_id)

    def set_quota(self, project_id: str, **limits: int) -> None:
        """How many ports (`port`), floating IPs (`floatingip`) the project may have; -1 is without
        limit."""
        self.store.quotas.setdefault(project_id, {}).update(limits)

    def switch_extension(self, alias: str, *, on: bool) -> None:
        """Have an extension in the list, or not; what it does stays."""
        (self._neutron.extensions.add if on else self._neutron.extensions.discard)(alias)

    def limit_pages(self, max_limit: int) -> None:
        """Have no list of Neutron or Octavia answer with more, however many are asked for."""
        self._neutron.listing.max_limit = self.octavia.max_limit = max_limit

    def keep_tags_at_creation(self, *, on: bool) -> None:
        """Whether ports get the tags in the body of their creation; if not, nobody says so."""
        self._neutron.tags_at_creation = on

    # What happens by itself in a real cloud.

    def set_status(self, port_id: str, status: str) -> None:
        """The data plane says that a port is ACTIVE or DOWN."""
        self.store.change("port", self.ports[port_id], {"status": status})
        self.changes.notify()

    def expire_tokens(self) -> None:
        """All tokens given out so far are worth nothing any more."""
        self.keystone.tokens.clear()

    def promote(self, role: str) -> None:
        """Give our account one more role; an admin sees all projects."""
        user = self.keystone.users[self.kuryr.id]
        self.keystone.users[user.id] = dataclasses.replace(user, roles=(*user.roles, role))
        self.expire_tokens()

    async def wait_for(self, predicate: Callable[[], object], *, within: float = PATIENCE) -> None:
        """Wait until the predicate over this cloud is true; asked after every request."""
        await self.changes.wait_for(predicate, within=within)

    # How clients find it.

    def auth(self, user: User | None = None) -> Json:
        """The options of a password login, as in clouds.yaml and kuryr.conf."""
        user = user or self.kuryr
        return {
            "auth_url": f"{self.url}/v3",
            "username": user.name,
            "password": user.password,
            "project_name": self.keystone.projects[user.project_id],
            "user_domain_id": "default",
            "project_domain_id": "default",
        }

    def connect_options(self, user: User | None = None) -> Json:
        """Arguments for openstack.connect."""
        own = {"load_yaml_config": False, "load_envvars": False}
        return {"auth": self.auth(user), "region_name": "RegionOne", **own}

    def neutron_options(self, user: User | None = None) -> dict[str, str]:
        """The section [neutron] of a kuryr.conf."""
        return {"auth_type": "password", "region_name": "RegionOne", **self.auth(user)}

    def write_clouds_yaml(self, path: Path) -> None:
        """A clouds.yaml (JSON is YAML) with a cloud named after each user."""
        clouds = {
            user.name: {"auth": self.auth(user), "region_name": "RegionOne"}
            for user in self.keystone.users.values()
        }
        path.write_text(json.dumps({"clouds": clouds}, indent=1) + "\n")

    # Answering.

    def _context_of(self, request: web.Request) -> Context:
        user = self.keystone.user_of(request)
        return Context(user.project_id, user.all_roles())
