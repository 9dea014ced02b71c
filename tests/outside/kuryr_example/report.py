"""A handler with an object kind of its own: how many Pods of a namespace have ports."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import KURYRPORTS, Key, Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkReport:
    """A NetworkReport, reduced to what the handler reads of it."""

    uid: str
    resource_version: str
    ports: int | None

    @classmethod
    def read(cls, item: dict[str, Any]) -> Self:
        """Read a NetworkReport from the API's JSON."""
        meta = item["metadata"]
        return cls(
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            ports=(item.get("status") or {}).get("ports"),
        )


REPORTS = Resource("NetworkReport", "networkreports", group="example.org", view=NetworkReport.read)


class NetworkReportHandler(Handler):
    """Writes into each NetworkReport how many KuryrPorts its namespace has."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._reports = context.informers.of(REPORTS)
        self._kuryrports = context.informers.of(KURYRPORTS)

    def watches(self) -> Sequence[Watch[Any]]:
        """Return the reports, and the KuryrPorts that they count."""
        return (
            Watch(self._reports, lambda key, _old, _new: (key,)),
            Watch(self._kuryrports, self._reports_of),
        )

    def _reports_of(self, key: Key, old: object, new: object) -> Iterable[Key]:
        if (old is None) == (new is None):
            return ()
        name = Key(key.namespace, "ports")  # one for each namespace
        return (name,) if self._reports.get(name) else ()

    async def reconcile(self, key: Key) -> float | None:
        """Bring the number in the report's status up to date."""
        report = self._reports.get(key)
        if report is None:
            return None
        ports = sum(port.namespace == key.namespace for port in self._kuryrports.values())
        if report.ports != ports:
            patch = {"metadata": {"uid": report.uid}, "status": {"ports": ports}}
            answer = await self._context.kube.merge_patch(
                REPORTS, key, patch, subresource="status"
            )
            self._reports.learn(answer)
        return None

    def about(self, key: Key) -> Reference | None:
        """Return the report itself."""
        report = self._reports.get(key)
        if report is None:
            return None
        return Reference(resource=REPORTS, namespace=key.namespace, name=key.name, uid=report.uid)
