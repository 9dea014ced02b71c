"""Octavia's provider amphora without virtual machines: each amphora is a network namespace of
node1 with a real haproxy in it.

All else is Octavia's own: its flows, network driver, haproxy template, certificates, statuses.
These modules stand for Nova (compute), for the REST client with the agent in the machine (client)
and for heartbeats with the health manager, but its failovers (health). Octavia's process loads
them; the lab itself imports none.
"""
