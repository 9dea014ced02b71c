"""The security group by which load balancers and nodes reach Pods, whatever other groups say.

It allows what comes from the subnets of Services and of nodes' ports, and nothing else. amphora
connects to members from an address of its own there (with ``member_mode = L3``). With ovn, which
keeps clients' addresses, a Pod that reaches itself through a Service comes from the Service's
address. A kubelet probes Pods from its node's port. Nobody else should have addresses in these
subnets. The cluster has one such group; it is created when the first Pod needs it, and stays. A
group of that name that bears the mark of another cluster is left alone. So is one without a mark,
as earlier versions made it, unless it has all of our tags and a KuryrPort of ours names it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.cloud.mark import clusters_on
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.drivers.base import granted

Json = dict[str, Any]
REFRESH = 600.0  # seconds after which the group is compared again
_RULE_FIELDS = (
    "direction",
    "ethertype",
    "remote_ip_prefix",
    "remote_group_id",
    "remote_address_group_id",
    "protocol",
    "port_range_min",
    "port_range_max",
)


class MemberGroup:
    """The group, found again by its name and by the mark that its description has.

    It has both from the beginning.

    :param in_use: Returns whether a KuryrPort names a group: then the group of an earlier version,
        which has no mark, is ours.
    """

    def __init__(
        self, neutron: Neutron, conf: cfg.ConfigOpts, in_use: Callable[[str], bool]
    ) -> None:
        defaults = conf.neutron_defaults
        self._neutron = neutron
        self._project: str = defaults.project
        self._resource_tags = list(defaults.resource_tags)
        self._in_use = in_use
        served = "loadbalancer" in conf.kubernetes.enabled_handlers
        self._subnets = list(defaults.service_subnet) if served else []
        # not those of Pods, which handlers/nodes refuses: Pods would let in all Pods
        self._node_subnets = [
            subnet_id for subnet_id in defaults.node_subnet if subnet_id not in defaults.pod_subnet
        ]
        self._id: str | None = None
        self._compared_at = 0.0
        self._comparing = asyncio.Lock()
        self._grants = granted.Grants(self._share)

    async def id_for(self, project_id: str) -> str:
        """Return the group's id after letting Pods of the project use the group.

        :raises errors.CloudError: Among others :class:`errors.OverQuota`, for groups or rules.
        """
        async with self._comparing:
            now = asyncio.get_running_loop().time()
            if self._id is None or now - self._compared_at > REFRESH:
                self._compared_at = now  # if it fails, the known group is good enough
                self._id = await self._ensure()
        if project_id != self._project:
            await self._grants.require(project_id)
        return self._id

    async def _ensure(self) -> str:
        groups = self._neutron.security_groups
        subnets = [await self._neutron.get_subnet(subnet_id) for subnet_id in self._subnets]
        for subnet_id in self._node_subnets:
            with contextlib.suppress(errors.NotFound):  # an Event on the Nodes reports it
                subnets.append(await self._neutron.get_subnet(subnet_id))
        wanted = [_rule(f"IPv{subnet.ip_version}", subnet.cidr) for subnet in subnets]
        name = f"kuryr {self._resource_tags[0]}: from load balancers"
        found = await groups.list_groups({"name": name, "project_id": self._project})
        ours = [group for group in found if self._is_ours(group)]
        group = min(ours, key=lambda group: (group["created_at"], group["id"]), default=None)
        mark = self._neutron.mark.tag
        description = f"{mark} Pods are reached from the subnets of Services"
        if group is None:
            body = {"name": name, "project_id": self._project, "description": description}
            group = await groups.create_group(body)
        group_id: str = group["id"]
        if mark not in group["description"].split(" "):
            # first: a cluster of an earlier version with our first tag may change the tags
            await groups.describe(group_id, description)
        present, others = [], []
        for rule in group["security_group_rules"]:
            fields = {name: rule.get(name) for name in _RULE_FIELDS}
            if fields in wanted:
                present.append(fields)
            else:  # other groups decide about everything else
                others.append(rule["id"])
        group_fields = {"security_group_id": group_id, "project_id": self._project}
        missing = [rule | group_fields for rule in wanted if rule not in present]
        if missing:  # before others go: Pods may be reached by those alone
            await groups.create_rules(missing)
        for rule_id in others:
            await groups.delete_rule(rule_id)
        tags = [*self._resource_tags, mark]
        if not set(tags) <= set(group["tags"]):
            await groups.set_tags(group_id, tags)
        return group_id

    def _is_ours(self, group: Json) -> bool:
        clusters = clusters_on((*group["tags"], *group["description"].split(" ")))
        if not clusters:  # clusters of an earlier version that share a first tag share it
            return set(self._resource_tags) <= set(group["tags"]) and self._in_use(group["id"])
        return clusters == {self._neutron.mark.uid}

    async def _share(self, project_id: str) -> None:
        if self._id is None:
            return
        if {project_id, "*"} & await self._neutron.shares("security_group", self._id):
            return
        try:
            await self._neutron.security_groups.share(self._id, project_id)
        except errors.Conflict:
            return  # somebody was faster


def _rule(ethertype: str, prefix: str) -> Json:
    fields = {"direction": "ingress", "ethertype": ethertype, "remote_ip_prefix": prefix}
    return dict.fromkeys(_RULE_FIELDS) | fields
