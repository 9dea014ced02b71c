"""The daemon as a process of its own, to be killed: DIRECTORY REMOTE, one Pod, web of uid u1."""

import asyncio
import sys
from pathlib import Path

from tests.functional.cni.workbench import Node
from tests.unit.cni.fakes import kuryrport, ovs_vif


async def main(directory, remote):
    async with Node(Path(directory), remote).running() as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1)}))
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
