from tests.lab.services import cluster, provider

__all__ = ["cluster", "provider"]
