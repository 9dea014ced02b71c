"""Requests of ``kuryr-k8s pools`` to the controller over HTTP, and the answers.

Requests and answers are JSON::

    GET  /pools                 {"pools": [POOL, ...]}
    GET  /pools/ID              POOL + {"ports": [{"id", "mac", "addresses", "state"}, ...]}
    POST /pools/ID/populate     {"count": N} -> {"ports": how many are being made}
    POST /pools                 {"node", "namespace", "count"} -> {"id", "ports"}
    POST /pools/ID/free         {"count": N or null} -> {"ports": how many are being deleted}

POOL is ``{"id", "project_id", "place", "node", "network_id", "network_name", "subnet_ids",
"security_groups"}`` and the numbers of :data:`NUMBERS`. ``place`` is the host or trunk; ``node``
and ``network_name`` are empty while the controller does not know them. An error is
``{"error": "..."}`` with a status of 400 or more.
"""

NUMBERS = ("available", "parked", "in_use", "creating", "returning", "target", "waiting")
