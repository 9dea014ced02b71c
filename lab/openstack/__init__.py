"""Keystone, Neutron, Barbican and Octavia on the lab."""
