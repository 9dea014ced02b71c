"""Octavia's provider amphora without virtual machines: an amphora is a network namespace of node1.

A real haproxy runs in it. All else is Octavia's own: its flows, network driver, haproxy template,
certificates, statuses. These modules stand for Nova (compute), for the REST client with the agent
in the machine (client) and for heartbeats with the health manager, but its failovers (health).
Octavia's process loads them; the lab itself imports none.
"""
