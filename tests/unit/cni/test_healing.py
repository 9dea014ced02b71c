"""The loop that heals, on a node in memory."""

import asyncio
import contextlib
import dataclasses

from kuryr_k8s.cni.bindings.base import Attachment, BindingError, Bindings, Lost
from kuryr_k8s.cni.netlink.link_events import LinkEvents
from kuryr_k8s.cni.patience import Patience
from kuryr_k8s.cni.pods.adds import Adds
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.cni.pods.healing import SEARCH, Healing
from kuryr_k8s.cni.pods.kuryrports import KuryrPorts
from kuryr_k8s.cni.pods.outages import Outages
from kuryr_k8s.k8s.events import EventRecorder
from kuryr_k8s.k8s.resources import Key
from tests.kit.node.fakes import Api, Cache, FakeBinding, kuryrport, ovs_vif
from tests.node.workbench import eventually

NODE = Key("", "node1")
ATTACHMENT = Attachment(
    container_id="c1",
    ifname="eth0",
    request_ifname="eth0",
    netns="/run/netns/one",
    pod_uid="u1",
    namespace="default",
    pod="web",
)


class LosingBinding(FakeBinding):
    """Has lost an interface, and refuses at first to make it again."""

    def __init__(self, refusals):
        super().__init__()
        self.attached[ATTACHMENT] = ovs_vif()
        self.refusals = refusals
        self.whole = asyncio.Event()

    async def lost(self, claims):
        if self.whole.is_set():
            return []
        return [Lost(attachment=ATTACHMENT, vif=claim.vif, what="missing") for claim in claims]

    async def restore(self, lost):
        if lost and self.refusals:
            self.refusals -= 1
            raise BindingError("its link is away")
        if lost:
            self.whole.set()

    def states(self):
        return {ATTACHMENT: self.whole.is_set()}


class HangingApi(Api):
    """Takes no Event: it never answers."""

    def __init__(self, cache):
        super().__init__(cache)
        self.asked = asyncio.Event()

    async def create(self, resource, body):
        self.asked.set()
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def healing(binding, api_type=Api):
    """The loop at work, its attachments and the API."""
    cache, settled = Cache(), asyncio.Event()
    cache.put(kuryrport("web", "u1", {"eth0": ovs_vif()}))
    settled.set()
    api = api_type(cache)
    bindings, kuryrports = Bindings({"VIFOpenVSwitch": binding}), KuryrPorts(cache, api)
    attachments = Attachments(bindings, kuryrports, adds=Adds(), settled=settled, add_timeout=60)
    outages = Outages(NODE, EventRecorder(api, "test", "node1"), Patience(outage=0.0))
    part = Healing(NODE, bindings, attachments, kuryrports, LinkEvents(), outages)
    async with asyncio.timeout(SEARCH / 2), asyncio.TaskGroup() as group:
        tasks = [group.create_task(loop.run()) for loop in part.loops()]
        yield part, attachments, api
        for task in tasks:
            task.cancel()


def lost_interfaces(part):
    [_, gauge] = part.collectors()
    return next(iter(gauge.collect())).samples[0].value


async def test_what_cannot_be_made_again_at_once_is_tried_again_before_the_next_search():
    binding = LosingBinding(refusals=1)
    async with healing(binding):
        await binding.whole.wait()


async def test_nothing_waits_for_an_api_server_that_takes_no_events():
    binding = LosingBinding(refusals=1000)
    async with healing(binding, HangingApi) as (_, _, api):
        await api.asked.wait()
        binding.refusals = 0
        await binding.whole.wait()


async def test_kuryrport_is_looked_at_again_when_its_interface_works_again():
    """Its interface had no state while it was away, since its bridge was."""
    binding = LosingBinding(refusals=1)
    states, binding.states = binding.states, dict
    async with healing(binding) as (_, attachments, _):
        told = asyncio.Event()
        await binding.whole.wait()
        attachments.subscribe(lambda _key: told.set())
        binding.states = states
        await told.wait()


async def test_interface_without_traffic_at_the_start_counts_as_lost():
    binding = LosingBinding(refusals=1000)
    binding.lost = nothing_lost
    async with healing(binding) as (part, _, api):
        await eventually(lambda: lost_interfaces(part) == 1)
        await eventually(lambda: "KuryrInterfaceLost" in [event["reason"] for event in api.events])


async def nothing_lost(_claims):
    return []


async def test_look_that_fails_is_made_up_for_by_a_look_at_everything():
    """A binding names its suspects once, and they were named to the look that failed."""
    binding = LosingBinding(refusals=0)
    find, suspects, failures = binding.lost, ["u1"], [BindingError("the kernel does not answer")]

    async def lost(claims):
        if claims and failures:
            raise failures.pop()
        return await find(claims)

    def named_once():
        return [suspects.pop()] if suspects else []

    binding.lost, binding.suspects = lost, named_once
    async with healing(binding):
        await binding.whole.wait()


def outages_of_events(api):
    return Outages(NODE, EventRecorder(api, "test", "node1"), Patience(outage=1.0))


async def sent(outages, api, count):
    """Wait until the API has got so many Events; their reasons."""
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(outages.run())
        await eventually(lambda: len(api.events) >= count)
        sending.cancel()
    return [event["reason"] for event in api.events]


async def test_interface_that_comes_and_goes_makes_few_events_and_its_kuryrport_follows_each():
    api = Api(Cache())
    outages = outages_of_events(api)
    followed = 0
    for start in range(0, 600, 6):
        outages.begin(ATTACHMENT, "lost", start)
        followed += len(outages.lasting(start + 2))
        outages.tell(start + 2)
        outages.end(ATTACHMENT, start + 4)
        outages.tell(start + 4)
    assert followed == 100
    lost, back = "KuryrInterfaceLost", "KuryrInterfaceRestored"
    assert await sent(outages, api, 4) == [lost, back, lost, back]


async def test_outages_of_one_pod_do_not_silence_those_of_another():
    api = Api(Cache())
    outages = outages_of_events(api)
    other = dataclasses.replace(ATTACHMENT, pod_uid="u2", pod="other", container_id="c2")
    for attachment in (ATTACHMENT, other):
        outages.begin(attachment, "lost", 0)
        outages.tell(2)
    assert len(await sent(outages, api, 2)) == 2
