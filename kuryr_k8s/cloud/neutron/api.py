"""The calls of the Neutron API v2.0 that we need; ports stay plain JSON objects.

Names and fields are those of the API reference (https://docs.openstack.org/api-ref/network/v2/).
"""

import asyncio
import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.neutron.address_pairs import AddressPairs
from kuryr_k8s.cloud.neutron.floating_ips import FloatingIPs
from kuryr_k8s.cloud.neutron.full_subnets import FullSubnets
from kuryr_k8s.cloud.neutron.own_ports import POOL_TAG, OwnPorts
from kuryr_k8s.cloud.neutron.port_batches import PortBatches
from kuryr_k8s.cloud.neutron.security_groups import SecurityGroups
from kuryr_k8s.cloud.neutron.specific_ports import SpecificPorts
from kuryr_k8s.cloud.neutron.trunks import Trunks
from kuryr_k8s.cloud.paging import BY_ID, in_queries, read_all
from kuryr_k8s.cloud.transport import Query, Transport
from kuryr_k8s.engine.limit import Priority, current_priority

Json = dict[str, Any]
BOUND_TO = "binding:host_id"
# What tells whose a port is, and where it has addresses
OWNERS_FIELDS = ("id", "device_id", "device_owner", "description", "tags", "fixed_ips")
AUTOMATIC = ("slaac", "dhcpv6-stateless")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network, as far as we need it.

    :param physnet: its physical network; empty if it has none, or Neutron does not show it to us.
    """

    id: str
    name: str
    mtu: int
    project_id: str
    shared: bool
    physnet: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """A subnet of a network.

    ``host_routes`` are pairs (destination, next hop), ``allocation_pools`` pairs (first, last).

    :param is_automatic: every port of the network has an address of the subnet, asked for or not:
        the one that follows from its MAC (SLAAC, or DHCPv6 without state).
    """

    id: str
    network_id: str
    cidr: str
    ip_version: int
    gateway_ip: str | None
    dns_nameservers: tuple[str, ...]
    host_routes: tuple[tuple[str, str], ...]
    allocation_pools: tuple[tuple[str, str], ...] = ()
    is_automatic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PortQuota:
    """The quota for a project's ports: the limit (-1: none), and the ports that count already."""

    limit: int
    used: int

    @property
    def left(self) -> float:
        """The number of further ports that the project may create; infinite without a limit."""
        return math.inf if self.limit < 0 else max(0, self.limit - self.used)


