"""Replaces a table by another one, over and over, until it is killed."""

import asyncio
import sys

from kuryr_k8s.cni.services import nftables
from kuryr_k8s.model.node_port import NodePort

MANY = 1500
SMALL, LARGE = (
    [NodePort("TCP", 30000 + n, "10.96.0.10", 80) for n in range(m)] for m in (1, MANY)
)


async def main():
    await nftables.replace(SMALL)
    sys.stdout.write(".")
    sys.stdout.flush()
    while True:
        await nftables.replace(LARGE)
        await nftables.replace(SMALL)


if __name__ == "__main__":
    asyncio.run(main())
