"""The age of the Lease, looked at again and again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from bench.storm.figures import LeaseAge
from kuryr_k8s.k8s.resources import LEASES
from tests.kit.kube import KubeClient

NAMESPACE, NAME = "kube-system", "kuryr-k8s-controller"
PAUSE = 0.5  # seconds between two looks


class LeaseWatch:
    """Notes how old the Lease was at the most since :meth:`mark` was called."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._oldest = 0.0
        self._holders: set[str] = set()

    def mark(self) -> None:
        """Begin anew."""
        self._oldest = 0.0
        self._holders.clear()

    @property
    def seen(self) -> LeaseAge:
        """Return the age and the holders of the Lease since the last mark."""
        return LeaseAge(oldest=self._oldest, holders=len(self._holders))

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            lease = await self._client.find(LEASES.path(NAMESPACE, NAME))
            holder = (lease or {}).get("spec", {}).get("holderIdentity")
            if lease is not None and holder:
                renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
                age = (datetime.now(UTC) - renewed).total_seconds()
                self._oldest = max(self._oldest, age)
                self._holders.add(holder)
            await asyncio.sleep(PAUSE)
