"""A binding as a third party ships it: it uses what its context hands in, and nothing else.

Its interface is one end of a veth whose ends are both in the Pod: the kernel of a test machine may
lack the kind ``dummy``.
"""

import functools

from pyroute2 import IPRoute

from kuryr_k8s.cni.bindings import interface
from kuryr_k8s.cni.bindings.base import Binding, BindingError, NamespaceGone
from kuryr_k8s.cni.bindings.records import Record, Records
from kuryr_k8s.cni.netlink import LinkError, NamespaceError
from kuryr_k8s.cni.result import IP, Interface, Result
from kuryr_k8s.model.codec import model
from kuryr_k8s.model.vif import VIFBase


@model
class VIFOutside(VIFBase):
    """An interface that leads nowhere."""

    vif_name: str


class OutsideBinding(Binding):
    def __init__(self, context):
        self._links = context.links
        self._records = Records(context.record_directory("outside"), Record)

    async def connect(self, attachment, vif):
        wiring = interface.wiring(attachment, vif, offload=True)
        self._records.put(Record(attachment=attachment))
        try:
            if await self._links.observe(attachment.netns, attachment.ifname) is None:
                make = functools.partial(_make, attachment.ifname, wiring.mac)
                await self._links.inside(attachment.netns, make)
            await self._links.prepare(attachment.netns, wiring)
        except NamespaceError as error:
            raise NamespaceGone(str(error)) from error
        except LinkError as error:
            raise BindingError(f"cannot make {attachment.ifname}: {error}") from error
        ends = (Interface(name=wiring.ifname, mac=wiring.mac, sandbox=attachment.netns),)
        ips = tuple(
            IP(address=address, interface=0, gateway=gateway)
            for address, gateway in interface.addresses(vif)
        )
        return Result(interfaces=ends, ips=ips)

    async def ready(self, attachment, vif):
        await self._links.activate(
            attachment.netns, interface.wiring(attachment, vif, offload=True)
        )

    def progress(self, vif):
        return "nothing"

    async def disconnect(self, attachment):
        try:
            await self._links.inside(
                attachment.netns, functools.partial(_delete, attachment.ifname)
            )
        except NamespaceError:
            pass  # and with it the interface
        except LinkError as error:
            raise BindingError(f"cannot delete {attachment.ifname}: {error}") from error
        self._records.remove(attachment)

    async def check(self, attachment, vif):
        seen = await self._links.observe(attachment.netns, attachment.ifname)
        if missing := interface.missing(attachment, vif, seen):
            raise BindingError(missing)

    def attachments(self):
        return [record.attachment for record in self._records.all()]

    def working(self, attachment):
        return self._records.get(attachment) is not None

    def vanished(self, attachment):
        return False  # nothing of it is on the node


def _make(ifname, mac):
    with IPRoute() as route:
        route.link("add", ifname=ifname, kind="veth", address=mac, peer={"ifname": f"{ifname}-x"})
        [other] = route.link_lookup(ifname=f"{ifname}-x")
        route.link("set", index=other, state="up")


def _delete(ifname):
    with IPRoute() as route:
        for index in route.link_lookup(ifname=ifname):
            route.link("del", index=index)
