"""Which interfaces of Pods have a port of the pools."""

from collections import defaultdict
from typing import NamedTuple


class Claim(NamedTuple):
    """An interface of a Pod, that has a port or waits for one."""

    pod_uid: str
    ifname: str


class Claims:
    """A claim has one port at the most. A port in use has a holder; its claim may be unknown:
    that of a port from an earlier life, or of one that was set aside."""

    def __init__(self) -> None:
        self._ports: defaultdict[str, dict[str, str]] = defaultdict(dict)  # by Pod and interface
        self._holders: dict[str, Claim] = {}

    def port(self, claim: Claim) -> str | None:
        return self._ports.get(claim.pod_uid, {}).get(claim.ifname)

    def ports_of(self, pod_uid: str) -> list[str]:
        """What its claims have."""
        return list(self._ports.get(pod_uid, {}).values())

    def holder(self, port: str) -> str | None:
        """Uid of the Pod that has it."""
        claim = self._holders.get(port)
        return claim.pod_uid if claim is not None else None

    def give(self, port: str, claim: Claim) -> None:
        self._ports[claim.pod_uid][claim.ifname] = port
        self._holders[port] = claim

    def hold(self, port: str, pod_uid: str) -> None:
        """The Pod has it, and only its KuryrPort knows for which interface."""
        self._holders[port] = Claim(pod_uid, "")

    def set_aside(self, claim: Claim) -> None:
        """The claim is to get another port; its Pod keeps this one, too."""
        if (port := self.port(claim)) is not None:
            self.drop(port)
            self.hold(port, claim.pod_uid)

    def drop(self, port: str) -> str | None:
        """Nobody has it any more; uid of the Pod that did."""
        claim = self._holders.pop(port, None)
        if claim is None:
            return None
        ports = self._ports.get(claim.pod_uid, {})
        if ports.get(claim.ifname) == port:
            del ports[claim.ifname]
        if not ports:
            self._ports.pop(claim.pod_uid, None)
        return claim.pod_uid