class Neutron:
    """Typed calls; every error is a :class:`kuryr_k8s.errors.CloudError`.

    Ports get the mark of the cluster at their creation. Whatever changes or deletes a port raises
    :class:`kuryr_k8s.errors.NotOurs` for one without it: ids of ports come from KuryrPorts too,
    which nodes write. A port that is not in the record costs one call more.

    :param mark: Of this cluster; it may become known later.
    :param now: The time in seconds.
    """

    def __init__(
        self,
        transport: Transport,
        mark: ClusterMark | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.mark = mark or ClusterMark()
        self.own_ports = OwnPorts()
        self.full_subnets = FullSubnets(now)
        self._now = now
        self.trunks = Trunks(transport)
        self.floating_ips = FloatingIPs(transport)
        self.security_groups = SecurityGroups(transport)
        self.address_pairs = AddressPairs(transport)
        self.specific_ports = SpecificPorts(transport, self.trunks, self.mark)
        self._transport = transport
        # by project and priority: one of its callers sends a batch for all of them
        self._batches: defaultdict[tuple[str, Priority], PortBatches] = defaultdict(
            lambda: PortBatches(self._create)
        )
        self._asking = asyncio.Lock()
        self.keeps_tags: bool | None = None  # in the body of a create; None: not known yet

    async def own_project(self) -> str:
        """Return the id of the project that our account works in."""
        return await self._transport.project_id()

    async def create_port(self, port: Json) -> Json:
        """Create a port with its tags.

        Simultaneous requests of one project and one priority share a bulk request.

        :raises errors.OverQuota: The project's quota or the subnet's addresses are used up.
        """
        body = self._marked(port)
        made = await self._batches[body.get("project_id", ""), current_priority()].create(body)
        await self._tag(made, body)
        return made

    def _marked(self, port: Json) -> Json:
        """Return the body of a creation with the mark among the tags."""
        return port | {"tags": self._with_mark(port.get("tags", ()))}

    def _with_mark(self, tags: Iterable[str]) -> list[str]:
        return list(dict.fromkeys((*tags, self.mark.tag)))

    async def _tag(self, made: Json, body: Json) -> None:
        tags = body["tags"]
        if not await self._keeps_tags_of(made["id"], tags):
            await self.set_port_tags(made["id"], tags)

    async def create_ports(
        self, bodies: Sequence[Json]
    ) -> tuple[list[Json], errors.CloudError | None]:
        """Create ports.

        Ports that somebody waits for are divided among a few requests, since Neutron creates the
        ports of one request one after another. The others go in one request. After an error that
        is not a refusal (``is_refusal``) some ports may exist that are not returned.

        :returns: The ports that were created, and an error if these are not all.
        """
        if current_priority() is not Priority.POD:
            ports: list[Json] = []
            marked = [self._marked(body) for body in bodies]
            try:
                for made, body in zip(await self._create(marked), marked, strict=True):
                    await self._tag(made, body)
                    ports.append(made)
            except errors.CloudError as error:
                return ports, error
            return ports, None

        async def attempt(body: Json) -> Json | errors.CloudError:
            try:
                return await self.create_port(body)
            except errors.CloudError as error:
                return error

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(attempt(body)) for body in bodies]
        outcomes = [task.result() for task in tasks]
        failures = [outcome for outcome in outcomes if isinstance(outcome, errors.CloudError)]
        # the least certain failure counts
        failure = min(failures, key=lambda error: error.is_refusal, default=None)
        created = [outcome for outcome in outcomes if not isinstance(outcome, errors.CloudError)]
        return created, failure

    async def _create(self, ports: list[Json]) -> list[Json]:
        """Create all of these ports, or none."""
        asked = self._now()
        if len(ports) == 1:
            try:
                answer = await self._transport.call("POST", "/ports", body={"port": ports[0]})
            except errors.NoAddress as error:  # of several ports, it would tell less
                self.full_subnets.refused(_subnet_ids_in(ports[0]), error.brief)
                raise
            made: list[Json] = [answer["port"]]
        else:
            answer = await self._transport.call("POST", "/ports", body={"ports": ports})
            made = answer["ports"]
            if list(map(_owner_of, made)) != list(map(_owner_of, ports)):
                raise errors.CloudError("Neutron's answer to a bulk request has another order")
        for port, body in zip(made, ports, strict=True):
            self.own_ports.note(port, body["tags"])
            self.full_subnets.made(_subnet_ids_in(port), asked)
        return made

    async def _keeps_tags_of(self, port_id: str, tags: Sequence[str]) -> bool:
        """Return whether Neutron keeps the tags in the body of a create.

        It does with ML2's extension driver ``tag_ports_during_bulk_creation``, and shows that
        nowhere. So we find out once, by searching for the first port by its tags. (The answer to
        the create shows no tags for ports of projects other than our own.)
        """
        async with self._asking:
            if self.keeps_tags is None:
                query = {"id": port_id, "tags": ",".join(tags), "fields": "id"}
                self.keeps_tags = bool(await self.list_ports(query))
        return self.keeps_tags

    async def set_port_tags(self, port_id: str, tags: Sequence[str]) -> None:
        """Give the port these tags and the mark, and no others.

        :raises errors.BadRequest: The port belongs to another project than our own.
        """
        await self.own_port(port_id)
        await self._put_tags(port_id, tags)

    async def adopt_port(self, port: Json, tags: Iterable[str]) -> None:
        """Give a port that has no mark yet these tags and the mark, and no others.

        The caller has made sure that the port was made for this cluster: a field that only its
        maker wrote names a live object by its uid, or the cluster itself.

        :param port: As Neutron shows it.
        :raises errors.BadRequest: The port belongs to another project than our own.
        """
        await self._put_tags(port["id"], tags)
        self.own_ports.note(port, self._with_mark(tags))

    async def mark_port(self, port: Json) -> None:
        """Give a port that has no mark yet the mark besides its tags, as :meth:`adopt_port` does.

        Where Neutron does not show its tags, it does not let us change them either. Then the port
        counts as ours for as long as this process runs.

        :raises errors.NotFound: It is gone.
        """
        live = await self.get_port(port["id"])
        if "tags" in live:
            await self._put_tags(port["id"], live["tags"])
        self.own_ports.note(port, self._with_mark(port["tags"]))

    async def leave_port(self, port: Json, tags: Iterable[str], fields: Json) -> None:
        """Take these tags and the mark from a port, which is ours no more.

        :param port: As Neutron shows it.
        :param fields: That it gets before; none: it has them.
        """
        if fields:
            await self.update_port(port["id"], fields)
        present = {*tags, self.mark.tag}.intersection(port["tags"])
        for tag in sorted(present, key=self.mark.tag.__eq__):  # the mark last: it is found by it
            with contextlib.suppress(errors.NotFound):
                await self._transport.call("DELETE", f"/ports/{port['id']}/tags/{tag}")
        self.own_ports.forget([port["id"]])

    async def _put_tags(self, port_id: str, tags: Iterable[str]) -> None:
        body = {"tags": self._with_mark(tags)}
        await self._transport.call("PUT", f"/ports/{port_id}/tags", body=body)

    async def list_ports(self, query: Query) -> list[Json]:
        """List all ports that match.

        :raises errors.CloudError: Among others, if Neutron does not show where ports are bound
            although we asked: its policy does not let us see it, or is not loaded yet right after
            a start. Without it, ports would look like others' ports or like broken ones.
        """
        ports = await read_all(self._transport, "/ports", {**query, **BY_ID})
        fields = query.get("fields") or (BOUND_TO,)
        if BOUND_TO in fields and any(BOUND_TO not in port for port in ports):
            raise errors.CloudError(f"Neutron does not show us {BOUND_TO} of ports")
        if self.mark.uid and "tags" in (query.get("fields") or ("tags",)):
            await self._fill_in_tags(ports, query)
            for port in ports:
                if self.mark.is_on(port["tags"]):
                    self.own_ports.note(port, port["tags"])
        return ports

    async def _fill_in_tags(self, ports: Iterable[Json], query: Query) -> None:
        """Give the ports of a list the tags that Neutron does not show.

        An account without administrator's rights is shown no tags of other projects' ports, and
        none of its own in the same list. But Neutron tells which of them have a tag: those that
        say whose a port is are asked for. Other tags stay unknown.
        """
        hidden = [port for port in ports if "tags" not in port]
        asked = query.get("tags", "")
        demanded = asked.split(",") if isinstance(asked, str) and asked else []
        bearing: dict[str, set[str]] = {}
        for tag in {self.mark.tag, POOL_TAG} - set(demanded):
            bearing[tag] = set()
            for some in in_queries(
                port["id"] for port in hidden if port["id"] not in self.own_ports
            ):
                rows = {"id": some, "tags": tag, "fields": "id", **BY_ID}
                found = await read_all(self._transport, "/ports", rows)
                bearing[tag] |= {port["id"] for port in found}
        for port in hidden:
            known = self.own_ports.get(port["id"])
            told = [tag for tag, port_ids in bearing.items() if port["id"] in port_ids]
            port["tags"] = [*demanded, *told] if known is None else known["tags"]

    async def own_port(self, port_id: str) -> Json:
        """Return what is known of a port of this cluster; ask Neutron if nothing is.

        The query names the mark, since Neutron shows an account without administrator's rights no
        tags of other projects' ports.

        :returns: ``id``, ``device_id``, ``device_owner``, ``description`` and ``tags``.
        :raises errors.NotFound: There is no such port that we may see.
        :raises errors.NotOurs: The port does not bear the mark.
        """
        if (known := self.own_ports.get(port_id)) is not None:
            return known
        await self.list_ports({"id": port_id, "tags": self.mark.tag, "fields": OWNERS_FIELDS})
        if (known := self.own_ports.get(port_id)) is not None:
            return known
        await self.get_port(port_id)
        raise errors.NotOurs(f"port {port_id} does not bear the tag {self.mark.tag}")

    async def get_port(self, port_id: str) -> Json:
        """Get a port.

        :raises errors.NotFound: There is no such port that we may see.
        """
        port: Json = (await self._transport.call("GET", f"/ports/{port_id}"))["port"]
        return port

    async def list_ports_by_id(self, ids: Iterable[str], fields: Sequence[str] = ()) -> list[Json]:
        """List those of the ports that exist.

        :param fields: The fields to ask for; empty: all.
        """
        ports: list[Json] = []
        for some in in_queries(ids):
            ports += await self.list_ports({"id": some, "fields": fields})
        return ports

    async def update_port(
        self, port_id: str, fields: Json, *, revision_number: int | None = None
    ) -> Json:
        """Change fields of a port if the port (still) has this revision.

        :raises errors.NotFound: The port is gone.
        :raises errors.NotOurs: The port does not bear the mark.
        :raises errors.Conflict: The port has another revision (HTTP 412).
        """
        await self.own_port(port_id)
        answer = await self._transport.call(
            "PUT", f"/ports/{port_id}", body={"port": fields}, headers=_if_match(revision_number)
        )
        port: Json = answer["port"]
        self.own_ports.changed(port)
        return port

    async def delete_port(self, port_id: str, *, revision_number: int | None = None) -> None:
        """Delete a port if it (still) has this revision; a port that is gone counts as deleted.

        :raises errors.NotOurs: The port does not bear the mark.
        :raises errors.Conflict: The port has another revision (HTTP 412).
        """
        try:
            await self.own_port(port_id)
        except errors.NotFound:
            return
        await self._delete_port(port_id, revision_number)

    async def delete_vip_port(self, port_id: str, *, revision_number: int) -> None:
        """Delete a port that Octavia made for a VIP and left behind, if it has this revision.

        Octavia marks its ports with nothing of ours. The caller has made sure that the load
        balancer which the port names does not exist.

        :raises errors.Conflict: The port has another revision (HTTP 412).
        """
        await self._delete_port(port_id, revision_number)

    async def _delete_port(self, port_id: str, revision_number: int | None) -> None:
        headers = _if_match(revision_number)
        with contextlib.suppress(errors.NotFound):
            await self._transport.call("DELETE", f"/ports/{port_id}", headers=headers)
        self.full_subnets.freed(self.own_ports.subnet_ids_of(port_id))
        self.own_ports.forget([port_id])

    async def port_quota(self, project_id: str) -> PortQuota | None:
        """Get the project's quota for ports.

        Neutron shows the quotas of all projects to an administrator, and to anybody else (also to
        a user with the role ``service``) only that of the own project.

        :returns: The quota, or None if Neutron does not show it to us.
        """
        try:
            answer = await self._transport.call("GET", f"/quotas/{project_id}/details.json")
        except errors.BadRequest as error:
            if error.status != 403:
                raise
            return None
        port = answer["quota"]["port"]
        return PortQuota(limit=port["limit"], used=port["used"] + port["reserved"])

    async def get_subnet(self, subnet_id: str) -> Subnet:
        """Get a subnet.

        :raises errors.NotFound: There is no such subnet that we may see.
        """
        answer = await self._transport.call("GET", f"/subnets/{subnet_id}")
        subnet = _subnet(answer["subnet"])
        self.full_subnets.measure(subnet.id, subnet.allocation_pools)
        return subnet

    async def list_subnets(self, network_id: str) -> list[Subnet]:
        """List the subnets of the network that we may see."""
        query = {"network_id": network_id, **BY_ID}
        return [_subnet(found) for found in await read_all(self._transport, "/subnets", query)]

    async def list_subnets_by_id(self, ids: Iterable[str]) -> list[Subnet]:
        """List those of the subnets that exist, as far as we may see them."""
        return await self._list_subnets("id", ids)

    async def list_subnets_of(self, network_ids: Iterable[str]) -> list[Subnet]:
        """List the subnets of several networks that we may see."""
        return await self._list_subnets("network_id", network_ids)

    async def _list_subnets(self, name: str, ids: Iterable[str]) -> list[Subnet]:
        subnets: list[Subnet] = []
        for some in in_queries(ids):
            found = await read_all(self._transport, "/subnets", {name: some, **BY_ID})
            subnets += map(_subnet, found)
        for subnet in subnets:
            self.full_subnets.measure(subnet.id, subnet.allocation_pools)
        return subnets

    async def list_networks(self, ids: Iterable[str]) -> list[Network]:
        """List those of the networks that exist, as far as we may see them."""
        networks: list[Network] = []
        for some in in_queries(ids):
            found = await read_all(self._transport, "/networks", {"id": some, **BY_ID})
            networks += map(_network, found)
        return networks

    async def get_network(self, network_id: str) -> Network:
        """Get a network.

        :raises errors.NotFound: There is no such network that we may see.
        """
        return _network((await self._transport.call("GET", f"/networks/{network_id}"))["network"])

    async def get_shared(self, kind: str, object_id: str) -> Json:
        """Get an object of a kind that projects can share.

        :param kind: ``security_group`` or ``qos_policy``.
        :raises errors.NotFound: There is no such object that we may see.
        """
        answer = await self._transport.call("GET", f"{_collection(kind)}/{object_id}")
        found: Json = answer[kind.removeprefix("qos_")]
        return found

    async def list_named(self, kind: str, project_id: str, name: str) -> list[str]:
        """List the ids of a project's objects of exactly this name.

        A database may compare names without regard to case and accents.

        :param kind: ``network``, ``subnet``, ``security_group`` or ``qos_policy``.
        """
        query = {"name": name, "project_id": project_id, "fields": ("id", "name"), **BY_ID}
        found = await read_all(self._transport, _collection(kind), query)
        return [each["id"] for each in found if each["name"] == name]

    async def shares(self, object_type: str, object_id: str) -> frozenset[str]:
        """List the projects with access to an object; ``*``: all.

        :param object_type: ``network``, ``security_group`` or ``qos_policy``.

        Neutron neither pages these policies nor sorts them by id.
        """
        query = {"object_type": object_type, "object_id": object_id}
        return frozenset(
            policy["target_tenant"]
            for policy in await read_all(self._transport, "/rbac-policies", query)
            if policy["action"] == "access_as_shared"
        )


