"""Each watch that a router follows lies in each way, while routes are made and while they go.

Every kind matters to these lives: each of their steps comes by an event of one kind, and they wait
for what it brings. They must end alike. And at no moment may a request reach another backend than
its own, or one in plain HTTP that asks for TLS.
"""

import asyncio
import contextlib

import pytest

from kuryr_k8s.model.annotations import HOST_ID
from tests.kit.fixtures import RouterLanes
from tests.kit.kube.objects import make_l7_router
from tests.kit.l7 import STATE, WITH_ROUTES
from tests.kit.routes import edge
from tests.kit.stages import HOST
from tests.tables.answers import until_answered, watched
from tests.tables.lies import LIES, truth
from tests.tables.report import judge
from tests.tables.runs import LATE, Cell
from tests.tables.state import differences, state_of

ONE, OTHER, TWO = {"10.62.0.5"}, {"10.62.0.7"}, {"10.62.0.6"}
NUMBER = {  # of the objects of each kind that the router follows
    "ingresses": 2,
    "ingressclasses": 1,
    "l7routers": 1,
    "routes": 1,
    "services": 2,
    "endpointslices": 2,
    "secrets": 1,
    "nodes": 1,
}
KINDS = tuple(NUMBER)
CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"
PHASES = ("making", "taking away")
OPTIONS = WITH_ROUTES | {"l7_router": {"tls": "true"}}
TO_A = (308, "https://a")
SHUT = (None, 403, 503)
ALLOWED = {  # at any moment
    ("a", "/", 80): (TO_A, *SHUT),
    ("a", "/", 443): (ONE, ONE | OTHER, OTHER, *SHUT),
    ("b", "/", 80): (TWO, None, 503),
    ("b", "/", 443): SHUT,
    ("r", "/", 80): SHUT,
    ("r", "/", 443): (TWO, *SHUT),
}
SERVED = {
    ("a", "/", 80): TO_A,
    ("a", "/", 443): ONE,
    ("b", "/", 80): TWO,
    ("r", "/", 80): 403,
    ("r", "/", 443): TWO,
}


async def making(stage):
    """An Ingress with TLS, one without, and a Route with TLS are served; there are two routers."""
    await stage.cluster.add_node(stage.node, annotations={HOST_ID: HOST})
    await stage.until(stage.is_published)
    await stage.add_class()
    certificate = await stage.add_secret("cert", "a")
    await stage.add_backend("one", *ONE)
    await stage.add_backend("two", *TWO)
    await stage.client.create(make_l7_router(stage.namespace, floatingIP="false"))
    await stage.until_router()
    tls = [{"hosts": ["a"], "secretName": "cert"}]
    await stage.add_ingress("shop", ("a", ("Prefix", "/", "one")), tls=tls)
    await stage.add_ingress("open", ("b", ("Prefix", "/", "two")))
    tls, own = edge("r")
    await stage.routes.add("web", "r", "two", tls=tls)
    await until_answered(stage, SERVED)
    await stage.until_shown(certificate, own)
    for name in ("shop", "open"):
        await stage.until_address(name)
    await stage.routes.until_admitted("web")
    await stage.until_settled_router(policies=5, pools=3)
    return own


async def taking_away(stage, own):
    """What was made changes or goes, one after the other."""
    await stage.set_slice("one", *OTHER, ports=[("http", 8080)], service="one")
    await until_answered(stage, SERVED | {("a", "/", 443): OTHER})
    renewed = await stage.renew("cert", "a")
    await stage.until_shown(renewed, own)
    lost = {"metadata": {"annotations": {STATE: None}}}
    await stage.client.patch(f"/api/v1/nodes/{stage.node}", lost)
    await stage.until(stage.is_published)
    await stage.delete_service("two")
    gone = {("b", "/", 80): 503, ("r", "/", 443): 503}
    await until_answered(stage, SERVED | {("a", "/", 443): OTHER} | gone)
    await stage.client.delete(stage.secret_path("cert"))
    closed = {("a", "/", 80): 403, ("a", "/", 443): 403, ("r", "/", 80): 403}
    await until_answered(stage, closed | gone)
    await stage.until_shown(own)
    await stage.delete_ingress("shop")
    await until_answered(stage, {("a", "/", 80): 503, ("a", "/", 443): 503} | gone)
    await stage.routes.delete("web")
    await stage.until_shown()
    await stage.delete_class()
    await stage.until_no_address("open")
    await stage.until_settled_router(policies=0, pools=0)
    await stage.delete_router()
    assert not stage.routers(stage.other)


