"""Pods for which their project had no port, or their subnet no address, left."""

from collections import defaultdict
from itertools import islice

from kuryr_k8s.k8s.resources import Key


class StarvedPods:
    """The Pods of each project, in the order in which they were refused."""

    def __init__(self) -> None:
        self._projects: dict[Key, str] = {}
        self._keys: defaultdict[str, dict[Key, None]] = defaultdict(dict)
        self._passed: set[Key] = set()  # that have passed on since something was released

    def __bool__(self) -> bool:
        return bool(self._projects)

    def add(self, key: Key, project: str) -> None:
        """Note that the Pod was refused."""
        self.discard(key)
        self._projects[key] = project
        self._keys[project][key] = None

    def discard(self, key: Key) -> None:
        """Forget the Pod, if it was refused."""
        project = self._projects.pop(key, None)
        if project is not None:
            del self._keys[project][key]
            if not self._keys[project]:
                del self._keys[project]

    def take_first(self) -> list[Key]:
        """Take the Pod that has waited longest out of each project, as something was released."""
        self._passed.clear()
        return [key for project in tuple(self._keys) for key in self.take(project, 1)]

    def pass_on(self, key: Key, project: str) -> list[Key]:
        """Take another Pod, as this one could not use what was released.

        :returns: empty if it has passed on already: two Pods do not wake each other for ever.
        """
        if key in self._passed:
            return []
        self._passed.add(key)
        others = [other for other in self._keys.get(project, ()) if other not in self._passed][:1]
        for other in others:
            self.discard(other)
        return others

    def take(self, project: str, count: int) -> list[Key]:
        """Take up to ``count`` Pods that have waited longest out of a project."""
        keys = list(islice(self._keys.get(project, ()), count))
        for key in keys:
            self.discard(key)
        return keys
