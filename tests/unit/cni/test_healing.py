"""The loop that heals, on a node in memory."""

import asyncio

from kuryr_k8s.cni.bindings.base import Attachment, BindingError, Bindings, Lost
from kuryr_k8s.cni.netlink.link_events import LinkEvents
from kuryr_k8s.cni.pods.adds import Adds
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.cni.pods.healing import SEARCH, Healing
from kuryr_k8s.cni.pods.kuryrports import KuryrPorts
from kuryr_k8s.cni.pods.outages import Outages
from kuryr_k8s.k8s.events import EventRecorder
from kuryr_k8s.k8s.resources import Key
from tests.kit.node.fakes import Api, Cache, FakeBinding, kuryrport, ovs_vif

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


async def test_what_cannot_be_made_again_at_once_is_tried_again_before_the_next_search():
    binding, cache, settled = LosingBinding(refusals=1), Cache(), asyncio.Event()
    cache.put(kuryrport("web", "u1", {"eth0": ovs_vif()}))
    settled.set()
    api = Api(cache)
    bindings, kuryrports = Bindings({"VIFOpenVSwitch": binding}), KuryrPorts(cache, api)
    attachments = Attachments(bindings, kuryrports, adds=Adds(), settled=settled, add_timeout=60)
    outages = Outages(NODE, EventRecorder(api, "test", "node1"))
    healing = Healing(NODE, bindings, attachments, kuryrports, LinkEvents(), outages)
    async with asyncio.timeout(SEARCH / 2), asyncio.TaskGroup() as group:
        tasks = [group.create_task(loop.run()) for loop in healing.loops()]
        await binding.whole.wait()
        for task in tasks:
            task.cancel()
