"""Caches of one kind each: local copies that lag, but never lose a change.

Three loops have one duty each: :meth:`Informer.run` reconnects, ``_follow`` turns a stream into a
cache, and :meth:`KubeApi.watch` reads the stream. Objects are cut down to the few fields we read
as they arrive, so that the whole list is never in memory.

A watch that was cut or refused goes on where it was: lists for all clients at once are the last
thing that an overloaded server needs. The kind is listed again if the server does not know the
version any more (410), if it was set back, or if it did not answer for a while: then it may have
been set back, and nothing tells once it is past that version again. The differences are reported
as changes, deletions included.

Whoever writes passes the server's answer to :meth:`Informer.learn`. The cache then never lags
behind our own writes, so that none is made twice, and the next step need not wait for the watch.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar, cast

from kuryr_k8s import errors
from kuryr_k8s.engine.clock import CLOCK, Clock
from kuryr_k8s.k8s.api import Json, KubeApi
from kuryr_k8s.k8s.contact import Contact
from kuryr_k8s.k8s.learned import Learned
from kuryr_k8s.k8s.resources import Key, Resource, Versioned
from kuryr_k8s.patience import PATIENCE, Patience

LOG = logging.getLogger(__name__)
SHORT = 2.0  # seconds; a watch that ends sooner is a failure, even if the server says nothing
IMPOSSIBLE = (400, 410)  # to a version: it is none, or not one that the server knows any more
LONGEST_KEPT = 8192  # characters of an annotation; users may write 256 KiB
AWAY = 1  # failures without a word: that a watch was cut; after more, the server was away
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


T = TypeVar("T", bound=Versioned)
Subscriber = Callable[[Key, T | None, T | None], None]


class _Known(NamedTuple, Generic[T]):
    """An object as last heard of: its view, and the annotations that :meth:`keep` asked for."""

    view: T
    annotations: Mapping[str, str]


NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})


class Informer(Generic[T]):
    """The cache of one kind.

    :param read: Reads an object into what is kept of it.
    :param selectors: ``labelSelector`` and ``fieldSelector``.
    :param idle: Seconds of silence after which a watch counts as dead; the server sends a bookmark
        every minute.
    """

    def __init__(
        self,
        api: KubeApi,
        resource: Resource[Any],
        read: Callable[[Json], T],
        *,
        selectors: Mapping[str, str] | None = None,
        idle: float = 150.0,
        patience: Patience = PATIENCE,
        clock: Clock = CLOCK,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self._api = api
        self._read = read
        self._selectors = dict(selectors or {})
        self._idle = idle
        self._patience = patience
        self._clock = clock
        self.contact = Contact(resource.plural, clock)
        self.replaying = False  # what is reported now comes of a list, and is no event
        self._cache: dict[Key, _Known[T]] = {}
        self._learned = Learned()
        self._subscribers: list[Subscriber[T]] = []
        self._unreadable: dict[Key, str] = {}  # versions of what the view could not read
        self._kept: frozenset[str] = frozenset()  # annotations that somebody reads
        self._version = ""  # the resourceVersion seen last; empty: list first
        self._streams_lists = True
        self._failed = False
        self._heard = False  # something of the server, since it was last asked

    def __len__(self) -> int:
        return len(self._cache)

    def get(self, key: Key) -> T | None:
        """Return the object as last heard of; the cache lags, so destroy nothing because of it."""
        known = self._cache.get(key)
        return known.view if known is not None else None

    def values(self) -> Iterator[T]:
        """Iterate over all objects."""
        return iter([known.view for known in self._cache.values()])

    def keep(self, *names: str) -> None:
        """Keep these annotations of the objects that have them, for :meth:`annotation`.

        What is longer than LONGEST_KEPT is cut, to one character more than that.

        :raises LookupError: the cache has been filled without them.
        """
        if self._version:
            raise LookupError(f"ask for annotations of {self.resource.plural} before the start")
        self._kept |= frozenset(names)

    def annotation(self, key: Key, name: str) -> str | None:
        """Return an annotation of the object as last heard of, if :meth:`keep` asked for it."""
        known = self._cache.get(key)
        return known.annotations.get(name) if known is not None else None

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Call ``subscriber(key, old, new)`` for each object now, and then at each change.

        ``old`` is None for an object that was not known before, ``new`` for one that is gone. The
        subscriber must not block.
        """
        with self._replay():
            for key, known in self._cache.items():
                subscriber(key, None, known.view)
        self._subscribers.append(subscriber)

    def learn(self, item: Json | None) -> None:
        """Accept the object in the answer to a write of ours; a watch further ahead wins."""
        if item is None or item.get("kind") == "Status" or not self.synced.is_set():
            return
        key, meta = _key(item), item["metadata"]
        version, old = int(meta["resourceVersion"]), self.get(key)
        newest = int(old.resource_version) if old is not None else 0
        if "deletionTimestamp" in meta and not meta.get("finalizers"):
            # the answer has the version of before the deletion: known by then is this very object
            if 0 < newest <= version:
                self._learned.end(key, meta["uid"], version)
                self._apply("DELETED", item)
        elif version > max(newest, int(self._version or 0)) and not self._learned.is_gone(
            key, meta["uid"]
        ):
            self._learned.change(key, version)
            self._apply("MODIFIED", item)

    def _list_again(self) -> None:
        """Forget everything that was learned: the server's present state is right."""
        self._version = ""
        self._learned.clear()

    async def run(self) -> None:
        """Follow the kind for ever, and report when nothing is heard for too long."""
        self.contact.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.contact.report_silence())
            await self._follow_for_ever()

    async def _follow_for_ever(self) -> None:
        """Follow the kind; whatever the server does, try again."""
        failures = unanswered = 0  # in a row
        while True:
            begun, version = self._clock.now(), self._version
            self._heard = False
            problem = await self._problem_of_following()
            lived = self._clock.now() - begun
            # A watch that worked and was cut is no failure in a row: balancers cut idle streams,
            # and a server that is ahead of us ends a watch in the middle of a burst.
            worked = lived >= SHORT or (problem is None and self._version not in ("", version))
            failures = int(problem is not None) if worked else failures + 1
            # a server that accepts connections and is silent is as good as away
            unanswered = 0 if self._heard else unanswered
            if problem is not None:
                unanswered += problem.status == 0
                if problem.status == 422 and not self._version:
                    self._streams_lists = False  # a server without WatchList
                if problem.status in IMPOSSIBLE or unanswered > AWAY:
                    self._list_again()
                told = isinstance(problem, errors.KubeForbidden) or problem.status == 401
                expected = isinstance(problem, errors.KubeGone) or failures > 1
                expected = expected or told  # see Refusals
                level = logging.DEBUG if expected else logging.WARNING
                LOG.log(level, "%s: %s", self.resource.plural, problem)
            await self._clock.sleep(self._delay(failures, problem))

    def _delay(self, failures: int, problem: errors.KubeError | None) -> float:
        """Return the seconds until the server is asked again: at least what it asks for."""
        first = self._patience.first_watch_retry
        delay = min(8.0, first * 2.0 ** min(failures - 1, 8)) if failures else 0.0
        delay *= random.uniform(0.5, 1.0)
        asked = problem.retry_after if problem is not None else None
        if not asked:
            return delay
        # it asks all at once for the same, and they are not to come at once
        return max(delay, min(asked, self._patience.longest_asked) * random.uniform(1.0, 1.2))

    async def _problem_of_following(self) -> errors.KubeError | None:
        try:
            await self._follow()
        except errors.KubeError as error:
            return error
        return None

    async def _follow(self) -> None:
        """Use one connection: list if necessary, then apply changes until it ends."""
        if self._failed and self._version:
            await self._check_past()
        self._failed = True  # until it has ended without a problem
        if not self._version and not self._streams_lists:
            await self._list()
        fresh: dict[Key, _Known[T]] | None = None if self._version else {}
        events = self._api.watch(self.resource, self._query(), idle=self._idle)
        async with aclosing(events):
            async for event in events:
                meta = event["object"]["metadata"]
                self._check_order(meta["resourceVersion"])
                self._hear()
                if event["type"] == "BOOKMARK":
                    if fresh is not None and INITIAL_EVENTS_END in meta.get("annotations", {}):
                        self._replace(fresh, meta["resourceVersion"])
                        fresh = None
                    else:
                        self._check_learned()
                elif fresh is not None:
                    self._add_to(fresh, event["object"])
                elif not self._learned.covers(event["type"], _key(event["object"]), meta):
                    self._apply(event["type"], event["object"])
                if fresh is None:
                    self._version = meta["resourceVersion"]
        self._failed = False

    def _hear(self) -> None:
        self._heard = True
        self.contact.hear()

    async def _check_past(self) -> None:
        """Check that the server was not set back meanwhile.

        Such a server may keep a watch from its future waiting without a word.
        """
        newest = await self._api.newest_version(self.resource, self._selectors)
        self._heard = True
        if newest < int(self._version):
            raise errors.KubeGone("the server is behind what it has told", status=410)

    def _query(self) -> dict[str, str]:
        query = self._selectors | {
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(300, 600)),  # spreads reconnects
        }
        if self._version:
            return query | {"resourceVersion": self._version}
        return query | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}

    def _check_order(self, version: str) -> None:
        """Check that versions grow; if not, etcd was set back, and our copy is of another past."""
        if self._version and int(version) < int(self._version):
            raise errors.KubeGone("resourceVersion went backwards", status=410)

    def _check_learned(self) -> None:
        """Check that what was learned before the last bookmark has been seen by this one.

        If not, etcd was set back to before our write, and what we know of it never happened.
        """
        if self._learned.is_overdue():
            LOG.warning("%s: the server does not know of our own writes", self.resource.plural)
            raise errors.KubeGone("the server does not know of our own writes", status=410)

    async def _list(self) -> None:
        """List in pages, for servers without streaming lists (WatchList)."""
        fresh: dict[Key, _Known[T]] = {}
        newest = ""
        async for items, version in self._api.list_pages(self.resource, self._selectors):
            newest = version
            for item in items:
                self._add_to(fresh, item)
        self._replace(fresh, newest)
        self._version = newest
        self._hear()

    def _add_to(self, fresh: dict[Key, _Known[T]], item: Json) -> None:
        """Add an object of a list to what will be the cache."""
        key = _key(item)
        old = self._cache.get(key)
        if old is None or old.view.resource_version != item["metadata"]["resourceVersion"]:
            old = self._known_of(key, item)
        if old is not None:
            fresh[key] = old

    def _known_of(self, key: Key, item: Json) -> _Known[T] | None:
        """Return what is known of an object now.

        One that cannot be read, as its kind is of others who let it have any fields, costs only
        itself: it is as it was when it could be read, or else unknown.
        """
        meta, old = item["metadata"], self._cache.get(key)
        try:
            view = self._read(item)
        except Exception as error:  # whatever comes of a field of another type
            if self._unreadable.get(key) != meta["resourceVersion"]:
                LOG.error("%s %s cannot be read: %r", self.resource.kind, key, error)
            self._unreadable[key] = meta["resourceVersion"]
            return old if old is not None and old.view.uid == meta["uid"] else None
        self._unreadable.pop(key, None)
        found = meta.get("annotations") or {}
        kept = {name: found[name][: LONGEST_KEPT + 1] for name in self._kept & found.keys()}
        return _Known(view, kept or NO_ANNOTATIONS)

    def _replace(self, fresh: dict[Key, _Known[T]], version: str) -> None:
        """Replace the cache by the list of this version, except for what was learned since."""
        uids = {key: fresh[key].view.uid for key in self._learned.gone & fresh.keys()}
        self._learned.forget_listed(int(version), uids)
        for key, uid in uids.items():
            if self._learned.is_gone(key, uid):
                del fresh[key]
        for key in self._learned.changed & self._cache.keys():
            fresh[key] = self._cache[key]
        before, self._cache = self._cache, fresh
        with self._replay():
            for key in before.keys() - fresh.keys():
                self._notify(key, before[key], None)
            for key, new in fresh.items():
                old = before.get(key)
                if old is not new:
                    self._notify(key, old, new)
        self.synced.set()

    @contextmanager
    def _replay(self) -> Iterator[None]:
        self.replaying = True
        try:
            yield
        finally:
            self.replaying = False

    def _apply(self, kind: str, item: Json) -> None:
        key = _key(item)
        old = self._cache.get(key)
        if kind == "DELETED":
            new = None
            self._unreadable.pop(key, None)
        else:
            new = self._known_of(key, item)
        if new is not None:
            self._cache[key] = new
        else:
            self._cache.pop(key, None)
        self._notify(key, old, new)

    def _notify(self, key: Key, old: _Known[T] | None, new: _Known[T] | None) -> None:
        before, now = (known.view if known is not None else None for known in (old, new))
        for subscriber in self._subscribers:
            subscriber(key, before, now)


