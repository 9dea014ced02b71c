"""Security groups and QoS policies that users name: each is checked once a minute at most."""

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import granted
from kuryr_k8s.drivers.named.context import Context

MOST_KNOWN = 10_000


class SharedObjects:
    """Which projects may use which objects: their own, and those shared with them."""

    def __init__(self, context: Context) -> None:
        self._neutron = context.neutron
        self._clock = context.clock
        self._longest = context.patience.pod_network
        self._known: dict[tuple[str, str, str], float] = {}  # until when a check counts

    async def require(self, kind: str, object_id: str, project_id: str) -> None:
        """Check that a project may use an object.

        :param kind: ``security_group`` or ``qos_policy``.
        :raises errors.Refused: it may not. The words are the same if there is no such object.
        """
        now, asked = self._clock.now(), (kind, object_id, project_id)
        if now < self._known.get(asked, 0.0):
            return
        try:
            await granted.check_shared(self._neutron, kind, object_id, project_id)
        except errors.Refused as error:
            words = granted.words_for(kind)
            raise errors.Refused(
                f"there is no {words} {object_id} that project {project_id} may use"
            ) from error
        if len(self._known) > MOST_KNOWN:
            self._known = {known: until for known, until in self._known.items() if now < until}
        self._known[asked] = now + self._longest