@pytest.fixture
def lanes(lanes_of):
    return lanes_of(RouterLanes)


@contextlib.asynccontextmanager
async def followed(lanes):
    """A stage where nothing is yet, with a controller that follows all kinds; it, and a list of
    what was seen that may never be."""
    async with lanes.open(made=False) as stage:
        stage.proxy.alone[CLASSES] = stage.class_name  # no events of others are to be struck
        await stage.cluster.add_namespace()
        with watched(stage, ALLOWED) as wrong:
            async with asyncio.timeout(250), stage.controller(**OPTIONS):
                await stage.proxy.wait_for(
                    lambda: all(stage.proxy.watching(resource) == 1 for resource in KINDS)
                )
                yield stage, wrong


async def live(lanes, kind, lie, phase):
    """One such life, with a lie in one of its phases: its states, and what may never be seen."""
    states = {}
    async with followed(lanes) as (stage, wrong):
        own = None
        for moment in PHASES:
            async with asyncio.TaskGroup() as group:
                if moment == phase:
                    group.create_task(lie(stage, kind))
                    await asyncio.sleep(0)  # it is armed before anything happens
                if moment == "making":
                    own = await making(stage)
                else:
                    await taking_away(stage, own)
            states[moment] = await state_of(stage)
        await asyncio.sleep(LATE)  # nothing may come any more
        states["after"] = await state_of(stage)
    return states, wrong


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", KINDS)
async def test_watch_that_lies_to_a_router_changes_nothing_in_the_end(lanes, kind, request):
    wanted, wrong = await live(lanes, kind, truth, "making")
    assert not wrong

    async def cell(phase, name, lie):
        made = Cell("lies of a router's watches", f"{kind}, {phase}", name, [])
        try:
            found, wrong = await live(lanes, kind, lie, phase)
        except (TimeoutError, AssertionError, BaseExceptionGroup) as error:
            made.problems.append(f"never came to its end: {error!r}")
        else:
            made.problems += unlike(wanted, found) + wrong
        return made

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(cell(phase, name, lie))
            for phase in PHASES
            for name, lie in LIES.items()
        ]
    judge(request.config, [task.result() for task in tasks])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("all_of_it", [False, True], ids=["without one", "empty"])
async def test_list_that_lacks_what_exists_takes_nothing_from_a_router(lanes, all_of_it, request):
    """The version is too old, and what is listed then is not all that there is."""

    async def cell(kind):
        made = Cell("lists that lack something", kind, "empty" if all_of_it else "one less", [])
        try:
            made.problems += await lacking(lanes, kind, all_of_it=all_of_it)
        except (TimeoutError, AssertionError, BaseExceptionGroup) as error:
            made.problems.append(f"never came to its end: {error!r}")
        return made

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(cell(kind)) for kind in KINDS]
    judge(request.config, [task.result() for task in tasks])


async def lacking(lanes, kind, *, all_of_it):
    """What has changed, or was ever wrong, by a list that lacks one object of a kind, or all."""
    async with followed(lanes) as (stage, wrong):
        own = await making(stage)
        before = await state_of(stage)
        stage.proxy.events.drop(NUMBER[kind] if all_of_it else 1, kind)
        stage.proxy.expire_watches(kind)
        await stage.proxy.wait_for(lambda: not stage.proxy.events.dropping)
        await asyncio.sleep(2 * LATE)  # nothing may come: that takes time to see
        changed = differences(before, await state_of(stage))
        stage.proxy.expire_watches(kind)
        await taking_away(stage, own)
        return changed + wrong


def unlike(wanted, found):
    """What differs, but for Events: they may tell of what had not come yet."""
    return [
        f"{moment}: {line}"
        for moment, state in wanted.items()
        for line in differences(state, found[moment])
        if not line.startswith("events")
    ]
