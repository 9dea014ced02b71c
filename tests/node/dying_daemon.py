"""The daemon as a process of its own, with one port to park; it kills itself with SIGKILL:
DIRECTORY REMOTE POINT, where POINT is "before" or "after", a colon, and what it does then.

One Pod, web of uid u1, has the port. A file `settled` in DIRECTORY tells that it can be asked.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from kuryr_k8s.cni.netlink import namespace
from kuryr_k8s.cni.netlink import parked_pairs as parked
from tests.kit.node.fakes import kuryrport, ovs_vif
from tests.node.workbench import Node, eventually

VIF = ovs_vif(1, active=True)


def deadly(function, when):
    """The function, which is the last thing done, or the first not to be."""

    def last(*arguments, **options):
        if when == "after":
            function(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    return last


def deadly_coroutine(function, when):
    async def last(*arguments, **options):
        if when == "after":
            await function(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    return last


def arm(node, point):
    """Make that point deadly."""
    when, _, name = point.partition(":")
    match name:
        case "park" | "hand_over" | "take_back":
            setattr(parked, name, deadly(getattr(parked, name), when))
        case "prepare" | "activate":
            setattr(namespace, name, deadly(getattr(namespace, name), when))
        case "add_ports" | "mark":
            setattr(node.switch, name, deadly_coroutine(getattr(node.switch, name), when))
        case "erase":  # the mark of a DEL
            node.switch.mark = erasing(node.switch.mark, when)


def erasing(mark, when):
    async def last(row, ids):
        if None not in ids.values():
            return await mark(row, ids)
        return await deadly_coroutine(mark, when)(row, ids)

    return last


async def main(directory, remote, point):
    directory = Path(directory)
    async with Node(directory, remote).running() as node:
        arm(node, point)
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        node.pool.name({VIF: "keep"})
        await eventually(lambda: node.parked.ready(VIF.id) or node.attachments.all(), 3600)
        (directory / "settled").touch()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
