"""Checks of what a project may use, and of what users of a namespace may name.

A project may use its own objects, and those shared with it by Neutron's RBAC. The controller's
account sees more than any one project does. Neutron's own check would therefore pass where the
project's would not. Of what the project may use, users can name what ``[policy]`` grants to their
namespace, and beyond it what is granted by its id. Whatever is not granted here is refused.
"""

import asyncio
from collections.abc import Awaitable, Callable

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Network, Neutron


def projects(conf: cfg.ConfigOpts) -> frozenset[str]:
    """Return the ids of all projects that Pods and Services can belong to."""
    named = (pair.partition(":")[2] for pair in conf.policy.projects)
    return frozenset((conf.neutron_defaults.project, *named))


class NotGranted(errors.Refused):
    """The operator has not granted to a namespace what one of its users names."""

    reason = "KuryrNotGranted"


def check_named(conf: cfg.ConfigOpts, option: str, namespace: str, named: str) -> bool:
    """Check that users of a namespace may name an object.

    :param option: The option of ``[policy]`` for objects of its kind.
    :returns: Whether it is granted by its id. If not, it must be what its project may use.
    :raises NotGranted: Neither it nor ``*`` is granted.
    """
    pairs = conf.policy[option]
    if named != "*" and (f"{namespace}:{named}" in pairs or f"*:{named}" in pairs):
        return True
    if f"{namespace}:*" in pairs or "*:*" in pairs:
        return False
    raise NotGranted(
        f"{named} is not granted to namespace {namespace} ([policy] {option} in kuryr.conf)"
    )


class Grants:
    """Projects that have passed a check.

    Callers that ask for a project while it is being checked share the outcome, and do not delay
    those that ask for another project.

    :param check: Raises for a project to which nothing is granted.
    """

    def __init__(self, check: Callable[[str], Awaitable[None]]) -> None:
        self._check = check
        self._passed: set[str] = set()
        self._checking: dict[str, asyncio.Future[Exception | None]] = {}

    async def require(self, project_id: str) -> None:
        """Check the project, unless it has passed before.

        :raises Exception: Whatever the check raises.
        """
        while project_id not in self._passed:
            checking = self._checking.get(project_id)
            if checking is None:
                await self._ask(project_id)
            elif (refusal := await asyncio.shield(checking)) is not None:
                raise refusal

    async def _ask(self, project_id: str) -> None:
        outcome: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._checking[project_id] = outcome
        try:
            await self._check(project_id)
            self._passed.add(project_id)
        except Exception as error:
            outcome.set_result(error)
            raise
        finally:
            del self._checking[project_id]
            if not outcome.done():
                outcome.set_result(None)  # passed; or cancelled, and another caller asks

    def forget(self) -> None:
        """Check every project again from now on."""
        self._passed.clear()


async def may_use_network(neutron: Neutron, network: Network, project_id: str) -> bool:
    """Return whether the network belongs to the project, or is shared with it."""
    if network.project_id == project_id:
        return True
    # «shared» is about our own project only
    if network.shared and project_id == await neutron.own_project():
        return True
    return bool({project_id, "*"} & await neutron.shares("network", network.id))


async def check_network(neutron: Neutron, network: Network, project_id: str) -> None:
    """Check that a project may use a network.

    :raises errors.Refused: The network neither belongs to the project nor is shared with it.
    """
    if not await may_use_network(neutron, network, project_id):
        raise errors.Refused(
            f"network {network.id} ({network.name}) neither belongs to project {project_id} nor "
            "is shared with it (Neutron rbac-policy access_as_shared)"
        )


async def check_security_group(neutron: Neutron, group_id: str, project_id: str) -> None:
    """Check that a project may use a security group.

    :raises errors.Refused: The group neither belongs to the project nor is shared with it.
    """
    await check_shared(neutron, "security_group", group_id, project_id)


async def check_shared(neutron: Neutron, kind: str, object_id: str, project_id: str) -> None:
    """Check that a project may use an object of a kind that Neutron's RBAC can share.

    :param kind: ``security_group`` or ``qos_policy``.
    :raises errors.Refused: The object neither belongs to the project nor is shared with it.
    """
    words = words_for(kind)
    try:
        found = await neutron.get_shared(kind, object_id)
    except errors.NotFound as error:
        raise errors.Refused(f"there is no {words} {object_id}") from error
    if found["project_id"] == project_id:
        return
    if not {project_id, "*"} & await neutron.shares(kind, object_id):
        raise errors.Refused(
            f"{words} {object_id} ({found['name']}) neither belongs to project {project_id} "
            "nor is shared with it (Neutron rbac-policy access_as_shared)"
        )


def words_for(kind: str) -> str:
    """Return what users call objects of a kind."""
    return "QoS policy" if kind == "qos_policy" else kind.replace("_", " ")
