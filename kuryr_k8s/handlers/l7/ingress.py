"""The handler of Ingresses: which of them are ours, what they claim, and their status.

https://kubernetes.io/docs/concepts/services-networking/ingress/
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from kuryr_k8s import errors
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.routing import Verdict, check_router_enabled
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import INGRESSCLASSES, INGRESSES, Key
from kuryr_k8s.model.ingress import Ingress, IngressClass
from kuryr_k8s.model.ingress_routes import KIND, claim_of
from kuryr_k8s.model.routes import Claim
from kuryr_k8s.model.service import ingress_text

Json = dict[str, Any]
CONTROLLER = "openstack.org/kuryr-l7-router"  # spec.controller of our IngressClasses


class Unserved(errors.Refused):
    """Something that an Ingress asks for is not served."""

    reason = "KuryrIngressUnserved"


class IngressHandler(Handler):
    """Tells the L7 router what Ingresses claim, and Ingresses what has become of that."""

    kind: ClassVar[str] = KIND

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        check_router_enabled("ingress", context.conf)
        self._routing = context.routing
        self._ingresses = context.informers.of(INGRESSES)
        self._classes = context.informers.of(INGRESSCLASSES)
        self._claims: dict[str, tuple[str, Claim]] = {}  # by uid; the resourceVersion they are of
        self._routing.add_source(self)

    def watches(self) -> Sequence[Watch[Any]]:
        return (
            Watch(self._ingresses, self._ingress_changed),
            Watch(self._classes, self._class_changed),
        )

    def _ingress_changed(
        self, key: Key, old: Ingress | None, new: Ingress | None
    ) -> Iterable[Key]:
        if _essence(old) != _essence(new):
            self._routing.changed()
        if old is not None and (new is None or new.uid != old.uid):
            self._claims.pop(old.uid, None)
        return (key,)

    def _class_changed(
        self, _key: Key, _old: IngressClass | None, _new: IngressClass | None
    ) -> Iterable[Key]:
        self._routing.changed()
        return [Key(each.namespace, each.name) for each in self._ingresses.values()]

    def claims(self) -> Iterator[Claim]:
        """Yield what all Ingresses of ours claim."""
        classes = _by_name(self._classes.values())
        for ingress in self._ingresses.values():
            if _is_ours(ingress, classes) and not ingress.deleting:
                yield self._claim_of(ingress)

    async def claimants(self) -> set[str]:
        """Return the uids of all Ingresses of ours, by live lists."""
        kube = self._context.kube
        listed, classes = await kube.list_views(INGRESSES), await kube.list_views(INGRESSCLASSES)
        named = _by_name(classes)
        return {each.uid for each in listed if not each.deleting and _is_ours(each, named)}

    def address_changed(self) -> None:
        """Look again at all Ingresses that have an address: it may be a former one of ours."""
        for ingress in self._ingresses.values():
            if ingress.ingress:
                self.queue.add(Key(ingress.namespace, ingress.name))

    def _claim_of(self, ingress: Ingress) -> Claim:
        version, claim = self._claims.get(ingress.uid, ("", None))
        if claim is None or version != ingress.resource_version:
            claim = claim_of(ingress)
            self._claims[ingress.uid] = (ingress.resource_version, claim)
        return claim

    async def reconcile(self, key: Key) -> float | None:
        ingress = self._ingresses.get(key)
        if ingress is None or ingress.deleting:
            return None
        verdict = self._routing.verdict(ingress.uid)
        if not _is_ours(ingress, _by_name(self._classes.values())):
            await self._leave(key, ingress)
            return None
        claim = self._claim_of(ingress)
        if self._routing.is_released:
            await self._write(key, ingress, ())
            return None
        problems = (*self._of_class(ingress), *claim.problems)
        if verdict is not None:
            problems = (*problems, *verdict.refused)
            await self._write(key, ingress, _status(verdict))
        if problems:
            raise Unserved("; ".join(problems))
        return None

    def _of_class(self, ingress: Ingress) -> Iterator[str]:
        """Yield what the class of an Ingress asks for and cannot be had."""
        found = self._classes.get(Key("", ingress.class_name or ""))
        if found is not None and found.has_parameters:
            yield f"IngressClass {found.name}: parameters are not supported"

    async def _leave(self, key: Key, ingress: Ingress) -> None:
        """Take our address off an Ingress that is another controller's now."""
        address = self._routing.address
        if address and ingress.ingress == ingress_text([{"ip": address}]):
            await self._write(key, ingress, ())

    async def _write(self, key: Key, ingress: Ingress, shown: Sequence[Json] | None) -> None:
        if shown is None or ingress_text(shown) == ingress.ingress:
            return
        status = {"loadBalancer": {"ingress": list(shown) or None}}
        kube = self._context.kube
        try:
            answer = await kube.patch_status_of(INGRESSES, key, ingress, status)
        except errors.KubeNotFound:
            return
        except errors.KubeConflict as error:
            raise errors.Wait(f"the cache lags behind Ingress {key}", delay=1.0) from error
        self._ingresses.learn(answer)

    def about(self, key: Key) -> Reference | None:
        ingress = self._ingresses.get(key)
        return Reference.of(INGRESSES, ingress) if ingress is not None else None


def _status(verdict: Verdict) -> Sequence[Json] | None:
    """Return the ingress of the status; None if it stays as it is."""
    if verdict.is_refused:
        return ()
    return ({"ip": verdict.address},) if verdict.is_served else None


def _by_name(classes: Iterable[IngressClass]) -> dict[str, IngressClass]:
    return {each.name: each for each in classes}


def _is_ours(ingress: Ingress, classes: Mapping[str, IngressClass]) -> bool:
    """Return whether an Ingress is one of ours.

    :param classes: all of them, by their names.
    """
    if ingress.class_name is None:
        return any(each.is_default and _is_served(each) for each in classes.values())
    named = classes.get(ingress.class_name)
    return named is not None and _is_served(named)


def _is_served(found: IngressClass) -> bool:
    return found.controller == CONTROLLER


def _essence(ingress: Ingress | None) -> object:
    """Return what decides about routes."""
    return ingress and (
        ingress.uid,
        ingress.class_name,
        ingress.has_default,
        ingress.default_backend,
        ingress.rules,
        ingress.tls,
        ingress.annotations,
        ingress.deleting,
    )
