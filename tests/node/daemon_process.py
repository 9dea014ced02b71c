"""The daemon as a process of its own, to be killed: DIRECTORY REMOTE [without vifs].

One Pod, web of uid u1. In DIRECTORY it leaves a file `settled` when it can be asked, and `asked`
as soon as it waits for the Pod's interfaces.
"""

import asyncio
import sys
from pathlib import Path

from tests.kit.node.fakes import kuryrport, ovs_vif
from tests.node.workbench import Node, eventually


async def main(directory, remote, without_vifs=""):
    directory = Path(directory)
    async with Node(directory, remote).running() as node:
        node.cache.put(kuryrport("web", "u1", {} if without_vifs else {"eth0": ovs_vif(1)}))
        (directory / "settled").touch()
        await eventually(lambda: len(node.attachments.adds), seconds=3600)
        (directory / "asked").touch()
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
