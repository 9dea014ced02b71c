"""Clients of the OpenStack APIs. No other package imports openstacksdk."""
