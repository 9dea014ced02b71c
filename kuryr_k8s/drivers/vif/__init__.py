"""Drivers that make the Neutron side of one interface (slot ``pod_vif``)."""
