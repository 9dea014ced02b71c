"""The wait for credentials by which the API server lets the daemon write about its node."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kuryr_k8s import errors
from kuryr_k8s.cni.parts import Part
from kuryr_k8s.k8s.resources import NODES, Key, Resource
from kuryr_k8s.patience import PATIENCE, Patience
from kuryr_k8s.process import Waiting, reach

LOG = logging.getLogger(__name__)
PERMISSION = "permission to write"
REFUSALS = (401, 403, 422)  # of the credentials, by the roles, by the policy


class Api(Protocol):
    """The part of the API's client that this module needs."""

    async def merge_patch(
        self,
        resource: Resource[Any],
        key: Key,
        patch: dict[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Patch an object and return it."""


class WritePermission(Part):
    """Asks the API server, before the node is announced, whether it takes the daemon's writes.

    Its policy refuses the writes of credentials that name no node, or another one
    (etc/rbac/daemon-policy.yaml). Nobody would ever hear then which Pods have left the node. An
    API server that is away, or whose webhooks are, has refused nothing.

    :param waiting: shows the wait to users.
    """

    def __init__(
        self, api: Api, node: Key, waiting: Waiting, patience: Patience = PATIENCE
    ) -> None:
        self._api = api
        self._node = node
        self._waiting = waiting
        self._patience = patience
        self._accepted = asyncio.Event()

    def checks(self) -> Mapping[str, Callable[[], bool]]:
        """Return the check whether the credentials were accepted at the start."""
        return {"credentials accepted": self._accepted.is_set}

    async def started(self) -> None:
        """Wait while the API server refuses a write that changes nothing."""
        await reach(PERMISSION, self._ask, self._waiting, self._patience)
        self._accepted.set()

    def awaited(self) -> str:
        """Describe for users what :meth:`started` waits for."""
        return PERMISSION

    async def _ask(self) -> None:
        try:
            await self._api.merge_patch(NODES, self._node, {}, dry_run=True)
        except errors.KubeError as error:  # 404: its kubelet has not registered the node yet
            if isinstance(error, errors.NoCredentials) or error.status in REFUSALS:
                raise
            LOG.info("permission to write was not refused: %s", error)
