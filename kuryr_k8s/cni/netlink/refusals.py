"""What the kernel refuses leaves this package as :class:`LinkError`."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from pyroute2.netlink.exceptions import NetlinkError

from kuryr_k8s.cni.netlink.wiring import LinkError

T = TypeVar("T")


@contextlib.contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except (NetlinkError, OSError) as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        raise LinkError(f"{os.strerror(code) if code else error}") from error


def guarded(function: Callable[[], T]) -> Callable[[], T]:
    """The same function, with errors of the kernel as ours."""

    def translated() -> T:
        with _translating():
            return function()

    return translated
