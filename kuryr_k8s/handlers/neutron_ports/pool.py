"""The handler of NeutronPortPools: NeutronPorts that are there before Pods want them.

It makes and deletes NeutronPorts, and leaves their ports to the handler of NeutronPorts. The names
follow from the pool and a number: what is made twice has one name, unless others went meanwhile.
"""

import base64
import hashlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.conditions import new_condition
from kuryr_k8s.handlers.neutron_ports.members import Members
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import NEUTRONPORTPOOLS, NEUTRONPORTS, Key
from kuryr_k8s.model.condition import READY, Condition
from kuryr_k8s.model.neutronport import NeutronPort
from kuryr_k8s.model.neutronportpool import NeutronPortPool

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
HANDLER = "neutron_port"  # which gives NeutronPorts their ports
AT_ONCE = 50  # NeutronPorts changed or deleted in one reconcile
GAP = 1.0  # seconds between two writes of a status
REFUSED = (403, 422)  # HTTP statuses of what a quota or the schema refuses
ENDS_OR_FORBIDDEN = (errors.KubeForbidden, errors.KubeNamespaceEnds)  # 403 as well


class NeutronPortPoolHandler(Handler):
    """Keeps so many NeutronPorts Available as each NeutronPortPool says."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._pools = context.informers.of(NEUTRONPORTPOOLS)
        self._ports = context.informers.of(NEUTRONPORTS)
        self._now = context.clock.now
        # by the namespaces and uids of pools: an owner's uid is what a user says
        self._members: dict[tuple[str, str], Members] = {}
        self._told: dict[str, float] = {}  # when a pool's status was written

    def watches(self) -> Sequence[Watch[Any]]:
        return (Watch(self._pools, self._of_pool), Watch(self._ports, self._of_port))

    def _of_pool(
        self, key: Key, old: NeutronPortPool | None, new: NeutronPortPool | None
    ) -> Iterable[Key]:
        if old is not None and (new is None or new.uid != old.uid):
            self._members.pop((key.namespace, old.uid), None)
            self._told.pop(old.uid, None)
        return () if _what_matters(old) == _what_matters(new) else (key,)

    def _of_port(
        self, key: Key, old: NeutronPort | None, new: NeutronPort | None
    ) -> Iterable[Key]:
        """Note what has become of a NeutronPort, and return the pool that it is one of."""
        is_its = new is not None and old is not None and _is_its(old, new)
        if old is not None and old.pool_uid and not is_its:
            members = self._of(key.namespace, old.pool_uid)
            members.forget(old.uid)
            if not members:
                del self._members[key.namespace, old.pool_uid]
        if new is not None and new.pool_uid:
            self._of(key.namespace, new.pool_uid).note(new, self._now())
        pools = dict.fromkeys(each.pool for each in (old, new) if each is not None and each.pool)
        return [Key(key.namespace, name) for name in pools]

    def _of(self, namespace: str, pool_uid: str) -> Members:
        members = self._members.get((namespace, pool_uid))
        if members is None:
            members = self._members[namespace, pool_uid] = Members(self._now())
        return members

    async def start(self) -> None:
        if HANDLER not in self._context.conf.kubernetes.enabled_handlers:
            raise errors.ConfigError(
                f"[kubernetes] enabled_handlers: neutron_port_pool needs the handler {HANDLER}"
            )

    async def reconcile(self, key: Key) -> float | None:
        pool = self._pools.get(key)
        if pool is None or pool.deleting:
            return None  # the garbage collector of Kubernetes deletes what the pool has made
        members = self._of(key.namespace, pool.uid)
        members.follow(pool, self._now())
        refused: errors.Refused | None = None
        for port in members.spare(self._now())[:AT_ONCE]:
            await self._remove(port)
        for port in members.unlike()[:AT_ONCE]:
            try:
                await self._change(pool, port)
            except errors.Refused as error:
                members.refuse(port, error)
                refused = refused or error
        missing = members.missing(self._now())
        if missing:
            try:
                await self._make(pool, members, missing)
            except errors.KubeNamespaceEnds:
                return None
            except errors.Refused as error:
                refused = refused or error
        told = await self._tell(key, pool, members, refused or members.refusal())
        later = [each for each in (told, members.until_old(self._now())) if each is not None]
        if refused is not None:
            if later:
                self.queue.add_after(key, min(later))
            raise refused
        return min(later, default=None)

    async def _make(self, pool: NeutronPortPool, members: Members, count: int) -> None:
        """Make NeutronPorts.

        :raises errors.Wait: the pool is gone, which its watch has not told yet.
        :raises errors.Refused: a quota or the schema does not allow that.
        """
        live = await self._context.kube.find(NEUTRONPORTPOOLS, Key(pool.namespace, pool.name))
        if live is None or live["metadata"]["uid"] != pool.uid or _is_deleting(live):
            raise errors.Wait("the pool is gone", delay=GAP)
        keys = (Key(pool.namespace, name) for name in _names(pool, len(members)))
        free = (key.name for key in keys if self._ports.get(key) is None)
        for name in itertools.islice(free, count):
            try:
                answer = await self._context.kube.create(NEUTRONPORTS, pool.new_port(name))
            except errors.KubeConflict as error:
                raise errors.Wait(f"there is a NeutronPort {name} already", delay=GAP) from error
            except errors.KubeError as error:
                raise _refused(error, f"NeutronPort {name} cannot be made") from error
            self._ports.learn(answer)
        members.made(count, self._now())
        LOG.info("NeutronPortPool %s/%s: %d more", pool.namespace, pool.name, count)

    async def _change(self, pool: NeutronPortPool, port: NeutronPort) -> None:
        """Make a NeutronPort as the template says.

        :raises errors.Wait: it has changed meanwhile.
        :raises errors.Refused: the schema does not allow that.
        """
        patch = pool.changes(port)
        patch["metadata"] |= {"uid": port.uid, "resourceVersion": port.resource_version}
        key = Key(port.namespace, port.name)
        try:
            answer = await self._context.kube.merge_patch(NEUTRONPORTS, key, patch)
        except (errors.KubeConflict, errors.KubeNotFound) as error:
            raise errors.Wait(f"NeutronPort {key} has changed", delay=GAP) from error
        except errors.KubeError as error:
            raise _refused(error, f"NeutronPort {port.name} cannot follow the template") from error
        self._ports.learn(answer)

    async def _remove(self, port: NeutronPort) -> None:
        """Delete a NeutronPort, unless a Pod has got it meanwhile.

        :raises errors.Wait: it has changed.
        """
        key = Key(port.namespace, port.name)
        version = port.resource_version
        try:
            answer = await self._context.kube.delete(
                NEUTRONPORTS, key, uid=port.uid, resource_version=version
            )
        except errors.KubeConflict as error:
            raise errors.Wait(f"NeutronPort {key} has changed", delay=GAP) from error
        self._ports.learn(answer)

    async def _tell(
        self,
        key: Key,
        pool: NeutronPortPool,
        members: Members,
        refusal: errors.Refused | None = None,
    ) -> float | None:
        """Write the status, if it says something else than before.

        :param refusal: why no more NeutronPorts can be made.
        :returns: the seconds until it can be written; None: it was, or need not be.
        """
        counts, ready = members.counts(), _condition(pool, members, refusal)
        observed = pool.generation if members.are_alike else pool.observed
        is_same = not ready.says_more_than(pool.ready)
        if is_same and pool.counts == counts and pool.observed == observed:
            return None
        left = self._told.get(pool.uid, -GAP) + GAP - self._now()
        if left > 0:
            return left
        self._told[pool.uid] = self._now()
        status = {
            **counts,
            "observedGeneration": observed,
            "conditions": [ready.follows(pool.ready).to_json(READY)],
        }
        kube = self._context.kube
        self._pools.learn(await kube.patch_status_of(NEUTRONPORTPOOLS, key, pool, status))
        return None

    def about(self, key: Key) -> Reference | None:
        pool = self._pools.get(key)
        if pool is None:
            return None
        return Reference.of(NEUTRONPORTPOOLS, pool)


def _condition(
    pool: NeutronPortPool, members: Members, refusal: errors.Refused | None
) -> Condition:
    """Return whether all NeutronPorts of a pool are as they are to be."""
    reason, message, problem = "PortsReady", "", members.problem()
    if refusal is not None:
        reason, message = refusal.reason, str(refusal)
    elif problem is not None:
        port, condition = problem
        reason, message = condition.reason, f"NeutronPort {port.name}: {condition.message}"
    return new_condition(pool.generation, reason, message)


def _is_deleting(live: Json) -> bool:
    return "deletionTimestamp" in live["metadata"]


def _is_its(old: NeutronPort, new: NeutronPort) -> bool:
    """Return whether a NeutronPort is still that one, and of that pool."""
    return (old.uid, old.pool_uid) == (new.uid, new.pool_uid)


def _refused(error: errors.KubeError, what: str) -> errors.KuryrError:
    """Return the refusal that an error is if a quota or the schema is behind it, else the error.

    :param what: what is refused.
    """
    if error.status not in REFUSED or isinstance(error, ENDS_OR_FORBIDDEN):
        return error
    return errors.Refused(f"{what}: {error}")


def _names(pool: NeutronPortPool, first: int) -> Iterator[str]:
    """Yield names for NeutronPorts of a pool, always the same ones.

    :param first: the number to begin with, which is that of those there are: lower ones are
        mostly taken.
    """
    for number in itertools.count(first):
        digest = hashlib.sha256(f"{pool.uid}/{number}".encode()).digest()
        yield f"{pool.name}-{base64.b32encode(digest)[:8].decode().lower()}"


def _what_matters(pool: NeutronPortPool | None) -> object:
    if pool is None:
        return None
    return (pool.uid, pool.generation, pool.deleting, pool.counts, pool.observed, pool.ready)
