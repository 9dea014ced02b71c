"""Owners who wait for something that another owner does with a load balancer."""

from collections.abc import Callable


class Waiters:
    """For a port to become free, for it to be made anew, or for the last of others to leave."""

    def __init__(self) -> None:
        self._wakes: dict[str, dict[str, Callable[[], None]]] = {}

    def add(self, load_balancer_id: str, owner: str, wake: Callable[[], None]) -> None:
        """Call ``wake`` once, when somebody else has changed it."""
        self._wakes.setdefault(load_balancer_id, {})[owner] = wake

    def forget(self, owner: str) -> None:
        """It waits no more."""
        for load_balancer_id, wakes in list(self._wakes.items()):
            wakes.pop(owner, None)
            if not wakes:
                del self._wakes[load_balancer_id]

    def wake(self, *load_balancer_ids: str, but: str) -> None:
        """It is changed; ``but`` is the owner who did it."""
        for one in load_balancer_ids:
            waiting = self._wakes.pop(one, {})
            own = waiting.pop(but, None)
            if own is not None:
                self._wakes[one] = {but: own}
            for wake in waiting.values():
                wake()
