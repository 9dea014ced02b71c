"""Octavia's compute driver: a server is a network namespace, attaching a port is plugging it."""

from __future__ import annotations

import types
from typing import Any

from octavia.common import clients, constants, data_models  # type: ignore[import-not-found]
from octavia.compute import compute_base  # type: ignore[import-not-found]
from oslo_utils import uuidutils

from lab.openstack.amphora.machine import LOCK, NODE, Amphora, connect


class Compute(compute_base.ComputeBase):  # type: ignore[misc]
    """A stand-in for Nova. Parameters and answers are those of Octavia's base class."""

    def build(self, name: str = "amphora_name", **_: Any) -> str:
        """Create a network namespace; it is there at once."""
        compute_id: str = uuidutils.generate_uuid()
        with LOCK:
            amphora = Amphora(compute_id)
            amphora.amphora_id = name.removeprefix("amphora-")
            amphora.create()
        return compute_id

    def delete(self, compute_id: str) -> None:
        """Delete all that belongs to the amphora, if it exists."""
        with LOCK:
            Amphora(compute_id).destroy()

    def attach_network_or_port(
        self,
        compute_id: str,
        network_id: str | None = None,
        ip_address: str | None = None,
        port_id: str | None = None,
    ) -> Any:
        """Bind the port as Nova does, plug it, and return when OVN has made it work."""
        network = clients.NeutronAuth.get_neutron_client().network
        if port_id is None:
            fixed = [{"ip_address": ip_address}] if ip_address else None
            asked = {"fixed_ips": fixed} if fixed else {}
            port_id = network.create_port(network_id=network_id, **asked).id
        port = network.update_port(
            port_id,
            device_id=compute_id,
            device_owner="compute:nova",
            binding_host_id=NODE.chassis,
        )
        with LOCK:
            Amphora(compute_id).plug(port.id, port.mac_address)
        connect(port.id)
        return types.SimpleNamespace(
            net_id=port.network_id, port_id=port.id, fixed_ips=port.fixed_ips
        )

    def detach_port(self, compute_id: str, port_id: str) -> None:
        network = clients.NeutronAuth.get_neutron_client().network
        network.update_port(port_id, device_id="", binding_host_id="")
        with LOCK:
            Amphora(compute_id).unplug(port_id)

    def get_amphora(self, compute_id: str, *_: Any) -> Any:
        running = data_models.Amphora(
            compute_id=compute_id, status=constants.ACTIVE, lb_network_ip="127.0.0.1"
        )
        return running, None

    def status(self, compute_id: str) -> Any:
        return constants.UP if Amphora(compute_id).exists else constants.DELETED

    def create_server_group(self, *_: str) -> Any:
        return types.SimpleNamespace(id=uuidutils.generate_uuid())

    def delete_server_group(self, server_group_id: str) -> None:
        """Do nothing: there are no groups."""

    def validate_flavor(self, flavor_id: str) -> None:
        """Accept any flavor."""

    def validate_availability_zone(self, availability_zone: str) -> None:
        """Accept any zone."""
