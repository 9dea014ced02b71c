"""Ports that a node keeps plugged, and what is seen of them on it."""

from tests.kit.node.fakes import ovs_vif
from tests.node.workbench import NODE, eventually, ip

VIF = ovs_vif(1, active=True)


def parked_rows(node):
    return [row for row in node.switch.interfaces() if row.parked and not row.attached]


async def parked(node, *vifs, told=True):
    """Name these ports in the pool, and wait until they are parked."""
    node.pool.name(dict.fromkeys(vifs, "keep"))
    wanted = {vif.id for vif in vifs}
    await eventually(lambda: {row.iface_id for row in parked_rows(node)} == wanted)
    await eventually(lambda: all(row.installed for row in parked_rows(node)))
    if told:
        await eventually(lambda: pool(node).parked == wanted)


def pool(node):
    return node.pool.get(NODE)


def end(name, *, netns=""):
    [link] = ip("-d", "link", "show", name, netns=netns)
    return link


def kind(link):
    return link["linkinfo"]["info_kind"]
