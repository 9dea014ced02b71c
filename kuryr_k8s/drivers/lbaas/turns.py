"""Turns of load balancers that are to be made anew.

Whatever makes all load balancers of a cluster be replaced, only some are at the same time; clients
of the others are served meanwhile.
"""

from kuryr_k8s import errors
from kuryr_k8s.engine.clock import Clock
from kuryr_k8s.model.owner import Owner

TOGETHER = 4  # load balancers
LATER = 2.0  # seconds between two attempts of the others


class Turns:
    """Lets only some load balancers be made anew at the same time.

    :param longest: seconds after which a turn is over, whatever became of the load balancer.
    """

    def __init__(self, clock: Clock, longest: float) -> None:
        self._clock = clock
        self._longest = longest
        self._since: dict[Owner, float] = {}

    def take(self, owner: Owner) -> None:
        """Begin the owner's turn, unless it has begun.

        :raises errors.Wait: others have to end first.
        """
        now = self._clock.now()
        for other, since in list(self._since.items()):
            if now - since > self._longest:
                del self._since[other]
        if owner not in self._since:
            if len(self._since) >= TOGETHER:
                raise errors.Wait("other load balancers are made anew first", delay=LATER)
            self._since[owner] = now

    def end(self, owner: Owner) -> None:
        """End the owner's turn, if it has one."""
        self._since.pop(owner, None)
