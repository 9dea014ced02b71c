"""L7 routers over HTTP, for ``kuryr-k8s l7-router``."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from kuryr_k8s.admin.server import BadRequest, answering, require_lead
from kuryr_k8s.handlers.routing import Routing
from kuryr_k8s.model.routes import OWN_ROUTER

Json = dict[str, Any]


class L7RouterAdmin:
    """Answers requests about the L7 routers of the controller that leads.

    :param leads: tells whether this controller works, and nobody else can.
    """

    def __init__(self, routing: Routing, leads: Callable[[], bool]) -> None:
        self._routing = routing
        self._leads = leads

    def reading(self) -> list[web.RouteDef]:
        """Return the route that changes nothing."""
        return [web.get("/l7-router", answering(self._show))]

    def changing(self) -> list[web.RouteDef]:
        """Return the route that removes the cluster's own router."""
        return [web.post("/l7-router/delete", answering(self._delete))]

    async def _show(self, _request: web.Request) -> Json:
        self._check()
        return {
            "deleting": self._routing.is_released,
            "routers": {
                name: {
                    "address": self._routing.addresses.get(name, ""),
                    "routes": sum(len(claim.routes) for claim in self._routing.claims(name)),
                }
                for name in dict.fromkeys((OWN_ROUTER, *sorted(self._routing.addresses)))
            },
        }

    async def _delete(self, _request: web.Request) -> Json:
        self._check()
        self._routing.release()
        return {"address": self._routing.addresses.get(OWN_ROUTER, "")}

    def _check(self) -> None:
        require_lead(self._leads)
        if not self._routing.has_router:
            raise BadRequest("l7_router is not in [kubernetes] enabled_handlers")
