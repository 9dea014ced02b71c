"""How often what Octavia put in ERROR is made anew: a few times, with growing delays. Pure."""

from kuryr_k8s import errors

FIRST = 5.0  # seconds before the first time: an Event tells what is to be seen in Octavia
LONGEST = 300.0


class LoadBalancerFailed(errors.Refused):
    """Octavia put the load balancer, or a part of it, in ERROR."""

    reason = "KuryrLoadBalancerError"


class Repairs:
    """One trouble: from the first sight of ERROR until the load balancer is as it is to be.

    :param limit: how often it is made anew.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._made = 0
        self._due: float | None = None  # when the next may begin
        self._open = False  # one has begun: all that it needs may be done

    def begin(self, load_balancer_id: str, now: float) -> None:
        """ERROR is seen, and something is to be done about it.

        :raises LoadBalancerFailed: not now, or not any more.
        """
        if self._open:
            return
        what = f"load balancer {load_balancer_id}, or a part of it, is in ERROR"
        if self._made >= self._limit:
            raise LoadBalancerFailed(
                f"{what}; it has been made anew {self._made} times, and is left to people now"
            )
        if self._due is None:
            self._due = now + min(FIRST * 2.0**self._made, LONGEST)
        if now < self._due:
            raise LoadBalancerFailed(f"{what} and will be made anew")
        self._open, self._due = True, None
        self._made += 1

    def seen_without_error(self) -> None:
        """What was in ERROR is away; ERROR again is another time."""
        self._open, self._due = False, None
