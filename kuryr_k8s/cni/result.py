"""CNI results (SPEC 1.1, section 5), in the version of the configuration."""

import ipaddress
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One end of an interface.

    :param sandbox: the path of the namespace; empty for an end on the node.
    :param pci_id: the PCI address of a device that is the interface; empty for others.
    """

    name: str
    mac: str
    mtu: int | None = None
    sandbox: str = ""
    pci_id: str = ""

    def to_json(self, version: str) -> Json:
        """Return the end in a version of SPEC."""
        answer: Json = {"name": self.name, "mac": self.mac}
        if self.mtu and version >= "1.1.0":
            answer["mtu"] = self.mtu
        if self.pci_id and version >= "1.1.0":
            answer["pciID"] = self.pci_id
        return answer | ({"sandbox": self.sandbox} if self.sandbox else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class IP:
    """An address.

    :param interface: an index into the result's interfaces.
    """

    address: str
    interface: int
    gateway: str | None = None

    def to_json(self, version: str, shift: int) -> Json:
        """Return the address in a version of SPEC, with its index shifted."""
        answer: Json = {"address": self.address, "interface": self.interface + shift}
        if self.gateway:
            answer["gateway"] = self.gateway
        if version < "1.0.0":
            answer["version"] = str(ipaddress.ip_interface(self.address).version)
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route in the Pod."""

    destination: str
    gateway: str

    def to_json(self) -> Json:
        """Return the route in any version of SPEC."""
        return {"dst": self.destination, "gw": self.gateway}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of an ADD: interfaces, addresses, routes and name servers."""

    interfaces: tuple[Interface, ...] = ()
    ips: tuple[IP, ...] = ()
    routes: tuple[Route, ...] = ()
    nameservers: tuple[str, ...] = ()

    def __add__(self, other: "Result") -> "Result":
        """Append the other's interfaces to ours."""
        shift = len(self.interfaces)
        moved = tuple(
            IP(address=ip.address, interface=ip.interface + shift, gateway=ip.gateway)
            for ip in other.ips
        )
        names = dict.fromkeys(self.nameservers + other.nameservers)
        return Result(
            interfaces=self.interfaces + other.interfaces,
            ips=self.ips + moved,
            routes=self.routes + other.routes,
            nameservers=tuple(names),
        )

    def to_json(self, version: str, previous: Json | None = None) -> Json:
        """Return the result for the runtime.

        :param previous: ``prevResult``, of the same version, if plugins ran before us. Our result
            is appended to it (SPEC, section 2, «Chained plugins»).
        """
        before: Json = {} if previous is None else previous
        interfaces = list(before.get("interfaces") or ())
        shift = len(interfaces)
        interfaces += [interface.to_json(version) for interface in self.interfaces]
        ips = [*(before.get("ips") or ()), *(ip.to_json(version, shift) for ip in self.ips)]
        routes = [*(before.get("routes") or ()), *(route.to_json() for route in self.routes)]
        answer = {**before, "cniVersion": version, "interfaces": interfaces, "ips": ips}
        if routes:
            answer["routes"] = routes
        if self.nameservers:
            dns = dict(before.get("dns") or {})
            names = dict.fromkeys([*(dns.get("nameservers") or ()), *self.nameservers])
            answer["dns"] = {**dns, "nameservers": list(names)}
        return answer
