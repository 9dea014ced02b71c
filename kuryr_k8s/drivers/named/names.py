"""Objects of Neutron that users name by an id, or by a name that one object of theirs has."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import granted
from kuryr_k8s.drivers.named.context import Context
from kuryr_k8s.model.annotation_values import LONGEST_NAME, identifier

MOST_KNOWN = 10_000


@dataclass(slots=True)
class _Known:
    """Hold the id that a name stands for, or the refusal of the name, for a limited time.

    :param lock: held while it is looked up: those that ask meanwhile share the answer.
    """

    object_id: str = ""
    refusal: errors.Refused | None = None
    until: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Names:
    """The ids of what users name; each name is looked up once a minute at most."""

    def __init__(self, context: Context) -> None:
        self._neutron = context.neutron
        self._clock = context.clock
        self._longest = context.patience.pod_network
        self._known: defaultdict[tuple[str, str, str], _Known] = defaultdict(_Known)

    async def id_of(self, kind: str, project_id: str, named: str) -> str:
        """Return the id of an object.

        A name counts among the project's own objects alone: anybody may share one of any name.

        :param kind: ``network``, ``subnet``, ``security_group`` or ``qos_policy``.
        :param named: the object's id, which is returned as it is, or its name.
        :raises errors.Refused: no object has that name, or several have it.
        """
        try:
            return identifier(named)
        except ValueError:
            pass
        if len(named) > LONGEST_NAME:
            raise errors.Refused(
                f"no {granted.words_for(kind)} has a name of {len(named)} characters"
            )
        self._forget()
        known = self._known[kind, project_id, named]
        async with known.lock:
            if self._clock.now() >= known.until:
                found = await self._neutron.list_named(kind, project_id, named)
                known.object_id, known.refusal = "", None
                if len(found) == 1:
                    (known.object_id,) = found
                else:
                    known.refusal = _refusal(kind, project_id, named, len(found))
                known.until = self._clock.now() + self._longest
            if known.refusal is not None:
                raise errors.Refused(str(known.refusal))
            return known.object_id

    def _forget(self) -> None:
        """Forget what does not count any more, if there is much of it."""
        if len(self._known) > MOST_KNOWN:
            now = self._clock.now()
            for old, known in list(self._known.items()):
                if now >= known.until and not known.lock.locked():
                    del self._known[old]


def _refusal(kind: str, project_id: str, name: str, number: int) -> errors.Refused:
    words = granted.words_for(kind)
    if not number:
        return errors.Refused(f"project {project_id} has no {words} of the name {name}")
    several = "QoS policies" if kind == "qos_policy" else f"{words}s"
    return errors.Refused(
        f"project {project_id} has {number} {several} of the name {name}: write the id"
    )
