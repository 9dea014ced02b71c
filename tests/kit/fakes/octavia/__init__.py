"""An Octavia with state, for openstacksdk over HTTP.

Read kinds.py (attributes), store.py (state), changes.py (what calls do), progress.py (PENDING and
after), api.py (HTTP).
"""
