"""Octavia as one user, on either side, and the load balancers that cases start from."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest

from kuryr_k8s.cloud.octavia import bodies as octavia_bodies
from kuryr_k8s.cloud.octavia.api import Octavia as Client
from kuryr_k8s.model.load_balancer import FoundLoadBalancer, Listener, LoadBalancer, Pool

from .sides import Neutron, Reply, Side

Json = dict[str, Any]
BALANCERS, LISTENERS, POOLS = "/lbaas/loadbalancers", "/lbaas/listeners", "/lbaas/pools"
MONITORS = "/lbaas/healthmonitors"
ALGORITHMS = {"ovn": "SOURCE_IP_PORT", "amphora": "ROUND_ROBIN"}
OWNERS = ("ovn-lb:vip", "Octavia")
# For cases of Octavia itself, where no provider has a say.
ANY_PROVIDER = pytest.mark.parametrize("provider", ["ovn"])
WITHIN = 240.0  # seconds for a change, on a machine with much else to do
PAUSE = 0.2  # seconds: a real Octavia can only be polled, and each answer costs it 0.05
# ovn's provider looks through all its load balancers without a lock. If another case's is deleted
# at that moment, it fails an assertion without a message, and nothing has been changed.
LOST_RACE = "Provider 'ovn' reports error: "


@dataclass
class Octavia(Neutron):
    """Requests of one user; the load balancers that it makes are removed by `clean`."""

    service: str = "load_balancer"

    async def _request(self, method: str, path: str, **arguments: Any) -> Reply:
        """Ask again where the provider lost a race with another case."""
        async with asyncio.timeout(WITHIN):
            while True:
                reply = await super()._request(method, path, **arguments)
                if reply.status != 500 or reply.body.get("faultstring") != LOST_RACE:
                    return reply

    async def settled(self, balancer_id: str) -> Json:
        """The status tree, as soon as nothing in it is PENDING."""
        async with asyncio.timeout(WITHIN):
            while True:
                reply = await self.get(f"{BALANCERS}/{balancer_id}/status")
                assert reply.status == 200, reply.body
                tree: Json = reply.body["statuses"]["loadbalancer"]
                if not any(status.startswith("PENDING") for status in statuses(tree)):
                    return tree
                await asyncio.sleep(PAUSE)

    async def until_members(self, pool_id: str, *addresses: str) -> list[Json]:
        """The pool's members, as soon as they have these addresses: of those that are replaced,
        ovn says nothing while they go, and all is ACTIVE meanwhile."""
        async with asyncio.timeout(WITHIN):
            while True:
                found: list[Json] = (await self.get(f"{POOLS}/{pool_id}/members")).body["members"]
                if sorted(member["address"] for member in found) == sorted(addresses):
                    return found
                await asyncio.sleep(PAUSE)

    async def gone(self, balancer_id: str) -> None:
        """Wait until the load balancer is not found any more."""
        await self.until_gone(f"{BALANCERS}/{balancer_id}")

    async def until_gone(self, path: str) -> None:
        """Wait until it is not found any more: with ovn all else may be ACTIVE before."""
        async with asyncio.timeout(WITHIN):
            while True:
                if (await self.get(path)).status == 404:
                    return
                await asyncio.sleep(PAUSE)

    async def make(self, body: Json) -> Json:
        """A load balancer that must come to be ACTIVE, with all that the body has."""
        reply = await self.post(BALANCERS, {"loadbalancer": body})
        assert reply.status == 201, reply.body
        found: Json = reply.body["loadbalancer"]
        assert statuses(await self.settled(found["id"])) == {"ACTIVE"}
        return found

    async def change(self, balancer_id: str, reply: Reply) -> Reply:
        """Of a change that must be accepted, wait for the end."""
        assert reply.status < 300, reply.body
        assert statuses(await self.settled(balancer_id)) == {"ACTIVE"}
        return reply

    async def clean(self) -> None:
        """Remove the load balancers; the ports that refused ones have left go with the side."""
        ids = [path.rpartition("/")[2] for path in self.made if path.startswith(BALANCERS)]
        for balancer_id in ids:
            if (await self.get(f"{BALANCERS}/{balancer_id}")).status == 200:
                await self.settled(balancer_id)
                await self.delete(f"{BALANCERS}/{balancer_id}?cascade=true")
        for balancer_id in ids:
            await self.gone(balancer_id)


def statuses(tree: Any) -> set[str]:
    """All provisioning statuses in what Octavia has shown."""
    if isinstance(tree, list):
        return set().union(*map(statuses, tree))
    if not isinstance(tree, dict):
        return set()
    own = {tree["provisioning_status"]} if "provisioning_status" in tree else set()
    return own.union(*map(statuses, tree.values()))


def with_l7(
    side: Side, subnet_id: str, *listeners: Listener, pools: tuple[Pool, ...] = ()
) -> LoadBalancer:
    """A load balancer of the provider that looks into requests."""
    return LoadBalancer(
        name=side.mark,
        project_id=side.kuryr.project_id,
        vip_subnet_id=subnet_id,
        vip_address=None,
        provider="amphora",
        tags=(side.mark,),
        listeners=listeners,
        pools=pools,
    )


async def vip_subnet(side: Side, *, owner: Neutron | None = None) -> str:
    """Make a subnet for VIPs; none of them is given an address that members of our cases have.

    :returns: its id.
    """
    network = await side.network(owner=owner)
    pool = {"start": "10.219.0.2", "end": "10.219.0.99"}
    made = await side.subnet(network["id"], "10.219.0.0/24", allocation_pools=[pool])
    return str(made["id"])


async def vip_ports(side: Side) -> list[Json]:
    """The ports of VIPs on the networks of this case."""
    networks = (await side.admin.get("/networks", name=side.mark)).body["networks"]
    query = {"network_id": [network["id"] for network in networks], "device_owner": list(OWNERS)}
    found = (await side.admin.get("/ports", **query)).body["ports"]
    # those of amphorae have the id of a server
    return [port for port in found if port["device_id"].startswith("lb-")]


def populated(subnet_id: str, provider: str, **attributes: Any) -> Json:
    """The body of a load balancer with a listener, its pool, and two members of the subnet."""
    members = [
        {"address": f"10.219.0.{number}", "protocol_port": 8080, "subnet_id": subnet_id}
        for number in (101, 102)
    ]
    pool = {"name": "web", "protocol": "TCP", "lb_algorithm": ALGORITHMS[provider]}
    listener = {"name": "web", "protocol": "TCP", "protocol_port": 80}
    return {
        "vip_subnet_id": subnet_id,
        "provider": provider,
        "listeners": [listener | {"default_pool": pool | {"members": members}}],
        **attributes,
    }


def bare(subnet_id: str, provider: str, **attributes: Any) -> Json:
    """The body of a load balancer without anything in it."""
    return {"vip_subnet_id": subnet_id, "provider": provider, **attributes}


async def make(octavia: Octavia, client: Client, desired: LoadBalancer) -> str:
    """Create the load balancer by one call, and return its id."""
    made = await client.create_load_balancer(octavia_bodies.create_body(desired))
    octavia.made.append(f"{BALANCERS}/{made.id}")
    assert statuses(await octavia.settled(made.id)) == {"ACTIVE"}
    return made.id


def in_no_order(found: FoundLoadBalancer) -> FoundLoadBalancer:
    """The same with its pools, and the rules of policies, sorted."""
    listeners = []
    for listener in found.listeners:
        policies = tuple(
            dataclasses.replace(
                each,
                policy=dataclasses.replace(
                    each.policy, rules=tuple(sorted(each.policy.rules, key=str))
                ),
                rule_ids=tuple(sorted(each.rule_ids)),
            )
            for each in listener.policies
        )
        said = dataclasses.replace(
            listener.listener, policies=tuple(each.policy for each in policies)
        )
        listeners.append(dataclasses.replace(listener, listener=said, policies=policies))
    return dataclasses.replace(
        found,
        listeners=tuple(listeners),
        pools=tuple(sorted(found.pools, key=lambda pool: pool.id)),
    )
