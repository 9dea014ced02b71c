"""A Neutron with state, for openstacksdk over HTTP.

Read kinds.py (attributes), store.py (state), ports.py (what happens to a port), api.py (HTTP).
"""
