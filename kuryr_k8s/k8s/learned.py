"""Changes and deletions known from answers to our own writes, ahead of the watch: pure."""

from collections.abc import KeysView, Mapping
from typing import Any, NamedTuple

from kuryr_k8s.k8s.resources import Key


class _Gone(NamedTuple):
    """An object that is gone.

    :param version: the last one before its deletion.
    """

    uid: str
    version: int


_Entry = tuple[Key, int | _Gone]


class Learned:
    """The changes and deletions that neither the watch nor a list has reached.

    Each entry is one that the server has yet to show. So whatever shows it removes it: an event
    or a list. One that stays is of a past that the server does not know.
    """

    def __init__(self) -> None:
        self._changed: dict[Key, int] = {}  # versions
        self._gone: dict[Key, _Gone] = {}
        self._awaited: set[_Entry] = set()  # the entries at the last bookmark

    @property
    def changed(self) -> KeysView[Key]:
        """The keys of the objects whose present version we know first."""
        return self._changed.keys()

    @property
    def gone(self) -> KeysView[Key]:
        """The keys of the objects whose end we know first."""
        return self._gone.keys()

    def change(self, key: Key, version: int) -> None:
        """Remember that the object has this version."""
        self._changed[key] = version

    def end(self, key: Key, uid: str, version: int) -> None:
        """Remember that the object is gone, and that this was its last version."""
        self._gone[key] = _Gone(uid, version)
        self._changed.pop(key, None)

    def is_gone(self, key: Key, uid: str) -> bool:
        """Return whether the object of this uid is one whose end we know first."""
        return key in self._gone and self._gone[key].uid == uid

    def covers(self, kind: str, key: Key, meta: Mapping[str, Any]) -> bool:
        """Return whether we knew at least as much before this event; forget what it shows.

        :param kind: the event's type.
        :param meta: the metadata of its object.
        """
        if self.is_gone(key, meta["uid"]):
            if kind == "DELETED":
                del self._gone[key]
            return True
        version, changed = int(meta["resourceVersion"]), self._changed.get(key)
        if changed is None:
            return False
        if version >= changed:
            del self._changed[key]
        return version <= changed

    def forget_listed(self, version: int, uids: Mapping[Key, str]) -> None:
        """Forget what a list of this version shows; no event will.

        :param uids: of the objects in it whose keys are among :attr:`gone`.
        """
        self._changed = {key: own for key, own in self._changed.items() if own > version}
        self._gone = {
            key: gone
            for key, gone in self._gone.items()
            # one that is not in the list may have been made after it, and its events follow
            if uids.get(key) == gone.uid or gone.version > version
        }

    def is_overdue(self) -> bool:
        """Return whether an entry has been here since the last bookmark; called at each."""
        entries: set[_Entry] = {*self._changed.items(), *self._gone.items()}
        overdue = not entries.isdisjoint(self._awaited)
        self._awaited = entries
        return overdue

    def clear(self) -> None:
        """Forget everything."""
        self._changed.clear()
        self._gone.clear()
        self._awaited.clear()
