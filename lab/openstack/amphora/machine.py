"""One amphora: a network namespace, and its network cards in br-int of node1.

A file has what is known of both, and from it they can be made again.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from octavia.common.config import cfg  # type: ignore[import-not-found]

from lab import topology
from lab.host import wiring
from lab.ovn import daemons as ovn
from lab.paths import Paths, write_atomic
from lab.process import Identity, kill_all, run, start_time

# Threads of the worker against the one of the health: what is being deleted must not be started.
LOCK = threading.RLock()
NODE = topology.nodes(1)[0]
_VIP_TABLE = "1"
# Octavia's image has such a script; haproxy runs it without PATH and without new privileges.
_PING = '#!/bin/sh\nexec /bin/ping -q -n -w 1 -c 1 "$HAPROXY_SERVER_ADDR" >/dev/null 2>&1\n'


@dataclass
class Nic:
    """A network card of an amphora.

    Addresses have their prefix length; routes are (destination, gateway or None for what is on the
    link). `vips` are (address, its subnet, gateway or None): what comes from such an address
    leaves by this card, also to a network that another card is in.
    """

    mac: str
    device: str
    mtu: int = topology.POD_MTU
    addresses: list[str] = field(default_factory=list)
    routes: list[tuple[str, str | None]] = field(default_factory=list)
    vips: list[tuple[str, str, str | None]] = field(default_factory=list)


class Amphora:
    """An amphora by the id of its server; it need not exist."""

    def __init__(self, compute_id: str) -> None:
        self.compute_id = compute_id
        self.netns = f"{topology.AMPHORA}-{compute_id[:11]}"
        self.directory = Path(cfg.CONF.haproxy_amphora.base_path) / self.netns
        data: dict[str, Any] = {}
        with contextlib.suppress(FileNotFoundError):
            data = json.loads(self._file.read_text())
        # The ids of Octavia's amphora and of its load balancer, when it has one.
        self.amphora_id: str = data.get("amphora_id", "")
        self.load_balancer_id: str | None = data.get("load_balancer_id")
        # Neutron port -> card; listener -> what forwards its datagrams
        self.nics = {port: Nic(**nic) for port, nic in data.get("nics", {}).items()}
        self.datagrams: dict[str, dict[str, Any]] = data.get("datagrams", {})

    @property
    def _file(self) -> Path:
        return self.directory / "state.json"

    @property
    def exists(self) -> bool:
        return self._file.exists()

    @property
    def vips(self) -> list[str]:
        return [vip for nic in self.nics.values() for vip, _, _ in nic.vips]

    def save(self) -> None:
        nics = {port: asdict(nic) for port, nic in self.nics.items()}
        known = {
            "compute_id": self.compute_id,
            "amphora_id": self.amphora_id,
            "load_balancer_id": self.load_balancer_id,
            "nics": nics,
            "datagrams": self.datagrams,
        }
        write_atomic(self._file, json.dumps(known, indent=1))

    def create(self) -> None:
        """Create the namespace, unless it is there."""
        wiring.add_namespace(self.netns)
        run(["sysctl", "-qw", "net.ipv4.ping_group_range=0 2147483647"], netns=self.netns)
        write_atomic(self.directory / "ping-wrapper.sh", _PING, 0o755)
        self.save()

    def plug(self, port: str, mac: str) -> None:
        """Add a card for the Neutron port; `connect` it afterwards."""
        if port not in self.nics:
            used = {int(nic.device.removeprefix("eth")) for nic in self.nics.values()}
            self.nics[port] = Nic(mac, f"eth{max(used, default=0) + 1}")
        nic = self.nics[port]
        wiring.add_veth(
            tap(port), nic.device, netns=NODE.netns, peer_netns=self.netns, mtu=nic.mtu
        )
        wiring.configure(nic.device, (), netns=self.netns, mac=mac, mtu=nic.mtu)
        self.save()

    def unplug(self, port: str) -> None:
        ovn.vsctl(_paths(), NODE, "--if-exists", "del-port", tap(port))
        wiring.delete_link(tap(port))
        self.nics.pop(port, None)
        self.save()

    def nic(self, mac: str) -> Nic | None:
        return next((nic for nic in self.nics.values() if nic.mac == mac), None)

    def configure(self, nic: Nic) -> None:
        """Give the card its addresses and routes, and these only; tell the network of them."""
        ip = ["ip", "-n", self.netns]
        run([*ip, "addr", "flush", "dev", nic.device, "scope", "global"])
        wiring.configure(nic.device, nic.addresses, netns=self.netns, mtu=nic.mtu)
        for destination, gateway in nic.routes:
            wiring.route(destination, gateway, nic.device, netns=self.netns)
        for vip, subnet, way in nic.vips:
            family, everywhere = ("-6", "::/0") if ":" in vip else ("-4", "0.0.0.0/0")
            where = ["dev", nic.device, "table", _VIP_TABLE]
            run([*ip, family, "route", "replace", subnet, *where])
            if way is not None:
                run([*ip, family, "route", "replace", everywhere, "via", way, *where])
            rule = ["from", vip, "lookup", _VIP_TABLE]
            run([*ip, family, "rule", "del", *rule], check=False)
            run([*ip, family, "rule", "add", *rule])
        self.save()
        self.announce()

    def announce(self) -> None:
        """Announce the VIPs.

        OVN binds a VIP's port when the card that has it as an address pair does so.
        """
        nics = [nic for nic in self.nics.values() if nic.vips]
        for nic in nics:
            program = str(Path(__file__).with_name("announce.py"))
            argv = [f"{sys.prefix}/bin/python", program, nic.device, *self.vips]
            threading.Thread(
                target=run, args=(argv,), kwargs={"netns": self.netns, "check": False}, daemon=True
            ).start()

    def restore(self) -> None:
        """Make again all that a restart of the lab took, but haproxy."""
        self.create()
        for port, nic in self.nics.items():
            self.plug(port, nic.mac)
            connect(port, wait=False)
            self.configure(nic)

    def destroy(self) -> None:
        """Delete all that belongs to the amphora."""
        found = run(["ip", "netns", "pids", self.netns], check=False).split()
        kill_all(Identity(int(pid), start_time(int(pid)) or 0) for pid in found if pid.isdigit())
        for port in list(self.nics):
            self.unplug(port)
        wiring.delete_namespace(self.netns)
        shutil.rmtree(self.directory, ignore_errors=True)


def tap(port: str) -> str:
    """Return the name of the card's other end, in br-int."""
    return f"{topology.AMPHORA}{port[:11]}"


def connect(port: str, *, wait: bool = True) -> None:
    """Put the card's other end into br-int; `wait` until OVN has the port's flows."""
    name = tap(port)
    if wait:
        ovn.plug(_paths(), NODE, name, port)
        return
    interface = ["--", "set", "Interface", name, f"external_ids:iface-id={port}"]
    ovn.vsctl(_paths(), NODE, "--may-exist", "add-port", "br-int", name, *interface)


def all_amphorae() -> Iterator[Amphora]:
    """Yield the amphorae that have files, and are not deleted before it is their turn."""
    base = Path(cfg.CONF.haproxy_amphora.base_path)
    for file in sorted(base.glob(f"{topology.AMPHORA}-*/state.json")):
        try:
            known = json.loads(file.read_text())
        except FileNotFoundError:
            continue
        yield Amphora(known["compute_id"])


def _paths() -> Paths:
    return Paths.from_environment()
