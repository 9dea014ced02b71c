"""The Neutron API v2.0: ports, trunks, security groups and floating IPs."""
