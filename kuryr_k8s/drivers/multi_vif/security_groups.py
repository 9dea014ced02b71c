"""Security groups that users name: each is checked for a project once a minute at most."""

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import DriverContext, granted

MOST_KNOWN = 10_000


class NamedSecurityGroups:
    """Which projects may use which security groups."""

    def __init__(self, context: DriverContext) -> None:
        self._neutron = context.neutron
        self._clock = context.clock
        self._longest = context.patience.pod_network
        self._known: dict[tuple[str, str], float] = {}  # until when a check counts

    async def require(self, group_id: str, project_id: str) -> None:
        """Check that a project may use a group.

        :raises errors.Refused: it may not. The words are the same if there is no such group.
        """
        now = self._clock.now()
        if now < self._known.get((group_id, project_id), 0.0):
            return
        try:
            await granted.check_security_group(self._neutron, group_id, project_id)
        except errors.Refused as error:
            raise errors.Refused(
                f"there is no security group {group_id} that project {project_id} may use"
            ) from error
        if len(self._known) > MOST_KNOWN:
            self._known = {asked: until for asked, until in self._known.items() if now < until}
        self._known[group_id, project_id] = now + self._longest
