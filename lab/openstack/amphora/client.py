"""Octavia's amphora driver, with a client whose machine is a network namespace.

The methods are those of Octavia's AmphoraAPIClient1_0 that a single amphora per load balancer
needs; in a virtual machine they are answered by its agent.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Any

from octavia.amphorae.drivers.haproxy import (  # type: ignore[import-not-found]
    exceptions,
    rest_api_driver,
)
from octavia.common import constants  # type: ignore[import-not-found]
from octavia.common.config import cfg  # type: ignore[import-not-found]

from lab.openstack.amphora.machine import LOCK, Amphora, Nic
from lab.openstack.amphora.programs import (
    Haproxy,
    InvalidConfig,
    forward_datagrams,
    haproxy_version,
)
from lab.paths import write_atomic

_VERSION = "1.0"
# Built into Octavia's template, whatever base_path says.
_PING = "/var/lib/octavia/ping-wrapper.sh"
Json = dict[str, Any]


def _there(method: Callable[..., Any]) -> Callable[..., Any]:
    """Hand a method our amphora in place of Octavia's, and drop how long to wait."""

    @functools.wraps(method)
    def call(self: Client, amphora: Any, *arguments: Any, **_: Any) -> Any:
        with LOCK:
            return method(self, Amphora(amphora.compute_id), *arguments)

    return call


class Client:
    """A stand-in for the REST client and the agent."""

    def get_api_version(self, _: Any, **__: Any) -> Json:
        return {"api_version": _VERSION}

    def get_info(self, _: Any, **__: Any) -> Json:
        return {"haproxy_version": haproxy_version(), "api_version": _VERSION}

    def get_details(self, _: Any) -> Json:
        """Return no figures: a cache would be made as for an amphora with the whole machine."""
        return {}

    @_there
    def upload_cert_pem(self, amphora: Amphora, owner: str, name: str, pem: bytes | str) -> None:
        text = pem.decode() if isinstance(pem, bytes) else pem
        write_atomic(_certificate(amphora, owner, name), _localised(amphora, text), 0o600)

    @_there
    def get_cert_md5sum(self, amphora: Amphora, owner: str, name: str) -> str | None:
        try:
            content = _certificate(amphora, owner, name).read_bytes()
        except FileNotFoundError:
            return None
        return hashlib.md5(content, usedforsecurity=False).hexdigest()

    @_there
    def delete_cert_pem(self, amphora: Amphora, owner: str, name: str) -> None:
        _certificate(amphora, owner, name).unlink(missing_ok=True)

    @_there
    def upload_config(self, amphora: Amphora, load_balancer_id: str, config: str) -> None:
        amphora.load_balancer_id = load_balancer_id
        amphora.save()
        try:
            Haproxy(amphora).configure(_localised(amphora, config))
        except InvalidConfig as error:
            raise exceptions.InvalidRequest from error  # what the agent's 400 becomes

    @_there
    def upload_udp_config(self, amphora: Amphora, listener_id: str, config: Json) -> None:
        amphora.datagrams[listener_id] = config
        amphora.save()

    @_there
    def reload_listener(self, amphora: Amphora, object_id: str, *_: Any) -> None:
        if object_id in amphora.datagrams:
            forward_datagrams(amphora)
        else:
            Haproxy(amphora).start()

    start_listener = reload_listener

    @_there
    def delete_listener(self, amphora: Amphora, object_id: str) -> None:
        if amphora.datagrams.pop(object_id, None) is not None:
            amphora.save()
            forward_datagrams(amphora)
        elif amphora.load_balancer_id == object_id:
            Haproxy(amphora).stop()

    @_there
    def plug_vip(self, amphora: Amphora, vip: str, info: Json) -> None:
        _configure_vip(amphora, vip, info, ())

    @_there
    def plug_network(self, amphora: Amphora, port: Json) -> None:
        """Configure a card in a network of members, or new addresses of the VIP's card."""
        addresses = [_with_length(ip["ip_address"], ip["subnet_cidr"]) for ip in port["fixed_ips"]]
        if "vip_net_info" in port:
            info = {**port["vip_net_info"], "mac_address": port["mac_address"]}
            own = _with_length(info["vrrp_ip"], info["subnet_cidr"])
            others = tuple(address for address in addresses if address != own)
            _configure_vip(amphora, info["vip"], info, others)
            return
        nic = _nic(amphora, port["mac_address"])
        nic.mtu, nic.addresses = port["mtu"], addresses
        # As in the machine: no way out through a network of members.
        nic.routes = [hop for ip in port["fixed_ips"] for hop in _routes(ip)]
        amphora.configure(nic)

    @_there
    def get_interface(self, amphora: Amphora, address: str, *_: Any) -> Json:
        for nic in amphora.nics.values():
            if any(each.partition("/")[0] == address for each in nic.addresses):
                return {"interface": nic.device}
        raise exceptions.NotFound

    def update_cert_for_rotation(self, amphora: Any, pem: str) -> None:
        """Do nothing: there is no agent that would need a certificate."""

    def update_agent_config(self, amphora: Any, config: str, **_: Any) -> None:
        """Do nothing: there is no agent."""

    def set_interface_rules(self, amphora: Any, address: str, rules: Any, **_: Any) -> None:
        """Do nothing: Octavia's rules are for SR-IOV only; else security groups do it."""