class Informers:
    """The caches of a program, each made when somebody first asks for its kind.

    Handlers and drivers ask in their constructors, or in ``watches()``. Once the program has
    started, no further kind can be requested: nobody would fill its cache.
    """

    def __init__(self, api: KubeApi, patience: Patience = PATIENCE, clock: Clock = CLOCK) -> None:
        self._api = api
        self._patience = patience
        self._clock = clock
        self._made: dict[Resource[Any], Informer[Any]] = {}
        self._sealed = False

    def of(self, resource: Resource[T]) -> Informer[T]:
        """Return the cache of the kind.

        :raises LookupError: The program has started, and nobody asked for the kind before.
        """
        if resource not in self._made:
            if self._sealed:
                raise LookupError(f"ask for the cache of {resource.plural} before the start")
            selected = resource.field_selector
            self._made[resource] = Informer(
                self._api,
                resource,
                resource.view,
                selectors={"fieldSelector": selected} if selected else None,
                patience=self._patience,
                clock=self._clock,
            )
        return cast("Informer[T]", self._made[resource])

    def seal(self) -> tuple[Informer[Any], ...]:
        """Return all requested caches, and refuse to make more."""
        self._sealed = True
        return tuple(self._made.values())


def _key(item: Any) -> Key:
    meta = item["metadata"]
    return Key(meta.get("namespace", ""), meta["name"])
