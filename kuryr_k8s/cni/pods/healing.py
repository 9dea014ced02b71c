"""The loop that gives running Pods back what they have lost of their interfaces."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import Counter
from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings.base import Attachment, Binding, Bindings, Claim, Lost
from kuryr_k8s.cni.netlink.link_events import LinkEvents
from kuryr_k8s.cni.parts import Job, Loop, Part
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.cni.pods.kuryrports import KuryrPorts
from kuryr_k8s.cni.pods.outages import Outages
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.metrics import gauge
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.kuryrport import KuryrPort
from kuryr_k8s.model.vif import VIFBase

LOG = logging.getLogger(__name__)
PACE = 0.2  # seconds at least between two looks: an ADD changes several things
RETRY = 1.0  # seconds until the next look at what is not whole
SEARCH = 60.0  # seconds between two looks at everything
BATCH = 50  # attachments that are made again at once; requests for them wait

Found = Mapping[Binding, Sequence[Lost]]


class Healing(Part):
    """Reconciles one key, the Node's: all its attachments.

    It looks at a Pod when something of it may have been lost, and at all at the start, after a
    gap and now and then.
    """

    def __init__(
        self,
        node: Key,
        bindings: Bindings,
        attachments: Attachments,
        kuryrports: KuryrPorts,
        events: LinkEvents,
        outages: Outages,
    ) -> None:
        self._bindings = bindings
        self._attachments = attachments
        self._kuryrports = kuryrports
        self._events = events
        self._outages = outages
        self._controller = Controller("healing", self.reconcile, workers=1)
        self._node = node
        self._looked_at = self._searched_at = float("-inf")
        self._sizes: dict[Key, tuple[bytes, int]] = {}  # how many interfaces KuryrPorts name
        self._states: dict[Attachment, bool] | None = None  # None: never looked
        self._complaints: dict[Binding | Attachment, str] = {}
        self._lacking: set[str] = set()  # the Pods that the last look found without interfaces
        self._restored = Counter(
            "kuryr_cni_restored_interfaces",
            "Interfaces made again for running Pods",
            registry=None,
        )
        for binding in bindings:
            binding.watch(self._look)
        events.subscribe(self._heard)

    def loops(self) -> Sequence[Loop]:
        """Return the loop that heals, and those that hear of interfaces and tell of outages."""
        return [
            Job("healing start", self._start),
            self._controller,
            Job("link events", self._events.run),
            Job("outages", self._outages.run),
        ]

    def collectors(self) -> Sequence[Collector]:
        """Return the metrics of interfaces that were lost."""
        about = "Interfaces without traffic"
        lost = gauge("kuryr_cni_lost_interfaces", about, lambda: len(self._outages))
        return [self._restored, lost]

    async def _start(self) -> None:
        await self._attachments.settled.wait()
        self._look()
        await asyncio.Event().wait()

    def _look(self) -> None:
        self._controller.queue.add(self._node)

    def _heard(self, name: str, _number: int | None) -> None:
        if not name:  # the kernel's reports were too many
            self._searched_at = float("-inf")
            self._look()

    async def reconcile(self, _key: Key) -> float:
        """Make again what is lost, set up what was made again, and tell who is without traffic.

        :returns: seconds until the next look.
        :raises errors.Wait: it is not known what is attached.
        """
        if not self._attachments.settled.is_set() or self._attachments.trouble():
            self._searched_at = float("-inf")  # much may have happened
            raise errors.Wait("it is not known what is attached", delay=0.5)
        now = asyncio.get_running_loop().time()
        if now - self._looked_at < PACE:
            return PACE - (now - self._looked_at)
        self._looked_at = now
        everything = now - self._searched_at >= SEARCH
        if everything:
            self._searched_at = now
        try:
            lost = await self._find(everything)
        except errors.KuryrError:
            self._searched_at = float("-inf")  # bindings name their suspects once
            raise
        await self._restore(lost)
        unfinished = await self._finish()
        self._compare(lost)
        self._outages.tell(now)
        return RETRY if lost or unfinished or len(self._outages) else SEARCH

    async def _find(self, everything: bool) -> Found:
        claims = self._attachments.claims(list(self._suspected(everything)))
        found = {}
        for binding, wanted in claims.items():
            idle = [
                claim for claim in wanted if not self._attachments.adds.plugging(claim.pod_uid)
            ]
            if lost := await binding.lost(idle):
                found[binding] = lost
        self._lacking = {item.attachment.pod_uid for lost in found.values() for item in lost}
        return found

    def _suspected(self, everything: bool) -> Iterator[KuryrPort]:
        suspects = {uid for binding in self._bindings for uid in binding.suspects()}
        suspects |= self._lacking  # what could not be made again is tried again
        attached: dict[str, int] = {}
        for _, attachment in self._attachments.all():
            attached[attachment.pod_uid] = attached.get(attachment.pod_uid, 0) + 1
        sizes = {}
        for port in self._kuryrports.all():
            key = Key(port.namespace, port.name)
            known = self._sizes.get(key)
            if known is None or known[0] != port.vifs_granted:
                known = port.vifs_granted, len(port.vifs_json())
            sizes[key] = known
            whole = attached.get(port.pod_uid) == known[1] and port.pod_uid not in suspects
            if everything or not whole:
                yield port
        self._sizes = sizes

    async def _restore(self, found: Found) -> None:
        for binding, lost in found.items():
            for start in range(0, len(lost), BATCH):
                batch = {item.attachment: item for item in lost[start : start + BATCH]}
                async with self._attachments.idle(batch) as free:
                    chosen = [item for attachment, item in batch.items() if attachment in free]
                    for item in chosen:
                        self._outages.begin(
                            item.attachment, item.what, self._looked_at, made_again=True
                        )
                    try:
                        await binding.restore(chosen)
                    except errors.KuryrError as error:
                        self._complain(binding, f"interfaces cannot be made again yet: {error}")
                    else:
                        self._complaints.pop(binding, None)
                        self._restored.inc(len(chosen))
                        for item in chosen:
                            LOG.warning("%s: %s, and was made again", item.attachment, item.what)

    async def _finish(self) -> bool:
        """Set up what was made again.

        :returns: whether something is left to do.
        """
        failed = False
        for binding in self._bindings:
            wanted = set(binding.restored())
            if not wanted:
                continue
            vifs = self._vifs(binding, wanted)
            async with (
                self._attachments.idle(wanted & vifs.keys()) as free,
                asyncio.TaskGroup() as group,
            ):
                tasks = [
                    group.create_task(self._set_up(binding, attachment, vifs[attachment].vif))
                    for attachment in free
                ]
            failed = failed or len(free) < len(wanted) or not all(t.result() for t in tasks)
        return failed

    async def _set_up(self, binding: Binding, attachment: Attachment, vif: VIFBase) -> bool:
        try:
            await binding.finish(attachment, vif)
        except errors.KuryrError as error:
            text = f"{attachment} was made again, and cannot be set up yet: {error}"
            self._complain(attachment, text)
            return False
        self._complaints.pop(attachment, None)
        return True

    def _complain(self, about: Binding | Attachment, text: str) -> None:
        """Log what fails; it is tried every second, and logged again if it becomes different."""
        level = logging.DEBUG if self._complaints.get(about) == text else logging.WARNING
        self._complaints[about] = text
        LOG.log(level, text)

    def _vifs(self, binding: Binding, wanted: set[Attachment]) -> dict[Attachment, Claim]:
        found: dict[Attachment, Claim] = {}
        uids = {attachment.pod_uid for attachment in wanted}
        ports = [port for port in self._kuryrports.all() if port.pod_uid in uids]
        for claim in self._attachments.claims(ports).get(binding, ()):
            for attachment in wanted:
                if claim.is_of(attachment):
                    found[attachment] = claim
        return found

    def _compare(self, found: Found) -> None:
        """Note whose traffic has ended or begun, and have the KuryrPorts' ``active`` follow."""
        now: dict[Attachment, bool] = {}
        before = self._states
        for binding in self._bindings:
            states = binding.states()
            now.update(states)
            for attachment, works in states.items():
                if before is None:  # of an earlier boot there may be records without interfaces
                    worked = works or not binding.vanished(attachment)
                else:
                    worked = before.get(attachment, works)
                self._follow(attachment, worked=worked, works=works)
        self._states = now
        self._complaints = {
            about: text
            for about, text in self._complaints.items()
            if about in now or not isinstance(about, Attachment)
        }
        missing = {item.attachment for lost in found.values() for item in lost} - now.keys()
        self._outages.keep(now.keys() | missing)
        for attachment in self._outages.lasting(self._looked_at):
            self._attachments.notify(Key(attachment.namespace, attachment.pod))

    def _follow(self, attachment: Attachment, *, worked: bool, works: bool) -> None:
        if works:
            # a lost interface had no state: «active» may have followed that
            if self._outages.end(attachment, self._looked_at) or not worked:
                self._attachments.notify(Key(attachment.namespace, attachment.pod))
        elif worked and not self._attachments.adds.plugging(attachment.pod_uid):
            what = "OVN does not forward its traffic any more"
            self._outages.begin(attachment, what, self._looked_at)
