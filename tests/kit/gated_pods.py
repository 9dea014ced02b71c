"""Pods with the readiness gate: what the kubelet and the endpoint controller do to them."""

from tests.kit.kube.objects import path_of

GATE = "kuryr.openstack.org/load-balancer-ready"
GATES = [{"conditionType": GATE}]
UNREADY = {"ready": False, "serving": False, "terminating": False}


class GatedPod:
    """A Pod of the Service «web», and its addresses; on no node, so that it gets no port."""

    def __init__(self, services, name, *addresses, gates=GATES):
        self.services, self.name, self.addresses = services, name, addresses
        self._gates = gates
        self.made = None

    async def start(self, **labels):
        """It is created, and its containers become ready."""
        labels = labels or {"app": "web"}
        self.made = await self.services.cluster.add_pod(
            self.name, labels=labels, readinessGates=self._gates
        )
        await self.set_ready(True)
        return self

    async def set_ready(self, ready, **others):
        """The kubelet says of the containers whether they are ready; and others of other gates.

        So it says of the Pod whether it is Ready, and why not.
        """
        true = await self._true() | {kind for kind, status in others.items() if status}
        passed = {gate["conditionType"] for gate in self._gates} <= true
        reason = "ReadinessGatesNotReady" if ready else "ContainersNotReady"
        await self._set(
            {"type": "ContainersReady", "status": str(ready)},
            {
                "type": "Ready",
                "status": str(ready and passed),
                "reason": None if ready and passed else reason,
            },
            *({"type": kind, "status": str(status)} for kind, status in others.items()),
        )

    async def lose_node(self):
        """The node lifecycle controller finds that the kubelet tells nothing any more."""
        await self._set({"type": "Ready", "status": "False"})

    async def _true(self):
        pod = await self.services.client.find(path_of(self.made))
        conditions = pod["status"].get("conditions") or ()
        return {found["type"] for found in conditions if found["status"] == "True"}

    async def _set(self, *conditions):
        await self.services.client.patch(
            f"{path_of(self.made)}/status",
            {
                "status": {
                    "phase": "Running",
                    "podIPs": [{"ip": address} for address in self.addresses],
                    "conditions": list(conditions),
                }
            },
            "application/strategic-merge-patch+json",
        )

    def endpoint(self, **conditions):
        """Its endpoint in a slice of the first address' family: it is not ready."""
        return self.addresses[0], UNREADY | conditions, self.made

    async def delete(self):
        await self.services.cluster.delete_pod(self.made)

    async def gate(self):
        """The condition; None if there is none."""
        pod = await self.services.client.find(path_of(self.made))
        conditions = (pod or {}).get("status", {}).get("conditions") or ()
        return next((found for found in conditions if found["type"] == GATE), None)

    async def until_passed(self):
        """Wait until the gate is True; why it is."""

        async def passed():
            found = await self.gate()
            return found["reason"] if found and found["status"] == "True" else None

        return await self.services.until(passed)
