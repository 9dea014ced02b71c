"""The Interface rows of a node's Open vSwitch, as its database has them."""

import json

from lab import facts
from lab.churn.leftovers import Row
from lab.process import run

OWNER = ("kuryr-namespace", "kuryr-pod")


def rows(node):
    """Return all rows of the node by name."""
    lab = facts.load()
    database = f"--db=unix:{lab.nodes[node].ovs_socket}"
    columns = ("--columns=name,external_ids", "--format=json", "list", "Interface")
    found = json.loads(run([f"{lab.bin}/ovs-vsctl", database, "--timeout=10", *columns]))
    return {name: Row(name, dict(ids[1])) for name, ids in found["data"]}


def own_rows(cluster, node, pod):
    """Return the rows that record an attachment of the Pod."""
    owner = (cluster.namespace, pod)
    return [
        row for row in rows(node).values() if tuple(row.ids.get(key) for key in OWNER) == owner
    ]
