"""The parts of pyroute2 that are used here, loaded without the others.

The package's ``__init__`` imports each protocol that it speaks, and a database: 64 modules more,
which take 7 MiB on every node. It is run when somebody asks the package for anything else.
"""

import importlib
import importlib.util
import sys
from typing import Any

_NAME = "pyroute2"


def _defer() -> None:
    """Import the package without what its ``__init__`` does."""
    spec = importlib.util.find_spec(_NAME)
    if spec is None or spec.loader is None:
        return  # the imports below say what is missing
    package, loader = importlib.util.module_from_spec(spec), spec.loader

    def load(name: str) -> Any:
        if name.startswith("__"):  # interpreter and tools ask for these; none is made by __init__
            raise AttributeError(name)
        if importlib.util.find_spec(f"{_NAME}.{name}") is not None:
            return importlib.import_module(f"{_NAME}.{name}")
        del vars(package)["__getattr__"]
        loader.exec_module(package)
        return getattr(package, name)

    vars(package)["__getattr__"] = load
    sys.modules[_NAME] = package


if _NAME not in sys.modules:
    _defer()

from pyroute2 import netns  # noqa: E402
from pyroute2.iproute import IPRoute  # noqa: E402
from pyroute2.netlink.exceptions import NetlinkError  # noqa: E402

__all__ = ["IPRoute", "NetlinkError", "netns"]
