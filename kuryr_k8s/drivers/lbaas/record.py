"""State of one owner: what it has in Octavia, and how much is known of that."""

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia.found import Parts
from kuryr_k8s.drivers.lbaas.repairs import Repairs
from kuryr_k8s.drivers.lbaas.steps import Change
from kuryr_k8s.model.load_balancer import FoundLoadBalancer
from kuryr_k8s.model.owner import Owner


class Look(NamedTuple):
    """Result of a look at a load balancer.

    :param own: the load balancer with the owner's parts.
    :param others: with the parts of others; None if they are not known.
    :param fresh: Octavia was asked just now.
    """

    own: FoundLoadBalancer
    others: FoundLoadBalancer | None
    fresh: bool


@dataclass(frozen=True, slots=True)
class Unread:
    """Phase: nothing is known of the contents, or it is no longer true."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Phase: the lists of the start have told of the contents."""

    parts: Parts


@dataclass(frozen=True, slots=True)
class Created:
    """Phase: the creation was answered; the answer is true once everything is ACTIVE."""

    answer: FoundLoadBalancer


@dataclass(frozen=True, slots=True)
class Stepped:
    """Phase: a step was taken; all else is as before, once everything is ACTIVE.

    :param before: what the look before it has returned, with nothing PENDING.
    :param made: the id of what it has created; empty if it has created nothing.
    """

    before: Look
    step: Change
    made: str


@dataclass(frozen=True, slots=True)
class Known:
    """Phase: nothing has changed since the last look, which showed nothing but what is ACTIVE.

    The owner's parts match the desired state, or what is left to do was refused.

    :param others: parts of other owners, when they were last read; None if they were not.
    """

    own: FoundLoadBalancer
    others: FoundLoadBalancer | None


Phase = Unread | Listed | Created | Stepped | Known


class Deletion(enum.Enum):
    """Progress of the deletion of a load balancer."""

    BEGUN = enum.auto()
    DONE = enum.auto()


@dataclass(slots=True, eq=False)
class View:
    """View that one owner has of one load balancer: its own, or one in which it has parts.

    :param former: ids that the load balancer had before it was made anew, as far as known.
    :param foreign: it does not have the tags of the cluster.
    :param used: another owner's load balancer in which this owner may have parts.
    :param changed: a change was asked for since the parts last matched the desired state.
    :param last: the last step; whether Octavia carried it out has not been seen yet.
    :param untaken: steps that Octavia accepted and did not do, and when they may be tried again.
    :param failed: steps that Octavia has answered with an error when they were last taken, when
        they may be taken again, and the error.
    :param immutable: how often in a row Octavia refused a change of what did not look PENDING.
    :param pending_since: since when Octavia has been waited for.
    :param parts_pending_since: since when parts are PENDING and the load balancer itself is not.
    :param duplicates: ids of further load balancers of the owner, which have to go.
    :param deletions: progress by id, of the load balancer and its duplicates.
    :param digest: of everything that the last lists showed of it.
    :param polite_since: since when others that wait for the load balancer are let go first.
    :param newest_pool: id of the pool that was created last; empty if not known.
    :param had_turn: ids of the pools whose members were set since another step was taken.
    :param seen: the load balancer with the owner's parts, as it was when last read.
    """

    record: "Record"
    id: str
    phase: Phase = field(default_factory=Unread)
    former: frozenset[str] = frozenset()
    foreign: bool = False
    used: bool = False
    changed: bool = False
    last: Change | None = None
    untaken: dict[Change, float] = field(default_factory=dict)
    failed: dict[Change, tuple[float, errors.CloudError]] = field(default_factory=dict)
    immutable: int = 0
    pending_since: float | None = None
    parts_pending_since: float | None = None
    duplicates: frozenset[str] = frozenset()
    deletions: dict[str, Deletion] = field(default_factory=dict)
    digest: bytes | None = None
    polite_since: float | None = None
    newest_pool: str = ""
    had_turn: set[str] = field(default_factory=set)
    seen: FoundLoadBalancer | None = None

    @property
    def owner(self) -> Owner:
        """The owner whose view it is."""
        return self.record.owner

    def doubt(self) -> None:
        """Have the contents read again before they are relied on."""
        if isinstance(self.phase, Known | Listed):
            self.phase = Unread()

    def begin(self) -> None:
        """Note that a change is being asked for: nothing known of the contents stays true."""
        self.phase = Unread()
        self.pending_since = self.parts_pending_since = None

    def settle(self, own: FoundLoadBalancer, others: FoundLoadBalancer | None) -> None:
        """Note that the owner's parts match the desired state."""
        self.begin()
        self.phase = Known(own, others)
        self.last, self.changed = None, False
        self.untaken.clear()
        self.failed.clear()


@dataclass(slots=True, eq=False)
class Record:
    """The state of one owner.

    :param namespace: of its Service, by the tags of its load balancer.
    :param own: its load balancer; None if it has none, or if that is in doubt.
    :param former: ids of load balancers that it had and that are gone, or said to be.
    :param named: id of the load balancer of another owner in which it is to have parts.
    :param places: load balancers of others in which it has parts or is to have some, by id.
    """

    owner: Owner
    namespace: str = ""
    own: View | None = None
    former: frozenset[str] = frozenset()
    named: str | None = None
    places: dict[str, View] = field(default_factory=dict)
    repairs: Repairs | None = None

    @property
    def ids(self) -> frozenset[str]:
        """Return the ids of all load balancers that the owner has and has had, as far as known."""
        if self.own is None:
            return self.former
        return self.former | self.own.former | self.own.duplicates | {self.own.id}

    def is_empty(self) -> bool:
        """Return whether there is nothing to remember of the owner."""
        return not (self.own or self.former or self.named or self.places or self.repairs)
