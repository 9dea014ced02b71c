"""Octavia network driver for a cloud without Nova: real Neutron ports, no compute.

Octavia's own driver asks Nova to attach ports, and the no-op compute driver answers None, so its
plug_port() fails. Here "plugging" only writes device_id on the Neutron port. Copied into the
services' virtual environment as the module labdrivers; the lab itself never imports it.
"""

from typing import Any

from octavia.network import base  # type: ignore[import-not-found]
from octavia.network import data_models as n_data_models
from octavia.network.drivers.neutron import (  # type: ignore[import-not-found]
    allowed_address_pairs as aap,
)


class LabNetworkDriver(aap.AllowedAddressPairsDriver):  # type: ignore[misc]
    """AllowedAddressPairsDriver without the calls to Nova."""

    def plug_port(self, amphora: Any, port: Any) -> Any:
        """Note on the port which amphora has it."""
        self.network_proxy.update_port(port.id, device_id=amphora.compute_id)
        return n_data_models.Interface(
            compute_id=amphora.compute_id,
            network_id=port.network_id,
            port_id=port.id,
            fixed_ips=port.fixed_ips,
        )

    def unplug_network(self, compute_id: str, network_id: str) -> None:
        """Delete the amphora's ports on the network."""
        for interface in self.get_plugged_networks(compute_id):
            if interface.network_id != network_id:
                continue
            try:
                self.network_proxy.delete_port(interface.port_id)
            except Exception as error:
                raise base.UnplugNetworkException(str(error)) from error
