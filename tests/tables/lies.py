"""How a watch can lie, of one kind: each is armed, and done when its next event has come."""

from tests.kit.fakes.faults import answer
from tests.kit.kube.proxy import is_watch, kind_of

SLOW = 0.7  # seconds: longer than a first back-off, which acts on the old cache then


async def truth(_stage, _kind):
    """No lie."""


async def lose(stage, kind, then):
    """The next event gets lost with its connection."""
    stage.proxy.events.drop(1, kind)
    await stage.proxy.wait_for(lambda: not stage.proxy.events.dropping)
    then(kind)


async def dropped(stage, kind):
    await lose(stage, kind, stage.proxy.cut_watches)


async def expired_in_the_stream(stage, kind):
    await lose(stage, kind, stage.proxy.expire_watches)


async def expired_at_connect(stage, kind):
    def of_this_kind(request):
        return is_watch(request) and kind_of(request)[1] == kind

    rule = stage.proxy.faults.add(when=of_this_kind, action=answer(410))
    await lose(stage, kind, stage.proxy.cut_watches)
    await stage.proxy.wait_for(lambda: rule.hits)


async def delayed(stage, kind):
    stage.proxy.events.slow(SLOW, kind)


async def doubled(stage, kind):
    stage.proxy.events.double(1000, kind)


async def connection_cut(stage, kind):
    stage.proxy.cut_watches(kind)


LIES = {
    "dropped": dropped,
    "delayed": delayed,
    "doubled": doubled,
    "410 inside": expired_in_the_stream,
    "410 first": expired_at_connect,
    "cut": connection_cut,
}
