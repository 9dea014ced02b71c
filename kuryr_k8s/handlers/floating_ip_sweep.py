"""The sweep of floating IPs of ports: of Pods, and of NeutronPorts."""

import abc
import logging
from collections.abc import Callable, Iterable, Sequence

from kuryr_k8s.drivers.base import Owned, ServicePublicIPDriver
from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.owner import Owner, Role

LOG = logging.getLogger(__name__)


class FloatingIPSweep(Sweep[Owned]):
    """Held against the objects of one role, cached and live.

    :param look_again: called for each of those that have a floating IP after a search: others may
        have changed it.
    """

    def __init__(
        self, context: HandlerContext, role: Role, look_again: Callable[[Key], None]
    ) -> None:
        super().__init__(
            f"{role}-floating-ip-sweeper",
            interval=context.conf.neutron_defaults.sweep_interval,
            confirm_after=context.patience.unneeded,
            patience=context.patience,
            clock=context.clock,
            observe=context.observe,
        )
        self._kube = context.kube
        self._role = role
        self._mark = context.neutron.mark
        self._strangers = context.strangers
        self._driver = context.drivers[ServicePublicIPDriver]
        self._look_again = look_again

    @abc.abstractmethod
    def holders(self) -> Iterable[Key]:
        """Return the keys of the objects that have, or may have, a floating IP."""

    @abc.abstractmethod
    async def live_unwanted(self, items: Sequence[Owned]) -> list[Owned]:
        """Return those that no object has by a live list either."""

    async def search(self) -> Sequence[Owned]:
        listed = await self._driver.list_owned()
        ours = [
            each
            for each in listed
            if each.owner.role is self._role
            and not each.elsewhere
            and each.clusters == {self._mark.uid}
        ]
        for key in self.holders():
            self._look_again(key)
        return [] if self._strangers.overlap else self.still_unwanted(ours)

    def identity(self, item: Owned) -> Owner:
        return item.owner

    async def confirm(self, items: Sequence[Owned]) -> list[Owned]:
        return [] if self._strangers.overlap else await self.live_unwanted(items)

    async def remove(self, item: Owned) -> None:
        LOG.warning(
            "floating IP %s belongs to no %s (uid %s, namespace %s); it is released",
            item.id,
            self._role,
            item.owner.uid,
            item.namespace,
        )
        await self._driver.release(item.owner, keep=None)