class _Datagrams:
    """A stand-in for Octavia's template for keepalived."""

    def build_config(self, listener: Any) -> Json:
        """Build what programs.forward_datagrams reads."""
        pool = listener.default_pool if listener.enabled else None
        members = [
            f"{member.ip_address} . {member.protocol_port}"
            for member in (pool.members if pool is not None and pool.enabled else ())
            if member.enabled
            and member.weight
            and member.provisioning_status != constants.PENDING_DELETE
        ]
        return {
            "vip": listener.load_balancer.vip.ip_address,
            "protocol": listener.protocol.lower(),
            "port": listener.protocol_port,
            "pool": pool.id if pool is not None else None,
            "sticky": pool is not None and pool.session_persistence is not None,
            "members": members,
            "member_ids": [member.id for member in (pool.members if pool is not None else ())],
        }


class Driver(rest_api_driver.HaproxyAmphoraLoadBalancerDriver):  # type: ignore[misc]
    """Octavia's own driver, with the client of this module."""

    def __init__(self) -> None:
        super().__init__()
        self.clients = dict.fromkeys(("base", _VERSION), Client())
        self.lvs_jinja = _Datagrams()


def _configure_vip(amphora: Amphora, vip: str, info: Json, others: tuple[str, ...]) -> None:
    nic = _nic(amphora, info["mac_address"])
    vips = [(vip, info)] + [(more["ip_address"], more) for more in info["additional_vips"]]
    nic.mtu = info["mtu"]
    nic.addresses = [_with_length(info["vrrp_ip"], info["subnet_cidr"]), *others]
    nic.routes, nic.vips = [], []
    for address, where in vips:
        nic.addresses.append(str(ipaddress.ip_interface(address)))  # /32, /128
        # An additional one may be of a family of which the card has no address yet.
        nic.routes += [(where["subnet_cidr"], None), *_routes(where)]
        if where["gateway"]:
            everywhere = "::/0" if ":" in address else "0.0.0.0/0"
            nic.routes.append((everywhere, where["gateway"]))
        nic.vips.append((address, where["subnet_cidr"], where["gateway"]))
    amphora.configure(nic)


def _nic(amphora: Amphora, mac: str) -> Nic:
    nic = amphora.nic(mac)
    if nic is None:
        raise exceptions.NotFound
    return nic


def _routes(where: Json) -> list[tuple[str, str | None]]:
    return [(route["destination"], route["nexthop"]) for route in where["host_routes"]]


def _with_length(address: str, subnet: str) -> str:
    return f"{address}/{ipaddress.ip_network(subnet).prefixlen}"


def _localised(amphora: Amphora, text: str) -> str:
    """Replace the templates' paths, which know one amphora per file system, by this amphora's."""
    text = text.replace(f"{cfg.CONF.haproxy_amphora.base_path}/", f"{amphora.directory}/")
    return text.replace(_PING, f"{amphora.directory}/ping-wrapper.sh")


def _certificate(amphora: Amphora, owner: str, name: str) -> Path:
    return Path(_localised(amphora, f"{cfg.CONF.haproxy_amphora.base_cert_dir}/{owner}/{name}"))
