"""The options of both programs, one module for each group or for groups that belong together.

Nothing else registers options, except those of keystoneauth (``cloud/connect.py``). Groups and
names are those of kuryr-kubernetes where it has them, so that a ``kuryr.conf`` carries over.
"""

from kuryr_k8s.config.groups import GROUPS, list_opts
from kuryr_k8s.config.reading import load, read

__all__ = ["GROUPS", "list_opts", "load", "read"]
