"""Keystone, Neutron and Octavia on the lab."""
