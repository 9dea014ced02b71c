"""Floating IPs of Services (slot ``service_public_ip``)."""
