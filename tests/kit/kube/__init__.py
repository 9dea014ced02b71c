"""A private etcd and kube-apiserver, and a proxy that makes its watches and writes go wrong.

server.py starts the programs, client.py talks to them, objects.py makes Pods and Nodes,
cluster.py is what a test holds in its hands, proxy.py stands between product and server.
"""

from .client import KubeClient, KubeRefusal
from .cluster import Cluster
from .objects import make_node, make_pod
from .proxy import KubeProxy
from .server import KubeServer

__all__ = [
    "Cluster",
    "KubeClient",
    "KubeProxy",
    "KubeRefusal",
    "KubeServer",
    "make_node",
    "make_pod",
]
