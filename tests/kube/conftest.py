"""The fixtures, for the tests of the fixtures."""

from .fixtures import cluster, kube, kube_proxy, kube_server

__all__ = ["cluster", "kube", "kube_proxy", "kube_server"]
