"""Security groups of the Neutron API v2.0, as far as they are made by us.

https://docs.openstack.org/api-ref/network/v2/#security-groups-security-groups

Neutron gives a new group rules that let everything out, and takes no tags in the body of every
release's creation: what must stand on a group from its first instant stands in its name.
"""

from collections.abc import Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.transport import Query, Transport

Json = dict[str, Any]


class SecurityGroups:
    """Every error is a :class:`kuryr_k8s.errors.CloudError`. Groups stay plain JSON objects."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list_groups(self, query: Query) -> list[Json]:
        """The groups that match and that we may see, with their rules; there are few."""
        answer = await self._transport.call("GET", "/security-groups", query=query)
        groups: list[Json] = answer["security_groups"]
        return groups

    async def create_group(self, body: Json) -> Json:
        """:raises errors.OverQuota: the project's quota of groups or rules is used up."""
        answer = await self._transport.call(
            "POST", "/security-groups", body={"security_group": body}
        )
        group: Json = answer["security_group"]
        return group

    async def set_tags(self, group_id: str, tags: Sequence[str]) -> None:
        """Give the group these tags, and no others."""
        path = f"/security-groups/{group_id}/tags"
        await self._transport.call("PUT", path, body={"tags": list(tags)})

    async def create_rules(self, rules: Sequence[Json]) -> None:
        """All of them, or none.

        :raises errors.Conflict: there is one of them already.
        """
        body = {"security_group_rules": list(rules)}
        await self._transport.call("POST", "/security-group-rules", body=body)

    async def delete_rule(self, rule_id: str) -> None:
        """Gone already is as good."""
        try:
            await self._transport.call("DELETE", f"/security-group-rules/{rule_id}")
        except errors.NotFound:
            return

    async def share(self, group_id: str, project_id: str) -> None:
        """Let another project use the group: its owner may.

        :raises errors.Conflict: it may already.
        """
        body = {
            "object_type": "security_group",
            "object_id": group_id,
            "action": "access_as_shared",
            "target_tenant": project_id,
        }
        await self._transport.call("POST", "/rbac-policies", body={"rbac_policy": body})