def _collection(kind: str) -> str:
    return "/qos/policies" if kind == "qos_policy" else f"/{kind.replace('_', '-')}s"


def _network(found: Json) -> Network:
    return Network(
        id=found["id"],
        name=found["name"],
        mtu=found["mtu"],
        project_id=found["project_id"],
        shared=bool(found.get("shared")),
        physnet=found.get("provider:physical_network") or "",
    )


def _subnet(found: Json) -> Subnet:
    routes = found.get("host_routes") or ()
    pools = found.get("allocation_pools") or ()
    modes = {found.get("ipv6_address_mode"), found.get("ipv6_ra_mode")}
    return Subnet(
        id=found["id"],
        network_id=found["network_id"],
        cidr=found["cidr"],
        ip_version=found["ip_version"],
        gateway_ip=found.get("gateway_ip"),
        dns_nameservers=tuple(found.get("dns_nameservers") or ()),
        host_routes=tuple((route["destination"], route["nexthop"]) for route in routes),
        allocation_pools=tuple((pool["start"], pool["end"]) for pool in pools),
        is_automatic=not modes.isdisjoint(AUTOMATIC),
    )


def _subnet_ids_in(port: Json) -> tuple[str, ...]:
    """Return the ids of the subnets that a port has addresses of, or that its body asks for."""
    addresses = port.get("fixed_ips") or ()
    return tuple(address["subnet_id"] for address in addresses if "subnet_id" in address)


def _owner_of(port: Json) -> tuple[str, str]:
    """Return what tells ports of different Pods apart, in a request and in its answer."""
    return port["device_id"], port.get("description", "")


def _if_match(revision_number: int | None) -> dict[str, str]:
    if revision_number is None:
        return {}
    return {"If-Match": f"revision_number={revision_number}"}
