"""Prints the name of each interface that goes, as the daemon hears of it."""

import asyncio
import sys

from kuryr_k8s.cni.netlink.link_events import LinkEvents


def told(name, _number):
    sys.stdout.write(name + "\n")
    sys.stdout.flush()


async def main():
    events = LinkEvents()
    events.subscribe(told)
    async with asyncio.TaskGroup() as group:
        group.create_task(events.run())
        await asyncio.sleep(0)  # it listens
        told("listening", None)


asyncio.run(main())
