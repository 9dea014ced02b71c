"""Security groups of the Neutron API v2.0, as far as we create them.

https://docs.openstack.org/api-ref/network/v2/#security-groups-security-groups

Neutron gives a new group rules that allow all outgoing traffic, and not every release accepts tags
in the body of a creation. What must stand on a group from its first moment is in its name.
"""

from collections.abc import Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.paging import BY_ID, read_all
from kuryr_k8s.cloud.transport import Query, Transport

Json = dict[str, Any]


class SecurityGroups:
    """Calls about security groups, which stay plain JSON objects.

    Every error is a :class:`kuryr_k8s.errors.CloudError`.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list_groups(self, query: Query) -> list[Json]:
        """List the groups that match and that we may see, with their rules."""
        return await read_all(self._transport, "/security-groups", {**query, **BY_ID})

    async def create_group(self, body: Json) -> Json:
        """Create a security group.

        :raises errors.OverQuota: The project's quota for groups or rules is used up.
        """
        answer = await self._transport.call(
            "POST", "/security-groups", body={"security_group": body}
        )
        group: Json = answer["security_group"]
        return group

    async def describe(self, group_id: str, description: str) -> None:
        """Give the group another description."""
        path, body = f"/security-groups/{group_id}", {"description": description}
        await self._transport.call("PUT", path, body={"security_group": body})

    async def set_tags(self, group_id: str, tags: Sequence[str]) -> None:
        """Give the group these tags, and no others."""
        path = f"/security-groups/{group_id}/tags"
        await self._transport.call("PUT", path, body={"tags": list(tags)})

    async def create_rules(self, rules: Sequence[Json]) -> None:
        """Create all of these rules, or none.

        :raises errors.Conflict: One of them exists already.
        """
        body = {"security_group_rules": list(rules)}
        await self._transport.call("POST", "/security-group-rules", body=body)

    async def delete_rule(self, rule_id: str) -> None:
        """Delete a rule; one that is gone counts as deleted."""
        try:
            await self._transport.call("DELETE", f"/security-group-rules/{rule_id}")
        except errors.NotFound:
            return

    async def share(self, group_id: str, project_id: str) -> None:
        """Let another project use the group, as the group's owner may.

        :raises errors.Conflict: The project may use it already.
        """
        body = {
            "object_type": "security_group",
            "object_id": group_id,
            "action": "access_as_shared",
            "target_tenant": project_id,
        }
        await self._transport.call("POST", "/rbac-policies", body={"rbac_policy": body})
