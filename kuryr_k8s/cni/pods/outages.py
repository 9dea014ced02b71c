"""Interfaces of running Pods without traffic, and what users hear of them.

A few outages are Events of the Pods; many at once are one Event of the Node. An outage that is
over before anybody would have noticed is told only if something was made again. An interface that
comes and goes makes an Event of its loss now and then only; the log has each.
"""

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Collection, Sequence

from kuryr_k8s.cni.bindings.base import Attachment
from kuryr_k8s.cni.patience import USUAL, Patience
from kuryr_k8s.k8s.events import EventRecorder, Reference
from kuryr_k8s.k8s.resources import NODES, PODS, Key

LOG = logging.getLogger(__name__)
QUIET = 300.0  # seconds between two outages of an interface that are Events
FEW = 5  # Pods that get Events of their own
MOST = 100  # Events that wait for the API server; beyond it the oldest are forgotten
LOST, BACK = "KuryrInterfaceLost", "KuryrInterfaceRestored"


@dataclasses.dataclass(slots=True)
class Outage:
    """An interface without traffic.

    :param made_again: something of it was missing, and has to be made again.
    :param lasting: it has lasted for so long that users are to know it.
    :param told: an Event tells it.
    """

    attachment: Attachment
    what: str
    since: float
    made_again: bool = False
    lasting: bool = False
    told: bool = False


class Outages:
    """The outages of the node, and the Events about them."""

    def __init__(self, node: Key, events: EventRecorder, patience: Patience = USUAL) -> None:
        self._node = node
        self._events = events
        self._grace = patience.outage
        self._going: dict[Attachment, Outage] = {}
        self._over: list[tuple[Outage, float]] = []
        self._told_at: dict[Attachment, float] = {}  # when an outage was last told
        self._unsent: deque[tuple[Reference, str, str]] = deque(maxlen=MOST)
        self._added = asyncio.Event()

    def __len__(self) -> int:
        return len(self._going)

    def begin(
        self, attachment: Attachment, what: str, now: float, *, made_again: bool = False
    ) -> None:
        """Note that an interface has lost its traffic, unless that is known."""
        outage = self._going.setdefault(attachment, Outage(attachment, what, now))
        outage.made_again = outage.made_again or made_again

    def end(self, attachment: Attachment, now: float) -> bool:
        """Note that an interface has its traffic back.

        :returns: whether it had lost it.
        """
        outage = self._going.pop(attachment, None)
        if outage is not None and (outage.lasting or outage.made_again):
            self._over.append((outage, now))
        return outage is not None

    def keep(self, attachments: Collection[Attachment]) -> None:
        """Forget the outages of all others: their Pods have left."""
        for attachment in self._going.keys() - attachments:
            del self._going[attachment]
        for attachment in self._told_at.keys() - attachments:
            del self._told_at[attachment]

    def lasting(self, now: float) -> Sequence[Attachment]:
        """Return what has just had no traffic for so long that users are to know it."""
        return [outage.attachment for outage in self._lasting(now)]

    def _lasting(self, now: float) -> list[Outage]:
        return [o for o in self._going.values() if not o.lasting and now - o.since >= self._grace]

    async def run(self) -> None:
        """Send the Events until cancelled: whoever heals does not wait for the API server."""
        while True:
            await self._added.wait()
            self._added.clear()
            while self._unsent:
                about, reason, note = self._unsent.popleft()
                await self._events.note(about, reason, note, warning=reason == LOST)

    def tell(self, now: float) -> None:
        """Report the outages that last, and those that are over."""
        lasting, over, self._over = self._lasting(now), self._over, []
        for outage in lasting:
            outage.lasting = True
        self._tell(now, LOST, [(o, f"{o.attachment.ifname}: {o.what}") for o in lasting])
        self._tell(
            now,
            BACK,
            [
                (o, f"{o.attachment.ifname} works again after {end - o.since:.1f} s: {o.what}")
                for o, end in over
            ],
        )

    def _is_due(self, outage: Outage, now: float) -> bool:
        """Return whether an outage is to be an Event; note that it is one."""
        attachment = outage.attachment
        if not outage.told and now - self._told_at.get(attachment, float("-inf")) >= QUIET:
            outage.told = True
            self._told_at[attachment] = now
        return outage.told

    def _tell(self, now: float, reason: str, happened: list[tuple[Outage, str]]) -> None:
        level = logging.WARNING if reason == LOST else logging.INFO
        for outage, note in happened:
            LOG.log(level, "%s %s: %s", reason, outage.attachment, note)
        outages = [(outage, note) for outage, note in happened if self._is_due(outage, now)]
        if not outages:
            return
        if len(outages) > FEW:
            names = ", ".join(f"{o.attachment.namespace}/{o.attachment.pod}" for o, _ in outages)
            about = Reference(
                resource=NODES, namespace="", name=self._node.name, uid=self._node.name
            )
            what = sorted({o.what for o, _ in outages})
            note = f"{len(outages)} interfaces of Pods: {'; '.join(what)} ({names})"
            self._add(about, reason, note)
            return
        for outage, note in outages:
            pod = outage.attachment
            about = Reference(
                resource=PODS, namespace=pod.namespace, name=pod.pod, uid=pod.pod_uid
            )
            self._add(about, reason, note)

    def _add(self, about: Reference, reason: str, note: str) -> None:
        self._unsent.append((about, reason, note))
        self._added.set()
